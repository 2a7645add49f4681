from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NAMESPACE, arrival, cluster_queue, held, needs, snapshot
from tests.worlds import asked, schedules, snapshots, trees, waiting
from webhook.kueue import counted_arrivals, occupancy
from webhook.kueue.counted_arrivals import occupancy_of
from webhook.kueue.schedule import Running
from webhook.model.decision import Fit
from webhook.model.queues import (
    Arrival,
    Held,
    KueueConfig,
    LocalQueue,
    Preemption,
    Queueing,
    Reservation,
    Selector,
    StopPolicy,
)

GPU = "nvidia.com/gpu"
T4 = {"t4": {GPU: "4"}}
ONE = {GPU: "1"}


def starts(state, per_pod=ONE, placements=()):
    """Ask for the first ClusterQueue, through its LocalQueue."""
    found = occupancy_of(state, placements)
    (local_queue, *_) = state.local_queues.values()
    queue = state.cluster_queues[local_queue.cluster_queue]
    assigned = occupancy.assignment(found, [needs(per_pod)], queue)
    return occupancy.starts_now(found, assigned, local_queue, queue)


def test_arrivals_are_charged_until_the_quota_is_gone_and_then_pend():
    waiting = tuple(arrival(str(n), ONE) for n in range(3))
    state = snapshot(cluster_queue(quotas=T4), competing={"gpu-cq": waiting})
    placed = [arrival(f"p{n}", ONE, policy="light", option="gpu", priority=n) for n in range(3)]

    found = occupancy_of(state, placed)

    assert found.held("gpu-cq") == Held(
        pending=2,
        reserving=4,
        usage={("t4", GPU): 4},
        guests={("light", "gpu", "team"): 3},
        lowest_priority=0,
    )


def test_a_smaller_job_overtakes_a_larger_one_under_best_effort_only():
    large, small = arrival("large", {GPU: "3"}), arrival("small", ONE)
    for queueing, expected in ((Queueing.BEST_EFFORT, (1, 3)), (Queueing.STRICT, (2, 2))):
        queue = cluster_queue(quotas=T4, queueing=queueing)
        state = snapshot(queue, held={"gpu-cq": held({"t4": {GPU: "2"}}, reserving=2)})

        found = occupancy_of(state, [large, small]).held("gpu-cq")

        assert (found.pending, found.reserving) == expected


def test_adding_one_arrival_leaves_the_occupancy_it_came_from_alone():
    before = occupancy_of(snapshot(cluster_queue(quotas=T4)))

    after = counted_arrivals.with_arrival(before, arrival("a", ONE))

    assert before.held("gpu-cq") == Held()
    assert after == occupancy_of(before.snapshot, [arrival("a", ONE)])


def test_an_arrival_in_an_unknown_or_stopped_local_queue_counts_nowhere():
    stopped = LocalQueue(
        namespace=NAMESPACE, name="held", cluster_queue="gpu-cq", stop_policy=StopPolicy.HOLD
    )
    state = snapshot(cluster_queue(quotas=T4))
    state = replace(state, local_queues={**state.local_queues, (NAMESPACE, "held"): stopped})

    found = occupancy_of(
        state, [arrival("a", ONE, local_queue="none"), arrival("b", ONE, local_queue="held")]
    )

    assert found.held("gpu-cq") == Held()


def test_an_arrival_that_can_never_fit_pends():
    found = occupancy_of(snapshot(cluster_queue(quotas=T4)), [arrival("a", {GPU: "9"})])

    assert found.held("gpu-cq") == Held(pending=1)


def test_the_next_snapshot_is_charged_by_what_differs():
    state = snapshot(cluster_queue(quotas=T4), cluster_queue("other-cq", T4, cohort="all"))
    states = [
        replace(state, held=found)
        for found in (
            {"gpu-cq": held({"t4": {GPU: "3"}})},
            {"gpu-cq": held({"t4": {GPU: "1"}}), "other-cq": held({"t4": {GPU: "2"}})},
            {},
        )
    ]

    free = []
    for each in states:
        queues = occupancy_of(each)
        queue = state.cluster_queues["gpu-cq"]
        free.append(occupancy.assignment(queues, [needs({GPU: "4"})], queue).detail)

    assert free == [
        "needs nvidia.com/gpu 4 (flavor t4), 1 free",
        "needs nvidia.com/gpu 4 (flavor t4), 3 free",
        "flavor t4",
    ]


