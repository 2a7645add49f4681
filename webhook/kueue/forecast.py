"""Profiles of ClusterQueues from what runs and waits in them: the event loop run to its end.

Cohort trees do not touch one another: those that nothing changed in need not be asked for again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from webhook.kueue import quota
from webhook.kueue.demand import Demand, demand
from webhook.kueue.durations import Durations, RunTimeOf
from webhook.kueue.occupancy import namespace_labels
from webhook.kueue.queue_lines import Waiting
from webhook.kueue.quota import Forest
from webhook.kueue.record import profile, recorded
from webhook.kueue.runs import Begun
from webhook.kueue.schedule import Running, Schedule
from webhook.kueue.tree import Tree
from webhook.model.fields import FieldError
from webhook.model.forecasts import Profile, Unseen
from webhook.model.queues import (
    Amounts,
    Arrival,
    ClusterQueue,
    FlavorResource,
    PodSetNeeds,
    Snapshot,
    StopPolicy,
)

GRAIN = 0.01
"""Events closer than this part of the time from now are looked at together."""
UNKNOWN_SECONDS = 600.0
"""The run time of Workloads in queues where none is known."""
_NEVER = "Never"

_Placed: TypeAlias = "tuple[str, Queued]"
"""With the ClusterQueue in which it competes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupant:
    """Workloads that hold quota."""

    cluster_queue: str
    usage: Amounts
    """Of all of them together."""
    job_class: str = ""
    started_at: float | None = None
    """On the clock of *now*; None: reserved, and not admitted yet."""
    limit_seconds: int = 0
    """They are ended after so long a run; 0: they are not."""
    count: int = 1
    priority: int | None = None
    """None: it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """Pending Workloads, in Kueue's order with others."""

    arrival: Arrival
    """A count of 0: they are gone, and the unknown run times there still go by theirs."""
    job_class: str = ""
    at: float = 0.0
    """On the clock of *now*, when they begin to compete: the end of a backoff."""
    limit_seconds: int = 0
    """As in ``Occupant``."""
    is_variant: bool = False
    """Others stand for the same Job: the first of them that fits is admitted alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """All that does not differ between trees."""

    snapshot: Snapshot
    forest: Forest
    run_time_of: RunTimeOf
    now: float
    keep: bool = False
    """Take down who starts when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Profiles, and what they come from."""

    profiles: Mapping[str, Profile]
    begun: tuple[Begun, ...]
    """Starts of those that wait, by their keys; who never starts is not among them."""


def forecast(
    snapshot: Snapshot,
    running: Sequence[Occupant],
    waiting: Sequence[Queued],
    run_time_of: RunTimeOf,
    now: float,
    only: Collection[str] | None = None,
) -> Mapping[str, Profile]:
    """Forecast all ClusterQueues, or those whose trees hold one of *only*."""
    case = _Case(
        snapshot=snapshot,
        forest=quota.plant(snapshot.cluster_queues, snapshot.cohorts).forest,
        run_time_of=run_time_of,
        now=now,
    )
    return _planned(case, running, waiting, only).profiles


def planned(
    snapshot: Snapshot,
    running: Sequence[Occupant],
    waiting: Sequence[Queued],
    run_time_of: RunTimeOf,
    now: float,
    only: Collection[str] | None = None,
) -> Planned:
    """Do the same, and say when each of *waiting* starts and is done."""
    case = _Case(
        snapshot=snapshot,
        forest=quota.plant(snapshot.cluster_queues, snapshot.cohorts).forest,
        run_time_of=run_time_of,
        now=now,
        keep=True,
    )
    return _planned(case, running, waiting, only)


def _planned(
    case: _Case,
    running: Sequence[Occupant],
    waiting: Sequence[Queued],
    only: Collection[str] | None,
) -> Planned:
    forest = case.forest
    roots = {name: forest.nodes[index].root for name, index in forest.places.items()}
    wanted = (
        set(roots.values()) if only is None else {roots[name] for name in only if name in roots}
    )
    occupants: defaultdict[int, list[Occupant]] = defaultdict(list)
    for occupant in running:
        if (root := roots.get(occupant.cluster_queue)) in wanted:
            occupants[root].append(occupant)
    queued: defaultdict[int, list[_Placed]] = defaultdict(list)
    targets = _Targets(case.snapshot)
    for each in waiting:
        name = targets.of(each.arrival)
        if (root := roots.get(name)) in wanted:
            queued[root].append((name, each))
    found: dict[str, Profile] = {}
    begun: list[Begun] = []
    for root in wanted:
        of_tree = _of_tree(case, root, occupants[root], queued[root])
        found |= of_tree.profiles
        begun += of_tree.begun
    return Planned(profiles=found, begun=tuple(begun))


class _Targets:
    """Finds the ClusterQueue in which an Arrival competes; "": in none."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[tuple[str, str], str] = {}

    def of(self, arrival: Arrival) -> str:
        place = arrival.namespace, arrival.local_queue
        if place not in self._known:
            self._known[place] = self._find(arrival)
        return self._known[place]

    def _find(self, arrival: Arrival) -> str:
        snapshot = self._snapshot
        local_queue = snapshot.local_queues.get((arrival.namespace, arrival.local_queue))
        if local_queue is None or local_queue.stop_policy is not StopPolicy.NONE:
            return ""
        queue = snapshot.cluster_queues.get(local_queue.cluster_queue)
        labels = namespace_labels(snapshot, arrival.namespace)
        return queue.name if queue is not None and queue.namespaces.matches(labels) else ""


