"""Profiles of ClusterQueues, from the Workloads that hold quota and those that are pending.

The event loop of each cohort tree is run to its end, and the free quota after each scheduling cycle
becomes a step of a profile. Trees share no quota, so a tree in which nothing changed need not be
forecast again. Nothing here knows of policies or of the Job that is to be decided.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from webhook.kueue import flavor_plan, quota
from webhook.kueue.domain_timeline import (
    RunningGang,
    WaitingGang,
    held_elsewhere,
    timeline,
)
from webhook.kueue.durations import RunTimeOf
from webhook.kueue.expected_arrivals import ExpectedArrivals, expected_groups, newcomer_priorities
from webhook.kueue.fair_rounds import use_of
from webhook.kueue.pending_starts import starts_in_tree
from webhook.kueue.profile import PREEMPTION
from webhook.kueue.queue_heads import PendingGroup
from webhook.kueue.quota_holders import StartedWorkloads
from webhook.kueue.recorded_profile import for_local_queue, profile
from webhook.kueue.schedule import Schedule
from webhook.kueue.start_record import MAX_EVENTS, StartRecord, recorded
from webhook.kueue.tree_workloads import (
    LEAST_TRIES,
    ForecastGivens,
    Occupant,
    PlacedGroup,
    PreparedWorkloads,
    QueuedGroup,
    TreeContents,
    filled,
    left_of,
    most_tries,
    prepare,
)
from webhook.model.forecasts import DomainMoment, Profile, Start
from webhook.model.queues import (
    LOWER_PRIORITY,
    NEVER,
    Arrival,
    ClusterQueue,
    Snapshot,
    StopPolicy,
    namespace_labels,
)

_HORIZON = 3.0
"""For how long Workloads are expected to come, as a multiple of how long those take that are there:
at a third of it, a newcomer has waited for as many again."""
_LEAST_HORIZON_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Profiles, and the starts of pending Workloads that they come from."""

    profiles: Mapping[str, Profile]
    """ClusterQueue to its profile."""
    begun: tuple[StartedWorkloads, ...]
    """Starts, in seconds from *now*; Workloads that never start are not among them."""
    begun_later: tuple[StartedWorkloads, ...] = ()
    """The same if those come who are expected; empty: none are."""
    is_exact: bool = False
    """Each of Kueue's cycles was run."""


def forecast(  # noqa: PLR0913 - all that a forecast starts from
    snapshot: Snapshot,
    running: Sequence[Occupant],
    waiting: Sequence[QueuedGroup],
    run_time_of: RunTimeOf,
    now: float,
    only: Collection[str] | None = None,
    *,
    expected: Sequence[ExpectedArrivals] = (),
    pending: int = 0,
) -> Mapping[str, Profile]:
    """Return the profile of each ClusterQueue, or of those that share a tree with one of *only*.

    *now* is on the clock of ``Snapshot.as_of``, in seconds; *waiting* is in Kueue's order. Where
    Workloads are *expected*, a profile has another one with them (``Profile.later``). *pending* is
    the number of Workloads that wait in all trees, where other ones have forecasts, too.
    """
    case = ForecastGivens(snapshot=snapshot, run_time_of=run_time_of, now=now, pending=pending)
    profiles: dict[str, Profile] = {}
    for contents in _Trees(case, running, only).with_waiting(waiting):
        profiles |= _of_tree(case, contents, prepare(case, contents), expected).profiles
    return profiles


def pending_starts(  # noqa: PLR0913 - as for ``forecast``
    snapshot: Snapshot,
    running: Sequence[Occupant],
    waiting: Sequence[QueuedGroup],
    run_time_of: RunTimeOf,
    now: float,
    only: Collection[str] | None = None,
    *,
    expected: Sequence[ExpectedArrivals] = (),
) -> Mapping[str, tuple[Start, ...]]:
    """Return when those start who are pending: the key of each group to its starts, in order.

    The arguments are as for ``forecast``, and the key of each group is its own. A group that
    competes nowhere is left out.
    """
    case = ForecastGivens(snapshot=snapshot, run_time_of=run_time_of, now=now, keep=True)
    starts: dict[str, tuple[Start, ...]] = {}
    for contents in _Trees(case, running, only).with_waiting(waiting):
        prepared = prepare(case, contents)
        planned = _of_tree(case, contents, prepared, expected)
        starts |= starts_in_tree(
            contents, prepared, planned.profiles, planned.begun, planned.begun_later
        )
    return starts


