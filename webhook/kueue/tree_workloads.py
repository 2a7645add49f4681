"""The Workloads of one cohort tree as its simulation takes them, with their expected run times.

Those that are there, and those that are expected to come.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import attrgetter
from typing import Final, TypeAlias

from webhook.kueue.assignment import DomainsInUse, held_elsewhere
from webhook.kueue.cycle_log import CycleLog
from webhook.kueue.durations import Durations, RunTimeOf
from webhook.kueue.fair_sharing import use_of
from webhook.kueue.flavor_plan import NOWHERE, Demand, demand, flavors_with_topology
from webhook.kueue.queue_lines import PendingGroup, Shape
from webhook.kueue.quota import UsageTree
from webhook.kueue.simulation import Running, Simulation
from webhook.model.fields import FieldError
from webhook.model.forecasts import Unseen
from webhook.model.quantity import Amounts, FlavorResource
from webhook.model.queues import Held, PodSetNeeds, Queueing
from webhook.model.snapshot_parts import ClusterObjects, KueueSetup

EXACT: Final = 20_000
"""Where pending Workloads of a tree, times the ClusterQueues in which they wait, are no more, no
events share a moment: each ClusterQueue's head is tried whenever something ends."""
GRAIN: Final = 0.0002
"""Where they are more, those do that are closer than this part of the time from now for each of
these ClusterQueues. What comes free together goes to wide Workloads that in Kueue are overtaken by
narrow ones, so starts hours away are wrong by a fourth in the middle, and less where all are
alike."""
MOST_TRIES: Final = 24_000
"""After so many tries of heads in a tree nobody preempts any more: the search for victims takes ten
times as long as a try without."""
UNKNOWN_SECONDS = 600.0
"""The run time of Workloads in ClusterQueues in which no run time is known."""
LATER = 0.5
"""How much lower those rank that are expected to come: behind newcomers of the same priority,
before all lower ones, as priorities are whole numbers."""
_MOST_EXPECTED = 256
"""Most Workloads that are expected to come to a tree; each may cost a scheduling cycle."""

PlacedGroup: TypeAlias = tuple[str, PendingGroup]
"""The ClusterQueue in which Workloads compete, and these Workloads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastGivens:
    """What the forecasts of all trees have in common."""

    setup: KueueSetup
    cluster: ClusterObjects
    held: Mapping[str, Held]
    """ClusterQueue to what it holds."""
    run_time_of: RunTimeOf
    now: float
    """On the clock of ``Snapshot.as_of``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeWorkloads:
    """The Workloads of a cohort tree as a Simulation takes them, with their expected run times."""

    case: ForecastGivens
    tree: UsageTree
    """Without usage."""
    run_times: Durations
    running: Sequence[Running]
    queued: Sequence[PlacedGroup]
    """What is pending, in Kueue's order, as the caller has it."""
    pending: Mapping[int, tuple[PendingGroup, PendingGroup | None]]
    """By the id of a group what it adds to the simulation; None: it does not compete."""
    unseen: tuple[Unseen, ...]
    """Workloads of which neither a run time nor a time limit is known to everybody."""
    demands: TreeDemands
    grain: float
    """That of the simulation."""
    shapes: dict[tuple[str, Demand | int], tuple[Demand, Shape]] = field(default_factory=dict)
    """``Simulation.shapes`` of all simulations with these Workloads, or with most of them."""


def prepare(
    case: ForecastGivens,
    tree: UsageTree,
    running: Sequence[Running],
    queued: Sequence[PlacedGroup],
) -> TreeWorkloads:
    """Return the Workloads of a tree without usage, with their run times."""
    demands = TreeDemands(case.setup)
    asked = [(name, group, demands.of(name, group.needs)) for name, group in queued]
    run_times = Durations(case.run_time_of, UNKNOWN_SECONDS)
    unseen = _learned(run_times, running, asked)
    for run in running:
        run_times.observe(
            run.cluster_queue,
            run.job_class,
            _flavors(run.usage),
            elapsed=_elapsed(run, case.now),
            count=run.count,
        )
    return TreeWorkloads(
        case=case,
        tree=tree,
        run_times=run_times,
        running=tuple(_running(run, case.now, run_times) for run in running),
        queued=queued,
        pending=_pending(asked, case.now, run_times),
        unseen=unseen,
        demands=demands,
        grain=_grain(queued),
    )


def with_others_pending(before: TreeWorkloads, queued: Sequence[PlacedGroup]) -> TreeWorkloads:
    """Return the same with these pending, most of which were pending before, too."""
    asked = [
        (name, group, before.demands.of(name, group.needs))
        for name, group in queued
        if id(group) not in before.pending
    ]
    if all(_is_known(before.run_times, *row) for row in asked):
        pending = _pending(asked, before.case.now, before.run_times)
        return replace(before, queued=queued, pending={**before.pending, **pending})
    anew = prepare(before.case, before.tree, before.running, queued)
    return replace(anew, grain=before.grain)


