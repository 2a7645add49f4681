"""What Jobs have cost and what that saved, in the report and in what is published."""

from dataclasses import replace

import pytest

from tests.cost.tariffs import profile
from tests.hindsight import journals
from tests.hindsight.slots import expecting
from webhook.hindsight import bills, journal
from webhook.hindsight.gains import gains, summed_up
from webhook.hindsight.gains_table import as_json, as_text
from webhook.hindsight.journal import GONE, JournalEntry
from webhook.hindsight.look_back import look_back, without_replay
from webhook.hindsight.savings_record import Sum
from webhook.model.costs.prices import Cost, Prices, curve
from webhook.state.snapshot import updated

GIVEN = journals.scenario("burst")
DECIDED = journals.happened(GIVEN, "FinishTime")


def flat(value):
    return curve({0.0: value}, 1e12)


DEVICES = {"gpu": profile(flavors=["gpu"], watts={"maximum": 400, "busy": 300}).device}
PRICES = Prices(
    rates={("gpu", "nvidia.com/gpu"): flat(3.0), ("cpu", "cpu"): flat(0.05)},
    electricity=flat(0.2),
    carbon=flat(400.0),
    devices=DEVICES,
)


def ran(**values):
    """Return an entry of a Job that ran for an hour on a GPU."""
    default = {"created": 100.0, "admitted": 200, "finished": 3800, "outcome": "Succeeded"}
    used = ((("gpu", "nvidia.com/gpu"), 1), (("gpu", "cpu"), 4000))
    given = {"queue": "gpu-lq", "submitted": "{}", "ran": "{}", "used": used, **default, **values}
    return JournalEntry(key="w", uid="u", namespace="team", name="job", **given)


def test_a_job_cost_what_it_held_from_its_admission_on():
    kwh = (300 + 16) / 1000

    assert bills.spent_by(ran(), {"": PRICES}) == Cost(
        money=3.0,
        kwh=pytest.approx(kwh),
        electricity=pytest.approx(kwh * 0.2),
        carbon_grams=pytest.approx(kwh * 400),
    )


@pytest.mark.parametrize(
    ("entry", "prices"),
    [
        (ran(), {}),
        (ran(), {"elsewhere": PRICES}),
        (ran(cluster="far"), {"": PRICES}),
        (ran(used=()), {"": PRICES}),
        (ran(admitted=0, outcome=GONE), {"": PRICES}),
        (ran(outcome=""), {"": PRICES}),
    ],
    ids=["no prices", "others", "of another cluster", "nothing held", "never ran", "runs on"],
)
def test_what_is_not_known_is_no_amount(entry, prices):
    assert bills.amounts_of(bills.spent_by(entry, prices)) == {}


def test_a_job_in_a_worker_cluster_costs_by_the_prices_there():
    cheap = replace(PRICES, rates={("gpu", "nvidia.com/gpu"): flat(1.0)})

    assert bills.spent_by(ran(cluster="far"), {"": PRICES, "far": cheap}).money == 1.0


@pytest.mark.parametrize(
    ("without", "with_decision", "want"),
    [
        (Cost(money=3.0, kwh=0.3), Cost(money=1.0, kwh=0.5), {"money": 2.0, "kwh": -0.2}),
        (Cost(money=3.0), None, {}),
        (Cost(money=3.0, electricity=0.1), Cost(money=1.0), {}),
        (Cost(electricity=0.1, kwh=1.0), Cost(money=1.0, kwh=0.5), {"kwh": 0.5}),
        (Cost(carbon_grams=100.0), Cost(carbon_grams=40.0), {"grams": 60.0}),
    ],
    ids=["both", "one", "a part of one", "different parts", "carbon alone"],
)
def test_only_what_both_sides_know_is_compared(without, with_decision, want):
    assert bills.saved(without, with_decision) == pytest.approx(want)


@pytest.mark.parametrize(
    ("deadline", "late"),
    [("2h", False), ("30m", True), ("1970-01-01T00:30:00Z", True), ("noon", None), (None, None)],
)
def test_a_job_is_late_that_ended_after_its_deadline(deadline, late):
    annotations = {} if deadline is None else {"kueue-fallback.dev/deadline": deadline}

    assert bills.is_late(ran(annotations=annotations)) is late