def test_what_fits_starts_now():
    assert starts(snapshot(cluster_queue(quotas=T4)))


@pytest.mark.parametrize(
    "change",
    [
        {"active": False},
        {"stop_policy": StopPolicy.HOLD},
        {"checks": ("provision",)},
        {"namespaces": Selector(labels={"team": "other"})},
    ],
    ids=str,
)
def test_a_queue_that_is_not_open_starts_nothing(change):
    assert not starts(snapshot(cluster_queue(quotas=T4, **change)))


def test_a_pending_head_holds_back_under_strict_fifo():
    behind = {"gpu-cq": held(pending=1)}

    assert not starts(snapshot(cluster_queue(quotas=T4, queueing=Queueing.STRICT), held=behind))
    assert starts(snapshot(cluster_queue(quotas=T4), held=behind))


def test_blocked_admission_starts_nothing_while_anybody_may_not_be_ready():
    kueue = KueueConfig(block_admission=True)
    ready = {"gpu-cq": held({"t4": {GPU: "2"}}, reserving=2, ready=2)}
    busy = {"gpu-cq": held({"t4": {GPU: "2"}}, reserving=2, ready=1)}

    assert starts(snapshot(cluster_queue(quotas=T4), kueue=kueue))
    assert starts(snapshot(cluster_queue(quotas=T4), kueue=kueue, held=ready))
    assert not starts(snapshot(cluster_queue(quotas=T4), kueue=kueue, held=busy))


def test_who_is_more_important_comes_before_the_head_under_strict_fifo():
    queue = cluster_queue(quotas=T4, queueing=Queueing.STRICT)
    waiting = arrival("first", {GPU: "9"}, priority=1)
    found = occupancy_of(snapshot(queue, competing={"gpu-cq": (waiting,)}))
    local_queue = found.snapshot.local_queues["team", "gpu-lq"]
    assigned = occupancy.assignment(found, [needs(ONE)], queue)

    def starts(priority):
        return occupancy.starts_now(found, assigned, local_queue, queue, priority=priority)

    assert starts(priority=2)
    # Of one priority, the older one is the head.
    assert not starts(priority=1)


def test_one_whose_search_for_flavors_goes_round_for_ever_keeps_others_waiting():
    # Each of its pod sets takes "a" in turn, so that it is tried again in every cycle.
    queue = cluster_queue(quotas={"a": {"cpu": "1"}, "b": {"cpu": "1"}})
    head = replace(arrival("head", priority=1), needs=(needs({"cpu": "1"}),) * 2)
    state = snapshot(
        queue,
        held={"gpu-cq": held({"b": {"cpu": "1"}}, reserving=1)},
        competing={"gpu-cq": (head, arrival("small", {"cpu": "1"}))},
    )
    found = occupancy_of(state)
    local_queue = state.local_queues["team", "gpu-lq"]
    assigned = occupancy.assignment(found, [needs({"cpu": "1"})], queue)

    def starts(priority):
        return occupancy.starts_now(found, assigned, local_queue, queue, priority=priority)

    assert (found.held("gpu-cq").reserving, found.held("gpu-cq").pending) == (1, 2)
    assert starts(priority=2)
    assert not starts(priority=1)


def test_a_search_for_flavors_that_ended_in_vain_begins_anew_for_a_strict_head():
    # Both of its pod sets would take "a", of which "other" takes half in the same cycle. Behind "a"
    # there is too little; tried from the first flavor on, one of them takes "b".
    queues = [
        cluster_queue(
            "gpu-cq",
            {"a": {"cpu": "1"}, "b": {"cpu": "1"}},
            cohort="all",
            queueing=Queueing.STRICT,
        ),
        cluster_queue("other-cq", {"a": {"cpu": "3"}}, cohort="all"),
    ]
    head = replace(arrival("head"), needs=(needs({"cpu": "2"}), needs({"cpu": "1"})))
    other = arrival("other", {"cpu": "2"}, local_queue="other-lq")
    competing = {"gpu-cq": (head,), "other-cq": (other,)}

    found = occupancy_of(snapshot(*queues, competing=competing))

    assert found.held("gpu-cq").usage == {("a", "cpu"): 2_000, ("b", "cpu"): 1_000}


