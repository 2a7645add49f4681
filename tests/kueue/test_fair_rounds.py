"""The event loop where shares or use decide who is served next."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import arrival, cluster_queue, snapshot
from tests.worlds import arrivals, schedules, snapshots, waiting
from webhook.kueue.fair_rounds import LocalQueueUse
from webhook.kueue.schedule import Running
from webhook.model.queues import AdmissionFairSharing, KueueConfig, LocalQueue, Preemption, Queueing

FAIR = KueueConfig(fair_sharing=True)
CPU = ("default", "cpu")


def queue(name, cpus="0", **rest):
    return cluster_queue(f"{name}-cq", {"default": {"cpu": cpus}}, cohort="all", **rest)


def tree(*queues, kueue=FAIR, more=()):
    state = snapshot(*queues, kueue=kueue)
    state = replace(
        state, local_queues=state.local_queues | {(q.namespace, q.name): q for q in more}
    )
    return state, next(iter(schedules(state).values()))


def come(state, schedule, *jobs):
    """Let Workloads come: key, LocalQueue, CPUs, priority, when, run time."""
    for key, name, cpus, priority, at, seconds in jobs:
        wanted = arrival(key, {"cpu": str(cpus)}, local_queue=name, priority=priority)
        schedule.add_waiting(waiting(wanted, state, at=at, seconds=seconds, count=1))


def run(schedule):
    while schedule.next_event() < inf:
        schedule.step()
    return [begun.key for begun in schedule.begun]


@st.composite
def where_strict_heads_keep_quota(draw):
    """Cohorts in which only the heads of StrictFIFO queues keep quota from others.

    Heads of others keep it for a single cycle, and heads without room take none of the rounds.
    """
    shape = draw(
        st.sampled_from(
            [{"queueing": st.just(Queueing.STRICT), "parents": ("x", "y")}, {"parents": ("y",)}]
        )
    )
    nobody_preempts = {"policies": st.just(Preemption())}
    state = draw(snapshots(fair_sharing=st.just(True), **nobody_preempts, **shape))
    queues = {
        name: each if each.queueing is Queueing.STRICT else without_own_quota(each)
        for name, each in state.cluster_queues.items()
    }
    return replace(state, cluster_queues=queues)


def without_own_quota(each):
    groups = (
        replace(
            group,
            quotas={cell: replace(quota, nominal=0) for cell, quota in group.quotas.items()},
        )
        for group in each.groups
    )
    return replace(each, groups=tuple(groups))


def of_one_shape_each(come, state):
    """Let all of a queue that is not strict ask for the same, in one pod set."""
    first = {}
    for wanted in come:
        place = state.local_queues[wanted.namespace, wanted.local_queue].cluster_queue
        needs = wanted.needs[:1]
        if state.cluster_queues[place].queueing is not Queueing.STRICT:
            needs = first.setdefault(place, needs)
        yield replace(wanted, needs=needs)


@pytest.mark.agreement
@given(st.data())
def test_rounds_start_whom_kueues_cycles_start(data):
    state = data.draw(where_strict_heads_keep_quota())
    exact, rounds = schedules(state), schedules(state, grain=0.01)
    for wanted in of_one_shape_each(data.draw(arrivals(state)), state):
        each = waiting(wanted, state)
        for found in (exact, rounds):
            found[each.cluster_queue].add_waiting(each)

    for schedule in {*exact.values(), *rounds.values()}:
        schedule.start_what_fits()

    for name in state.cluster_queues:
        assert starts(rounds[name]) == starts(exact[name])
        assert kept(rounds[name]) == kept(exact[name])


def starts(schedule):
    return [(begun.key, begun.flavors) for begun in schedule.begun for _ in range(begun.count)]


def kept(schedule):
    return sorted((leaf, aside) for *_, leaf, aside in schedule.kept)


LOCAL = [LocalQueue(namespace="team", name=name, cluster_queue="a-cq") for name in ("x", "y")]


def by_use(state, schedule, **amounts):
    """Order LocalQueues by what they have used; a penalty is half of what a Workload asks for."""
    rules = AdmissionFairSharing(half_life_seconds=300.0, sampling_seconds=300.0)
    consumed = {f"team/{name}": {"cpu": amount} for name, amount in amounts.items()}
    schedule.order_by_use(
        LocalQueueUse(schedule.tree, rules, consumed, lambda used, _: sum(used.values()))
    )


def test_what_gets_quota_counts_as_use_at_once():
    first = replace(queue("a", "1"), usage_based=True)
    state, schedule = tree(first, kueue=KueueConfig(), more=LOCAL)
    by_use(state, schedule, x=0.0, y=0.75)
    jobs = [(f"{name}{n}", name, 1, 0, 0.0, 1.0) for name in "xy" for n in range(3)]
    come(state, schedule, *jobs)

    assert run(schedule) == ["x0", "x1", "y0", "x2", "y1", "y2"]


@pytest.mark.parametrize(("seconds", "served"), [(200.0, ["x", "y"]), (400.0, ["y", "x"])])
def test_what_a_localqueue_holds_counts_as_use_at_each_sample(seconds, served):
    first = replace(queue("a", "1"), usage_based=True)
    state, schedule = tree(first, kueue=KueueConfig(), more=LOCAL)
    by_use(state, schedule, x=0.0, y=0.2)
    usage = {CPU: 1000}
    schedule.add_running(
        Running(cluster_queue="a-cq", usage=usage, seconds=seconds, local_queue="team/x")
    )
    come(state, schedule, ("x", "x", 1, 0, 0.0, 1.0), ("y", "y", 1, 0, 0.0, 1.0))

    assert run(schedule) == served