class PlannedStarts:
    """When each pending Workload starts and finishes, as it is and as it would be with moves."""

    def __init__(
        self,
        snapshot: Snapshot,
        running: Sequence[Occupant],
        waiting: Sequence[QueuedGroup],
        run_time_of: RunTimeOf,
        now: float,
        only: Collection[str] | None = None,
    ) -> None:
        """Forecast what is pending; the arguments are as for ``forecast``."""
        # Many such forecasts are made one after the other.
        self._case = ForecastGivens(
            snapshot=snapshot,
            run_time_of=run_time_of,
            now=now,
            keep=True,
            most_tries=LEAST_TRIES,
        )
        self._trees = _Trees(self._case, running, only)
        self._known = [
            (contents, prepare(self._case, contents))
            for contents in self._trees.with_waiting(waiting)
        ]
        self._planned = [_of_tree(self._case, *known) for known in self._known]

    @property
    def planned(self) -> Planned:
        """Return the same profiles as ``forecast``, and the starts of all that is pending."""
        profiles: dict[str, Profile] = {}
        for of_tree in self._planned:
            profiles |= of_tree.profiles
        return Planned(profiles=profiles, begun=_joined(self._planned))

    def with_waiting(self, waiting: Sequence[QueuedGroup]) -> OtherStarts:
        """Return the starts if these Workloads were pending instead.

        Only trees whose pending groups differ are forecast again.
        """
        return OtherStarts(
            planned
            if contents.queued == known.queued
            else _Rerun(
                self._case,
                contents,
                prepare(self._case, contents, prepared),
                is_exact=planned.is_exact,
            )
            for contents, (known, prepared), planned in zip(
                self._trees.with_waiting(waiting), self._known, self._planned, strict=True
            )
        )


class OtherStarts:
    """The starts with other Workloads pending, worked out only as far as they are asked for."""

    def __init__(self, trees: Iterable[Planned | _Rerun]) -> None:
        self._trees = tuple(trees)

    def start_of(self, key: str) -> float:
        """Return when the Workload with this key starts, in seconds from now; inf: never.

        It is one that is not pending in the same tree otherwise.
        """
        reruns = (tree for tree in self._trees if isinstance(tree, _Rerun))
        return next((tree.start_of(key) for tree in reruns if key in tree.keys), inf)

    @property
    def begun(self) -> tuple[StartedWorkloads, ...]:
        """Return all starts, as ``Planned.begun`` has them."""
        return _joined(self._trees)


class _Rerun:
    """The forecast of one tree, without profiles, that stops wherever it has told enough."""

    def __init__(
        self,
        case: ForecastGivens,
        contents: TreeContents,
        prepared: PreparedWorkloads,
        *,
        is_exact: bool,
    ) -> None:
        self._case, self._contents, self._prepared = case, contents, prepared
        self._is_exact = is_exact
        self._events = 0

    @cached_property
    def keys(self) -> frozenset[str]:
        """The keys of all that are pending."""
        return frozenset(
            group.arrival.key for _, group in self._contents.queued if group.arrival.count
        )

    @cached_property
    def _schedule(self) -> Schedule:
        schedule = filled(self._case, self._contents, self._prepared, is_exact=self._is_exact)
        schedule.start_what_fits()
        return schedule

    def start_of(self, key: str) -> float:
        """Return when the Workload with this key starts, in seconds from now; inf: never."""
        if self._schedule.preempts:
            # Whoever is preempted starts again, and what counts is the last time.
            starts = {begun.key: begun.at for begun in self.begun}
            return starts.get(key, inf)
        begun, known = self._schedule.begun, 0
        while True:
            for started in begun[known:]:
                if started.key == key:
                    return started.at
            known = len(begun)
            if not self._goes_on():
                return inf

    @property
    def begun(self) -> tuple[StartedWorkloads, ...]:
        """All starts."""
        while self._goes_on():
            pass
        return tuple(self._schedule.begun)

    def _goes_on(self) -> bool:
        """Take the next step, if there is one."""
        if self._events == MAX_EVENTS:
            return False
        self._events += 1
        return self._schedule.step()


