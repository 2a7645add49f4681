"""Reports of Jobs that ran in worker clusters, whose queues are known or not."""

from dataclasses import replace

import pytest

from tests.hindsight import journals
from webhook.hindsight import gains_table
from webhook.hindsight.gains import gains
from webhook.hindsight.look_back import look_back
from webhook.learn.estimates import Learned
from webhook.learn.run_records import ClassRecord, Run, pack_runs

# The manager lets through ten times what its worker has.
GIVEN = journals.scenario("clusters", managerGpus=40)
STATIC, DECIDED = (journals.happened(GIVEN, each) for each in ("static", "FinishTime"))

MOVED = DECIDED.totals.moved


def told(result, *, mode, workers, change=lambda entries: entries):
    world = journals.world(GIVEN, "FinishTime", mode=mode)
    world = replace(world, workers=workers)
    written = journals.entries(GIVEN, result, mode=mode if mode == "Enforce" else "")
    found = look_back(change(written), world)
    return gains(found, since=journals.BEGAN, until=world.now)


@pytest.mark.parametrize(("over", "counts"), [(-10, True), (10, False)])
def test_what_was_known_of_dispatches_before_is_known_to_replays(over, counts):
    # Nobody looks into the worker, and a run on CPUs takes 50 s longer.
    workers = {name: replace(each, watched=False) for name, each in GIVEN.workers.items()}
    waited = pack_runs(Run(journals.BEGAN + over, uid, 600) for uid in range(3))
    record = ClassRecord(coarse="~light", dispatches={"gpu-cq": waited})
    world = journals.world(GIVEN, "FinishTime", mode="Observe")
    learned = Learned(records={"light": record}, estimates={}, refusals={})

    found = look_back(
        journals.entries(GIVEN, STATIC), replace(world, workers=workers, learned=learned)
    )
    rows = gains(found, since=journals.BEGAN, until=world.now).rows

    assert any(row.saved_seconds for row in rows) is counts


def turnaround(result):
    return sum(job.finish - job.arrival for job in result.jobs)


@pytest.mark.parametrize(("mode", "ran"), [("Enforce", DECIDED), ("Observe", STATIC)])
def test_jobs_are_replayed_in_the_queues_of_their_workers(mode, ran):
    found = told(ran, mode=mode, workers=GIVEN.workers)

    wanted = turnaround(STATIC) - turnaround(DECIDED)
    assert sum(row.saved_seconds for row in found.rows) == pytest.approx(wanted, rel=0.05)
    assert abs(found.confidence.turnaround) < 3
    assert (found.unseen, [row.unseen for row in found.rows]) == ((), [0, 0])


@pytest.mark.parametrize(("mode", "ran"), [("Enforce", DECIDED), ("Observe", STATIC)])
def test_where_nothing_is_known_of_a_worker_nothing_is_counted(mode, ran):
    found = told(ran, mode=mode, workers={})

    assert found.unseen == ("worker",)
    assert [(row.seen, row.unseen, row.jobs) for row in found.rows] == [(15, 15, 0)] * 2
    assert found.confidence is None
    assert [row["moved"] is not None for row in gains_table.as_json(found)["rows"]] == [
        mode == "Enforce"
    ] * 2


def test_what_is_not_known_is_said_plainly():
    lines = gains_table.as_text(told(STATIC, mode="Observe", workers={})).splitlines()

    assert [line.split() for line in lines[3:5]] == [
        ["heavy", "research", "15", *"------"],
        ["light", "research", "15", *"------"],
    ]
    assert lines[-5:] == [
        "Where Jobs ran: 30 in worker.",
        "Nothing is known here of cluster worker: 30 Jobs are in no replay.",
        "  --cluster NAME=FILE gives its queues; see `report --help`.",
        "  Until then, the savings of moved Jobs are only forecasts of their decisions.",
        "Nothing was replayed: savings are only forecasts of the decisions.",
    ]


def test_jobs_of_the_managers_own_queues_are_replayed_all_the_same():
    def some_of_others(entries):
        # No policy matches these, and they were submitted where they ran.
        labels = {"kueue.x-k8s.io/queue-name": "cpu-lq", "workload-type": "other"}
        bare = {"decision": None, "labels": labels}
        return [replace(e, **bare, submitted=e.ran) if e.queue == "cpu-lq" else e for e in entries]

    found = told(DECIDED, mode="Enforce", workers={}, change=some_of_others)

    assert {row.policy: (row.unseen, row.jobs) for row in found.rows} == {
        "": (0, MOVED),
        "heavy": (15, 0),
        "light": (15 - MOVED, 0),
    }