def _of_tree(
    case: _Case, root: int, occupants: Sequence[Occupant], queued: Sequence[_Placed]
) -> Planned:
    tree = Tree(case.forest, root)
    queues = [case.snapshot.cluster_queues[name] for name in tree.leaves]
    schedule = Schedule(
        tree,
        queues,
        grain=GRAIN,
        kueue=case.snapshot.kueue,
        keep=case.keep,
    )
    run_times = Durations(case.run_time_of, UNKNOWN_SECONDS)
    unseen = _fill(schedule, case, run_times, occupants, queued)
    record = recorded(schedule, _newcomers(case.snapshot))
    bound = () if record.is_whole else ("depth",)
    found = {}
    for queue in queues:
        guessed = ("runTimes",) if queue.name in run_times.unknown else ()
        uncertain = _uncertain(queue, queues, case.snapshot) + guessed + bound
        of_queue = profile(schedule, record, queue, computed_at=case.now, uncertain=uncertain)
        found[queue.name] = replace(
            of_queue,
            unknown_seconds=run_times.unknown_seconds(queue.name),
            unseen=unseen,
            unordered=_unordered(queue, queued, case.snapshot),
        )
    return Planned(profiles=found, begun=tuple(schedule.begun))


def _newcomers(snapshot: Snapshot) -> Collection[int]:
    """List the priorities that a newcomer may have."""
    classes = snapshot.priority_classes.values(), snapshot.pod_priorities.values()
    return {0, snapshot.default_priority}.union(*classes)