def _joined(parts: Iterable[Planned | _Rerun]) -> tuple[StartedWorkloads, ...]:
    return tuple(begun for part in parts for begun in part.begun)


class _Trees:
    """The cohort trees to forecast: all, or those with one of the ClusterQueues *only*."""

    def __init__(
        self, case: ForecastGivens, running: Sequence[Occupant], only: Collection[str] | None
    ) -> None:
        snapshot = case.snapshot
        self._targets = _Targets(snapshot)
        roots = quota.tree_names(snapshot.cluster_queues, snapshot.cohorts)
        wanted = (
            set(roots.values()) if only is None else {roots[name] for name in only if name in roots}
        )
        self._roots = {name: root for name, root in roots.items() if root in wanted}
        queues = {name: snapshot.cluster_queues[name] for name in self._roots}
        self._trees = quota.plant(queues, snapshot.cohorts).trees
        # A group is kept beside its id: a freed one's id could be given to another.
        self._placed: dict[int, PlacedGroup] = {}
        self._occupants: defaultdict[str, list[Occupant]] = defaultdict(list)
        for occupant in running:
            if (root := self._roots.get(occupant.cluster_queue)) is not None:
                self._occupants[root].append(occupant)

    def with_waiting(self, waiting: Sequence[QueuedGroup]) -> Iterator[TreeContents]:
        """Yield the trees with these Workloads pending, always in the same order."""
        queued: defaultdict[str, list[PlacedGroup]] = defaultdict(list)
        placed = self._placed
        for group in waiting:
            # Most groups are the same time after time.
            place = placed.get(id(group))
            if place is None:
                place = placed[id(group)] = self._targets.of(group.arrival), group
            if (root := self._roots.get(place[0])) is not None:
                queued[root].append(place)
        for tree in self._trees:
            root = self._roots[next(iter(tree.leaves))]
            yield TreeContents(tree=tree, occupants=self._occupants[root], queued=queued[root])


class _Targets:
    """Finds the ClusterQueue in which an arrival competes; "": it competes in none."""

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
        # Kueue keeps Workloads pending whose namespace the ClusterQueue's selector leaves out.
        queue = snapshot.cluster_queues.get(local_queue.cluster_queue)
        labels = namespace_labels(snapshot, arrival.namespace)
        return queue.name if queue is not None and queue.namespaces.matches(labels) else ""


def _of_tree(
    case: ForecastGivens,
    contents: TreeContents,
    prepared: PreparedWorkloads,
    expected: Sequence[ExpectedArrivals] = (),
) -> Planned:
    """Return the profiles of one cohort tree, and the starts in it if they are recorded."""
    schedule, record = _recorded(case, contents, prepared, tries=most_tries(case, contents))
    profiles = _profiles(case, contents, prepared, schedule, record)
    if case.snapshot.topologies:
        moments = _in_domains(case, contents, prepared)
        profiles = {name: replace(of_queue, domains=moments) for name, of_queue in profiles.items()}
    # Who comes later may come first, but not before it is there.
    horizon = _HORIZON * max(record.times[-1], _LEAST_HORIZON_SECONDS)
    coming: Sequence[PendingGroup] = ()
    begun_later: Sequence[StartedWorkloads] = ()
    if record.is_whole and expected:
        coming = tuple(
            expected_groups(expected, contents, prepared, snapshot=case.snapshot, horizon=horizon)
        )
    if coming:
        tries = most_tries(case, contents, coming) if schedule.is_exact else 0
        later, with_coming = _recorded(case, contents, prepared, coming, tries=tries)
        if with_coming.is_whole:
            overtaken = _profiles(case, contents, prepared, later, with_coming)
            begun_later = later.begun
            rate = sum(group.count for group in coming) / max(group.at for group in coming)
            profiles = {
                name: _with_later(of_queue, overtaken[name], rate)
                for name, of_queue in profiles.items()
            }
    return Planned(
        profiles=profiles,
        begun=tuple(schedule.begun),
        begun_later=tuple(begun_later),
        is_exact=schedule.is_exact,
    )


