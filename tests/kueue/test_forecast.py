from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import arrival, cluster_queue, cohort, needs, snapshot, template
from webhook.kueue.flavor_plan import demand
from webhook.kueue.forecast import PlannedStarts, forecast, pending_starts
from webhook.kueue.profile import last_start, start_of
from webhook.kueue.profile_with_placements import with_placement
from webhook.kueue.tree_workloads import Occupant, QueuedGroup
from webhook.model.forecasts import Basis, Profile, RunTime
from webhook.model.queues import (
    AdmissionFairSharing,
    ConsumedResources,
    KueueConfig,
    Preemption,
    Queueing,
    ResourceFlavor,
    StopPolicy,
)

GPU = "nvidia.com/gpu"
CELL = ("t4", GPU)
RUNS = {"short": 20.0, "long": 100.0}


def run_time_of(job_class, flavors):
    seconds = RUNS.get(job_class)
    if seconds is None:
        return None
    return RunTime(seconds=seconds, low=seconds, high=seconds, basis=Basis.POLICY)


def runs(job_class="long", *, since=0.0, gpus=1, queue="gpu-cq"):
    return Occupant(cluster_queue=queue, usage={CELL: gpus}, job_class=job_class, started_at=since)


def waits(job_class="short", *, gpus=1, queue="gpu-lq", at=0.0, **rest):
    found = arrival("a", {GPU: str(gpus)}, local_queue=queue)
    return QueuedGroup(arrival=replace(found, **rest), job_class=job_class, at=at)


def state(gpus=2, **rest):
    return snapshot(cluster_queue(quotas={"t4": {GPU: str(gpus)}}, **rest))


def starts(queues, running, waiting, *, gpus=1, priority=0, now=0.0, elapsed=0.0):
    profiles = forecast(queues, running, waiting, run_time_of, now)
    asked = demand([needs({GPU: str(gpus)})], queues.cluster_queues["gpu-cq"], queues)
    found = start_of(profiles["gpu-cq"], asked, priority=priority, elapsed=elapsed)
    return found.start.seconds


def test_a_profile_says_what_is_free_after_all_who_wait_were_served():
    running = [runs("short", since=-10.0), runs("long", since=-10.0)]

    found = forecast(state(), running, [waits(), waits()], run_time_of, 0.0)

    # One GPU is free after 10 s and goes to the first, a second later; after 31 s and a second to
    # the second, until 52 s.
    assert found == {
        "gpu-cq": Profile(
            computed_at=0.0,
            cells=(CELL,),
            times=(0.0, 53.0, 91.0),
            free=((0,), (1,), (2,)),
            spread=(0.0, 0.0, 0.0),
            waits=32.0,
            unknown_seconds=60.0,
        )
    }


def test_a_small_newcomer_overtakes_a_large_one_that_waits_under_best_effort_only():
    running, waiting = [runs("long")], [waits("short", gpus=2)]

    assert starts(state(), running, waiting) == 0.0
    assert starts(state(queueing=Queueing.STRICT), running, waiting) == 120.0


def test_under_strict_fifo_a_higher_priority_need_not_wait_for_a_lower_one():
    queues, running = state(queueing=Queueing.STRICT), [runs("long", gpus=2)]
    waiting = [waits("short", priority=5), waits("long", gpus=2)]

    assert starts(queues, running, waiting, priority=5) == 100.0
    assert starts(queues, running, waiting, priority=0) == 220.0


def test_who_backs_off_competes_only_afterwards():
    running = [runs("short", gpus=2)]

    assert starts(state(), running, [waits("long", gpus=2)], gpus=2) == 122.0
    backs_off = [waits("long", gpus=2, at=30.0)]
    assert starts(state(), running, backs_off, gpus=2) == 21.0
    assert starts(state(), running, backs_off, gpus=2, elapsed=35.0) == 96.0


@pytest.mark.parametrize(
    "change", [{"active": False}, {"stop_policy": StopPolicy.HOLD}], ids=["inactive", "stopped"]
)
def test_nobody_starts_in_a_queue_that_is_closed(change):
    assert starts(state(**change), [], []) == float("inf")


def test_an_unknown_run_time_is_said():
    found = forecast(state(), [runs("new")], [], run_time_of, 0.0)

    assert found["gpu-cq"].uncertain == ("runTimes",)


def test_what_the_loop_does_not_model_is_said():
    preempts = Preemption(within_cluster_queue="LowerPriority", reclaim_within_cohort="Any")
    queues = snapshot(
        cluster_queue("a-cq", cohort="all", preemption=preempts, checks=("provision",)),
        cluster_queue("b-cq", cohort="all"),
        kueue=KueueConfig(fair_sharing=True, block_admission=True),
    )

    found = forecast(queues, [], [], run_time_of, 0.0)

    assert {name: profile.uncertain for name, profile in found.items()} == {
        "a-cq": ("preemption", "fairSharing", "admissionChecks", "podsReady"),
        "b-cq": ("fairSharing", "cohortReclaim", "podsReady"),
    }


