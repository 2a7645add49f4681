"""The forecasts of cohort trees, from the Workloads that hold quota and those that are pending.

Each tree is simulated to its end, and its cycles are logged. When those start who are pending, with
ranges, comes from the same simulation, so a newcomer and those who wait before it are told the
same. Trees share no quota, so one in which nothing changed need not be forecast again. Nothing here
knows of policies or of the Job that is to be decided.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import TypeAlias

from webhook.kueue import flavor_plan, quota
from webhook.kueue.cycle_log import CycleLog
from webhook.kueue.fair_sharing import use_of
from webhook.kueue.flavor_plan import Demand
from webhook.kueue.queue_lines import PendingGroup
from webhook.kueue.quota import UsageTree
from webhook.kueue.quota_holders import StartedWorkloads
from webhook.kueue.simulation import Running, Simulation
from webhook.kueue.tree_forecast import (
    PREEMPTION,
    QueueOutlook,
    TreeForecast,
    overtaken,
    pending_start,
)
from webhook.kueue.tree_workloads import (
    ExpectedArrivals,
    ForecastGivens,
    PlacedGroup,
    TreeWorkloads,
    expected_groups,
    filled,
    newcomer_priorities,
    prepare,
    with_others_pending,
)
from webhook.model.forecasts import Start
from webhook.model.quantity import FlavorResource
from webhook.model.queues import LOWER_PRIORITY, NEVER, ClusterQueue, StopPolicy
from webhook.model.snapshot_parts import ClusterObjects, KueueSetup

_HORIZON = 3.0
"""For how long Workloads are expected to come, as a multiple of how long those take that are there:
at a third of it, a newcomer has waited for as many again."""
_LEAST_HORIZON_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """The forecast of a tree, and the starts of pending Workloads in it."""

    forecast: TreeForecast
    begun: Sequence[StartedWorkloads]
    """Starts, in seconds from *now*; Workloads that never start are not among them."""
    begun_later: Sequence[StartedWorkloads] = ()
    """The same if those come who are expected; empty: none are."""


def forecast(
    case: ForecastGivens,
    running: Sequence[Running],
    waiting: Sequence[PendingGroup],
    only: Collection[str] | None = None,
    *,
    expected: Sequence[ExpectedArrivals] = (),
) -> Mapping[str, TreeForecast]:
    """Return by ClusterQueue the forecast of its tree: of all trees, or of those of *only*.

    *waiting* is in Kueue's order. Where Workloads are *expected*, a forecast has another log with
    them (``TreeForecast.later``).
    """
    forecasts: dict[str, TreeForecast] = {}
    for workloads in _Trees(case, running, only).prepared(waiting):
        planned = _of_tree(workloads, expected)
        forecasts |= dict.fromkeys(workloads.tree.leaves, planned.forecast)
    return forecasts


def pending_starts(
    case: ForecastGivens,
    running: Sequence[Running],
    waiting: Sequence[PendingGroup],
    only: Collection[str] | None = None,
    *,
    expected: Sequence[ExpectedArrivals] = (),
) -> Mapping[str, tuple[Start, ...]]:
    """Return when those start who are pending: the key of each group to its starts, in order.

    The arguments are as for ``forecast``, and the key of each group is its own. A group that
    competes nowhere is left out.
    """
    starts: dict[str, tuple[Start, ...]] = {}
    for workloads in _Trees(case, running, only).prepared(waiting):
        planned = _of_tree(workloads, expected)
        starts |= starts_in_tree(workloads, planned.forecast, planned.begun, planned.begun_later)
    return starts


class PlannedStarts:
    """When each pending Workload starts and finishes, as it is and as it would be with moves."""

    def __init__(
        self,
        case: ForecastGivens,
        running: Sequence[Running],
        waiting: Sequence[PendingGroup],
        only: Collection[str] | None = None,
    ) -> None:
        """Forecast what is pending; the arguments are as for ``forecast``."""
        self._trees = _Trees(case, running, only)
        self._known = list(self._trees.prepared(waiting))
        self._planned = [_of_tree(known) for known in self._known]

    @property
    def forecasts(self) -> Mapping[str, TreeForecast]:
        """Return the same as ``forecast``."""
        return {
            name: planned.forecast
            for known, planned in zip(self._known, self._planned, strict=True)
            for name in known.tree.leaves
        }

    @property
    def begun(self) -> tuple[StartedWorkloads, ...]:
        """Return the starts of all that is pending, in seconds from now."""
        return tuple(begun for planned in self._planned for begun in planned.begun)

    def with_waiting(self, waiting: Sequence[PendingGroup]) -> OtherStarts:
        """Return the starts if these Workloads were pending instead.

        Only trees whose pending groups differ are forecast again.
        """
        return OtherStarts(
            planned if queued == known.queued else _Rerun(with_others_pending(known, queued))
            for queued, known, planned in zip(
                self._trees.queued(waiting), self._known, self._planned, strict=True
            )
        )


class OtherStarts:
    """The starts with other Workloads pending, worked out only as far as they are asked for."""

    def __init__(self, trees: Iterable[_Planned | _Rerun]) -> None:
        self._trees = tuple(trees)

    def start_of(self, key: str) -> float:
        """Return when the Workload with this key starts, in seconds from now; inf: never.

        It is one that is not pending in the same tree otherwise.
        """
        reruns = (tree for tree in self._trees if isinstance(tree, _Rerun))
        return next((tree.start_of(key) for tree in reruns if key in tree.keys), inf)

    @property
    def begun(self) -> tuple[StartedWorkloads, ...]:
        """Return all starts."""
        return tuple(begun for tree in self._trees for begun in tree.begun)


class _Rerun:
    """The simulation of one tree that stops wherever it has told enough."""

    def __init__(self, workloads: TreeWorkloads) -> None:
        self._workloads = workloads

    @cached_property
    def keys(self) -> frozenset[str]:
        """The keys of all that are pending."""
        return frozenset(group.key for _, group in self._workloads.queued if group.count)

    @cached_property
    def _simulation(self) -> Simulation:
        return filled(self._workloads)

    def start_of(self, key: str) -> float:
        """Return when the Workload with this key starts, in seconds from now; inf: never."""
        if self._simulation.preempts:
            # Whoever is preempted starts again, and what counts is the last time.
            starts = {begun.key: begun.at for begun in self.begun}
            return starts.get(key, inf)
        begun, known = self._simulation.begun, 0
        while True:
            for started in begun[known:]:
                if started.key == key:
                    return started.at
            known = len(begun)
            if not self._simulation.step():
                return inf

    @property
    def begun(self) -> Sequence[StartedWorkloads]:
        """All starts."""
        self._simulation.run()
        return self._simulation.begun


class _Trees:
    """The cohort trees to forecast: all, or those with one of the ClusterQueues *only*."""

    def __init__(
        self, case: ForecastGivens, running: Sequence[Running], only: Collection[str] | None
    ) -> None:
        setup, self._case = case.setup, case
        self._targets = _Targets(setup, case.cluster)
        roots = quota.tree_names(setup.cluster_queues, setup.cohorts)
        wanted = (
            set(roots.values()) if only is None else {roots[name] for name in only if name in roots}
        )
        self._roots = {name: root for name, root in roots.items() if root in wanted}
        queues = {name: setup.cluster_queues[name] for name in self._roots}
        self._trees = quota.plant(queues, setup.cohorts).trees
        # A group is kept beside its id: a freed one's id could be given to another.
        self._placed: dict[int, PlacedGroup] = {}
        self._running: defaultdict[str, list[Running]] = defaultdict(list)
        for run in running:
            if (root := self._roots.get(run.cluster_queue)) is not None:
                self._running[root].append(run)

    def prepared(self, waiting: Sequence[PendingGroup]) -> Iterator[TreeWorkloads]:
        """Yield the Workloads of each tree, with these pending, always in the same order."""
        for tree, queued in zip(self._trees, self.queued(waiting), strict=True):
            yield prepare(self._case, tree, self._running[self._root(tree)], queued)

    def queued(self, waiting: Sequence[PendingGroup]) -> list[list[PlacedGroup]]:
        """Return those of these that are pending in each tree, in the same order."""
        queued: defaultdict[str, list[PlacedGroup]] = defaultdict(list)
        placed = self._placed
        for group in waiting:
            # Most groups are the same time after time.
            place = placed.get(id(group))
            if place is None:
                place = placed[id(group)] = self._targets.of(group.local_queue), group
            if (root := self._roots.get(place[0])) is not None:
                queued[root].append(place)
        return [queued[self._root(tree)] for tree in self._trees]

    def _root(self, tree: UsageTree) -> str:
        return self._roots[next(iter(tree.leaves))]


class _Targets:
    """Finds the ClusterQueue in which those of a LocalQueue compete; "": they compete in none."""

    def __init__(self, setup: KueueSetup, cluster: ClusterObjects) -> None:
        self._setup, self._cluster = setup, cluster
        self._known: dict[str, str] = {}

    def of(self, local_queue: str) -> str:
        """Return the ClusterQueue of a LocalQueue, ``namespace/name``."""
        if local_queue not in self._known:
            self._known[local_queue] = self._find(*local_queue.split("/", 1))
        return self._known[local_queue]

    def _find(self, namespace: str, name: str) -> str:
        setup = self._setup
        local_queue = setup.local_queues.get((namespace, name))
        if local_queue is None or local_queue.stop_policy is not StopPolicy.NONE:
            return ""
        # Kueue keeps Workloads pending whose namespace the ClusterQueue's selector leaves out.
        queue = setup.cluster_queues.get(local_queue.cluster_queue)
        labels = self._cluster.labels_of(namespace)
        return queue.name if queue is not None and queue.namespaces.matches(labels) else ""


def _of_tree(workloads: TreeWorkloads, expected: Sequence[ExpectedArrivals] = ()) -> _Planned:
    """Return the forecast of one cohort tree, and the starts in it."""
    case = workloads.case
    simulation, log = _simulated(workloads)
    # Who comes later may come first, but not before it is there.
    horizon = _HORIZON * max(log.times[-1], _LEAST_HORIZON_SECONDS)
    coming = tuple(expected_groups(expected, workloads, horizon=horizon))
    begun_later: Sequence[StartedWorkloads] = ()
    later, rate = None, 0.0
    if coming:
        with_coming, later = _simulated(workloads, coming)
        begun_later = with_coming.begun
        rate = sum(group.count for group in coming) / max(group.at for group in coming)
    return _Planned(
        forecast=TreeForecast(
            computed_at=case.now,
            tree=workloads.tree,
            log=log,
            later=later,
            expected_per_second=rate,
            queues=_outlooks(workloads, simulation),
            unseen=workloads.unseen,
            highest=max((group.priority for _, group in workloads.queued), default=-inf),
            first_by_use=_first_by_use(workloads),
        ),
        begun=simulation.begun,
        begun_later=begun_later,
    )


def _simulated(
    workloads: TreeWorkloads, coming: Sequence[PendingGroup] = ()
) -> tuple[Simulation, CycleLog]:
    """Simulate a tree to its end, and log it."""
    tree = workloads.tree
    log = CycleLog(quota=tree.subtree[: tree.width])
    simulation = filled(workloads, coming, log=log)
    simulation.run()
    return simulation, log


def _outlooks(workloads: TreeWorkloads, simulation: Simulation) -> dict[str, QueueOutlook]:
    setup, run_times = workloads.case.setup, workloads.run_times
    members = [setup.cluster_queues[name] for name in workloads.tree.leaves]
    # After too many tries nobody preempted any more, so all ranges are widened.
    bound = ("depth",) if simulation.gave_up else ()
    unordered = _all_unordered(workloads.queued)
    with_pending = frozenset(name for name, _ in workloads.queued)
    waits = _waits(simulation)
    return {
        queue.name: QueueOutlook(
            waits=waits[queue.name],
            unknown_seconds=run_times.unknown_seconds(queue.name),
            unordered=unordered or _unordered(queue, with_pending, setup),
            uncertain=(
                *_uncertain(queue, members, setup),
                *(("runTimes",) if queue.name in run_times.unknown else ()),
                *bound,
            ),
            outranked_below=_outranked_below(queue, workloads),
        )
        for queue in members
    }


def _waits(simulation: Simulation) -> Mapping[str, float]:
    """Return when the last pending Workload of each ClusterQueue starts; inf: some never do."""
    waits: defaultdict[str, float] = defaultdict(float)
    for begun in simulation.begun:
        waits[begun.cluster_queue] = max(waits[begun.cluster_queue], begun.at)
    for heads in simulation.waiting():
        # Under BestEffortFIFO nobody waits for those that can never fit.
        if heads.is_strict or any(entry.shape.is_possible for _, _, entry in heads.entries):
            waits[heads.queue.name] = inf
    return waits


def _first_by_use(workloads: TreeWorkloads) -> frozenset[str]:
    """Return the LocalQueues that have used less than any other with pending Workloads."""
    use = use_of(workloads.case.setup, workloads.tree)
    if use is None:
        return frozenset()
    least: dict[str, float] = {}
    for name, group in workloads.queued:
        used = use.amounts.get(group.local_queue, 0.0)
        least[name] = min(used, least.get(name, inf))
    return frozenset(
        local_queue
        for local_queue, name in use.cluster_queues.items()
        if use.amounts[local_queue] < least.get(name, inf)
    )


def _outranked_below(queue: ClusterQueue, workloads: TreeWorkloads) -> int | None:
    """Return below which priority a newcomer may be preempted by others of its ClusterQueue."""
    if queue.preemption.within_cluster_queue == NEVER:
        return None
    waiting = {int(group.priority) for _, group in workloads.queued}
    holding = {int(run.priority) for run in workloads.running if run.priority < inf}
    highest = max(waiting | holding | set(newcomer_priorities(workloads.case.cluster)))
    # Under the other policy, those of its own priority that are older may preempt it, too.
    return highest + (queue.preemption.within_cluster_queue != LOWER_PRIORITY)


def _all_unordered(queued: Sequence[PlacedGroup]) -> str:
    """Say why Kueue's order among all pending Workloads of a tree is not modelled; empty: it is."""
    # Such a start is unknown, and by one that is not known no Job leaves its preferred option
    # (decision 0023). How long one runs that was admitted with fewer pods is not known.
    kinds = {id(group.needs): group.needs for _, group in queued}
    if any(need.min_count is not None for needs in kinds.values() for need in needs):
        return "partialAdmission"
    return "concurrentAdmission" if any(group.is_variant for _, group in queued) else ""