def _recorded(
    case: ForecastGivens,
    contents: TreeContents,
    prepared: PreparedWorkloads,
    coming: Sequence[PendingGroup] = (),
    *,
    tries: int,
) -> tuple[Schedule, StartRecord]:
    """Run the event loop of a tree to its end, and record it.

    Each of Kueue's cycles is run if no more than *tries* heads are tried in them.
    """
    newcomers = newcomer_priorities(case.snapshot)
    if tries:
        schedule = filled(case, contents, prepared, coming, is_exact=True)
        record = recorded(schedule, newcomers, most_tries=tries)
        if schedule.tries <= tries:
            return schedule, record
    schedule = filled(case, contents, prepared, coming, is_exact=False)
    return schedule, recorded(schedule, newcomers)


def _with_later(of_queue: Profile, later: Profile, rate: float) -> Profile:
    """Return a profile that also has *later*, if those come who are expected, *rate* a second."""
    return replace(
        of_queue,
        later=later,
        expected_per_second=rate,
        by_local_queue={
            name: _with_later(of_local_queue, later.by_local_queue[name], rate)
            for name, of_local_queue in of_queue.by_local_queue.items()
        },
    )


def _in_domains(
    case: ForecastGivens, contents: TreeContents, prepared: PreparedWorkloads
) -> tuple[DomainMoment, ...]:
    """Return what is in use in the domains of Topologies over time; empty: in none."""
    snapshot, queues = case.snapshot, contents.tree.leaves
    members = (snapshot.cluster_queues[name] for name in queues)
    if not any(flavor_plan.flavors_with_topology(queue, snapshot) for queue in members):
        return ()
    running = (
        RunningGang(ends_in=left_of(occupant, case.now, prepared.run_times)[0], placed=each)
        for occupant in contents.occupants
        for each in [occupant.placed] * occupant.count
    )
    waiting = (
        WaitingGang(
            cluster_queue=name,
            needs=group.arrival.needs,
            seconds=pending.seconds,
            count=group.arrival.count,
        )
        for name, group in contents.queued
        if (pending := prepared.pending[id(group)][1]) is not None and pending.demand.is_possible
    )
    return timeline(snapshot, running, waiting, held_elsewhere(snapshot, queues))


def _profiles(
    case: ForecastGivens,
    contents: TreeContents,
    prepared: PreparedWorkloads,
    schedule: Schedule,
    record: StartRecord,
) -> dict[str, Profile]:
    queued, run_times = contents.queued, prepared.run_times
    queues = [case.snapshot.cluster_queues[name] for name in contents.tree.leaves]
    # A record that was cut short knows nothing of later starts, so all its ranges are widened.
    bound = () if record.is_whole else ("depth",)
    profiles = {}
    unordered = _all_unordered(queued)
    with_pending = frozenset(name for name, _ in queued)
    first_by_use = _first_by_use(case, contents)
    for queue in queues:
        guessed = ("runTimes",) if queue.name in run_times.unknown else ()
        uncertain = _uncertain(queue, queues, case.snapshot) + guessed + bound
        of_queue = profile(schedule, record, queue, computed_at=case.now, uncertain=uncertain)
        of_queue = replace(
            of_queue,
            unknown_seconds=run_times.unknown_seconds(queue.name),
            unseen=prepared.unseen,
            unordered=unordered,
            outranked_below=_outranked_below(queue, record, case.snapshot),
        )
        profiles[queue.name] = replace(
            of_queue,
            unordered=unordered or _unordered(queue, with_pending, case.snapshot),
            by_local_queue={
                name: replace(
                    for_local_queue(of_queue, schedule, record, queue, name),
                    is_first_by_use=name in first_by_use,
                )
                for node, name in record.lines
                if name and node == contents.tree.leaves[queue.name]
            },
        )
    return profiles


