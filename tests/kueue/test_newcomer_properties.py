"""When newcomers start by their profile, against the event loop in which they wait, too."""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf, isqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import arrival, cluster_queue, cohort, snapshot
from tests.conftest import FULL
from webhook.kueue.expected_arrivals import ExpectedArrivals, ExpectedKind
from webhook.kueue.flavor_plan import demand
from webhook.kueue.forecast import forecast, pending_starts
from webhook.kueue.profile import start_among_pending
from webhook.kueue.quota import plant
from webhook.kueue.tree_workloads import (
    MOST_EXPECTED,
    MOST_TRIES,
    ForecastGivens,
    Occupant,
    QueuedGroup,
    TreeContents,
    filled,
    prepare,
)
from webhook.model.forecasts import Basis, RunTime
from webhook.model.queues import (
    AdmissionFairSharing,
    ConsumedResources,
    KueueConfig,
    Preemption,
    Queueing,
)

GPU = "gpu"
PRIORITIES = (0, 100, 1000)
NEWEST = 1_000_000
FEW = 32
NEEDS = {gpus: arrival("team", {GPU: gpus}).needs for gpus in "124"}


def run_time_of(seconds, flavors):
    length = float(seconds)
    return RunTime(seconds=length, low=length, high=length, basis=Basis.POLICY)


class World:
    """One cohort with all its quota in use, and what waits: of each Workload one GPU.

    It is drawn by a number, as times that hypothesis draws would be the same too often: what ends
    as a batch comes is too late for it, and then it matters who is served in which cycle.
    """

    def __init__(self, seed: int, *, fair_sharing: bool) -> None:
        self.random = random.Random(seed)
        quotas = [self.random.choice([0, 2, 4, 8]) for _ in range(self.random.randint(2, 5))]
        quotas[0] += 2
        self.names = [f"{place}-cq" for place in range(len(quotas))]
        self.snapshot = snapshot(
            *(self.queue(*each) for each in zip(self.names, quotas, strict=True)),
            cohorts=[cohort("all")],
            kueue=KueueConfig(fair_sharing=fair_sharing),
            priority_classes={str(priority): priority for priority in PRIORITIES},
        )
        self.weights = [self.random.random() ** 2 for _ in self.names]
        self.running = [self.holder() for _ in range(sum(quotas))]
        waiting = [self.waiting(age) for age in range(self.random.randint(1, FEW - 1))]
        self.pending = in_order(waiting)

    def queue(self, name, gpus):
        return cluster_queue(
            name,
            {"t4": {GPU: str(gpus)}},
            cohort="all",
            fair_weight=self.random.choice([1.0, 1.0, 2.0]),
            queueing=self.random.choice([*Queueing, Queueing.BEST_EFFORT]),
        )

    def name(self):
        return self.random.choices(self.names, self.weights)[0]

    def seconds(self):
        return str(self.random.uniform(20.0, 300.0))

    def holder(self):
        return Occupant(
            cluster_queue=self.name(),
            usage={("t4", GPU): 1},
            job_class=self.seconds(),
            started_at=0.0,
        )

    def waiting(self, age, name=None):
        asked = arrival("team", {GPU: "1"}, local_queue=f"{(name or self.name())[:-3]}-lq")
        priority = self.random.choice(PRIORITIES)
        asked = replace(asked, key=str(age), priority=priority, created=age)
        return QueuedGroup(arrival=asked, job_class=self.seconds())

    def profiles(self, *, elsewhere=0):
        """The profiles by a forecast beside which so many wait *elsewhere*."""
        return forecast(
            self.snapshot,
            self.running,
            self.pending,
            run_time_of,
            0.0,
            pending=elsewhere + len(self.pending),
        )

    def told_and_true(self):
        """The start that a newcomer is told in some ClusterQueue, and that of the event loop.

        The ClusterQueue is *newcomers* then.
        """
        self.newcomers = name = self.random.choice(self.names)
        new = self.waiting(NEWEST, name)
        profile = self.profiles()[name]
        asked = demand(new.arrival.needs, self.snapshot.cluster_queues[name], self.snapshot)
        of_line = profile.of(new.arrival.local_queue_key)
        told = start_among_pending(of_line, asked, priority=new.arrival.priority).start
        both = in_order([*self.pending, new])
        starts = pending_starts(self.snapshot, self.running, both, run_time_of, 0.0)
        return told, starts[str(NEWEST)][0].seconds


class WorldOfSizes(World):
    """One of BestEffortFIFO alone, in which Workloads ask for one to four GPUs."""

    def __init__(self, seed: int, *, at_least: int = 1) -> None:
        super().__init__(seed, fair_sharing=False)
        if len(self.pending) < at_least:
            self.pending = in_order(self.waiting(age) for age in range(at_least))

    def queue(self, name, gpus):
        return replace(super().queue(name, gpus), queueing=Queueing.BEST_EFFORT)

    def waiting(self, age, name=None):
        alike = super().waiting(age, name)
        needs = NEEDS[self.random.choice("1124")]
        return replace(alike, arrival=replace(alike.arrival, needs=needs))