def test_only_trees_that_are_asked_for_are_forecast():
    queues = snapshot(
        cluster_queue("a-cq", cohort="all"),
        cluster_queue("b-cq", cohort="all"),
        cluster_queue("c-cq"),
    )

    assert set(forecast(queues, [], [], run_time_of, 0.0, ["a-cq"])) == {"a-cq", "b-cq"}


def test_a_spread_grows_with_the_runs_ahead():
    def unsure(job_class, flavors):
        return RunTime(seconds=100.0, low=80.0, high=125.0, basis=Basis.POLICY)

    one, three = (
        forecast(state(1), [runs()], [waits()] * count, unsure, 0.0)["gpu-cq"] for count in (0, 2)
    )

    assert 0.0 < one.spread[-1] < three.spread[-1]
    assert three.times[-1] == pytest.approx(303.0)


@pytest.mark.parametrize(("priority", "starts_on"), [(5, "l4"), (-1, "t4"), (None, "l4")])
def test_who_waits_stops_at_a_flavor_only_where_it_may_preempt_there(priority, starts_on):
    queue = cluster_queue(
        quotas={"t4": {GPU: "1"}, "l4": {GPU: "1"}},
        preemption=Preemption(within_cluster_queue="LowerPriority"),
        when_can_preempt="MayStopSearch",
    )
    running = [replace(runs("long"), priority=priority)]

    found = forecast(snapshot(queue), running, [waits("long")], run_time_of, 0.0)["gpu-cq"]

    # While it waits for its victim, nobody else of its ClusterQueue is tried.
    free = found.free[bisect_right(found.times, 1.0) - 1]
    assert found.free[0] == (0, 0)
    assert dict(zip(found.cells, free, strict=True)) == {
        CELL: 0,
        ("l4", GPU): 0 if starts_on == "l4" else 1,
    }


def test_those_who_ask_for_a_topology_take_quota_as_others_do():
    flavors = [ResourceFlavor(name="t4", topology="racks")]
    queues = snapshot(cluster_queue(quotas={"t4": {GPU: "2"}}), flavors=flavors)
    rack = template(annotations={"kueue.x-k8s.io/podset-required-topology": "rack"})

    found = forecast(
        queues, [], [waits(needs=(needs({GPU: "1"}, pods=rack),), count=2)], run_time_of, 0.0
    )["gpu-cq"]

    assert (found.uncertain, found.free[0]) == (("topology",), (0,))


def test_a_low_priority_is_preempted_by_those_who_wait_and_begins_again():
    preempts = Preemption(within_cluster_queue="LowerPriority")
    running = [replace(runs("long", since=-10.0, gpus=2), priority=0)]
    waiting = [waits("short", gpus=2, priority=5)]

    # The other runs for 20 s after the eviction of a second, and the victim for 100 s after that;
    # what either of them releases lies idle for a second.
    assert starts(state(preemption=preempts), running, waiting, gpus=2) == 123.0
    assert starts(state(), running, waiting, gpus=2) == 112.0


def test_of_equal_priority_only_the_newer_is_preempted():
    preempts = Preemption(within_cluster_queue="LowerOrNewerEqualPriority")
    queues, waiting = state(preemption=preempts), [waits("short", gpus=2, created=50)]
    older, newer = (
        [replace(runs("long", gpus=2), priority=0, created=created)] for created in (40, 60)
    )

    assert starts(queues, older, waiting, gpus=2) == 122.0
    assert starts(queues, newer, waiting, gpus=2) == 123.0


def test_the_localqueue_that_has_used_least_starts_first():
    sharing = AdmissionFairSharing(half_life_seconds=60.0)
    queues = snapshot(
        replace(cluster_queue(quotas={"t4": {GPU: "1"}}), usage_based=True),
        local_queues={"x-lq": "gpu-cq", "y-lq": "gpu-cq"},
        kueue=KueueConfig(admission_fair_sharing=sharing),
        consumed={("team", "x-lq"): ConsumedResources(amounts={GPU: 9.0})},
    )
    waiting = [waits("short", queue=f"{name}-lq", key=name) for name in "xy"]

    begun = PlannedStarts(queues, [], waiting, run_time_of, 0.0).planned.begun

    assert [(start.key, start.at) for start in begun] == [("y", 0.0), ("x", 21.0)]


