"""Who is sent away that would have been done sooner: decisions against a model of Kueue's order.

Every Job of a world is decided by admission's own code, from the true state and exact run times,
and then stays all the same. So it is known of each what staying came to. The model serves as Kueue
0.19.2 does: one head of each ClusterQueue a cycle, those that borrow after those that do not, then
priority, then age; BestEffortFIFO; ``withinClusterQueue: LowerPriority`` and
``reclaimWithinCohort: Any`` with the lowest priority and the newest first.
"""

import heapq
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.builders import cluster_queue, cohort, policy, snapshot
from webhook.decide.applicant import Moment
from webhook.flow import create
from webhook.jobs import KINDS
from webhook.kueue.forecast import forecast
from webhook.kueue.queue_lines import pending_group
from webhook.kueue.requests import needs
from webhook.kueue.simulation import Running
from webhook.learn.job_class import of_job
from webhook.model.forecasts import Basis, RunTime
from webhook.model.queues import Arrival, Held, LocalQueue, Preemption, Quota
from webhook.state import forecast_input
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.forecast_input import forecast_givens
from webhook.state.snapshot import Snapshot, updated

GPU = "nvidia.com/gpu"
CELL = ("a100", GPU)
SLOWDOWN = 3.5
_KIND = KINDS["batch", "v1", "Job"]
_SIZES = (1, 1, 1, 2, 4)
_MEAN_SECONDS = 600.0
_LOAD = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """ClusterQueues, who may take whose quota, and how often which priority comes."""

    quotas: Mapping[str, int]
    priorities: Mapping[int, int] = field(default_factory=lambda: {0: 1})
    weights: Sequence[int] = (1,)
    """How often Jobs come to each ClusterQueue."""
    cohort: str = ""
    preempts: bool = False
    reclaims: bool = False


WORLDS = {
    "one priority": World(quotas={"a": 16}),
    "priorities": World(quotas={"a": 16}, priorities={0: 6, 100: 3, 1000: 1}),
    "preemption": World(quotas={"a": 16}, priorities={0: 6, 100: 3, 1000: 1}, preempts=True),
    "cohort": World(quotas={"a": 8, "b": 8}, weights=(1, 3), cohort="all"),
    "reclaim": World(quotas={"a": 8, "b": 8}, weights=(1, 3), cohort="all", reclaims=True),
}


@dataclass(slots=True, kw_only=True)
class Case:
    """One Job: what it is, what was decided, and what staying came to."""

    number: int
    queue: str
    gpus: int
    seconds: float
    priority: int
    at: float
    started: float = 0.0
    done: float = math.inf
    leaves: bool = False
    why: str = ""

    @property
    def group(self) -> str:
        return f"{self.queue} {self.priority}"

    @property
    def is_wrong(self) -> bool:
        """Tell whether it is sent away and would have been done sooner had it stayed."""
        return self.leaves and self.done - self.at <= SLOWDOWN * self.seconds


def played(world: World, seed: int, count: int) -> list[Case]:
    """Let Jobs come, decide on each, and serve all of them."""
    cases = list(_drawn(world, random.Random(seed), count))
    _Play(world, cases).run()
    return cases


def _drawn(world: World, draw: random.Random, count: int) -> Iterator[Case]:
    rate = _LOAD * sum(world.quotas.values()) * len(_SIZES) / (_MEAN_SECONDS * sum(_SIZES))
    at = 0.0
    for number in range(count):
        at += draw.expovariate(rate)
        yield Case(
            number=number,
            queue=draw.choices(list(world.quotas), world.weights)[0],
            gpus=draw.choice(_SIZES),
            seconds=draw.lognormvariate(math.log(_MEAN_SECONDS) - 0.32, 0.8),
            priority=draw.choices(list(world.priorities), list(world.priorities.values()))[0],
            at=at,
        )