def test_who_got_quota_a_cycle_ago_may_have_to_give_it_back():
    # The second of "two" prefers to reclaim "b" from "lent" to borrowing "a".
    reclaims = Preemption(reclaim_within_cohort="Any")
    queues = [
        cluster_queue(
            "gpu-cq",
            {"a": {"cpu": "1"}, "b": {"cpu": "2"}},
            cohort="all",
            preemption=reclaims,
            when_can_borrow="TryNextFlavor",
            when_can_preempt="TryNextFlavor",
            preference="PreemptionOverBorrowing",
        ),
        cluster_queue("other-cq", {"b": {"cpu": "1"}}, cohort="all"),
        cluster_queue("pool-cq", {"a": {"cpu": "5"}}, cohort="all"),
    ]
    two = replace(arrival("two", {"cpu": "1"}), count=2)
    lent = arrival("lent", {"cpu": "3"}, local_queue="other-lq")
    competing = {"gpu-cq": (two,), "other-cq": (lent,)}

    found = occupancy_of(snapshot(*queues, competing=competing)).held("gpu-cq")

    assert (found.usage, found.pending) == ({("a", "cpu"): 1_000}, 1)


def test_who_finds_quota_kept_for_a_head_goes_on_with_the_next_flavor():
    own = {"a": {"cpu": "0"}, "b": {"cpu": "1"}}
    strict = cluster_queue("a-cq", {"a": {"cpu": "2"}}, cohort="all", queueing=Queueing.STRICT)
    queue = cluster_queue("gpu-cq", own, cohort="all")
    waiting = arrival("first", {"cpu": "2"}, local_queue="a-lq")
    alone = snapshot(queue, strict, held={"a-cq": held({"a": {"cpu": "1"}}, reserving=1)})
    beside = replace(alone, competing={"a-cq": (waiting,)})
    for state, flavor in ((alone, "a"), (beside, "b")):
        found = occupancy_of(state)
        assigned = occupancy.assignment(found, [needs({"cpu": "1"})], queue)

        assert assigned.assignment.flavors == (flavor,)
        local_queue = state.local_queues["team", "gpu-lq"]
        assert occupancy.starts_now(found, assigned, local_queue, queue)


def test_a_head_that_goes_round_for_ever_keeps_quota_from_other_queues():
    # Each of its pod sets takes "a" in turn, and then the other one finds nothing.
    flavors = {"a": {"cpu": "1"}, "b": {"cpu": "1"}}
    queues = [
        cluster_queue("gpu-cq", flavors, cohort="all"),
        cluster_queue("other-cq", {"a": {"cpu": "0"}}, cohort="all"),
    ]
    head = replace(arrival("head"), needs=(needs({"cpu": "1"}),) * 2)
    state = snapshot(*queues, held={"gpu-cq": held({"b": {"cpu": "1"}}, reserving=1)})

    def starts(state):
        found = occupancy_of(state)
        assigned = occupancy.assignment(found, [needs({"cpu": "1"})], queues[1])
        local_queue = state.local_queues["team", "other-lq"]
        return occupancy.starts_now(found, assigned, local_queue, queues[1])

    assert starts(state)
    assert not starts(replace(state, competing={"gpu-cq": (head,)}))


def test_quota_kept_for_a_head_is_there_for_who_comes_before_it_in_its_queue():
    # It has to borrow, which in another queue would put it behind the head.
    quotas = {"t4": {"cpu": "4", GPU: "4"}}
    queues = [
        cluster_queue("gpu-cq", quotas, cohort="all", queueing=Queueing.STRICT),
        cluster_queue("other-cq", quotas, cohort="all"),
    ]
    state = snapshot(
        *queues,
        held={"other-cq": held({"t4": {GPU: "8"}}, reserving=1)},
        competing={"gpu-cq": (arrival("first", {"cpu": "1", GPU: "4"}, priority=1),)},
    )
    found = occupancy_of(state)

    def starts(queue):
        local_queue = state.local_queues["team", queue.name.replace("-cq", "-lq")]
        assigned = occupancy.assignment(found, [needs({"cpu": "8"})], queue, priority=2)
        return occupancy.starts_now(found, assigned, local_queue, queue, priority=2)

    assert found.held("gpu-cq").head is not None
    assert [starts(queue) for queue in queues] == [True, False]


