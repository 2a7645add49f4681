"""Figures over the Jobs of a replay."""

import json

from tests.simulate import files
from webhook.simulate import comparison
from webhook.simulate.results import JobResult, Result, Totals, compared, percentile, totals

GPU = ("t4", "nvidia.com/gpu")


def result(name, arrival, start, finish, *, queue="gpu", held=None, **rest):
    return JobResult(
        name=name,
        template=name[0],
        arrival=arrival,
        submitted="gpu",
        queue=queue,
        option="cpu" if queue == "cpu" else "",
        start=start,
        finish=finish,
        held=held or {},
        **rest,
    )


STATIC = Result(
    strategy="static",
    jobs=(
        result("a1", 10.0, 10.0, 3610.0, held={GPU: 2, ("t4", "cpu"): 4}),
        result("b1", 20.0, 3610.0, 5410.0, held={GPU: 1}),
    ),
)
MOVING = Result(
    strategy="Threshold",
    jobs=(
        result("a1", 10.0, 10.0, 3610.0, held={GPU: 2}),
        result("b1", 20.0, 20.0, 5411.0, queue="cpu"),
    ),
)


def test_figures_count_from_the_first_arrival():
    assert STATIC.totals == Totals(
        jobs=2,
        finished=2,
        makespan=5400.0,
        mean_turnaround=4495.0,
        p95_turnaround=5390.0,
        mean_wait=1795.0,
        device_hours={"t4": 2.5},
        moved=0,
        slower=0,
    )


def test_a_slice_counts_as_its_part_of_a_device():
    cell = ("mig", "nvidia.com/mig-3g.40gb")
    sliced = result("a1", 0.0, 0.0, 3600.0, held={cell: 1, GPU: 1}, parts={cell: 0.5})

    assert totals([sliced]).device_hours == {"mig": 0.5, "t4": 1.0}


def test_a_job_that_ends_later_than_without_a_policy_was_made_slower():
    found = compared(MOVING, STATIC)

    assert [job.static_finish for job in found.jobs] == [3610.0, 5410.0]
    assert [job.is_slower for job in found.jobs] == [False, True]
    assert (found.totals.moved, found.totals.slower) == (1, 1)


def test_a_difference_that_nobody_notices_is_none():
    late = result("a1", 0.0, 0.0, 10.4)
    never = result("a1", 0.0, None, None)
    static = Result(strategy="static", jobs=(result("a1", 0.0, 0.0, 10.0),))

    assert not compared(Result(strategy="x", jobs=(late,)), static).jobs[0].is_slower
    assert compared(Result(strategy="x", jobs=(never,)), static).jobs[0].is_slower
    assert not late.is_slower


def test_figures_of_jobs_that_never_ran_are_unknown():
    assert totals([result("a1", 5.0, None, None)]) == Totals(
        jobs=1,
        finished=0,
        makespan=None,
        mean_turnaround=None,
        p95_turnaround=None,
        mean_wait=None,
        device_hours={},
        moved=0,
        slower=0,
    )


def test_the_percentile_is_a_value_that_was_there():
    assert [percentile(range(1, 101), n) for n in (1, 50, 95, 100)] == [1, 50, 95, 100]
    assert percentile([7.0], 95) == 7.0


def test_priorities_and_wide_jobs_have_tables_of_their_own_where_they_differ():
    static = Result(
        strategy="static",
        jobs=(
            result("a1", 0.0, 0.0, 60.0, priority_class="high", accelerators=1),
            result("a2", 0.0, 80.0, 120.0, priority_class="low", accelerators=8, preempted=2),
            result("a3", 0.0, 0.0, 20.0, accelerators=1),
        ),
    )

    table = comparison.table(files.read(), [static])
    (found,) = comparison.to_json(files.read(), [static], seed=0)["strategies"]

    assert [" ".join(line.split()) for line in table.splitlines()[4:]] == [
        "",
        "TURNAROUND BY PRIORITY (none) high low",
        "static 20s 1m 2m",
        "",
        "TURNAROUND BY ACCELERATORS 1 8",
        "static 40s 2m",
        "",
        "PREEMPTED (none) high low",
        "static 0 0 2",
    ]
    assert {name: part["meanTurnaround"] for name, part in found["byPriority"].items()} == {
        "": 20.0,
        "high": 60.0,
        "low": 120.0,
    }
    assert {name: part["preempted"] for name, part in found["byAccelerators"].items()} == {
        "1": 0,
        "8": 2,
    }


def test_programs_get_the_figures_and_every_job():
    found = comparison.to_json(files.read(), [STATIC, compared(MOVING, STATIC)], seed=3)

    assert json.loads(json.dumps(found)) == found
    assert {key: found[key] for key in ("version", "scenario", "seed", "jobs")} == {
        "version": 1,
        "scenario": "small",
        "seed": 3,
        "jobs": 4,
    }
    moving = found["strategies"][1]
    assert moving["totals"] == {
        "jobs": 2,
        "finished": 2,
        "makespan": 5401.0,
        "meanTurnaround": 4495.5,
        "p95Turnaround": 5391.0,
        "meanWait": 0.0,
        "deviceHours": {"t4": 2.0},
        "moved": 1,
        "slower": 1,
        "preempted": 0,
        "savedPercent": -0.019,
    }
    assert moving["byJob"]["b"]["meanTurnaround"] == 5391.0
    assert moving["jobs"][1] == {
        "name": "b1",
        "job": "b",
        "arrival": 20.0,
        "submittedTo": "gpu",
        "queue": "cpu",
        "priorityClass": None,
        "accelerators": 0,
        "preempted": 0,
        "cluster": None,
        "option": "cpu",
        "start": 20.0,
        "finish": 5411.0,
        "staticFinish": 5410.0,
    }