class PreemptingWorld(World):
    """One in which more wait than each cycle is run for, and whose ClusterQueues may preempt."""

    def __init__(self, seed: int, *, fair_sharing: bool = False) -> None:
        super().__init__(seed, fair_sharing=fair_sharing)
        self.running = [
            replace(holder, priority=self.random.choice(PRIORITIES), created=1)
            for holder in self.running
        ]
        # Each is of a kind of its own.
        least = isqrt(MOST_EXPECTED * MOST_TRIES) + 1
        count = self.random.randint(least, least + 16)
        self.pending = in_order(self.waiting(age + 10) for age in range(count))

    def queue(self, name, gpus):
        return replace(
            super().queue(name, gpus),
            queueing=Queueing.BEST_EFFORT,
            preemption=Preemption(
                within_cluster_queue=self.random.choice(["Never", "LowerPriority"]),
                reclaim_within_cohort=self.random.choice(["Never", "LowerPriority", "Any"]),
            ),
        )


class SettledWorld(PreemptingWorld):
    """One in which Workloads run that have started by Kueue's rules, and nobody is stopping."""

    def __init__(self, seed: int, *, fair_sharing: bool) -> None:
        super().__init__(seed, fair_sharing=fair_sharing)
        self.pending = in_order(
            self.waiting(age + 10) for age in range(self.random.randint(20, 60))
        )
        groups = {group.arrival.key: group for group in self.pending}
        schedule = self.settled()
        (cell,) = schedule.tree.indices
        names = {leaf: name for name, leaf in schedule.tree.leaves.items()}
        self.running = [
            Occupant(
                cluster_queue=names[run.leaf],
                usage={cell: run.taken[0][1]},
                job_class=str(run.ends_at - schedule.now),
                started_at=0.0,
                priority=int(run.priority),
                created=groups[run.entry.waiting.key].arrival.created,
            )
            for run in schedule.runs.holding()
            if not run.is_over
        ]
        left = {entry.waiting.key for of in schedule.waiting() for _, _, entry in of.entries}
        self.pending = [group for group in self.pending if group.arrival.key in left]

    def waiting(self, age, name=None):
        alike = super().waiting(age, name)
        needs = NEEDS[self.random.choice("1124")]
        return replace(alike, arrival=replace(alike.arrival, needs=needs))

    def settled(self):
        """The schedule when those have ended who ran at its beginning, and some still wait."""
        roots = plant(self.snapshot.cluster_queues, self.snapshot.cohorts)
        case = ForecastGivens(snapshot=self.snapshot, run_time_of=run_time_of, now=0.0)
        queued = [(f"{group.arrival.local_queue[:-3]}-cq", group) for group in self.pending]
        contents = TreeContents(tree=roots.trees[0], occupants=self.running, queued=queued)
        schedule = filled(case, contents, prepare(case, contents), is_exact=True)
        while schedule.step():
            runs = schedule.runs.holding()
            if (
                schedule.is_settled
                and not schedule.evicts
                and all(of.entry and of.entry.waiting.key for of in runs)
            ):
                break
        return schedule


def in_order(waiting):
    return sorted(waiting, key=lambda group: -group.arrival.priority)


class OneQueue(World):
    """A ClusterQueue that serves its LocalQueues by their use; what waits asks for some GPUs."""

    local_queues = ("0-lq", "1-lq", "2-lq")

    def __init__(self, seed: int) -> None:
        super().__init__(seed, fair_sharing=False)
        gpus = self.random.randint(2, 16)
        rules = AdmissionFairSharing(half_life_seconds=60.0, sampling_seconds=10.0)
        queue = cluster_queue("gpu-cq", {"t4": {GPU: str(gpus)}}, usage_based=True)
        self.snapshot = snapshot(
            queue,
            local_queues=dict.fromkeys(self.local_queues, "gpu-cq"),
            kueue=KueueConfig(admission_fair_sharing=rules),
            priority_classes=self.snapshot.priority_classes,
            consumed={
                ("team", name): ConsumedResources(amounts={GPU: self.random.uniform(0.0, 5.0)})
                for name in self.local_queues[1:]
            },
        )
        self.names = ["gpu-cq"]
        self.weights = [1.0]
        self.running = [
            replace(self.holder(), local_queue=f"team/{self.random.choice(self.local_queues)}")
            for _ in range(gpus)
        ]
        number = self.random.randint(1, 2 * FEW)
        self.pending = in_order([self.waiting(age) for age in range(number)])

    def waiting(self, age, name=None):
        asked = arrival(
            "team",
            {GPU: self.random.choice("112")},
            local_queue=self.random.choice(self.local_queues),
            priority=self.random.choice(PRIORITIES),
        )
        asked = replace(asked, key=str(age), created=age)
        return QueuedGroup(arrival=asked, job_class=self.seconds())


