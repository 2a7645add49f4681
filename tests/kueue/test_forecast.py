from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import arrival, cluster_queue, cohort, needs, snapshot, template
from webhook.kueue.flavor_plan import demand
from webhook.kueue.forecast import PlannedStarts, forecast, pending_starts
from webhook.kueue.newcomer import Newcomer, PlacedJob
from webhook.kueue.queue_lines import pending_group
from webhook.kueue.simulation import Running
from webhook.kueue.tree_forecast import start_of
from webhook.model.forecasts import Basis, RunTime
from webhook.model.queues import (
    AdmissionFairSharing,
    ConsumedResources,
    KueueConfig,
    Preemption,
    Queueing,
    ResourceFlavor,
)
from webhook.state.forecast_input import forecast_givens
from webhook.state.snapshot import updated

GPU = "nvidia.com/gpu"
CELL = ("t4", GPU)
RUNS = {"short": 20.0, "long": 100.0}


def run_time_of(job_class, flavors):
    seconds = RUNS.get(job_class)
    if seconds is None:
        return None
    return RunTime(seconds=seconds, low=seconds, high=seconds, basis=Basis.POLICY)


def runs(job_class="long", *, since=0.0, gpus=1, queue="gpu-cq"):
    return Running(cluster_queue=queue, usage={CELL: gpus}, job_class=job_class, started_at=since)


def waits(job_class="short", *, gpus=1, queue="gpu-lq", at=0.0, **rest):
    found = arrival("a", {GPU: str(gpus)}, local_queue=queue)
    return pending_group(replace(found, **rest), job_class=job_class, at=at)


def state(gpus=2, **rest):
    return snapshot(cluster_queue(quotas={"t4": {GPU: str(gpus)}}, **rest))


def starts(queues, running, waiting, *, gpus=1, priority=0, now=0.0, elapsed=0.0):
    forecasts = forecast(forecast_givens(queues, run_time_of, now), running, waiting)
    found = told(forecasts, queues, gpus=gpus, priority=priority, at=now + elapsed)
    return found.start.seconds


def told(forecasts, queues, *, gpus=1, at=0.0, among=(), run_seconds=0.0, **rest):
    queue = queues.setup.cluster_queues["gpu-cq"]
    asked = demand([needs({GPU: str(gpus)})], queue, queues.setup)
    newcomer = Newcomer(queue=queue, demand=asked, setup=queues.setup, now=at, among=among, **rest)
    return start_of(forecasts["gpu-cq"], newcomer, run_seconds=run_seconds)


def test_a_forecast_says_when_so_much_is_free_after_all_who_wait_were_served():
    running = [runs("short", since=-10.0), runs("long", since=-10.0)]

    found = forecast(forecast_givens(state(), run_time_of, 0.0), running, [waits(), waits()])

    # One GPU is free after 10 s and goes to the first, a second later; after 31 s and a second to
    # the second, until 52 s. Who waits by then waits for the next second, too.
    assert found["gpu-cq"].waits("gpu-cq", 0.0) == 32.0
    assert found["gpu-cq"].waits("gpu-cq", 30.0) == 2.0
    assert found["gpu-cq"].queues["gpu-cq"].unknown_seconds == 60.0
    assert told(found, state()).start.seconds == 53.0
    assert told(found, state(), at=60.0).start.seconds == 0.0
    assert told(found, state(), gpus=2).start.seconds == 91.0
    assert told(found, state(), gpus=3).start.seconds == inf


def test_a_small_newcomer_overtakes_a_large_one_that_waits_under_best_effort_only():
    running, waiting = [runs("long")], [waits("short", gpus=2)]

    assert starts(state(), running, waiting) == 0.0
    assert starts(state(queueing=Queueing.STRICT), running, waiting) == 120.0


