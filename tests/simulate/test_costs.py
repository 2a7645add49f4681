"""What a replay comes to: money, energy, lateness and their total."""

import copy

import pytest

from tests.simulate.files import document, job, read, with_workers, worker
from tests.simulate.priced import START, results, tariff
from webhook.simulate.comparison import replay_all, table, to_json
from webhook.simulate.scenario_spec import ScenarioError


def by_cost(**cost):
    return {
        "apiVersion": "kueue-fallback.dev/v1alpha1",
        "kind": "FallbackPolicy",
        "metadata": {"name": "by-cost"},
        "spec": {
            "match": {"jobSelector": {}},
            "options": [{"queue": "fast"}, {"queue": "slow", "slowdown": 3}],
            "strategy": {"type": "Cost", "cost": {"runTime": "10s", **cost}},
        },
    }


def priced(**changes):
    """Return the small scenario with prices: two queues of one core each, four Jobs at once."""
    found = copy.deepcopy(document())
    found["policies"]["objects"] = [by_cost(timeValue="360", lateness={"perHour": "3600"})]
    return {**found, "start": START, "tariffs": {"objects": [tariff()]}, **changes}


def test_a_job_comes_to_its_rates_its_energy_and_the_value_of_its_time():
    source = priced(arrivals=[{"at": "0s", "job": "work"}])
    source["tariffs"]["objects"] = [tariff(watts={"core": "3600"})]

    _, found = results(source, "static")

    (only,) = found["static"].jobs
    # 10 s of a core at 36 an hour, 36 kJ at 1 a kWh, and 10 s at 360 an hour.
    assert only.cost.money == pytest.approx(0.1 + 0.01)
    assert only.cost.kwh == pytest.approx(0.01)
    assert (only.cost.kilograms, only.cost.late) == (None, None)
    assert only.cost.total == pytest.approx(0.11 + 1.0)


@pytest.mark.parametrize(("held", "transfer"), [([], 200.0), (["imagenet"], None)])
def test_data_that_is_not_where_a_job_runs_counts_in_its_total(held, transfer):
    source = priced(arrivals=[{"at": "0s", "job": "work"}])
    annotations = source["jobs"]["work"]["job"]["metadata"].setdefault("annotations", {})
    annotations["kueue-fallback.dev/data"] = "imagenet=100Gi"
    source["tariffs"]["objects"] = [tariff(transfer="2", holds=held)]

    scenario, found = results(source, "static")

    (only,) = found["static"].jobs
    assert only.cost.transfer == transfer
    assert only.cost.total == pytest.approx(only.cost.money + 1.0 + (transfer or 0.0))
    answer = to_json(scenario, list(found.values()), seed=0)["strategies"][0]
    assert answer["totals"].get("transfer") == answer["jobs"][0].get("transfer") == transfer
    assert ("TRANSFER" in table(scenario, list(found.values()))) is (transfer is not None)


def test_lateness_counts_from_the_deadline_of_the_scenario():
    source = priced(arrivals=[{"at": "0s", "job": "work"}])
    source["jobs"]["work"]["deadline"] = "8s"

    _, found = results(source, "static")

    (only,) = found["static"].jobs
    assert only.cost.late == 2.0
    assert only.cost.total == pytest.approx(only.cost.money + 1.0 + 2.0)
    assert found["static"].totals.late == 1


def test_prices_follow_the_clock_from_the_start_of_the_scenario():
    late = priced(start="2026-01-05T01:00Z", arrivals=[{"at": "0s", "job": "work"}])
    late["jobs"]["work"]["job"] = job(queue="slow")

    _, found = results(late, "static")

    (only,) = found["static"].jobs
    assert only.cost.money == pytest.approx(30 * 0.1, rel=0.01)


def test_a_cheaper_queue_is_taken_where_time_is_worth_little():
    source = priced(arrivals=[{"at": "0s", "job": "work"}])
    source["policies"]["objects"] = [by_cost(timeValue="0.1")]

    _, found = results(source, "static", "Cost")

    assert [one.queue for one in found["Cost"].jobs] == ["slow"]
    assert found["Cost"].totals.costs.money < found["static"].totals.costs.money