def by_use(gpus="1", **rest):
    """One queue that serves x-lq, which has used much, and y-lq, which has used nothing."""
    return snapshot(
        cluster_queue(quotas={"t4": {GPU: gpus}}, usage_based=True, **rest),
        local_queues={"x-lq": "gpu-cq", "y-lq": "gpu-cq"},
        kueue=KueueConfig(admission_fair_sharing=AdmissionFairSharing(half_life_seconds=60.0)),
        consumed={("team", "x-lq"): ConsumedResources(amounts={GPU: 9.0})},
        priority_classes={"high": 9},
    )


@pytest.mark.parametrize("waiting", [5, 50], ids=["few-wait", "many-wait"])
@pytest.mark.parametrize(
    ("own", "theirs", "priority", "seconds"),
    [("y-lq", "x-lq", 0, 21.0), ("x-lq", "y-lq", 9, None), ("y-lq", "y-lq", 9, 21.0)],
    ids=["has-used-less", "has-used-more", "is-of-the-same"],
)
def test_a_newcomer_comes_before_those_whose_localqueue_has_used_more(
    own, theirs, priority, seconds, waiting
):
    queues = by_use()
    others = [waits("short", queue=theirs, key=str(n)) for n in range(waiting)]
    profile = forecast(queues, [runs("short")], others, run_time_of, 0.0)["gpu-cq"]
    asked = demand([needs({GPU: "1"})], queues.cluster_queues["gpu-cq"], queues)

    found = start_of(profile.of(f"team/{own}"), asked, priority=priority).start

    # The use of those who wait grows as they start, and in the end is more than any that fades.
    assert found.unordered == ""
    assert found.is_next == (own != theirs and seconds is not None)
    assert found.seconds == seconds if seconds is not None else found.seconds > 60.0
    assert start_of(profile, asked).start.unordered == "admissionFairSharing"


def test_under_strict_fifo_it_is_not_known_who_would_block_whom_by_use():
    queues = by_use(queueing=Queueing.STRICT)

    profile = forecast(queues, [runs("short")], [waits("short", queue="x-lq")], run_time_of, 0.0)[
        "gpu-cq"
    ]

    assert profile.of("team/y-lq").unordered == "admissionFairSharing"


def test_of_very_many_localqueues_it_is_not_known_whose_turn_comes_when():
    names = {f"{number}-lq": "gpu-cq" for number in range(201)}
    queues = snapshot(*by_use().cluster_queues.values(), local_queues=names, kueue=by_use().kueue)

    profile = forecast(queues, [runs("short")], [waits("short", queue="0-lq")], run_time_of, 0.0)[
        "gpu-cq"
    ]

    assert profile.of("team/1-lq").unordered == "admissionFairSharing"


def test_by_use_the_starts_of_pending_workloads_are_known():
    waiting = [waits("short", queue=f"{name}-lq", key=name) for name in "xy"]

    found = pending_starts(by_use(), [runs("short")], waiting, run_time_of, 0.0)

    known = {key: (start.seconds, start.is_known) for key, (start,) in found.items()}
    assert known == {"y": (21.0, True), "x": (42.0, True)}


PREEMPTS = Preemption(within_cluster_queue="LowerPriority", reclaim_within_cohort="Any")


def start(queues, running, waiting=(), *, gpus=1, priority=0):
    profile = forecast(queues, running, waiting, run_time_of, 0.0)["gpu-cq"]
    asked = demand([needs({GPU: str(gpus)})], queues.cluster_queues["gpu-cq"], queues)
    return start_of(profile, asked, priority=priority).start


def ranked_state(**rest):
    return replace(state(**rest), priority_classes={"high": 9})


@pytest.mark.parametrize(
    ("priority", "gpus", "seconds"), [(9, 2, 1.0), (9, 3, float("inf")), (0, 2, 101.0)]
)
def test_a_newcomer_starts_when_those_have_stopped_that_it_preempts(priority, gpus, seconds):
    running = [replace(runs("long", gpus=2), priority=0)]

    found = start(ranked_state(preemption=PREEMPTS), running, gpus=gpus, priority=priority)

    assert (found.seconds, found.preempts) == (seconds, seconds == 1.0)


def test_nobody_preempts_whom_another_one_is_about_to():
    running = [replace(runs("long", gpus=2), priority=0)]
    waiting = [waits("short", gpus=2, priority=9)]

    found = start(ranked_state(preemption=PREEMPTS), running, waiting, priority=9)

    assert (found.seconds, found.preempts) == (22.0, False)