def test_under_strict_fifo_a_higher_priority_need_not_wait_for_a_lower_one():
    queues, running = state(queueing=Queueing.STRICT), [runs("long", gpus=2)]
    waiting = [waits("short", priority=5), waits("long", gpus=2)]

    assert starts(queues, running, waiting, priority=5) == 100.0
    assert starts(queues, running, waiting, priority=0) == 220.0


def test_an_unknown_run_time_is_said():
    found = forecast(forecast_givens(state(), run_time_of, 0.0), [runs("new")], [])

    assert found["gpu-cq"].queues["gpu-cq"].uncertain == ("runTimes",)


def test_what_the_loop_does_not_model_is_said():
    preempts = Preemption(within_cluster_queue="LowerPriority", reclaim_within_cohort="Any")
    queues = snapshot(
        cluster_queue("a-cq", cohort="all", preemption=preempts, checks=("provision",)),
        cluster_queue("b-cq", cohort="all"),
        kueue=KueueConfig(fair_sharing=True, block_admission=True),
    )

    found = forecast(forecast_givens(queues, run_time_of, 0.0), [], [])

    outlooks = found["a-cq"].queues
    assert {name: outlook.uncertain for name, outlook in outlooks.items()} == {
        "a-cq": ("preemption", "fairSharing", "admissionChecks", "podsReady"),
        "b-cq": ("fairSharing", "cohortReclaim", "podsReady"),
    }


def test_only_trees_that_are_asked_for_are_forecast():
    queues = snapshot(
        cluster_queue("a-cq", cohort="all"),
        cluster_queue("b-cq", cohort="all"),
        cluster_queue("c-cq"),
    )

    assert set(forecast(forecast_givens(queues, run_time_of, 0.0), [], [], ["a-cq"])) == {
        "a-cq",
        "b-cq",
    }


def unsure(job_class, flavors):
    return RunTime(seconds=100.0, low=80.0, high=125.0, basis=Basis.POLICY)


def test_errors_of_runs_beside_one_another_do_not_add_up_where_the_last_of_them_ends():
    ends = [runs(since=-10.0 * number) for number in range(4)]

    def width(running, waiting):
        found = told(
            forecast(forecast_givens(state(4), unsure, 0.0), running, waiting), state(4), gpus=4
        )
        return found.start.high - found.start.seconds

    alone = width(ends[:1], [])
    assert alone < width(ends, [waits()] * 8) < 2.0 * alone


def test_a_spread_grows_with_the_runs_ahead():
    one, three = (
        told(
            forecast(forecast_givens(state(1), unsure, 0.0), [runs()], [waits()] * count), state(1)
        ).start
        for count in (0, 2)
    )

    assert 0.0 < one.high - one.seconds < three.high - three.seconds
    assert three.seconds == pytest.approx(303.0)


def test_those_who_ask_for_a_topology_take_quota_as_others_do():
    flavors = [ResourceFlavor(name="t4", topology="racks")]
    queues = snapshot(cluster_queue(quotas={"t4": {GPU: "2"}}), flavors=flavors)
    rack = template(annotations={"kueue.x-k8s.io/podset-required-topology": "rack"})

    waiting = [waits(needs=(needs({GPU: "1"}, pods=rack),), count=2)]
    found = told(forecast(forecast_givens(queues, run_time_of, 0.0), [], waiting), queues).start

    assert (found.uncertain, found.seconds > 0.0) == (("topology",), True)


def by_use(gpus="1", **rest):
    """One queue that serves x-lq, which has used much, and y-lq, which has used nothing."""
    return snapshot(
        cluster_queue(quotas={"t4": {GPU: gpus}}, usage_based=True, **rest),
        local_queues={"x-lq": "gpu-cq", "y-lq": "gpu-cq"},
        kueue=KueueConfig(admission_fair_sharing=AdmissionFairSharing(half_life_seconds=60.0)),
        consumed={("team", "x-lq"): ConsumedResources(amounts={GPU: 9.0})},
        priority_classes={"high": 9},
    )