def test_quota_just_freed_goes_first_to_who_need_not_borrow_it():
    queues = [cluster_queue(f"{name}-cq", T4, cohort="all") for name in ("old", "own")]
    older, owner = (
        replace(arrival(name, {GPU: "4"}, local_queue=f"{name}-lq"), created=created)
        for created, name in enumerate(["old", "own"])
    )
    state = snapshot(
        *queues,
        held={"old-cq": held({"t4": {GPU: "4"}}, reserving=1)},
        competing={"old-cq": (older,), "own-cq": (owner,)},
    )

    found = occupancy_of(state)

    assert found.held("old-cq").pending == 1
    assert found.held("own-cq").reserving == 1


def test_shares_decide_who_gets_quota_just_freed():
    queues = [
        cluster_queue(f"{name}-cq", {"t4": {GPU: "0"}}, cohort="all") for name in ("old", "new")
    ]
    pool = cluster_queue("pool-cq", {"t4": {GPU: "4"}}, cohort="all")
    older, newer = (
        replace(arrival(name, {GPU: "2"}, local_queue=f"{name}-lq"), created=created)
        for created, name in enumerate(["old", "new"])
    )
    state = snapshot(
        *queues,
        pool,
        kueue=KueueConfig(fair_sharing=True),
        held={"old-cq": held({"t4": {GPU: "2"}}, reserving=1)},
        competing={"old-cq": (older,), "new-cq": (newer,)},
    )

    found = occupancy_of(state)

    assert (found.held("old-cq").pending, found.held("new-cq").reserving) == (1, 1)


def test_one_whose_namespace_is_not_selected_keeps_no_quota_from_others():
    selective = cluster_queue(
        "a-cq",
        T4,
        cohort="all",
        queueing=Queueing.STRICT,
        namespaces=Selector(labels={"team": "other"}),
    )
    state = snapshot(
        selective,
        cluster_queue("b-cq", T4, cohort="all"),
        held={"b-cq": held({"t4": {GPU: "6"}}, reserving=1)},
    )

    found = occupancy_of(state, [arrival("a", {GPU: "3"}, local_queue="a-lq")])

    assert found.held("a-cq") == Held(pending=1)


def test_the_search_for_flavors_goes_on_where_it_ended_in_vain():
    # The first pod set takes what the second one needs, until it is tried behind that flavor.
    flavors = {"a": {GPU: "2"}, "b": {GPU: "1"}}
    queue = cluster_queue(quotas=flavors)
    found = occupancy_of(snapshot(queue))

    assigned = occupancy.assignment(found, [needs({GPU: "1"}), needs({GPU: "2"})], queue)

    assert assigned.fit is Fit.FITS
    assert assigned.assignment.flavors == ("b", "a")


LOWER = Preemption(within_cluster_queue="LowerPriority")
BORROWS = Preemption(within_cluster_queue="LowerPriority", borrow_within_cohort="LowerPriority")


def reserving(*priorities, flavor="t4"):
    """Workloads with a GPU each, the newest first."""
    return tuple(
        Reservation(
            key=f"team/{flavor}-{number}",
            local_queue="gpu-lq",
            charge=(((flavor, GPU), 1),),
            priority=priority,
            reserved_at=-number,
            queued_at=-number,
            is_evicted=False,
            uid="",
        )
        for number, priority in enumerate(priorities)
    )


def fit(state, *, gpus=1, priority=9, placements=()):
    """How the first ClusterQueue would take a Job, and whom it would preempt."""
    queues = occupancy_of(state, placements)
    queue = next(iter(state.cluster_queues.values()))
    assigned = occupancy.assignment(queues, [needs({GPU: str(gpus)})], queue, priority=priority)
    return assigned.fit, assigned.preempts


def full(*queues, **holding):
    """ClusterQueues and who holds quota there, as ``reserving`` makes them."""
    usage = {
        name: Held(
            reserving=len(found),
            usage=dict(Counter(cell for each in found for cell, _ in each.charge)),
            lowest_priority=min(each.priority for each in found),
        )
        for name, found in holding.items()
    }
    names = {name.replace("_", "-"): name for name in holding}
    return snapshot(
        *queues,
        held={name: usage[key] for name, key in names.items()},
        reserving={name: holding[key] for name, key in names.items()},
    )