NEAR = {"rel": 0.25, "abs": 5.0}
FEWER = {number: number if FULL else max(1, number // 3) for number in (3, 8, 20, 40, 60)}
"""How many of so many worlds there is time for."""


def played(world_of, seeds):
    """Map seeds to when newcomers start in their worlds, as they are told and in truth."""
    return {seed: world_of(seed).told_and_true() for seed in seeds}


def told_wrong(found, **near):
    return {
        seed: (told.seconds, true)
        for seed, (told, true) in found.items()
        if told.seconds != pytest.approx(true, **near or NEAR)
    }


def again(world, seeds):
    return f"told and true by seed: {seeds}; one again: {world}.told_and_true()"


@given(st.integers(0, 10**9))
def test_by_use_a_newcomer_starts_as_if_it_had_waited_with_the_others(seed):
    told, true = OneQueue(seed).told_and_true()

    assert told.is_known
    assert told.seconds == pytest.approx(true)


@given(st.integers(0, 10**9), st.booleans())
def test_of_equals_a_newcomer_starts_as_if_it_had_waited_with_the_others(seed, is_fair):
    world = World(seed, fair_sharing=is_fair)

    told, true = world.told_and_true()

    # What a newcomer does that would block those who wait, the profile does not say.
    queue = world.snapshot.cluster_queues[world.newcomers]
    assert told.is_known or queue.queueing is Queueing.STRICT
    if told.is_known:
        assert told.seconds == pytest.approx(true)


@given(st.integers(0, 10**9))
def test_of_any_size_a_newcomer_starts_about_when_it_would_have_with_the_others(seed):
    told, true = WorldOfSizes(seed).told_and_true()

    assert told.is_known
    # What is kept for it while it waits may change who of the others comes first.
    assert told.seconds == pytest.approx(true, **NEAR)


def test_where_hundreds_wait_newcomers_have_their_turn_behind_those_of_their_own_queue():
    # Forecasts of so many join hundreds of steps.
    found = played(lambda seed: WorldOfSizes(seed, at_least=300), range(FEWER[20]))

    assert not told_wrong(found), again("WorldOfSizes(seed, at_least=300)", told_wrong(found))


def test_of_hundreds_each_of_kueues_cycles_is_run():
    found = played(lambda seed: WorldOfSizes(seed, at_least=170), range(FEWER[8]))

    wrong = told_wrong(found, rel=0.05)
    assert not wrong, again("WorldOfSizes(seed, at_least=170)", wrong)


@pytest.mark.parametrize(
    ("pending", "seed", "is_exact"),
    # Few enough are tried; that more are is known when so many have been, or from the beginning.
    [(130, 1, True), (130, 0, False), (250, 0, False)],
)
def test_where_very_many_wait_in_other_trees_few_heads_may_be_tried(pending, seed, is_exact):
    world = WorldOfSizes(seed, at_least=pending)

    beside = world.profiles(elsewhere=10**6)

    assert (beside == world.profiles()) == is_exact
    assert all(profile.waits < inf for profile in beside.values())


def test_who_comes_after_all_have_started_overtakes_none_of_hundreds():
    world = WorldOfSizes(0, at_least=100)
    given = world.snapshot, world.running, world.pending, run_time_of, 0.0
    alone = forecast(*given)
    last = max(profile.waits for profile in alone.values())
    one = ExpectedArrivals(
        cluster_queue=world.names[0],
        priority=0,
        per_second=1.0 / last,
        seconds=1.5 * last,
        kinds=(ExpectedKind(asks=world.waiting(NEWEST, world.names[0]).arrival, job_class="60"),),
    )

    later = {name: of.later for name, of in forecast(*given, expected=[one]).items()}

    asked = demand(one.kinds[0].asks.needs, world.snapshot.cluster_queues["0-cq"], world.snapshot)

    def starts(profiles):
        found = (
            start_among_pending(profiles[name], asked, priority=priority).start.seconds
            for name in world.names
            for priority in PRIORITIES
        )
        return [seconds for seconds in found if seconds < last]

    assert len(starts(alone)) > 3
    # With the one that comes, each of Kueue's cycles is run, too.
    assert starts(later) == starts(alone)


def test_where_many_wait_most_newcomers_are_told_when_they_start():
    # The worlds are always the same, as of newcomers among many some are told a wrong time.
    found = played(PreemptingWorld, range(FEWER[60]))

    wrong = told_wrong(found)
    assert len(wrong) <= 0.05 * len(found), again("PreemptingWorld(seed)", wrong)


@pytest.mark.parametrize("is_fair", [False, True])
def test_where_workloads_preempt_newcomers_are_told_when_they_start_and_that_they_preempt(is_fair):
    # In some of these, those of lower priority are within their quota, and nobody preempts them;
    # in the first, shares let a newcomer preempt beyond its quota.
    seeds = 36, *range(88, 87 + FEWER[40])
    found = played(lambda seed: SettledWorld(seed, fair_sharing=is_fair), seeds)

    at_once = {
        seed: true
        for seed, (told, true) in found.items()
        if told.preempts and not told.preempts_later
    }
    wrong = told_wrong(found)
    world = f"SettledWorld(seed, fair_sharing={is_fair})"
    assert len(at_once) >= FEWER[3]
    assert max(at_once.values()) <= 3.0, again(world, at_once)
    assert len(wrong) <= 0.05 * len(found), again(world, wrong)