def test_a_newcomer_does_not_take_back_what_many_before_it_take_back_one_after_the_other():
    queues = snapshot(
        cluster_queue("gpu-cq", {"t4": {GPU: "4"}}, cohort="all", preemption=PREEMPTS),
        cluster_queue("b-cq", {"t4": {GPU: "4"}}, cohort="all"),
        local_queues={"gpu-lq": "gpu-cq", "b-lq": "b-cq"},
    )
    running = [replace(runs("long", queue="b-cq"), priority=0) for _ in range(8)]
    waiting = [waits("short", key=f"{number}") for number in range(140)]
    new = waits("short", key="new", created=1)

    found = start(queues, running, waiting)

    # Each second the next of those before it preempts, until nothing is lent any more.
    expected = pending_starts(queues, running, [*waiting, new], run_time_of, 0.0)["new"][0]
    assert not found.preempts
    assert found.seconds == pytest.approx(expected.seconds, abs=5.0)


@pytest.mark.parametrize("count", [10, 140], ids=["exact", "shared"])
def test_a_newcomer_preempts_at_once_whom_nobody_before_it_may_preempt(count):
    running = [replace(runs("long"), priority=0) for _ in range(2)]
    waiting = [waits("short", key=f"{number}") for number in range(count)]

    found = start(ranked_state(preemption=PREEMPTS), running, waiting, priority=9)

    assert (found.seconds, found.preempts, found.preempts_later) == (1.0, True, False)


def test_a_newcomer_takes_back_what_others_have_borrowed():
    queues = snapshot(
        cluster_queue("gpu-cq", {"t4": {GPU: "2"}}, cohort="all", preemption=PREEMPTS),
        cluster_queue("b-cq", {"t4": {GPU: "2"}}, cohort="all"),
    )
    running = [replace(runs("long", gpus=4, queue="b-cq"), priority=9)]

    assert start(queues, running, gpus=2).preempts
    assert not start(queues, running, gpus=3).preempts


@pytest.mark.parametrize(
    ("used", "policy", "preempts"),
    [
        (3, {}, True),
        (2, {}, False),
        (3, {"max_priority_threshold": 0}, True),
        (3, {"max_priority_threshold": -1}, False),
        (3, {"borrow_within_cohort": "Never"}, False),
    ],
)
def test_a_newcomer_that_borrows_preempts_who_borrows_too(used, policy, preempts):
    borrows = {"reclaim_within_cohort": "Any", "borrow_within_cohort": "LowerPriority"}
    queues = snapshot(
        cluster_queue(
            "gpu-cq", {"t4": {GPU: "0"}}, cohort="all", preemption=Preemption(**borrows | policy)
        ),
        cluster_queue("b-cq", {"t4": {GPU: "2"}}, cohort="all"),
        cluster_queue("c-cq", {"t4": {GPU: "1"}}, cohort="all"),
    )
    queues = replace(queues, priority_classes={"high": 9})
    running = [replace(runs("long", gpus=used, queue="b-cq"), priority=0)]

    assert start(queues, running, gpus=3, priority=9).preempts == preempts


@pytest.mark.parametrize(
    ("hopeless", "priority", "other", "seconds"),
    [
        ("", 5, 0, 21.0),
        ("gpu-lq", 5, 0, 42.0),
        ("", 0, 5, 42.0),
        ("b-lq", 0, 5, 21.0),
    ],
)
def test_what_can_never_fit_holds_its_own_clusterqueue_up_for_a_cycle(
    hopeless, priority, other, seconds
):
    queues = snapshot(
        *(
            cluster_queue(f"{name}-cq", {"t4": {GPU: gpus}}, cohort="all")
            for name, gpus in (("gpu", "0"), ("b", "0"), ("c", "1"))
        )
    )
    queues = replace(queues, priority_classes={str(n): n for n in (0, 5, 9)})
    never = [waits("short", gpus=9, queue=hopeless, priority=9)] if hopeless else []
    waiting = [*never, waits("short", queue="b-lq", priority=other)]

    running = [runs("short", queue="c-cq")]
    assert starts(queues, running, waiting, priority=priority) == seconds


@pytest.mark.parametrize("asks", [{GPU: "9"}, {"example.com/fpga": "1"}], ids=["quota", "flavors"])
def test_what_can_never_fit_keeps_a_strict_queue_waiting(asks):
    # It has no flavor, or too little quota.
    never = QueuedGroup(arrival=replace(arrival("a", asks), priority=5), job_class="short")
    strict = state(queueing=Queueing.STRICT)

    assert starts(strict, [], [never], priority=5) == inf
    assert starts(strict, [], [never], priority=9) == 0.0
    assert starts(state(), [], [never], priority=5) == 0.0


def test_nobody_is_tried_in_a_clusterqueue_while_victims_stop_for_its_head():
    queues = snapshot(
        cluster_queue("gpu-cq", {"t4": {GPU: "2"}}, cohort="all", preemption=PREEMPTS),
        cluster_queue("b-cq", {"t4": {GPU: "1"}}, cohort="all"),
    )
    running = [replace(runs("long", gpus=2), priority=0)]

    # A GPU is free, but the head comes first until its victim has gone.
    assert starts(queues, running, [waits("short", gpus=2, priority=9)]) == 2.0
    assert starts(queues, running, []) == 0.0