def _unordered(queue: ClusterQueue, with_pending: Collection[str], setup: KueueSetup) -> str:
    """Say the same of one ClusterQueue by itself; *with_pending*: those in which some wait."""
    # A weight without Kueue's configuration of shares: whether they decide is not known.
    may_decide = queue.fair_sharing and not setup.kueue.fair_sharing
    reasons = {
        "fairSharing": may_decide and any(name != queue.name for name in with_pending),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _uncertain(
    queue: ClusterQueue, tree: Sequence[ClusterQueue], setup: KueueSetup
) -> tuple[str, ...]:
    """Say why a ClusterQueue's forecast is uncertain; each reason widens its ranges."""
    # The event loop preempts, but knows nothing of those who are still to come.
    preempts = queue.preemption.within_cluster_queue != NEVER
    others_reclaim = any(
        member.preemption.reclaim_within_cohort != NEVER for member in tree if member is not queue
    )
    is_fair = setup.kueue.fair_sharing or queue.fair_sharing
    reasons = {
        PREEMPTION: preempts,
        "fairSharing": is_fair and len(tree) > 1,
        "cohortReclaim": others_reclaim,
        "admissionFairSharing": queue.usage_based,
        "admissionChecks": bool(queue.checks),
        "podsReady": setup.kueue.block_admission,
        # When a domain has room is known for those of whom it is known which domains they have.
        "topology": bool(flavor_plan.flavors_with_topology(queue, setup)),
    }
    return tuple(reason for reason, holds in reasons.items() if holds)


def starts_in_tree(
    workloads: TreeWorkloads,
    forecast: TreeForecast,
    begun: Iterable[StartedWorkloads],
    begun_later: Iterable[StartedWorkloads],
) -> dict[str, tuple[Start, ...]]:
    """Return the starts of each group, by its key; the first is that of the first in order.

    *begun*: all starts of the event loop; *begun_later*: those with Workloads that are expected to
    come. Who is preempted starts again: the first start counts.
    """
    now, later = _by_key(begun), _by_key(begun_later)
    unseen = _unseen_before(workloads)
    starts = {}
    for name, group in workloads.queued:
        key, count = group.key, group.count
        before, is_unseen = unseen.get(id(group), (0, False))
        moments = zip(_first(now, key, count), _first(later, key, count), strict=True)
        starts[key] = tuple(
            _start(
                forecast,
                name,
                (at, after),
                priority=int(group.priority),
                unseen=before + number * is_unseen,
            )
            for number, (at, after) in enumerate(moments)
        )
    return starts


_Moment: TypeAlias = "tuple[float, float]"
"""When a Workload starts, in seconds, and the standard deviation of that."""


def _by_key(begun: Iterable[StartedWorkloads]) -> Mapping[str, Sequence[_Moment]]:
    moments: defaultdict[str, list[_Moment]] = defaultdict(list)
    for started in begun:
        moments[started.key] += [(started.at, started.spread)] * started.count
    return {key: sorted(of_key) for key, of_key in moments.items()}


def _first(by_key: Mapping[str, Sequence[_Moment]], key: str, count: int) -> Sequence[_Moment]:
    """Return the first *count* starts; inf for those who never start."""
    known = by_key.get(key, ())[:count]
    return (*known, *((inf, 0.0),) * (count - len(known)))


def _start(
    forecast: TreeForecast,
    name: str,
    moments: tuple[_Moment, _Moment],
    *,
    priority: int,
    unseen: int,
) -> Start:
    outlook = forecast.queues[name]
    at, after = moments
    start = pending_start(outlook, *at, priority=priority)
    # Who starts at once waits for nobody, so nothing about others can be wrong.
    if start.seconds == 0.0:
        return start
    if forecast.later is not None and start.seconds < inf:
        delayed = pending_start(outlook, *after, priority=priority)
        start = overtaken(start, delayed, forecast.expected_per_second)
    return replace(start, unseen=unseen, unordered=outlook.unordered)


def _unseen_before(
    workloads: TreeWorkloads,
) -> Mapping[int, tuple[int, bool]]:
    """Return by the id of a group for how many it waits of whose run times it knows nothing.

    Also whether it is itself one of those.
    """
    ahead: Counter[tuple[frozenset[FlavorResource], frozenset[str]]] = Counter()
    for jobs in workloads.unseen:
        if jobs.priority is None:
            ahead[jobs.cells, jobs.known_in] += jobs.count
    before = {}
    # Of equal priorities the order is that of ``queued``.
    for name, group in sorted(workloads.queued, key=lambda placed: -placed[1].priority):
        shape = workloads.demands.of(name, group.needs)
        if shape is None:
            continue
        namespace = group.namespace
        is_unseen = _is_unseen(name, group, shape, workloads)
        known_in = workloads.run_times.known_in(name, group.job_class, shape.combinations)
        shared = (
            count
            for (cells, knowing), count in ahead.items()
            if namespace not in knowing and not shape.cells.isdisjoint(cells)
        )
        before[id(group)] = sum(shared), is_unseen and namespace not in known_in
        if is_unseen:
            ahead[shape.cells, known_in] += group.count
    return before


def _is_unseen(name: str, group: PendingGroup, shape: Demand, workloads: TreeWorkloads) -> bool:
    return not group.limit_seconds and not all(
        workloads.run_times.knows(name, group.job_class, flavors) for flavors in shape.combinations
    )
