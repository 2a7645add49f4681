"""Random worlds of one cohort that newcomers come to, drawn by numbers."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.builders import arrival, cluster_queue, cohort, snapshot
from webhook.kueue.flavor_plan import demand
from webhook.kueue.forecast import forecast, pending_starts
from webhook.kueue.newcomer import Newcomer
from webhook.kueue.queue_lines import pending_group
from webhook.kueue.quota import plant
from webhook.kueue.simulation import Running
from webhook.kueue.tree_forecast import start_of
from webhook.kueue.tree_workloads import (
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
from webhook.state.forecast_input import forecast_givens

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
        return Running(
            cluster_queue=self.name(),
            usage={("t4", GPU): 1},
            job_class=self.seconds(),
            started_at=0.0,
        )

    def waiting(self, age, name=None):
        asked = arrival("team", {GPU: "1"}, local_queue=f"{(name or self.name())[:-3]}-lq")
        priority = self.random.choice(PRIORITIES)
        asked = replace(asked, key=str(age), priority=priority, created=age)
        return pending_group(asked, job_class=self.seconds())

    def told_and_true(self):
        """The start that a newcomer is told in some ClusterQueue, and that of the simulation.

        The ClusterQueue is *newcomers* then.
        """
        self.newcomers = name = self.random.choice(self.names)
        new = self.waiting(NEWEST, name)
        forecasts = forecast(
            forecast_givens(self.snapshot, run_time_of, 0.0), self.running, self.pending
        )
        newcomer = self.newcomer(new, name)
        told = start_of(forecasts[name], newcomer).start
        both = in_order([*self.pending, new])
        starts = pending_starts(
            forecast_givens(self.snapshot, run_time_of, 0.0), self.running, both
        )
        return told, starts[str(NEWEST)][0].seconds

    def newcomer(self, asked, name, *, now=0.0):
        queue = self.snapshot.setup.cluster_queues[name]
        return Newcomer(
            queue=queue,
            demand=demand(asked.needs, queue, self.snapshot.setup),
            setup=self.snapshot.setup,
            now=now,
            priority=asked.priority,
            local_queue=asked.local_queue,
        )


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
        return replace(alike, needs=needs)


class PreemptingWorld(World):
    """One in which more wait than each cycle is run for, and whose ClusterQueues may preempt."""

    def __init__(self, seed: int, *, fair_sharing: bool = False) -> None:
        super().__init__(seed, fair_sharing=fair_sharing)
        self.running = [
            replace(holder, priority=self.random.choice(PRIORITIES), created=1)
            for holder in self.running
        ]
        count = self.random.randint(340, 360)
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
        groups = {group.key: group for group in self.pending}
        simulation = self.settled()
        (cell,) = simulation.tree.indices
        names = {leaf: name for name, leaf in simulation.tree.leaves.items()}
        self.running = [
            Running(
                cluster_queue=names[run.leaf],
                usage={cell: run.usage[0][1]},
                job_class=str(run.finish - simulation.now),
                started_at=0.0,
                priority=int(run.entry.waiting.priority),
                created=groups[run.entry.waiting.key].created,
            )
            for run in simulation.holding()
        ]
        left = {entry.waiting.key for of in simulation.waiting() for _, _, entry in of.entries}
        self.pending = [group for group in self.pending if group.key in left]

    def waiting(self, age, name=None):
        alike = super().waiting(age, name)
        needs = NEEDS[self.random.choice("1124")]
        return replace(alike, needs=needs)

    def settled(self):
        """The simulation when those have ended who ran at its beginning, and some still wait."""
        roots = plant(self.snapshot.setup.cluster_queues, self.snapshot.setup.cohorts)
        case = forecast_givens(self.snapshot, run_time_of, 0.0)
        queued = [
            (f"{group.local_queue.partition('/')[2][:-3]}-cq", group) for group in self.pending
        ]
        simulation = filled(prepare(case, roots.trees[0], self.running, queued))
        while simulation.step():
            runs = simulation.holding()
            if (
                simulation.is_settled
                and not simulation.evicts
                and all(of.entry and of.entry.waiting.key for of in runs)
            ):
                break
        return simulation


def in_order(waiting):
    return sorted(waiting, key=lambda group: -group.priority)


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
            priority_classes=self.snapshot.cluster.priority_classes,
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
        return pending_group(asked, job_class=self.seconds())