@pytest.mark.parametrize(
    ("queueing", "seconds"), [(Queueing.BEST_EFFORT, 21.0), (Queueing.STRICT, 20.0)]
)
def test_a_newcomer_waits_for_the_requeue_batch_unless_it_is_first_under_strict_fifo(
    queueing, seconds
):
    queues = snapshot(
        cluster_queue("gpu-cq", {"t4": {GPU: "1"}}, cohort="all", queueing=queueing),
        cluster_queue("b-cq", {"t4": {GPU: "0"}}, cohort="all"),
        cluster_queue("c-cq", {"t4": {GPU: "0"}}, cohort="all", queueing=Queueing.STRICT),
    )

    assert starts(queues, [runs("short")], []) == seconds


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


def test_who_need_not_borrow_comes_before_those_that_do_where_others_go_by_use():
    rules = AdmissionFairSharing(half_life_seconds=300.0, sampling_seconds=300.0)
    queues = snapshot(
        cluster_queue("gpu-cq", {"t4": {GPU: "2"}}, cohort="all"),
        cluster_queue(
            "b-cq",
            {"t4": {GPU: "2"}},
            cohort="all",
            usage_based=True,
        ),
        kueue=KueueConfig(admission_fair_sharing=rules),
    )
    running = [runs("short", gpus=2), runs("long", queue="b-cq")]

    assert starts(queues, running, [waits("short", gpus=2, queue="b-lq")], gpus=2) == 21.0


def test_at_the_beginning_nobody_preempts_for_quota_that_others_own():
    queues = snapshot(
        cluster_queue("gpu-cq", {"t4": {GPU: "1"}}, cohort="all", preemption=PREEMPTS),
        cluster_queue("b-cq", {"t4": {GPU: "1"}}, cohort="all", queueing=Queueing.STRICT),
    )
    running = [replace(runs("short", gpus=1), priority=0) for _ in range(2)]
    waiting = [waits("short", queue="b-lq"), waits("short", priority=9)]

    planned = PlannedStarts(queues, running, waiting, run_time_of, 0.0).planned

    # Neither waits for the requeue batch: one is in StrictFIFO, and the other was only skipped.
    assert [start.at for start in planned.begun] == [20.0, 20.0]


@pytest.mark.parametrize(("priority", "uncertain"), [(0, ("preemption",)), (9, ())])
def test_only_who_may_be_preempted_has_a_wider_range_for_it(priority, uncertain):
    running = [replace(runs("long", gpus=2), priority=9)]

    found = start(ranked_state(preemption=PREEMPTS), running, priority=priority)

    assert found.uncertain == uncertain


def test_a_placement_is_preempted_only_by_who_outranks_it():
    queues = ranked_state(preemption=PREEMPTS)
    running = [replace(runs("long", gpus=2), priority=-1)]
    profile = forecast(queues, running, [], run_time_of, 0.0)["gpu-cq"]
    asked = demand([needs({GPU: "2"})], queues.cluster_queues["gpu-cq"], queues)

    after = with_placement(profile, {CELL: 2}, 1.0, 100.0, priority=0)

    assert start_of(profile, asked, priority=0).start.preempts
    assert not start_of(after, asked, priority=0).start.preempts
    assert start_of(after, asked, priority=9).start.preempts


def outranking(queues, running, waiting):
    """Below which priorities those that wait may preempt newcomers."""
    profile = forecast(queues, running, waiting, run_time_of, 0.0)["gpu-cq"]
    return [each.below for each in profile.outranking]


def test_a_profile_tells_who_may_be_preempted_for_those_that_wait():
    running = [replace(runs("long", gpus=2), priority=9)]
    waiting = [waits("short", gpus=2, priority=9), waits("short", priority=0)]
    newer = replace(PREEMPTS, within_cluster_queue="LowerOrNewerEqualPriority")

    for preemption, below in ((PREEMPTS, [9, 0]), (newer, [10, 1])):
        found = outranking(ranked_state(preemption=preemption), running, waiting)
        assert found == below
    assert outranking(ranked_state(), running, waiting) == []