def report(entries, prices=PRICES):
    world = journals.world(GIVEN, "FinishTime", mode="Enforce")
    snapshot = updated(world.snapshot, prices={"": prices} if prices else {}, currency="EUR")
    hindsight = look_back(entries, replace(world, snapshot=snapshot))
    return hindsight, gains(hindsight, since=journals.BEGAN, until=world.now)


def test_the_report_has_what_each_policys_jobs_cost_and_saved():
    entries = journals.entries(GIVEN, DECIDED, mode="Enforce")
    _, found = report(entries)

    light = next(row for row in found.rows if row.policy == "light")
    own = [bills.spent_by(entry, {"": PRICES}) for entry in entries if entry.policy == "light"]
    assert light.ended == len(own) == 15
    assert light.spent["money"] == Sum(pytest.approx(sum(cost.paid for cost in own)), 15)
    # CPUs are cheaper than the GPU that a light Job would have had.
    assert light.saved["money"].amount > 0
    heavy = next(row for row in found.rows if row.policy == "heavy")
    assert heavy.saved["money"] == Sum(pytest.approx(0.0, abs=1e-9), 15)


def test_the_text_shows_money_energy_carbon_and_late_jobs():
    entries = journals.entries(GIVEN, DECIDED, mode="Enforce")
    late = {"kueue-fallback.dev/deadline": "1s"}
    _, found = report([replace(entry, annotations=late) for entry in entries])

    lines = as_text(found).splitlines()
    start = lines.index(
        "What Jobs that have ended cost (money in EUR; ? is not known, n/m: known of n of m Jobs):"
    )
    assert lines[start + 1].split("  ")[0] == "POLICY"
    assert lines[start + 1].endswith("SAVED AGAINST AS SUBMITTED")
    light = next(line for line in lines[start:] if line.startswith("light"))
    assert "15/15" in light.split()
    assert " EUR, " in light
    assert max(map(len, lines)) <= 100


def test_without_prices_no_cost_is_shown_and_none_is_0():
    _, found = report(journals.entries(GIVEN, DECIDED, mode="Enforce"), prices=None)

    assert "What Jobs that have ended cost" not in as_text(found)
    cost = as_json(found)["rows"][0]["cost"]
    assert cost == {"jobs": 15, "knownOf": {}, "saved": {}, "late": 0, "deadlines": 0}


def test_without_a_replay_what_the_decision_expected_tells_what_was_saved():
    expected = {"money": 9.0, "electricity": 0.1, "kWh": 1.0, "carbonGrams": 200.0}
    moved = ran(
        queue="cpu-lq",
        labels={"kueue.x-k8s.io/queue-name": "gpu-lq"},
        used=((("cpu", "cpu"), 4000),),
        decision=expecting(expected, option="cpu"),
    )
    hindsight = replace(without_replay([moved]), prices={"": PRICES})

    (row,) = gains(hindsight, since=0.0, until=10_000.0).rows
    assert row.saved == pytest.approx(
        {
            "money": Sum(pytest.approx(9.1 - 4 * 0.05 - 0.016 * 0.2), 1),
            "kwh": Sum(pytest.approx(1.0 - 0.016), 1),
            "grams": Sum(pytest.approx(200 - 6.4), 1),
        }
    )


def test_an_entry_keeps_what_was_held_and_what_was_expected():
    entry = ran(decision=expecting({"money": 9.0, "carbonGrams": 200}))

    (found,) = journal.read_entries(journal.write_entries([entry]))

    assert found == entry
    assert found.expected_cost == Cost(money=9.0, carbon_grams=200)


def test_what_is_published_has_the_same_sums():
    hindsight, _ = report(journals.entries(GIVEN, DECIDED, mode="Enforce"))

    record = summed_up(hindsight, now=journals.BEGAN + 80_000.0)

    light = next(gained for gained in record.gained if gained.policy == "light")
    assert record.currency == "EUR"
    assert set(light.spent) == {"money", "kwh", "grams"}
    assert light.saved["money"].amount > 0