@pytest.mark.parametrize(
    ("spot", "t4", "gpus", "expected"),
    [
        (9, (0, 0, 9, 9), 1, (Fit.MAY_PREEMPT, 1)),
        (9, (0, 0, 9, 9), 2, (Fit.MAY_PREEMPT, 2)),
        # One of lower priority holds less than the newcomer needs.
        (9, (0, 9, 9, 9), 2, (Fit.WAITS, 0)),
        (9, (9, 9, 9, 9), 1, (Fit.WAITS, 0)),
        # Who is less urgent uses the other flavor.
        (0, (9, 9, 9, 9), 1, (Fit.MAY_PREEMPT, 1)),
        (0, (9, 9, 9, 9), 2, (Fit.WAITS, 0)),
    ],
)
def test_who_holds_the_quota_decides_whether_it_may_preempt(spot, t4, gpus, expected):
    queue = cluster_queue(quotas={**T4, "spot": {GPU: "1"}}, preemption=LOWER)

    holding = (*reserving(spot, flavor="spot"), *reserving(*t4))

    assert fit(full(queue, gpu_cq=holding), gpus=gpus) == expected


@pytest.mark.parametrize(
    ("policy", "borrowers", "expected"),
    [
        ("LowerPriority", (0, 0, 0, 0), (Fit.MAY_PREEMPT, 1)),
        ("LowerPriority", (99, 99, 99, 99), (Fit.WAITS, 0)),
        ("Any", (99, 99, 99, 99), (Fit.MAY_PREEMPT, 1)),
    ],
)
def test_quota_is_taken_back_from_those_that_the_policy_names(policy, borrowers, expected):
    lender = cluster_queue(
        quotas=T4, cohort="all", preemption=Preemption(reclaim_within_cohort=policy)
    )
    borrower = cluster_queue("other-cq", {"t4": {GPU: "0"}}, cohort="all")

    assert fit(full(lender, borrower, other_cq=reserving(*borrowers))) == expected


def test_placements_may_be_preempted_as_those_that_are_observed():
    state = full(cluster_queue(quotas=T4, preemption=LOWER), gpu_cq=reserving(9, 9))
    placements = [arrival(str(n), ONE, priority=n) for n in (0, 9)]

    assert fit(state, gpus=1, placements=placements) == (Fit.MAY_PREEMPT, 1)
    assert fit(state, gpus=2, placements=placements) == (Fit.WAITS, 0)


def test_where_nothing_is_known_of_the_holders_their_lowest_priority_decides():
    known = full(cluster_queue(quotas=T4, preemption=LOWER), gpu_cq=reserving(0, 9, 9, 9))

    assert fit(replace(known, reserving={}), gpus=2) == (Fit.MAY_PREEMPT, 0)


POLICIES = st.builds(
    Preemption,
    within_cluster_queue=st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
    reclaim_within_cohort=st.sampled_from(["Never", "LowerPriority", "Any"]),
    borrow_within_cohort=st.sampled_from(["Never", "LowerPriority"]),
)


@given(st.data())
def test_it_may_preempt_where_the_event_loop_preempts_for_it(data):
    state = data.draw(snapshots(policies=POLICIES))
    tree_of = {name: tree for tree in trees(state) for name in tree.leaves}
    holding = {name: [] for name in state.cluster_queues}
    for number in range(data.draw(st.integers(0, 8))):
        name = data.draw(st.sampled_from(sorted(holding)))
        tree, priority = tree_of[name], data.draw(st.integers(0, 2))
        cell, amount = data.draw(st.integers(0, tree.width - 1)), data.draw(st.integers(1, 3))
        if tree.available(tree.leaves[name], cell) >= amount:
            tree.charge(tree.leaves[name], ((cell, amount),))
            charge = ((tree.cells[cell], amount),)
            holding[name].append(holder(number, charge, priority))
    known = {name: tuple(sorted(found, key=place)) for name, found in holding.items() if found}
    state = replace(state, held={name: total(found) for name, found in known.items()})
    state = replace(state, reserving=known)
    name, priority = data.draw(st.sampled_from(sorted(holding))), data.draw(st.integers(0, 2))
    asks = [replace(needs(), per_pod=data.draw(asked))]

    loop = schedules(state)[name]
    for target, found in known.items():
        if target in loop.tree.leaves:
            for each in found:
                loop.add_running(running(target, each))
    new = Arrival(
        key="new",
        namespace=NAMESPACE,
        local_queue=f"{name.removesuffix('-cq')}-lq",
        needs=tuple(asks),
        priority=priority,
    )
    loop.add_waiting(waiting(new, state), age=1000)
    loop.start_what_fits()

    queues = occupancy_of(state)
    assigned = occupancy.assignment(queues, asks, state.cluster_queues[name], priority=priority)
    assert (assigned.fit is Fit.FITS) == bool(loop.begun)
    assert (assigned.fit is Fit.MAY_PREEMPT) == bool(loop.preempted)
    assert assigned.preempts == sum(each.count for each in loop.preempted)