@pytest.mark.parametrize(("running_priority", "seconds"), [(9, 20.0), (0, 0.0)])
def test_nobody_is_preempted_while_somebody_of_lower_priority_would_be_first(
    running_priority, seconds
):
    queues = snapshot(
        cluster_queue("gpu-cq", {"t4": {GPU: "2"}}, cohort="all"),
        cluster_queue("b-cq", {"t4": {GPU: "2"}}, cohort="all", preemption=PREEMPTS),
    )
    # Of the team's own quota 2 are lent; a newcomer borrows, until the owner comes in 10 s.
    running = [
        replace(runs("long", gpus=1, queue="gpu-cq"), priority=running_priority),
        replace(runs("long", gpus=1, queue="gpu-cq"), priority=9),
    ]
    owner = [waits("short", gpus=2, queue="b-lq", priority=0, at=10.0)]
    profile = forecast(queues, running, owner, run_time_of, 0.0)["gpu-cq"]
    asked = demand([needs({GPU: "1"})], queues.cluster_queues["gpu-cq"], queues)

    first = start_of(profile, asked, priority=5)
    last = last_start(profile, asked, first, 100.0, priority=5)

    assert first.start.seconds == 0.0
    assert (last.seconds > 0.0) == (seconds > 0.0)


def test_only_who_borrows_makes_room_for_those_that_take_their_quota_back():
    queues = snapshot(
        cluster_queue("gpu-cq", {"t4": {GPU: "2"}}, cohort="all"),
        cluster_queue("b-cq", {"t4": {GPU: "2"}}, cohort="all", preemption=PREEMPTS),
    )
    lent = [runs("long", gpus=2), runs("long", since=-50.0, queue="b-cq")]
    kept = [runs("long"), runs("long", since=-50.0, gpus=2, queue="b-cq")]
    waiting = [waits("long", gpus=2, queue="b-lq")]

    borrows, owns = (
        forecast(queues, [replace(each, priority=9) for each in running], waiting, run_time_of, 0.0)
        for running in (lent, kept)
    )

    assert last(borrows["gpu-cq"], runs_for=200.0, priority=9)[2] == 1
    assert last(owns["gpu-cq"], runs_for=200.0)[2] == 0


def last(found, *, runs_for, priority=0, gpus=1, elapsed=0.0):
    asked = demand([needs({GPU: str(gpus)})], state().cluster_queues["gpu-cq"], state())
    first = start_of(found, asked, priority=priority, elapsed=elapsed)
    end = last_start(found, asked, first, runs_for, priority=priority, elapsed=elapsed)
    return first.start.seconds, round(end.seconds, 1), end.preempted_by


def test_a_newcomer_that_is_preempted_starts_again_after_those_that_outrank_it():
    running = [replace(runs("long", gpus=1), priority=9)]
    waiting = [waits("long", gpus=2, priority=9, key="wide")]
    found = forecast(ranked_state(preemption=PREEMPTS), running, waiting, run_time_of, 0.0)
    queue = found["gpu-cq"]

    # Nobody stops what is done by then, or is as urgent.
    assert last(queue, runs_for=99.0) == (0.0, 0.0, 0)
    assert last(queue, runs_for=200.0, priority=9) == (0.0, 0.0, 0)
    assert last(queue, runs_for=200.0) == (0.0, 202.0, 1)
    assert last(queue, runs_for=200.0, elapsed=50.0) == (0.0, 152.0, 1)


def reclaiming(within="Never"):
    """Two ClusterQueues of two GPUs each, which take back what they have lent."""
    policy = Preemption(within_cluster_queue=within, reclaim_within_cohort="Any")
    return snapshot(
        cluster_queue("gpu-cq", {"t4": {GPU: "2"}}, cohort="all", preemption=policy),
        cluster_queue("b-cq", {"t4": {GPU: "2"}}, cohort="all", preemption=policy),
    )


def test_a_newcomer_takes_back_what_others_will_have_borrowed():
    running = [runs("short", gpus=2), runs("long", gpus=2, queue="b-cq")]
    waiting = [waits("long"), waits("long", queue="b-lq")]

    found = start(reclaiming(), [replace(each, priority=0) for each in running], waiting)

    # After 20 s and the requeue batch one GPU goes to who is before it, and the other is lent.
    assert (found.seconds, found.preempts, found.preempts_later) == (22.0, True, True)


@pytest.mark.parametrize(("wide_priority", "preempted_by"), [(0, 0), (9, 1)])
def test_who_starts_later_makes_no_newcomer_borrow_that_has_its_own_quota(
    wide_priority, preempted_by
):
    running = [
        runs("short", since=-10.0),
        runs("short"),
        runs("long", queue="b-cq"),
        runs("long", since=-50.0, queue="b-cq"),
    ]
    waiting = [
        waits("long", gpus=2, priority=wide_priority),
        waits("long", queue="b-lq", key="narrow"),
    ]
    queues = reclaiming()
    held = [replace(each, priority=5) for each in running]
    found = forecast(queues, held, waiting, run_time_of, 0.0)["gpu-cq"]

    # It takes back what is lent at 11 s, and the wide Workload would have all of it otherwise.
    assert last(found, runs_for=200.0)[0::2] == (12.0, preempted_by)


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
    planned = PlannedStarts(queues, running, waiting, run_time_of, 0.0)
    place = which % len(waiting)
    moved = replace(waiting[place], arrival=replace(waiting[place].arrival, local_queue="b-lq"))
    instead = [*waiting[:place], moved, *waiting[place + 1 :]]

    start = planned.with_waiting(instead).start_of(str(place))

    whole = {begun.key: begun.at for begun in planned.with_waiting(instead).begun}
    assert start == whole[str(place)]