def _grain(queued: Sequence[PlacedGroup]) -> float:
    """Return the grain of a simulation in which these Workloads are pending."""
    count = sum(group.count for _, group in queued)
    queues = len({name for name, group in queued if group.count})
    return GRAIN * queues if count * queues > EXACT else 0.0


def _is_known(run_times: Durations, name: str, group: PendingGroup, shape: Demand | None) -> bool:
    """Return whether a group leaves what is expected of all others as it is."""
    flavors_of = shape.combinations if shape is not None else ()
    return all(run_times.is_settled(name, group.job_class, flavors) for flavors in flavors_of)


def _pending(
    asked: Sequence[tuple[str, PendingGroup, Demand | None]], now: float, run_times: Durations
) -> dict[int, tuple[PendingGroup, PendingGroup | None]]:
    # A group is kept beside its id: a freed one's id could be given to another.
    return {
        id(group): (
            group,
            _waiting(name, group, shape or NOWHERE, now, run_times) if group.count else None,
        )
        for name, group, shape in asked
    }


def _learned(
    run_times: Durations,
    running: Sequence[Running],
    asked: Sequence[tuple[str, PendingGroup, Demand | None]],
) -> tuple[Unseen, ...]:
    """Look up all run times; return the Workloads with neither one that all know nor a limit."""
    unseen: Counter[tuple[frozenset[FlavorResource], int | None, frozenset[str]]] = Counter()
    # All are looked up before the first is added, because an unknown run is taken to last as
    # long as the median of the known ones in its ClusterQueue.
    for run in running:
        name, flavors = run.cluster_queue, _flavors(run.usage)
        known = run_times.learn(name, run.job_class, flavors)
        if not (known or run.limit_seconds):
            known_in = run_times.known_in(name, run.job_class, (flavors,))
            # What holds quota keeps newcomers of every priority waiting, hence None.
            unseen[frozenset(run.usage), None, known_in] += run.count
    for name, group, shape in asked:
        flavors_of = shape.combinations if shape is not None else ()
        are_known = [run_times.learn(name, group.job_class, flavors) for flavors in flavors_of]
        if shape is not None and not (all(are_known) or group.limit_seconds):
            known_in = run_times.known_in(name, group.job_class, flavors_of)
            unseen[shape.cells, int(group.priority), known_in] += group.count
    return tuple(
        Unseen(cells=cells, priority=priority, count=count, known_in=known_in)
        for (cells, priority, known_in), count in unseen.items()
        if count
    )


def filled(
    workloads: TreeWorkloads,
    coming: Sequence[PendingGroup] = (),
    *,
    log: CycleLog | None = None,
) -> Simulation:
    """Return the simulation of a tree with all its Workloads, and with those that are *coming*."""
    case, tree = workloads.case, workloads.tree.copy()
    simulation = Simulation(
        tree,
        [case.setup.cluster_queues[name] for name in tree.leaves],
        grain=workloads.grain,
        kueue=case.setup.kueue,
        domains=domains_of(case, tree),
    )
    simulation.shapes, simulation.log = workloads.shapes, log
    simulation.most_tries = MOST_TRIES
    if (use := use_of(case.setup, tree)) is not None:
        simulation.order_by_use(use)
    for run in workloads.running:
        simulation.add_running(run)
    for place, (_, group) in enumerate(workloads.queued):
        _, waiting = workloads.pending[id(group)]
        if waiting is not None:
            simulation.add_waiting(waiting, age=age_of(group.created) + place)
    newest = max((group.created for _, group in workloads.queued), default=0)
    first = age_of(newest) + len(workloads.queued)
    for place, later in enumerate(coming):
        simulation.add_waiting(later, age=first + place)
    return simulation


def domains_of(case: ForecastGivens, tree: UsageTree) -> DomainsInUse | None:
    """Return the domains in which Workloads of a tree are placed; None: in none.

    What other trees hold there is in use.
    """
    members = (case.setup.cluster_queues[name] for name in tree.leaves)
    if not any(flavors_with_topology(queue, case.setup) for queue in members):
        return None
    return DomainsInUse(case.setup, held_elsewhere(case.held, tree.leaves))


def age_of(created: int) -> int:
    """Return a place by age, for times in seconds since 1970, with room for ties."""
    return created << 20


def _flavors(usage: Amounts) -> str:
    """Name the flavors in use, as run times are looked up by: sorted, unique, with commas."""
    return ",".join(sorted({flavor for flavor, _ in usage}))


def left_of(run: Running, now: float, run_times: Durations) -> tuple[float, float]:
    """Return mean and standard deviation of what is left of running Workloads, in seconds."""
    return run_times.left(
        run.cluster_queue,
        run.job_class,
        _flavors(run.usage),
        elapsed=_elapsed(run, now),
        limit=run.limit_seconds,
    )


def _elapsed(run: Running, now: float) -> float:
    """Return for how long Workloads have run, in seconds."""
    # What has reserved quota and is not admitted yet has its whole run before it.
    return 0.0 if run.started_at is None else max(0.0, now - run.started_at)