def holder(number, charge, priority):
    (found,) = reserving(priority)
    return found._replace(key=f"team/{number}", charge=charge, reserved_at=number, queued_at=number)


def place(found):
    return found.priority, -found.reserved_at


def total(found):
    usage = Counter()
    for each in found:
        usage.update(dict(each.charge))
    lowest = min(each.priority for each in found)
    return Held(reserving=len(found), usage=dict(usage), lowest_priority=lowest)


def running(name, found):
    return Running(
        cluster_queue=name,
        usage=dict(found.charge),
        seconds=100.0,
        key=found.key,
        priority=found.priority,
        order=found.queued_at,
        reserved_at=found.reserved_at - 1000.0,
    )


def test_whom_one_resource_alone_does_not_find_may_be_preempted_for_another():
    # Nobody has borrowed CPUs, but who has borrowed a GPU gives back both.
    state = snapshot(
        cluster_queue(
            "own-cq",
            {"t4": {"cpu": "2", GPU: "3"}},
            cohort="all",
            preemption=Preemption(
                reclaim_within_cohort="LowerPriority", borrow_within_cohort="LowerPriority"
            ),
        ),
        cluster_queue("other-cq", {"t4": {"cpu": "2", GPU: "0"}}, cohort="all"),
        held={
            "own-cq": held({"t4": {"cpu": "1", GPU: "1"}}),
            "other-cq": held({"t4": {"cpu": "1", GPU: "1"}}, reserving=1),
        },
        reserving={
            "other-cq": (
                reserving(0)[0]._replace(charge=((("t4", "cpu"), 1000), (("t4", GPU), 1))),
            )
        },
    )
    found = occupancy_of(state)
    queue = state.cluster_queues["own-cq"]

    assigned = occupancy.assignment(found, [needs({"cpu": "3", GPU: "2"})], queue, priority=1)

    assert (assigned.fit, assigned.preempts) == (Fit.MAY_PREEMPT, 1)


def test_nobody_is_preempted_for_one_behind_the_head_of_its_queue():
    strict = cluster_queue(quotas=T4, queueing=Queueing.STRICT, preemption=LOWER)
    state = full(strict, gpu_cq=reserving(0, 0, 0, 0))
    waiting = arrival("first", {GPU: "9"}, priority=9)
    state = replace(state, competing={"gpu-cq": (waiting,)})

    assert fit(state, priority=9) == (Fit.WAITS, 0)
    assert fit(state, priority=10) == (Fit.MAY_PREEMPT, 1)


def test_nobody_is_preempted_for_who_needs_quota_that_is_kept_for_a_head():
    # Another queue's head waits for what was lent; without it, one victim is not enough.
    strict = cluster_queue("a-cq", T4, cohort="all", queueing=Queueing.STRICT)
    preempting = cluster_queue("gpu-cq", T4, cohort="all", preemption=BORROWS)
    state = full(preempting, strict, gpu_cq=reserving(0, 0, 0, 0, 9, 9))
    waiting = arrival("first", {GPU: "3"}, local_queue="a-lq")
    kept = replace(state, competing={"a-cq": (waiting,)})

    assert fit(state, gpus=3, priority=1) == (Fit.MAY_PREEMPT, 1)
    assert fit(kept, gpus=3, priority=1) == (Fit.WAITS, 0)