@pytest.mark.parametrize("waiting", [8, 240], ids=["few-wait", "many-wait"])
@pytest.mark.parametrize(
    ("own", "others", "priority", "is_late"),
    [(0, 1, 0, False), (0, 0, 9, False), (1, 1, 9, False), (1, 0, 9, True)],
    ids=["before-who-is-behind", "before-lower-ones", "behind-as-many", "behind-more"],
)
def test_a_cycle_takes_one_of_each_queue_and_the_next_ones_come_in_a_later_one(
    own, others, priority, is_late, waiting
):
    queues = replace(of_one_pool(1.0), kueue=KueueConfig(), priority_classes={"high": 9})
    running = [runs("long", since=10.0 * n - 90.0, queue="b-cq") for n in range(4)]
    wait = [
        *(waits("long", gpus=4, priority=9, key=f"own-{n}") for n in range(own)),
        *(waits("long", gpus=4, queue="b-lq", key=f"wide-{n}") for n in range(others)),
        *(waits("long", queue="b-lq", key=f"narrow-{n}") for n in range(waiting)),
    ]
    new = waits("long", priority=priority, key="new")
    both = sorted([*wait, new], key=lambda group: -group.arrival.priority)

    found = start(queues, running, wait, priority=priority)

    # A wide one that is tried in vain takes the turn of its queue in that cycle.
    whole = pending_starts(queues, running, both, run_time_of, 0.0)
    assert found.seconds == whole["new"][0].seconds
    assert (found.seconds > 100.0) == is_late


def test_each_cycle_of_thousands_that_are_alike_is_run_to_the_end():
    queues = replace(of_one_pool(1.0), kueue=KueueConfig())
    running = [runs("long", since=-10.0 * n, queue="b-cq") for n in range(4)]
    alike = waits("long", queue="b-lq")
    waiting = [
        replace(alike, arrival=replace(alike.arrival, key=str(age), created=age))
        for age in range(2_400)
    ]

    found = start(queues, running, waiting)

    # Four run at once, for 100 s each. The profile joins the steps of several.
    assert found.seconds == pytest.approx(601 * 100.0 - 30.0, rel=0.05)


@pytest.mark.parametrize("rest", [{}, {"preemption": PREEMPTS}], ids=["plain", "preempting"])
def test_what_comes_free_soon_after_each_other_goes_to_narrow_workloads_one_by_one(rest):
    queues = state(gpus=2, **rest)
    running = [runs("long", since=-1.0), runs("long", since=-0.5)]
    waiting = [waits("long", gpus=2, key="wide"), *(waits("long", key=f"{n}") for n in range(40))]

    found = pending_starts(queues, running, waiting, run_time_of, 0.0)

    # In Kueue two GPUs are never free at once before nobody narrow waits.
    seconds = [found[key][0].seconds for key in ("0", "1", "2", "39", "wide")]
    assert seconds == [100.0, 100.5, 201.0, 2020.0 - 0.5, 2121.0 - 0.5]


def fair_state(*others):
    return replace(
        snapshot(
            cluster_queue("gpu-cq", {"t4": {GPU: "1"}}, cohort="all"),
            *others,
            kueue=KueueConfig(fair_sharing=True),
        ),
        priority_classes={"high": 9},
    )


@pytest.mark.parametrize(
    ("priority", "turn"),
    [(9, (101.0, "")), (0, (122.0, ""))],
    ids=["before-who-waits", "after-all"],
)
def test_where_shares_decide_a_higher_priority_comes_first_in_its_own_queue(priority, turn):
    queues = fair_state(cluster_queue("b-cq", {"t4": {GPU: "0"}}, cohort="all"))

    found = start(queues, [runs("long")], [waits("short", priority=1)], priority=priority)

    assert (found.seconds, found.unordered) == turn


def test_where_it_is_not_known_whether_shares_decide_the_turn_among_others_is_not_either():
    queues = fair_state(cluster_queue("b-cq", {"t4": {GPU: "0"}}, cohort="all"))
    weighed = replace(queues.cluster_queues["gpu-cq"], fair_sharing=True)
    queues = replace(
        queues,
        cluster_queues={**queues.cluster_queues, "gpu-cq": weighed},
        kueue=KueueConfig(),
    )

    found = start(queues, [runs("long")], [waits("short", queue="b-lq")])

    assert found.unordered == "fairSharing"