def _first_by_use(case: ForecastGivens, contents: TreeContents) -> Collection[str]:
    """Return the LocalQueues that have used less than any other with pending Workloads."""
    use = use_of(case.snapshot, contents.tree)
    if use is None:
        return ()
    least: dict[str, float] = {}
    for name, group in contents.queued:
        used = use.amounts.get(group.arrival.local_queue_key, 0.0)
        least[name] = min(used, least.get(name, inf))
    return {
        local_queue
        for local_queue, name in use.cluster_queues.items()
        if use.amounts[local_queue] < least.get(name, inf)
    }


def _outranked_below(queue: ClusterQueue, record: StartRecord, snapshot: Snapshot) -> int | None:
    """Return below which priority a newcomer may be preempted by others of its ClusterQueue."""
    if queue.preemption.within_cluster_queue == NEVER:
        return None
    highest = max(map(int, (*record.priorities, *newcomer_priorities(snapshot))))
    # Under the other policy, those of its own priority that are older may preempt it, too.
    return highest + (queue.preemption.within_cluster_queue != LOWER_PRIORITY)


def _all_unordered(queued: Sequence[PlacedGroup]) -> str:
    """Say why Kueue's order among all pending Workloads of a tree is not modelled; empty: it is."""
    # Such a start is unknown, and by one that is not known no Job leaves its preferred option
    # (decision 0023). How long one runs that was admitted with fewer pods is not known.
    kinds = {id(group.arrival.needs): group.arrival.needs for _, group in queued}
    if any(need.min_count is not None for needs in kinds.values() for need in needs):
        return "partialAdmission"
    return "concurrentAdmission" if any(group.is_variant for _, group in queued) else ""


def _unordered(queue: ClusterQueue, with_pending: Collection[str], snapshot: Snapshot) -> str:
    """Say the same of one ClusterQueue by itself; *with_pending*: those in which some wait."""
    # A weight without Kueue's configuration of shares: whether they decide is not known.
    may_decide = queue.fair_sharing and not snapshot.kueue.fair_sharing
    reasons = {
        "admissionFairSharing": queue.usage_based and queue.name in with_pending,
        "fairSharing": may_decide and any(name != queue.name for name in with_pending),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _uncertain(
    queue: ClusterQueue, tree: Sequence[ClusterQueue], snapshot: Snapshot
) -> tuple[str, ...]:
    """Say why a ClusterQueue's forecast is uncertain; each reason widens its ranges."""
    # The event loop preempts, but knows nothing of those who are still to come.
    preempts = queue.preemption.within_cluster_queue != NEVER
    others_reclaim = any(
        member.preemption.reclaim_within_cohort != NEVER for member in tree if member is not queue
    )
    is_fair = snapshot.kueue.fair_sharing or queue.fair_sharing
    reasons = {
        PREEMPTION: preempts,
        "fairSharing": is_fair and len(tree) > 1,
        "cohortReclaim": others_reclaim,
        "admissionFairSharing": queue.usage_based,
        "admissionChecks": bool(queue.checks),
        "podsReady": snapshot.kueue.block_admission,
        # When a domain has room is known for those of whom it is known which domains they have.
        "topology": bool(flavor_plan.flavors_with_topology(queue, snapshot)),
    }
    return tuple(reason for reason, holds in reasons.items() if holds)