def _unordered(queue: ClusterQueue, queued: Sequence[_Placed], snapshot: Snapshot) -> str:
    """Say why it is not known which of those that wait is served next; empty: it is."""
    others = any(name != queue.name for name, _ in queued)
    has_minimum = any(
        need.min_count is not None for _, each in queued for need in each.arrival.needs
    )
    reasons = {
        "partialAdmission": has_minimum,
        "concurrentAdmission": any(each.is_variant for _, each in queued),
        "admissionFairSharing": queue.usage_based and any(name == queue.name for name, _ in queued),
        "fairSharing": others and (snapshot.kueue.fair_sharing or queue.fair_sharing),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _fill(
    schedule: Schedule,
    case: _Case,
    run_times: Durations,
    occupants: Sequence[Occupant],
    queued: Sequence[_Placed],
) -> tuple[Unseen, ...]:
    """Let all in, and say of whom no run time is known.

    Every run time is looked up before: the unknown are taken to run as the known do.
    """
    demands = _Demands(case.snapshot)
    asked = [(name, each, demands.of(name, each.arrival)) for name, each in queued]
    unseen: Counter[tuple[frozenset[FlavorResource], int | None]] = Counter()
    for occupant in occupants:
        flavors = _flavors(occupant.usage)
        known = run_times.learn(occupant.cluster_queue, occupant.job_class, flavors)
        if not (known or occupant.limit_seconds):
            unseen[frozenset(occupant.usage), None] += occupant.count
    for name, each, shape in asked:
        flavors_of = shape.combinations if shape is not None else ()
        found = [run_times.learn(name, each.job_class, flavors) for flavors in flavors_of]
        if shape is not None and not (all(found) or each.limit_seconds):
            unseen[shape.cells, each.arrival.priority] += each.arrival.count
    for occupant in occupants:
        schedule.add_running(_running(occupant, case.now, run_times))
    for name, each, shape in asked:
        if shape is not None and shape.is_possible and each.arrival.count:
            schedule.add_waiting(_waiting(name, each, shape, case.now, run_times))
    return tuple(
        Unseen(cells=cells, priority=priority, count=count)
        for (cells, priority), count in unseen.items()
        if count
    )


def _flavors(usage: Amounts) -> str:
    return ",".join(sorted({flavor for flavor, _ in usage}))


def _running(occupant: Occupant, now: float, run_times: Durations) -> Running:
    elapsed = 0.0 if occupant.started_at is None else max(0.0, now - occupant.started_at)
    flavors = _flavors(occupant.usage)
    seconds, spread = run_times.left(
        occupant.cluster_queue,
        occupant.job_class,
        flavors,
        elapsed=elapsed,
        limit=occupant.limit_seconds,
    )
    return Running(
        cluster_queue=occupant.cluster_queue,
        usage=occupant.usage,
        seconds=seconds,
        spread=spread,
        count=occupant.count,
        priority=occupant.priority,
    )


def _waiting(name: str, queued: Queued, shape: Demand, now: float, run_times: Durations) -> Waiting:
    runs = {
        flavors: run_times.whole(name, queued.job_class, flavors, limit=queued.limit_seconds)
        for flavors in shape.combinations
    }
    seconds, spread = next(iter(runs.values()))
    return Waiting(
        cluster_queue=name,
        demand=shape,
        seconds=seconds,
        spread=spread,
        by_flavors=runs if len(runs) > 1 else {},
        priority=queued.arrival.priority,
        count=queued.arrival.count,
        at=max(0.0, queued.at - now),
        key=queued.arrival.key,
    )


def _uncertain(
    queue: ClusterQueue, tree: Sequence[ClusterQueue], snapshot: Snapshot
) -> tuple[str, ...]:
    preempts = queue.preemption.within_cluster_queue != _NEVER
    reclaims = queue.preemption.reclaim_within_cohort != _NEVER
    others = any(
        each.preemption.reclaim_within_cohort != _NEVER for each in tree if each is not queue
    )
    is_fair = snapshot.kueue.fair_sharing or queue.fair_sharing
    reasons = {
        "preemption": preempts or reclaims,
        "fairSharing": is_fair and len(tree) > 1,
        "cohortReclaim": others,
        "admissionChecks": bool(queue.checks),
        "podsReady": snapshot.kueue.block_admission,
    }
    return tuple(reason for reason, holds in reasons.items() if holds)


class _Demands:
    """What each shape may use in each ClusterQueue, worked out once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        # The needs are kept with their id, so that it stays theirs.
        self._known: dict[tuple[str, int], tuple[tuple[PodSetNeeds, ...], Demand | None]] = {}

    def of(self, cluster_queue: str, arrival: Arrival) -> Demand | None:
        """None: it cannot be read, so it can only wait."""
        key = cluster_queue, id(arrival.needs)
        if key not in self._known:
            queue = self._snapshot.cluster_queues[cluster_queue]
            try:
                found = demand(arrival.needs, queue, self._snapshot)
            except FieldError:
                found = None
            self._known[key] = arrival.needs, found
        return self._known[key][1]