class _Play:
    def __init__(self, world: World, cases: Sequence[Case]) -> None:
        self._world, self._now = world, 0.0
        self._running: dict[int, Case] = {}
        self._waiting: dict[int, Case] = {}
        self._coming = [(case.at, case.number) for case in cases]
        self._cases = {case.number: case for case in cases}
        self._jobs = {case.number: _KIND.read(_source(case)) for case in cases}
        self._snapshot = _snapshot(world, self._cases.values(), self._jobs)

    def run(self) -> None:
        heapq.heapify(self._coming)
        while self._coming or self._running:
            ends = min(((c.started + c.seconds, n) for n, c in self._running.items()), default=None)
            if ends is not None and (not self._coming or ends[0] <= self._coming[0][0]):
                self._now, number = ends
                self._running.pop(number).done = self._now
            else:
                self._now, number = heapq.heappop(self._coming)
                case = self._cases[number]
                case.leaves, case.why = self._decide(case)
                self._waiting[number] = case
            self._serve()

    def _serve(self) -> None:
        while heads := [head for name in self._world.quotas if (head := self._head(name))]:
            _, case, victims = min(heads, key=lambda head: head[0])
            for victim in victims:
                self._waiting[victim.number] = self._running.pop(victim.number)
            self._running[case.number] = self._waiting.pop(case.number)
            case.started = self._now

    def _head(self, name: str) -> tuple[tuple[float, ...], Case, Sequence[Case]] | None:
        line = (case for case in self._waiting.values() if case.queue == name)
        for case in sorted(line, key=lambda case: (-case.priority, case.at)):
            victims = () if case.gpus <= self._free(name) else self._victims(case)
            if victims is not None:
                borrows = self._used(name) + case.gpus > self._world.quotas[name]
                return (borrows, -case.priority, case.at), case, victims
        return None

    def _victims(self, case: Case) -> Sequence[Case] | None:
        world, taken = self._world, []
        is_own = self._used(case.queue) + case.gpus <= world.quotas[case.queue]
        over = {name: self._used(name) - quota for name, quota in world.quotas.items()}
        room = self._free(case.queue)
        for other in sorted(self._running.values(), key=lambda c: (c.priority, -c.started)):
            if room >= case.gpus:
                break
            lower = world.preempts and other.queue == case.queue and other.priority < case.priority
            lent = world.reclaims and is_own and other.queue != case.queue and over[other.queue] > 0
            if lower or lent:
                taken.append(other)
                room += other.gpus
                over[other.queue] -= other.gpus
        return taken if room >= case.gpus else None

    def _used(self, name: str) -> int:
        return sum(case.gpus for case in self._running.values() if case.queue == name)

    def _free(self, name: str) -> int:
        names = list(self._world.quotas) if self._world.cohort else [name]
        return sum(self._world.quotas[each] - self._used(each) for each in names)

    def _decide(self, case: Case) -> tuple[bool, str]:
        moment = Moment(
            now=self._now, unix=self._now, time="2026-11-21T06:00:00Z", uid=f"{case.number:08x}"
        )
        view = occupancy_of(self._state())
        decision = create.consider(_source(case), _KIND, view, moment, create.Rules()).decision
        assert decision is not None
        return decision.option == "cpu", decision.reason

    def _state(self) -> Snapshot:
        found = updated(self._snapshot, as_of=self._now, held=self._held(), competing=self._lines())
        running = [
            Running(
                cluster_queue=case.queue,
                usage={CELL: case.gpus},
                job_class=self._class_of(case),
                started_at=case.started,
            )
            for case in self._running.values()
        ]
        waiting = [
            pending_group(self._arrival(case), job_class=self._class_of(case))
            for case in sorted(self._waiting.values(), key=lambda c: (-c.priority, c.at))
        ]
        forecasts = forecast(
            forecast_givens(found, forecast_input.LentRunTimes(found), self._now), running, waiting
        )
        return replace(found, forecasts=forecasts)

    def _held(self) -> Mapping[str, Held]:
        return {
            name: Held(
                reserving=len(mine),
                usage={CELL: self._used(name)},
                lowest_priority=min((case.priority for case in mine), default=None),
            )
            for name in self._world.quotas
            for mine in [[case for case in self._running.values() if case.queue == name]]
        }

    def _lines(self) -> Mapping[str, tuple[Arrival, ...]]:
        order = sorted(self._waiting.values(), key=lambda case: (-case.priority, case.at))
        return {
            name: tuple(self._arrival(case) for case in order if case.queue == name)
            for name in self._world.quotas
        }

    def _arrival(self, case: Case) -> Arrival:
        return Arrival(
            key=str(case.number),
            namespace="team",
            local_queue=case.queue,
            needs=needs(
                self._jobs[case.number], self._snapshot.cluster, self._snapshot.setup.kueue
            ),
            priority=case.priority,
            created=int(case.at * 1000),
        )

    def _class_of(self, case: Case) -> str:
        return forecast_input.class_name(of_job(self._jobs[case.number]), "", "")


def _snapshot(world: World, cases, jobs) -> Snapshot:
    preemption = Preemption(
        within_cluster_queue="LowerPriority" if world.preempts else "Never",
        reclaim_within_cohort="Any" if world.reclaims else "Never",
    )
    queues = [
        cluster_queue(
            name, {"a100": {GPU: Quota(nominal=quota)}}, cohort=world.cohort, preemption=preemption
        )
        for name, quota in world.quotas.items()
    ]
    cpus = cluster_queue("cpu", {"cpus": {"cpu": Quota(nominal=1_000_000)}})
    found = snapshot(*queues, cpus, cohorts=[cohort(world.cohort)] if world.cohort else [])
    classes = {case.number: of_job(jobs[case.number]) for case in cases}
    return updated(
        found,
        local_queues={
            ("team", name): LocalQueue(namespace="team", name=name, cluster_queue=name)
            for name in (*world.quotas, "cpu")
        },
        priority_classes={f"p{value}": value for value in world.priorities},
        policies=tuple(_policy(name) for name in world.quotas),
        run_times={
            (classes[case.number].key, flavor): _exactly(case.seconds * factor)
            for case in cases
            for flavor, factor in (("a100", 1.0), ("cpus", SLOWDOWN))
        },
    )


def _policy(name: str):
    return policy(
        {"name": "gpu", "queue": name},
        {
            "name": "cpu",
            "queue": "cpu",
            "adaptation": {"accelerator": "Remove", "perRemoved": {"cpu": "1"}},
        },
        name=name,
        match={"jobSelector": {}, "queues": [name]},
        strategy={"type": "FinishTime"},
    )


def _exactly(seconds: float) -> RunTime:
    return RunTime(seconds=seconds, low=seconds, high=seconds, basis=Basis.LEARNED, runs=20)


def _source(case: Case):
    resources = {"requests": {GPU: str(case.gpus)}, "limits": {GPU: str(case.gpus)}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"job-{case.number}",
            "namespace": "team",
            "labels": {
                "kueue.x-k8s.io/queue-name": case.queue,
                "kueue.x-k8s.io/priority-class": f"p{case.priority}",
            },
        },
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {"name": "main", "image": f"job:{case.number}", "resources": resources}
                    ],
                }
            }
        },
    }
