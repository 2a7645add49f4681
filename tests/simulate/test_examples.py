"""The scenarios that ship: they can be read and replayed, and say what the published ones said."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.experiment.arms import PAPER, scenario_of
from hack import paper
from tests.simulate.shipped import by_steps, shipped
from webhook.__main__ import main
from webhook.simulate.replay import replay

SCENARIOS = Path("examples/scenarios")


def words(*strategies):
    return [word for name in strategies for word in ("--strategy", name)]


def simulate(name, *arguments):
    command = ["simulate", "-f", str(SCENARIOS / f"{name}.yaml"), *arguments]
    found = CliRunner().invoke(main, command)
    assert found.exit_code == 0, found.output
    return found.output


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *((name, ()) for name in ("uniform", "burst", "clusters", "data", "guests", "gang")),
        ("tiers", ("--set", "rate=9/h")),
        ("shared-gpus", ("--set", "duration=60s")),
    ],
)
def test_a_scenario_can_be_replayed_by_every_policy_in_it(name, given):
    found = json.loads(simulate(name, *given, "-o", "json"))

    for strategy in found["strategies"]:
        assert strategy["totals"]["finished"] == found["jobs"] > 0


def test_those_whom_a_gang_preempts_are_moved_and_end_sooner():
    found = json.loads(simulate("gang", "-o", "json"))

    static, moved = ({job["name"]: job for job in each["jobs"]} for each in found["strategies"])
    low = [name for name in static if name.startswith("preemptible")]
    assert {moved[name]["preempted"] for name in low} == {1}
    assert {moved[name]["queue"] for name in low} == {"cpu-lq"}
    assert all(moved[name]["finish"] < static[name]["finish"] for name in low)
    assert moved["gang-1"]["start"] == static["gang-1"]["start"]
    assert moved["gang-1"]["queue"] == "gpu-lq"


def test_where_prices_change_by_slots_cost_pays_less():
    arms = ("--strategy", "FinishTime", "--strategy", "Cost")

    finish, cost = json.loads(simulate("price-slots", *arms, "-o", "json"))["strategies"]

    assert finish["totals"]["finished"] == cost["totals"]["finished"] == 120
    assert cost["totals"]["money"] < 0.9 * finish["totals"]["money"]


@pytest.mark.parametrize("name", ["uniform", "burst"])
def test_the_published_rule_saves_what_it_must(name):
    found = json.loads(
        simulate(name, "--strategy", "static", "--strategy", "Threshold", "-o", "json")
    )

    threshold = found["strategies"][1]["totals"]
    assert threshold["moved"] == 3
    assert threshold["savedPercent"] >= 9


def test_the_published_jobs_come_as_they_were_published():
    uniform, burst = (scenario_of(name, PAPER.arms[0]).submissions for name in PAPER.scenarios)

    assert [each.at for each in uniform] == list(range(30))
    assert [each.template for each in uniform] == ["heavy", "light"] * 15
    assert [each.template for each in burst] == ["heavy"] * 15 + ["light"] * 15
    assert [each.at for each in burst] == pytest.approx([number * 0.05 for number in range(30)])
    assert dict(uniform[0].run_seconds) == {"gpu": paper.HEAVY_SECONDS}
    assert dict(uniform[1].run_seconds) == {
        "gpu": paper.LIGHT_SECONDS,
        "cpu": paper.LIGHT_SECONDS_ON_CPU,
    }


def test_pods_of_a_trace_get_the_slice_that_is_enough(tmp_path):
    needs = (100, 250, 400, 500, 800, 1000)
    rows = [f"1,{need},{number},{number},{number + 3600}" for number, need in enumerate(needs)]
    # One that never ran, and one of two GPUs.
    rows += ["1,100,9,,3600", "2,1000,9,9,3600"]
    path = tmp_path / "pods.csv"
    path.write_text(
        "\n".join(["num_gpu,gpu_milli,creation_time,scheduled_time,deletion_time", *rows])
    )

    arms = words("static", "all-smallest", "by-cost")
    found = json.loads(simulate("slices", "--set", f"trace={path}", "-o", "json", *arms))

    hours = {each["strategy"]: each["totals"]["deviceHours"] for each in found["strategies"]}
    assert sum(hours["static"].values()) == pytest.approx(6)
    expected = {"mig": pytest.approx(1 / 7 + 2 / 7 + 1 / 2 + 4 / 7), "whole": pytest.approx(2)}
    assert hours["all-smallest"] == hours["by-cost"] == expected


def test_pods_of_a_trace_that_ask_for_gpus_wait_for_as_many_of_them(tmp_path):
    rows = [f"{gpus},{number},{number},{number + 600}" for gpus in (8, 4) for number in range(3)]
    # One without a GPU, one that came too early, and one that never ran.
    rows += ["0,9,9,600", "1,-1,9,600", "1,9,,600"]
    path = tmp_path / "pods.csv"
    path.write_text("\n".join(["num_gpu,creation_time,scheduled_time,deletion_time", *rows]))
    given = ("--set", f"trace={path}", "--set", "from=0", "-o", "json")

    found = json.loads(simulate("long-queue", *given, *words("static", "final", "moving")))

    static, *others = (each["totals"] for each in found["strategies"])
    assert found["jobs"] == static["finished"] == 6
    assert static["deviceHours"] == {"fast": 3 * (8 + 4) / 6}
    assert {each["finished"] for each in others} == {6}


def test_a_trace_is_replayed_from_its_file(tmp_path):
    rows = [
        f"2024-11-15 16:57:{second:02},TXT_2_IMG,{20 + second},{steps}"
        for second, steps in ((1, 30.0), (2, 40.0), (3, 20.0))
    ]
    header = "gmt_create,predict_type,exec_time_seconds,num_inference_steps"
    (tmp_path / "trace.csv").write_text("\n".join([header, *rows]))

    found = simulate("trace", "--set", f"trace={tmp_path}/trace.csv", "--set", "slowdown=10")

    assert found.splitlines()[0] == "Requests of a trace: 3 Jobs in 0s (2 light, 1 heavy)"


def test_guests_are_limited_by_their_policy_alone():
    named = ("static", "unlimited+heavy", "limited+heavy")
    options = [word for name in named for word in ("--strategy", name)]

    found = json.loads(simulate("guests", *options, "-o", "json"))

    assert [each["strategy"] for each in found["strategies"]] == list(named)
    assert [each["byJob"]["native"]["jobs"] for each in found["strategies"]] == [16] * 3


@pytest.mark.parametrize("name", ["uniform", "burst"])
def test_the_published_jobs_without_labels_are_told_by_their_steps_with_the_same_decisions(name):
    labelled, unlabelled = shipped(name), by_steps(name)

    for with_label, without in zip(labelled.arms(()), unlabelled.arms(()), strict=True):
        expected, jobs = replay(labelled, with_label).jobs, replay(unlabelled, without).jobs
        assert with_label.name == without.name
        assert jobs == expected
        assert with_label.name == "static" or any(job.is_moved for job in jobs)


def test_by_cost_three_tiers_of_gpus_come_to_less_than_by_finish_time():
    def costs(*names, **given):
        scenario = shipped("cost", duration="4h", rate="53.5/h", seed=1, **given)
        return {arm.name: replay(scenario, arm).totals.costs for arm in scenario.arms(names)}

    found = costs("FinishTime", "Cost")
    cheapest = costs("Cost", timeValue=0, perHour=0, congestion="None")["Cost"]

    assert found["Cost"].total < 0.8 * found["FinishTime"].total
    assert found["Cost"].money < found["FinishTime"].money
    assert found["Cost"].late < found["FinishTime"].late
    # By price alone all wait for the cheapest tier.
    assert cheapest.total > found["Cost"].total


def test_of_four_clusters_the_one_with_the_cleanest_power_is_taken_while_it_has_room(tmp_path):
    grams = {"brazil": 60, "california": 195, "norway": 13, "spain": 167}
    for name, intensity in grams.items():
        carbon = [{"intensity": str(intensity)}]
        tariff = a_tariff(name, clusters=[name], carbon=carbon)
        (tmp_path / name).write_text(json.dumps(tariff))
    rows = "".join(f"{number / 100},2,8\n" for number in range(4))
    (tmp_path / "trace").write_text(f"arrival_time,length,cpus\n{rows}")
    files = {name: str(tmp_path / name) for name in ("trace", *grams)}
    scenario = shipped("four-clusters", timeValue="0.004", **files)

    (arm,) = scenario.arms(["Cost"])
    clusters = [job.cluster for job in replay(scenario, arm).jobs]

    # It has 24 CPUs, and each Job takes 8.
    assert clusters == ["norway", "norway", "norway", "brazil"]


def test_spot_capacity_is_cheaper_by_cost_though_runs_are_interrupted(tmp_path):
    for flavor, price in (("v100-spot", "0.9"), ("k80-spot", "0.3")):
        rates = [{"flavors": [flavor], "resources": {"nvidia.com/gpu": price}}]
        (tmp_path / flavor).write_text(json.dumps(a_tariff(flavor, rates=rates)))
    files = {name: str(tmp_path / f"{name}-spot") for name in ("v100", "k80")}

    def totals(**given):
        scenario = shipped("spot", duration="6h", seed=1, **files, **given)
        return [replay(scenario, arm).totals for arm in scenario.arms(["finish", "cost"])]

    finish, cost = totals()
    _, often = totals(interruptions=2)

    assert cost.costs.money < 0.8 * finish.costs.money
    assert often.interrupted > cost.interrupted
    # What is interrupted twice an hour is left to those who have checkpoints.
    assert often.costs.money > cost.costs.money


def test_jobs_that_may_wait_are_held_for_the_greener_hours(tmp_path):
    by_hour = [{"intensity": "200"}, {"hours": "11:00-17:00", "intensity": "100"}]
    (tmp_path / "grid").write_text(json.dumps(a_tariff("grid", carbon=by_hour)))
    files = dict.fromkeys(("table", "truth"), str(tmp_path / "grid"))
    start = "2023-03-01T00:00Z"
    scenario = shipped("hold", duration="24h", now=7, later=3, start=start, **files)

    found = {
        arm.name: replay(scenario, arm).totals for arm in scenario.arms(["at-once", "holding"])
    }

    assert found["holding"].costs.kilograms < 0.985 * found["at-once"].costs.kilograms
    assert found["holding"].costs.late == 0


def a_tariff(name, **spec):
    head = {"apiVersion": "kueue-fallback.dev/v1alpha1", "kind": "Tariff"}
    return {**head, "metadata": {"name": name}, "spec": spec}


def test_jobs_go_where_their_data_is_unless_waiting_costs_more_than_carrying_it():
    def replayed(*given):
        arms = words("FinishTime", "Cost")
        return json.loads(simulate("data", *arms, *given, "-o", "json"))["strategies"]

    def carried(found):
        return sum(job["cluster"] == "near" for job in found["jobs"])

    finish, cost = replayed()
    _, elsewhere = replayed("--set", "data=other=140Gi")

    # 140 GiB at 0.02 for each Job in the cluster that does not hold it.
    for found in (finish, cost):
        assert found["totals"]["transfer"] == pytest.approx(2.8 * carried(found))
    assert 2 * carried(cost) < min(carried(finish), carried(elsewhere))
    assert cost["totals"]["total"] < 0.95 * finish["totals"]["total"]


def test_each_term_of_the_cost_pays_for_itself_over_three_clusters():
    def replayed(*names, **given):
        scenario = shipped("three-clusters", seed=2, duration="12h", **given)
        return {arm.name: replay(scenario, arm) for arm in scenario.arms(names)}

    left_out = ("finish", "prices-only", *(f"without-{term}" for term in SEEN_IN if term != "data"))
    found = replayed("cost", *left_out)
    (without_data,) = replayed("cost", transfer=0).values()
    all_terms = found.pop("cost").totals.costs
    found["without-data"] = without_data

    for name, each in found.items():
        carried = sum(job.name.startswith("reads") and job.cluster != "seoul" for job in each.jobs)
        # 140 GiB at 0.05 for each Job that runs where they are not, whatever was believed.
        assert each.totals.costs.transfer == pytest.approx(7 * carried)
        assert each.totals.costs.total > all_terms.total, name
    for term, figure in SEEN_IN.items():
        without = found[f"without-{term}"].totals.costs
        assert getattr(without, figure) > getattr(all_terms, figure), term


SEEN_IN = {
    "congestion": "late",
    "carbon": "kilograms",
    "lateness": "late",
    "data": "transfer",
}
"""What grows if a term is left out."""


def test_services_go_to_the_cheapest_devices_that_hold_their_latency():
    scenario = shipped("services", seed=1)

    arms = scenario.arms(["static", "cheapest", "fixed", "scaled"])
    found = {arm.name: replay(scenario, arm).services for arm in arms}

    options = {name: [each.option for each in services] for name, services in found.items()}
    assert options == {
        "static": ["", "", ""],
        "cheapest": ["t4", "t4", "t4"],
        "fixed": ["l40s", "h100", "t4"],
        "scaled": ["l40s", "h100", "t4"],
    }
    assert [round(each.within, 2) for each in found["cheapest"]] == [0.0, 0.0, 0.96]
    assert min(each.within for each in found["scaled"]) > 0.98
    costs = {name: sum(each.cost.total for each in of) for name, of in found.items()}
    assert costs["scaled"] < 0.8 * costs["fixed"]
    assert costs["fixed"] < 0.65 * costs["static"]