def _running(run: Running, now: float, run_times: Durations) -> Running:
    """Expect how long Workloads that hold quota still run."""
    seconds, spread = left_of(run, now, run_times)
    return replace(
        run,
        seconds=seconds,
        spread=spread,
        # Of equal age, those that hold quota have come before those that wait.
        order=age_of(run.created) - 1,
        reserved_at=-_elapsed(run, now),
        whole=run_times.whole(
            run.cluster_queue, run.job_class, _flavors(run.usage), limit=run.limit_seconds
        ),
    )


def _waiting(
    name: str, group: PendingGroup, shape: Demand, now: float, run_times: Durations
) -> PendingGroup:
    """Expect how long pending Workloads will run on each combination of flavors."""
    runs = run_times.whole_by_flavors(
        name, group.job_class, shape.combinations, limit=group.limit_seconds
    )
    # What no flavor serves never runs, but is tried by Kueue, and keeps a StrictFIFO queue waiting.
    seconds, spread = next(iter(runs.values()), (0.0, 0.0))
    return replace(
        group,
        cluster_queue=name,
        demand=shape,
        seconds=seconds,
        spread=spread,
        by_flavors=runs if len(runs) > 1 else {},
        at=max(0.0, group.at - now),
    )


class TreeDemands:
    """Finds what pod sets may use in a ClusterQueue, once for all that need the same."""

    def __init__(self, setup: KueueSetup) -> None:
        self._setup = setup
        # The needs are kept beside their id: a freed object's id could be given to another.
        self._known: dict[tuple[str, int], tuple[tuple[PodSetNeeds, ...], Demand | None]] = {}

    def of(self, cluster_queue: str, needs: tuple[PodSetNeeds, ...]) -> Demand | None:
        """Return what pod sets may use; None: a template of them cannot be read."""
        key = cluster_queue, id(needs)
        if key not in self._known:
            queue = self._setup.cluster_queues[cluster_queue]
            try:
                asked = demand(needs, queue, self._setup)
            except FieldError:
                asked = None
            self._known[key] = needs, asked
        return self._known[key][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedArrivals:
    """Workloads of one priority that are expected to come to a ClusterQueue from *now* on."""

    cluster_queue: str
    priority: int
    per_second: float
    seconds: float
    """For how long they go on coming: as long again as they have."""
    kinds: tuple[PendingGroup, ...]
    """Such as have come, which come again in turn: each with what it needs of a queue, or with the
    demand of what it got there."""


def expected_groups(
    expected: Sequence[ExpectedArrivals], workloads: TreeWorkloads, *, horizon: float
) -> Iterator[PendingGroup]:
    """Yield the Workloads that are expected to come to a tree, by time, at even intervals."""
    rows = heapq.merge(
        *(
            _row(arrivals, workloads, horizon)
            for arrivals in expected
            if arrivals.cluster_queue in workloads.tree.leaves
            and _may_overtake(arrivals, workloads.case)
        ),
        key=attrgetter("at"),
    )
    yield from islice(rows, _MOST_EXPECTED)


def _may_overtake(arrivals: ExpectedArrivals, case: ForecastGivens) -> bool:
    """Return whether those who come later may come before anybody who is there."""
    # Under StrictFIFO nobody overtakes those of his own priority, however wide they are.
    queue = case.setup.cluster_queues[arrivals.cluster_queue]
    return queue.queueing is not Queueing.STRICT or arrivals.priority > min(
        newcomer_priorities(case.cluster)
    )


def _row(
    arrivals: ExpectedArrivals, workloads: TreeWorkloads, horizon: float
) -> Iterator[PendingGroup]:
    name, known = arrivals.cluster_queue, {}
    for number in range(int(min(horizon, arrivals.seconds) * arrivals.per_second)):
        kind = arrivals.kinds[number % len(arrivals.kinds)]
        if id(kind) not in known:
            known[id(kind)] = _expected_group(name, arrivals.priority, kind, workloads)
        group = known[id(kind)]
        if group is not None:
            yield replace(group, at=(number + 1) / arrivals.per_second)


def _expected_group(
    name: str, priority: int, kind: PendingGroup, workloads: TreeWorkloads
) -> PendingGroup | None:
    """Return a Workload that is expected to come; None: how long it would run is not known."""
    shape = workloads.demands.of(name, kind.needs) if kind.needs else kind.demand
    run_times = workloads.run_times
    if shape is None or not shape.is_possible:
        return None
    if not all(run_times.knows(name, kind.job_class, flavors) for flavors in shape.combinations):
        return None
    runs = run_times.whole_by_flavors(
        name, kind.job_class, shape.combinations, limit=kind.limit_seconds
    )
    seconds, spread = next(iter(runs.values()))
    return PendingGroup(
        cluster_queue=name,
        demand=shape,
        seconds=seconds,
        spread=spread,
        by_flavors=runs if len(runs) > 1 else {},
        priority=priority - LATER,
        local_queue=kind.local_queue,
    )


def newcomer_priorities(cluster: ClusterObjects) -> Collection[int]:
    """Return the priorities that a newcomer may have: those of all priority classes, and 0."""
    classes = cluster.priority_classes.values(), cluster.pod_priorities.values()
    return {0, cluster.default_priority}.union(*classes)