def test_results_give_money_energy_carbon_lateness_and_total():
    source = priced(arrivals=[{"at": "0s", "job": "work"}])
    source["tariffs"]["objects"] = [tariff(carbon=[{"intensity": "400"}])]

    scenario, found = results(source, "static")

    answer = to_json(scenario, list(found.values()), seed=0)["strategies"][0]
    keys = {"money", "kWh", "kgCO2", "late", "total"}
    assert keys <= answer["totals"].keys()
    assert keys <= answer["jobs"][0].keys()
    header = "COST MONEY KWH KG CO2 LATE TOTAL"
    assert header in [
        " ".join(line.split()) for line in table(scenario, list(found.values())).splitlines()
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (priced(start=None), "start: expected with tariffs: they are by the clock"),
        (
            priced(start="monday"),
            "start: expected a time such as 2026-01-05T00:00Z, got 'monday'",
        ),
        (
            priced(tariffs={"objects": [{**tariff(), "spec": {"timeZone": 5}}]}),
            "tariffs.objects[0].spec.timeZone: expected a string, got 5",
        ),
    ],
)
def test_what_is_wrong_with_prices_is_named(source, expected):
    with pytest.raises(ScenarioError) as caught:
        read(source)

    assert str(caught.value) == expected


def test_rows_may_have_deadlines():
    source = priced()
    rows = {"rows.csv": "at,due\n0,8\n100,\n"}
    columns = {"arrival": "at", "deadline": "due"}
    csv = {"file": "rows.csv", "arrivalFormat": "seconds", "columns": columns}
    source["arrivals"] = [{"csv": {**csv, "jobs": [{"job": "work"}]}}]

    scenario = read(source, files=rows)
    found = replay_all(scenario, scenario.arms(["static"]))["static"]

    assert [one.cost.late for one in found.jobs] == [2.0, None]


def test_an_owner_may_say_of_each_job_about_how_long_it_runs():
    run_times = {"fast": {"median": "100s", "sigma": 1.0}, "slow": {"of": "fast", "times": 3}}
    source = priced(arrivals=[{"burst": {"count": 20, "jobs": ["work"]}}])
    source["jobs"]["work"] |= {
        "runTimes": run_times,
        "said": {"of": "fast", "times": 2, "sigma": 0.01},
    }

    scenario = read(source)

    manifests = [scenario.manifest(submission) for submission in scenario.submissions]
    annotations = [manifest["metadata"]["annotations"] for manifest in manifests]
    said = [float(each["kueue-fallback.dev/run-time"].removesuffix("s")) for each in annotations]
    true = [submission.run_seconds["fast"] for submission in scenario.submissions]
    assert len({round(seconds) for seconds in true}) > 10
    assert said == pytest.approx([2 * seconds for seconds in true], rel=0.06)
    flavors = [set(submission.run_seconds) for submission in scenario.submissions]
    assert flavors == [{"fast", "slow"}] * 20


def test_what_is_waited_for_in_a_worker_cluster_sends_new_jobs_elsewhere():
    def queues(congestion):
        cost = by_cost(runTime="10m", timeValue="0.001", congestion={"type": congestion})
        cost["spec"]["options"][1]["slowdown"] = 1
        source = with_workers(worker("a"), cpu=100)
        source["jobs"]["work"]["runTimes"] = {"fast": "10m", "slow": "10m"}
        rates = {"fast": "3.6", "slow": "7.2"}
        tariffs = [
            tariff(clusters=clusters, rates=[{"flavors": [name], "resources": {"cpu": rate}}])
            for (name, rate), clusters in zip(rates.items(), (["a"], [""]), strict=True)
        ]
        for number, each in enumerate(tariffs):
            each["metadata"] = {"name": f"tariff-{number}"}
        source |= {"start": START, "tariffs": {"objects": tariffs}}
        source["policies"]["objects"] = [cost]
        source["arrivals"] = [{"at": f"{5 * number}m", "job": "work"} for number in range(30)]
        return [job.queue for job in results(source, "Cost")[1]["Cost"].jobs]

    # A core for 10 minutes every 5 minutes: by its rate the worker's is the cheaper one for all.
    assert queues("None") == ["fast"] * 30
    # At 2 % of 3.6 a minute it takes 50 minutes until it comes to 7.2.
    spread = queues("Adaptive")
    assert spread[:10] == ["fast"] * 10
    assert "slow" in spread[10:]