def test_by_use_the_turn_of_a_newcomer_is_that_of_its_localqueue():
    waiting = [waits("short", queue="x-lq")] * 2
    found = forecast(forecast_givens(by_use(), run_time_of, 0.0), [runs("short")], waiting)

    starts = [
        told(found, by_use(), local_queue=f"team/{name}-lq", priority=priority).start
        for name, priority in (("y", 0), ("x", 9), ("x", 0))
    ]

    assert [start.seconds for start in starts] == [21.0, 21.0, 63.0]
    assert all(start.is_known for start in starts)


def test_by_use_the_starts_of_pending_workloads_are_known():
    waiting = [waits("short", queue=f"{name}-lq", key=name) for name in "xy"]

    found = pending_starts(forecast_givens(by_use(), run_time_of, 0.0), [runs("short")], waiting)

    known = {key: (start.seconds, start.is_known) for key, (start,) in found.items()}
    assert known == {"y": (21.0, True), "x": (42.0, True)}


PREEMPTS = Preemption(within_cluster_queue="LowerPriority", reclaim_within_cohort="Any")


def start(queues, running, waiting=(), *, gpus=1, priority=0):
    forecasts = forecast(forecast_givens(queues, run_time_of, 0.0), running, waiting)
    return told(forecasts, queues, gpus=gpus, priority=priority).start


def ranked_state(**rest):
    return updated(state(**rest), priority_classes={"high": 9})


def test_who_borrows_from_as_high_up_comes_after_those_of_a_higher_priority():
    queues = snapshot(
        cluster_queue("gpu-cq", {"t4": {GPU: "0"}}, cohort="below"),
        cluster_queue("b-cq", {"t4": {GPU: "3"}}, cohort="top"),
        cohorts=[cohort("below", parent="top")],
    )
    running = [runs("short", gpus=3)]
    waiting = [waits("short", gpus=2, priority=9), waits("short", gpus=3, priority=-1)]

    # Three are free after 20 s and a second, and the first one takes two of them.
    assert starts(queues, running, waiting, gpus=2) == 42.0
    assert starts(queues, running, [], gpus=2) == 21.0


@pytest.mark.parametrize(("priority", "uncertain"), [(0, ("preemption",)), (9, ())])
def test_only_who_may_be_preempted_has_a_wider_range_for_it(priority, uncertain):
    running = [replace(runs("long", gpus=2), priority=9)]

    found = start(ranked_state(preemption=PREEMPTS), running, priority=priority)

    assert found.uncertain == uncertain


def test_a_newcomer_that_is_preempted_starts_again_after_those_that_outrank_it():
    queues = ranked_state(preemption=PREEMPTS)
    running = [replace(runs("long", gpus=1), priority=9)]
    waiting = [waits("long", gpus=2, priority=9, key="wide")]
    found = forecast(forecast_givens(queues, run_time_of, 0.0), running, waiting)

    def last(runs_for, *, priority=0, at=0.0):
        start = told(found, queues, run_seconds=runs_for, priority=priority, at=at).start
        return start.seconds, start.preempted_by

    assert told(found, queues).start.seconds == 0.0
    # Nobody stops what is done by then, or is as urgent.
    assert last(99.0) == (0.0, 0)
    assert last(200.0, priority=9) == (0.0, 0)
    assert last(200.0) == (202.0, 1)
    assert last(200.0, at=50.0) == (152.0, 1)


_ASKED = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["short", "long"]), st.sampled_from([0, 9])),
    min_size=1,
    max_size=40,
)