def of_one_pool(weight, quota="0", **rest):
    """Four GPUs are the cohort's, of which the first queue may have *weight* times as many."""
    own = {"t4": {GPU: quota}}
    return snapshot(
        cluster_queue("gpu-cq", own, cohort="all", fair_weight=weight, **rest),
        cluster_queue("b-cq", {"t4": {GPU: "0"}}, cohort="all"),
        cohorts=[cohort("all", {"t4": {GPU: "4"}})],
        local_queues={"gpu-lq": "gpu-cq", "b-lq": "b-cq"},
        kueue=KueueConfig(fair_sharing=True),
    )


@pytest.mark.parametrize("waiting", [20, 200], ids=["few-wait", "many-wait"])
@pytest.mark.parametrize(
    ("weight", "gpus", "seconds"),
    [(1.0, 1, 11.0), (1.0, 2, 61.0), (4.0, 2, 11.0)],
    ids=["has-least", "has-as-much", "may-have-more"],
)
def test_where_shares_decide_the_smallest_comes_first_however_many_wait(
    weight, gpus, seconds, waiting
):
    ends = {"gpu-cq": (60.0, 70.0), "b-cq": (10.0, 20.0, 30.0)}
    running = [
        *(runs("long", since=end - 100.0) for end in ends["gpu-cq"][:gpus]),
        *(runs("long", since=end - 100.0, queue="b-cq") for end in ends["b-cq"][: 4 - gpus]),
    ]
    others = [waits("long", queue="b-lq") for _ in range(waiting)]

    found = start(of_one_pool(weight), running, others)

    assert (found.seconds, found.unordered) == (seconds, "")


@pytest.mark.parametrize(
    ("quota", "policies", "seconds"),
    [
        ("1", {"reclaim_within_cohort": "Any"}, 1.0),
        ("0", {"within_cluster_queue": "LowerPriority"}, 61.0),
        ("0", {"within_cluster_queue": "LowerPriority", "reclaim_within_cohort": "Any"}, 1.0),
    ],
    ids=["takes-its-own-back", "may-not-while-it-borrows", "may-while-it-borrows"],
)
def test_where_shares_decide_it_is_known_of_whom_a_newcomer_preempts(quota, policies, seconds):
    queues = replace(
        of_one_pool(1.0, quota=quota, preemption=Preemption(**policies)),
        priority_classes={"high": 9},
    )
    own = [] if quota == "1" else [runs("long", since=-40.0)]
    others = [runs("long", queue="b-cq") for _ in range(5 if quota == "1" else 3)]
    running = [replace(each, priority=0) for each in (*own, *others)]

    found = start(queues, running, [], priority=9)

    assert (found.seconds, found.preempts) == (seconds, seconds == 1.0)


def test_where_shares_decide_nothing_in_a_tree_a_higher_priority_comes_first():
    found = start(fair_state(), [runs("long")], [waits("short", priority=1)], priority=9)

    assert (found.seconds, found.unordered) == (101.0, "")


def test_a_placement_takes_its_moment_from_those_that_outrank_who_waits_and_no_more():
    queues = ranked_state()
    running = [runs("long", since=-90.0), runs("long", since=-80.0)]
    waiting = [waits("long", gpus=1) for _ in range(3)]
    asked = demand([needs({GPU: "1"})], queues.cluster_queues["gpu-cq"], queues)
    profile = forecast(queues, running, waiting, run_time_of, 0.0)["gpu-cq"]

    found = []
    for _ in range(3):
        start = start_of(profile, asked, priority=9)
        found.append(start.start.seconds)
        profile = with_placement(profile, start.usage, found[-1], 100.0, priority=9)

    # Those who wait would have started at both of the first releases, and start later.
    assert found == [11.0, 21.0, 112.0]


def test_a_wide_placement_takes_for_its_run_what_nobody_else_would_have_had():
    queues = ranked_state(gpus=4)
    waiting = [waits("long", gpus=1)]
    running = [runs("long", since=-90.0, gpus=4)]
    asked = demand([needs({GPU: "4"})], queues.cluster_queues["gpu-cq"], queues)
    profile = forecast(queues, running, waiting, run_time_of, 0.0)["gpu-cq"]
    start = start_of(profile, asked, priority=9)

    after = with_placement(profile, start.usage, start.start.seconds, 500.0, priority=9)

    two = demand([needs({GPU: "2"})], queues.cluster_queues["gpu-cq"], queues)
    assert start.start.seconds == 11.0
    assert start_of(profile, two, priority=9, elapsed=20.0).start.seconds == 0.0
    # Of its four GPUs three would have been left for the next one.
    assert start_of(after, two, priority=9).start.seconds == 511.0