@given(asked=_ASKED, which=st.integers(0, 39), preempts=st.booleans(), held=st.integers(0, 3))
def test_a_forecast_cut_short_tells_the_start_that_the_whole_one_tells(
    asked, which, preempts, held
):
    rest = {"preemption": PREEMPTS} if preempts else {}
    queues = snapshot(
        cluster_queue("gpu-cq", {"t4": {GPU: "3"}}, **rest),
        cluster_queue("b-cq", {"t4": {GPU: "3"}}, **rest),
        local_queues={"gpu-lq": "gpu-cq", "b-lq": "b-cq"},
    )
    running = [
        replace(runs("long", gpus=held, queue=name), priority=0) for name in ("gpu-cq", "b-cq")
    ]
    waiting = [
        waits(job_class, gpus=gpus, key=str(place), priority=priority, created=place)
        for place, (gpus, job_class, priority) in enumerate(asked)
    ]
    planned = PlannedStarts(forecast_givens(queues, run_time_of, 0.0), running, waiting)
    place = which % len(waiting)
    moved = replace(waiting[place], local_queue="team/b-lq")
    instead = [*waiting[:place], moved, *waiting[place + 1 :]]

    start = planned.with_waiting(instead).start_of(str(place))

    whole = {begun.key: begun.at for begun in planned.with_waiting(instead).begun}
    assert start == whole[str(place)]


@pytest.mark.parametrize("rest", [{}, {"preemption": PREEMPTS}], ids=["plain", "preempting"])
def test_what_comes_free_soon_after_each_other_goes_to_narrow_workloads_one_by_one(rest):
    queues = state(gpus=2, **rest)
    running = [runs("long", since=-3.0), runs("long", since=-1.5)]
    waiting = [waits("long", gpus=2, key="wide"), *(waits("long", key=f"{n}") for n in range(40))]

    found = pending_starts(forecast_givens(queues, run_time_of, 0.0), running, waiting)

    # Each is tried in a batch of its own, in which the other GPU is not free yet.
    seconds = [found[key][0].seconds for key in ("0", "1", "2", "39", "wide")]
    assert seconds == [98.0, 99.5, 199.0, 99.5 + 19 * 101.0, 99.5 + 20 * 101.0]


def test_what_comes_free_before_one_batch_goes_to_a_wide_workload_that_is_the_oldest():
    running = [runs("long", since=-1.0), runs("long", since=-0.5)]
    waiting = [waits("long", gpus=2, key="wide"), waits("long", key="narrow")]

    found = pending_starts(forecast_givens(state(), run_time_of, 0.0), running, waiting)

    assert [found[key][0].seconds for key in ("wide", "narrow")] == [100.0, 201.0]


def fair_state(*others):
    return updated(
        snapshot(
            cluster_queue("gpu-cq", {"t4": {GPU: "1"}}, cohort="all"),
            *others,
            kueue=KueueConfig(fair_sharing=True),
        ),
        priority_classes={"high": 9},
    )


def test_where_it_is_not_known_whether_shares_decide_the_turn_among_others_is_not_either():
    queues = fair_state(cluster_queue("b-cq", {"t4": {GPU: "0"}}, cohort="all"))
    weighed = replace(queues.setup.cluster_queues["gpu-cq"], fair_sharing=True)
    queues = updated(
        queues,
        cluster_queues={**queues.setup.cluster_queues, "gpu-cq": weighed},
        kueue=KueueConfig(),
    )

    found = start(queues, [runs("long")], [waits("short", queue="b-lq")])

    assert found.unordered == "fairSharing"


def test_placements_that_outrank_who_waits_are_never_told_too_early_a_start():
    queues = ranked_state()
    running = [runs("long", since=-90.0), runs("long", since=-80.0)]
    waiting = [waits("long", gpus=1) for _ in range(3)]
    forecasts = forecast(forecast_givens(queues, run_time_of, 0.0), running, waiting)

    found, among = [], []
    for _ in range(3):
        start = told(forecasts, queues, priority=9, among=among)
        at = start.start.seconds
        found.append(at)
        among.append(
            PlacedJob(
                cluster_queue="gpu-cq", usage=start.usage, start=at, end=at + 100.0, priority=9
            )
        )

    # Those who wait keep their starts in the log, so that a second one comes behind one of them.
    in_truth = [11.0, 21.0, 112.0]
    assert found[0] == in_truth[0]
    assert all(told >= true for told, true in zip(found, in_truth, strict=True))
    assert found == sorted(found)
