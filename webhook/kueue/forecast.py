"""Profiles of ClusterQueues, from the Workloads that hold quota and those that are pending.

The event loop of each cohort tree is run to its end, and the free quota after each scheduling cycle
becomes a step of a profile. Trees share no quota, so a tree in which nothing changed need not be
forecast again. Nothing here knows of policies or of the Job that is to be decided.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, repeat
from math import inf
from operator import attrgetter, gt
from typing import TypeAlias

from webhook.kueue import flavor_plan, quota
from webhook.kueue.durations import Durations, RunTimeOf
from webhook.kueue.fair_rounds import use_of
from webhook.kueue.flavor_plan import Demand, demand, demand_of
from webhook.kueue.preemption import ANY, LOWER_PRIORITY, NEVER
from webhook.kueue.profile import LATER, PREEMPTION, is_later, kept_steps, served_before
from webhook.kueue.queue_heads import PendingGroup
from webhook.kueue.quota import UsageTree
from webhook.kueue.quota_holders import StartedWorkloads
from webhook.kueue.schedule import Running, Schedule, is_open
from webhook.kueue.scheduling_cycle import Turn
from webhook.model.fields import FieldError
from webhook.model.forecasts import Outranking, Profile, Rank, Unseen
from webhook.model.queues import (
    Amounts,
    Arrival,
    ClusterQueue,
    FlavorResource,
    PodSetNeeds,
    Queueing,
    Snapshot,
    StopPolicy,
    namespace_labels,
)

STEPS = 128
MOST_LEVELS = 5
"""Most turns of newcomers that a profile distinguishes by priority, each with tables of its own."""
_MAX_EVENTS = 20_000
_MOST_OUTRANKING = 64
"""Most starts of which a profile tells whom they may preempt, the earliest."""
_STEPS_BEFORE_MERGING = 2 * STEPS
_MORE_THAN_THERE_IS = 1 << 61


class StartRecord:
    """The usage of a cohort tree over time: one step for each cycle that changed it."""

    def __init__(self, schedule: Schedule, newcomers: Collection[int] = ()) -> None:
        """Record *schedule*; *newcomers* are the priorities that new Jobs may have."""
        self._schedule = schedule
        self.priorities = schedule.priorities()
        self.ranks = _ranks(schedule, self.priorities, newcomers)
        schedule.attend([_turn(rank, self.priorities) for rank in self.ranks])
        self.times: list[float] = []
        """When each step begins, in seconds since the beginning of the schedule."""
        self.used: list[list[int]] = []
        """For each step the tree's usage, with what is set aside for heads."""
        self.before: list[list[list[int]]] = []
        """For each step and each of *ranks* the usage when its turn came in the cycle."""
        self.spread: list[float] = []
        """Standard deviation of each of *times*, in seconds."""
        self.lowest: list[Sequence[float]] = []
        """For each step the lowest priority that holds quota, by node; empty: nobody preempts."""
        self.obtainable: Mapping[str, Mapping[int, Sequence[int]]] = {}
        """ClusterQueue to priority to what a newcomer could have of each cell when the schedule
        begins, with what it would preempt."""
        self.started: Counter[tuple[float, int, float]] = Counter()
        """Seconds, ClusterQueue's node and priority to the number of Workloads that start then, in
        a tree in which Kueue may preempt."""
        self._newcomers = sorted(newcomers) if schedule.preempts else []
        self.is_whole = True
        """False: it was cut short after too many events, and nothing is free from there on."""

    @cached_property
    def outranking(self) -> _OutrankingStarts:
        """Return the starts in a finished record that may preempt newcomers."""
        return _OutrankingStarts(self._schedule, self)

    def note(self) -> None:
        """Add a step for the last cycle, if it changed the usage or admitted anything."""
        # Whom those who wait preempt at the beginning, nobody else can.
        if self._newcomers and not self._schedule.evicts:
            self.obtainable = {
                name: {level: self._schedule.obtainable(name, level) for level in self._newcomers}
                for name in self._schedule.tree.leaves
            }
            self._newcomers = []
        if self._schedule.preempts:
            for group in self._schedule.started:
                place = self._schedule.now, group.heads.leaf, group.entry.waiting.priority
                self.started[place] += group.count
        # A newcomer is tried at once and then with the others, in Kueue's next requeue batch: what
        # is free until then, it does not get.
        if not self._schedule.is_settled:
            return
        used, before = self._schedule.used()
        # A turn after which something was admitted is kept even where the usage is the same
        # again: at that moment a newcomer of its rank would have found room.
        is_new = any(usage is not used for usage in before)
        if self.used and used == self.used[-1] and not is_new:
            return
        # Two cycles at one time are one step: what both leave free is free, and a turn may come
        # in either of them.
        if self.times and self._schedule.now <= self.times[-1]:
            self.used[-1] = list(map(max, self.used[-1], used))
            self.before[-1] = _least([self.before[-1], before])
            self.lowest[-1] = list(map(max, self.lowest[-1], self._schedule.lowest()))
            return
        self.times.append(self._schedule.now)
        self.used.append(used)
        self.before.append(before)
        self.spread.append(self._schedule.spread)
        self.lowest.append(self._schedule.lowest())
        if len(self.times) >= _STEPS_BEFORE_MERGING:
            self.merge()

    def merge(self) -> None:
        """Keep at most STEPS of the steps, and join each of the others to the one before it.

        After a cycle, what is free in all joined steps counts as free. At the turn of a rank, the
        most that is free in any of them does, because the turn may come in any of them.
        """
        kept = kept_steps(self.times, STEPS)
        parts = list(zip(kept, (*kept[1:], len(self.times)), strict=True))
        self.used = [
            [max(column) for column in zip(*self.used[first:last], strict=True)]
            if last - first > 1
            else self.used[first]
            for first, last in parts
        ]
        self.before = [
            _least(self.before[first:last]) if last - first > 1 else self.before[first]
            for first, last in parts
        ]
        self.lowest = [
            list(map(max, *self.lowest[first:last])) if last - first > 1 else self.lowest[first]
            for first, last in parts
        ]
        self.spread = [self.spread[index] for index in kept]
        self.times = [self.times[index] for index in kept]

    def close(self) -> None:
        """End the record with a step in which nothing is free, because the rest is not known."""
        self.times.append(max(self._schedule.now, self.times[-1]) + 1.0)
        self.used.append([_MORE_THAN_THERE_IS] * len(self.used[-1]))
        self.before.append([self.used[-1]] * len(self.ranks))
        self.spread.append(self.spread[-1])
        self.lowest.append(self.lowest[-1])
        self.is_whole = False


def _ranks(
    schedule: Schedule, waiting: Sequence[float], newcomers: Collection[int]
) -> tuple[Rank, ...]:
    """Return the ranks that newcomers may have, in the order of their turns.

    The rank after all pending Workloads is left out: it finds the usage after the cycle.
    """
    last = len(waiting)
    there = [priority for priority in waiting if not is_later(priority)]
    levels = sorted({served_before(waiting, priority) for priority in (*newcomers, *there)})
    # Each rank costs a table in the profile, which goes over the pipe to the server.
    if len(levels) > MOST_LEVELS:
        levels = levels[: MOST_LEVELS - 1] + levels[-1:]
    heights = sorted(set(schedule.tree.heights))
    ranks = [(height, served) for height in heights for served in levels]
    return tuple(rank for rank in ranks if last and rank != (heights[-1], last))


def _turn(rank: Rank, waiting: Sequence[float]) -> Turn:
    """Return the place in a cycle after which a newcomer of this rank is served."""
    height, served = rank
    return height, -waiting[served - 1] if served else -inf


def _least(before: Sequence[list[list[int]]]) -> list[list[int]]:
    """Return for each rank the least usage of several steps, cell by cell."""
    return [
        rows[0] if all(row is rows[0] for row in rows) else list(map(min, *rows))
        for rows in map(list, zip(*before, strict=True))
    ]


def recorded(schedule: Schedule, newcomers: Collection[int] = ()) -> StartRecord:
    """Run a Schedule to its end, and record its usage.

    *newcomers* are the priorities that new Jobs may have.
    """
    record = StartRecord(schedule, newcomers)
    schedule.start_what_fits()
    record.note()
    # The bound keeps one tree's forecast from taking all the CPU that forecasts may have.
    for _ in range(_MAX_EVENTS):
        if schedule.next_event() == inf:
            record.merge()
            return record
        schedule.step()
        record.note()
    record.merge()
    record.close()
    return record


def profile(
    schedule: Schedule,
    record: StartRecord,
    queue: ClusterQueue,
    *,
    computed_at: float,
    uncertain: tuple[str, ...],
) -> Profile:
    """Return the profile of one ClusterQueue: what a newcomer would find free there over time.

    *record* is that of *schedule*, which was run to its end. *computed_at* is in seconds on the
    clock of ``Snapshot.as_of``; *uncertain* says why starts are uncertain, in the profile's words.
    """
    cells = tuple(cell for group in queue.groups for cell in group.quotas)
    rows = _Rows(schedule, queue, cells)
    kept: list[int] = []
    free: list[tuple[tuple[int, ...], ...]] = []
    for index, (used, before) in enumerate(zip(record.used, record.before, strict=True)):
        row = rows.free(used)
        at_step = (
            row,
            *(rows.at(rank, usage) for rank, usage in zip(record.ranks, before, strict=True)),
        )
        # A rank's table holds at the moment of its step alone, so a step at which it has more
        # than is left afterwards is kept, however much it is like the one before.
        if not free or at_step != free[-1] or any(map(_has_more, at_step[1:], repeat(row))):
            kept.append(index)
            free.append(at_step)
    last = _last_starts(schedule, queue)
    preempting = rows.more(record.obtainable.get(queue.name, {}), free[0][0])
    return Profile(
        computed_at=computed_at,
        cells=cells,
        times=tuple(record.times[index] for index in kept),
        free=tuple(step[0] for step in free),
        priorities=record.priorities if record.ranks else (),
        ranked={
            rank: tuple(step[number] for step in free)
            for number, rank in enumerate(record.ranks, start=1)
        },
        preempting=preempting,
        eviction_seconds=schedule.eviction.seconds if preempting else 0.0,
        outranking=record.outranking.of(schedule.tree.leaves[queue.name], rows),
        spread=tuple(record.spread[index] for index in kept),
        behind=_behind(last) if queue.queueing is Queueing.STRICT else (),
        waits=max(last.values()),
        uncertain=uncertain,
    )


class _OutrankingStarts:
    """Starts of pending Workloads for which others of their tree may be preempted, step by step."""

    def __init__(self, schedule: Schedule, record: StartRecord) -> None:
        self._record, self._policies = record, schedule.preemption_policies
        self._own: defaultdict[int, Counter[tuple[int, float]]] = defaultdict(Counter)
        """ClusterQueue's node to step and priority to the number of starts."""
        self._reclaiming: Counter[tuple[int, float]] = Counter()
        """Step, and below which priority they take quota back, to the number of starts."""
        self._since: dict[int, float] = {}
        """Step to its first start. Where one ends as another starts, steps are long."""
        for (at, leaf, priority), count in record.started.items():
            # Who starts at once does so before any newcomer.
            if at > record.times[0]:
                step = bisect_right(record.times, at) - 1
                self._since.setdefault(step, at)
                self._own[leaf][step, priority] += count
                below = _below(self._policies[leaf].reclaim_within_cohort, priority)
                self._reclaiming[step, below] += count

    def of(self, leaf: int, rows: _Rows) -> tuple[Outranking, ...]:
        """Return those that may preempt newcomers of one ClusterQueue."""
        counts: Counter[tuple[int, float, bool]] = Counter()
        policy = self._policies[leaf]
        if rows.has_cohort:
            counts.update({(*key, False): count for key, count in self._reclaiming.items()})
        for (step, priority), count in self._own[leaf].items():
            counts[step, _below(policy.reclaim_within_cohort, priority), False] -= count
            counts[step, _below(policy.within_cluster_queue, priority), True] += count
        used = self._record.used
        known = sorted(key for key, count in counts.items() if count > 0 and key[1] > -inf)
        return tuple(
            Outranking(
                at=self._since[step],
                below=below,
                owned=None if is_own else rows.owned(used[step]),
                spared_above=self._record.lowest[step][leaf],
                workloads=counts[step, below, is_own],
            )
            for step, below, is_own in known[:_MOST_OUTRANKING]
        )


def _below(policy: str, priority: float) -> float:
    """Return below which priority a policy lets Workloads of this priority preempt newcomers."""
    if policy in (NEVER, ANY):
        return -inf if policy == NEVER else inf
    # A newcomer is the newest of its priority, but for those that are still to come.
    return priority + (policy != LOWER_PRIORITY and not is_later(priority))


def _has_more(row: tuple[int, ...], than: tuple[int, ...]) -> bool:
    """Return whether any cell of *row* has more free than in *than*."""
    return row is not than and any(map(gt, row, than))


class _Rows:
    """Free quota of one ClusterQueue by usage, for each of its (flavor, resource) cells.

    CPU is in milli-CPU, all other resources are in whole units.
    """

    def __init__(
        self, schedule: Schedule, queue: ClusterQueue, cells: Sequence[FlavorResource]
    ) -> None:
        self._tree, self._is_open = schedule.tree, is_open(queue)
        self._leaf = schedule.tree.leaves[queue.name]
        self._columns = [schedule.tree.indices[cell] for cell in cells]
        self.has_cohort = schedule.tree.parents[self._leaf] >= 0
        self._top = max(schedule.tree.heights[node] for node in schedule.tree.path(self._leaf))

    def free(self, used: Sequence[int]) -> tuple[int, ...]:
        """Return what is free, borrowing included; a stopped ClusterQueue has nothing free."""
        if not self._is_open:
            return (0,) * len(self._columns)
        available, leaf = self._tree.available, self._leaf
        return tuple(max(0, available(leaf, column, used)) for column in self._columns)

    def owned(self, used: Sequence[int]) -> tuple[int, ...]:
        """Return what is unused of its own quota."""
        own, first = self._tree.subtree, self._leaf * self._tree.width
        places = (first + column for column in self._columns)
        return tuple(max(0, own[place] - used[place]) for place in places)

    def more(
        self, obtainable: Mapping[int, Sequence[int]], free: tuple[int, ...]
    ) -> Mapping[int, tuple[int, ...]]:
        """Return, by priority, what can be had by preemption where that is more than is free."""
        more = {
            priority: tuple(map(max, free, (row[column] for column in self._columns)))
            for priority, row in sorted(obtainable.items())
            if self._is_open
        }
        more = {priority: row for priority, row in more.items() if row != free}
        # What is left out counts as what a lower priority could have.
        return dict(list(more.items())[-MOST_LEVELS:])

    def at(self, rank: Rank, used: Sequence[int]) -> tuple[int, ...]:
        """Return what is free at the turn of a rank: what it borrows from its height, or below."""
        row = self.free(used)
        # Kueue admits heads first that borrow from lower down, so each height has ranks.
        if rank[0] >= self._top:
            return row
        below, leaf = self._tree.free_below, self._leaf
        found = (below(leaf, column, rank[0], used) for column in self._columns)
        return tuple(map(min, row, (max(0, amount) for amount in found)))


def _last_starts(schedule: Schedule, queue: ClusterQueue) -> Mapping[int, float]:
    """Map each priority to when its last pending Workload starts; inf: some never start.

    In seconds since the beginning of the schedule; priority 0 is always among them, and those that
    are expected to come are not.
    """
    last: dict[float, float] = {0: 0.0, **schedule.waits.get(queue.name, {})}
    for heads in schedule.waiting():
        if heads.queue.name == queue.name:
            last |= {entry.waiting.priority: inf for _, _, entry in heads.entries}
    return {int(priority): at for priority, at in last.items() if not is_later(priority)}


def _behind(last: Mapping[int, float]) -> tuple[tuple[int, float], ...]:
    """Return for each priority when all with at least that priority have started.

    In seconds since the beginning of the schedule, the highest priority first.
    """
    behind: list[tuple[int, float]] = []
    seconds = 0.0
    for priority in sorted(last, reverse=True):
        seconds = max(seconds, last[priority])
        behind.append((priority, seconds))
    return tuple(behind)


GRAIN = 0.01
"""Events closer than this part of the time from now share one scheduling cycle."""
_HORIZON = 3.0
"""For how long Workloads are expected to come, as a multiple of how long those take that are there:
at a third of it, a newcomer has waited for as many again."""
_LEAST_HORIZON_SECONDS = 60.0
_MOST_EXPECTED = 256
"""Most Workloads that are expected to come to a tree; each may cost a scheduling cycle."""
UNKNOWN_SECONDS = 600.0
"""The run time of Workloads in ClusterQueues in which no run time is known."""

_Placed: TypeAlias = "tuple[str, QueuedGroup]"
"""The ClusterQueue in which Workloads compete, and these Workloads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupant:
    """Equal Workloads that hold quota in a ClusterQueue."""

    cluster_queue: str
    usage: Amounts
    """Of all of them together."""
    job_class: str = ""
    started_at: float | None = None
    """When they were admitted, on the clock of *now*; None: quota is reserved, but they are not."""
    limit_seconds: int = 0
    """The time limit of their runs; 0: there is none."""
    count: int = 1
    priority: int | None = None
    """None: it is not known."""
    created: int = 0
    """The time by which its queue orders the first of them, in seconds since 1970."""
    local_queue: str = ""
    """``namespace/name``"""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedGroup:
    """Equal pending Workloads; a sequence of groups is in the order in which Kueue tries them."""

    arrival: Arrival
    """With a count of 0 they do not compete, but their run time helps to estimate unknown ones."""
    job_class: str = ""
    at: float = 0.0
    """When they begin to compete, on the clock of *now*: the end of a backoff; 0: at once."""
    limit_seconds: int = 0
    """As in ``Occupant``."""
    is_variant: bool = False
    """One of several Workloads of one Job, of which Kueue admits only the first that fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedKind:
    """One of the Workloads that have come, as which others are expected to come."""

    asks: Arrival | Amounts
    """What it asks for, or what it has got of which flavors."""
    job_class: str = ""
    limit_seconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedArrivals:
    """Workloads of one priority that are expected to come to a ClusterQueue from *now* on."""

    cluster_queue: str
    priority: int
    per_second: float
    seconds: float
    """For how long they go on coming: as long again as they have."""
    kinds: tuple[ExpectedKind, ...]
    """They come in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """What the forecasts of all trees have in common."""

    snapshot: Snapshot
    run_time_of: RunTimeOf
    now: float
    """On the clock of ``Snapshot.as_of``."""
    keep: bool = False
    """Record when each pending Workload starts."""
    expected: Sequence[ExpectedArrivals] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Profiles, and the starts of pending Workloads that they come from."""

    profiles: Mapping[str, Profile]
    """ClusterQueue to its profile."""
    begun: tuple[StartedWorkloads, ...]
    """Starts, in seconds from *now*; Workloads that never start are not among them."""


def forecast(  # noqa: PLR0913 - all that a forecast starts from
    snapshot: Snapshot,
    running: Sequence[Occupant],
    waiting: Sequence[QueuedGroup],
    run_time_of: RunTimeOf,
    now: float,
    only: Collection[str] | None = None,
    *,
    expected: Sequence[ExpectedArrivals] = (),
) -> Mapping[str, Profile]:
    """Return the profile of each ClusterQueue, or of those that share a tree with one of *only*.

    *now* is on the clock of ``Snapshot.as_of``, in seconds; *waiting* is in Kueue's order. Where
    Workloads are *expected*, a profile has another one with them (``Profile.later``).
    """
    case = _Case(snapshot=snapshot, run_time_of=run_time_of, now=now, expected=expected)
    profiles: dict[str, Profile] = {}
    for contents in _Trees(case, running, only).with_waiting(waiting):
        profiles |= _of_tree(case, contents, _prepared(case, contents)).profiles
    return profiles


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
        self._case = _Case(snapshot=snapshot, run_time_of=run_time_of, now=now, keep=True)
        self._trees = _Trees(self._case, running, only)
        self._known = [
            (contents, _prepared(self._case, contents))
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

    def begun_with(self, waiting: Sequence[QueuedGroup]) -> tuple[StartedWorkloads, ...]:
        """Return the starts if these Workloads were pending instead.

        Only trees whose pending groups differ are forecast again.
        """
        return _joined(
            planned if contents.queued == known.queued else self._replanned(contents, prepared)
            for contents, (known, prepared), planned in zip(
                self._trees.with_waiting(waiting), self._known, self._planned, strict=True
            )
        )

    def _replanned(self, contents: _TreeContents, before: _Prepared) -> Planned:
        schedule = _filled(self._case, contents, _prepared(self._case, contents, before))
        schedule.start_what_fits()
        for _ in range(_MAX_EVENTS):
            if schedule.next_event() == inf:
                break
            schedule.step()
        return Planned(profiles={}, begun=tuple(schedule.begun))


def _joined(parts: Iterable[Planned]) -> tuple[StartedWorkloads, ...]:
    return tuple(begun for part in parts for begun in part.begun)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TreeContents:
    """A cohort tree without usage, what holds quota in it and what is pending."""

    tree: UsageTree
    occupants: Sequence[Occupant]
    queued: Sequence[_Placed]


class _Trees:
    """The cohort trees to forecast: all, or those with one of the ClusterQueues *only*."""

    def __init__(
        self, case: _Case, running: Sequence[Occupant], only: Collection[str] | None
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
        self._occupants: defaultdict[str, list[Occupant]] = defaultdict(list)
        for occupant in running:
            if (root := self._roots.get(occupant.cluster_queue)) is not None:
                self._occupants[root].append(occupant)

    def with_waiting(self, waiting: Sequence[QueuedGroup]) -> Iterator[_TreeContents]:
        """Yield the trees with these Workloads pending, always in the same order."""
        queued: defaultdict[str, list[_Placed]] = defaultdict(list)
        for group in waiting:
            name = self._targets.of(group.arrival)
            if (root := self._roots.get(name)) is not None:
                queued[root].append((name, group))
        for tree in self._trees:
            root = self._roots[next(iter(tree.leaves))]
            yield _TreeContents(
                tree=tree.copy(), occupants=self._occupants[root], queued=queued[root]
            )


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


def _of_tree(case: _Case, contents: _TreeContents, prepared: _Prepared) -> Planned:
    """Return the profiles of one cohort tree, and the starts in it if they are recorded."""
    idle = contents.tree.copy()
    schedule = _filled(case, contents, prepared)
    record = recorded(schedule, _newcomers(case.snapshot))
    profiles = _profiles(case, contents, prepared, schedule, record)
    # Who comes later may come first, but not before it is there.
    horizon = _HORIZON * max(record.times[-1], _LEAST_HORIZON_SECONDS)
    coming = tuple(_coming(case, contents, prepared, horizon)) if record.is_whole else ()
    if coming:
        again = replace(contents, tree=idle)
        later = _filled(case, again, prepared, coming)
        with_coming = recorded(later, _newcomers(case.snapshot))
        if with_coming.is_whole:
            overtaken = _profiles(case, again, prepared, later, with_coming)
            rate = sum(group.count for group in coming) / max(group.at for group in coming)
            profiles = {
                name: replace(of_queue, later=overtaken[name], expected_per_second=rate)
                for name, of_queue in profiles.items()
            }
    return Planned(profiles=profiles, begun=tuple(schedule.begun))


def _profiles(
    case: _Case,
    contents: _TreeContents,
    prepared: _Prepared,
    schedule: Schedule,
    record: StartRecord,
) -> dict[str, Profile]:
    queued, run_times = contents.queued, prepared.run_times
    queues = [case.snapshot.cluster_queues[name] for name in contents.tree.leaves]
    # A record that was cut short knows nothing of later starts, so all its ranges are widened.
    bound = () if record.is_whole else ("depth",)
    profiles = {}
    # Each ClusterQueue of a tree asks the same of all that wait, so few must stand for many.
    kinds = {
        (name, id(group.arrival.needs), group.is_variant): (name, group) for name, group in queued
    }
    for queue in queues:
        guessed = ("runTimes",) if queue.name in run_times.unknown else ()
        uncertain = _uncertain(queue, queues, case.snapshot) + guessed + bound
        of_queue = profile(schedule, record, queue, computed_at=case.now, uncertain=uncertain)
        profiles[queue.name] = replace(
            of_queue,
            unknown_seconds=run_times.unknown_seconds(queue.name),
            unseen=prepared.unseen,
            unordered=_unordered(queue, tuple(kinds.values()), case.snapshot),
            outranked_below=_outranked_below(queue, record, case.snapshot),
        )
    return profiles


def _coming(
    case: _Case, contents: _TreeContents, prepared: _Prepared, horizon: float
) -> Iterator[PendingGroup]:
    """Yield the Workloads that are expected to come to a tree, by time, at even intervals."""
    rows = heapq.merge(
        *(
            _row(arrivals, prepared, horizon)
            for arrivals in case.expected
            if arrivals.cluster_queue in contents.tree.leaves
            and _may_overtake(arrivals, case.snapshot)
        ),
        key=attrgetter("at"),
    )
    yield from islice(rows, _MOST_EXPECTED)


def _may_overtake(arrivals: ExpectedArrivals, snapshot: Snapshot) -> bool:
    """Return whether those who come later may come before anybody who is there."""
    # Under StrictFIFO nobody overtakes those of his own priority, however wide they are.
    queue = snapshot.cluster_queues[arrivals.cluster_queue]
    return queue.queueing is not Queueing.STRICT or arrivals.priority > min(_newcomers(snapshot))


def _row(arrivals: ExpectedArrivals, prepared: _Prepared, horizon: float) -> Iterator[PendingGroup]:
    name, known = arrivals.cluster_queue, {}
    for number in range(int(min(horizon, arrivals.seconds) * arrivals.per_second)):
        kind = arrivals.kinds[number % len(arrivals.kinds)]
        if id(kind) not in known:
            known[id(kind)] = _expected_group(name, arrivals.priority, kind, prepared)
        group = known[id(kind)]
        if group is not None:
            yield replace(group, at=(number + 1) / arrivals.per_second)


def _expected_group(
    name: str, priority: int, kind: ExpectedKind, prepared: _Prepared
) -> PendingGroup | None:
    """Return a Workload that is expected to come; None: how long it would run is not known."""
    arrival, shape = None, None
    if isinstance(kind.asks, Arrival):
        arrival = kind.asks
        shape = prepared.demands.of(name, arrival)
    else:
        shape = demand_of(kind.asks)
    run_times = prepared.run_times
    if shape is None or not shape.is_possible:
        return None
    if not all(run_times.knows(name, kind.job_class, flavors) for flavors in shape.combinations):
        return None
    runs = {
        flavors: run_times.whole(name, kind.job_class, flavors, limit=kind.limit_seconds)
        for flavors in shape.combinations
    }
    seconds, spread = next(iter(runs.values()))
    return PendingGroup(
        cluster_queue=name,
        demand=shape,
        seconds=seconds,
        spread=spread,
        by_flavors=runs if len(runs) > 1 else {},
        priority=priority - LATER,
        local_queue=f"{arrival.namespace}/{arrival.local_queue}" if arrival else "",
    )


def _newcomers(snapshot: Snapshot) -> Collection[int]:
    """Return the priorities that a newcomer may have: those of all priority classes, and 0."""
    classes = snapshot.priority_classes.values(), snapshot.pod_priorities.values()
    return {0, snapshot.default_priority}.union(*classes)


def _outranked_below(queue: ClusterQueue, record: StartRecord, snapshot: Snapshot) -> int | None:
    """Return below which priority a newcomer may be preempted by others of its ClusterQueue."""
    if queue.preemption.within_cluster_queue == NEVER:
        return None
    highest = max(map(int, (*record.priorities, *_newcomers(snapshot))))
    # Under the other policy, those of its own priority that are older may preempt it, too.
    return highest + (queue.preemption.within_cluster_queue != LOWER_PRIORITY)


def _unordered(queue: ClusterQueue, queued: Sequence[_Placed], snapshot: Snapshot) -> str:
    """Say why Kueue's order among the pending Workloads is not modelled; empty: it is."""
    # Such a start is unknown, and by one that is not known no Job leaves its preferred option
    # (decision 0023). How long one runs that was admitted with fewer pods is not known.
    others = any(name != queue.name for name, _ in queued)
    has_minimum = any(
        need.min_count is not None for _, group in queued for need in group.arrival.needs
    )
    reasons = {
        "partialAdmission": has_minimum,
        "concurrentAdmission": any(group.is_variant for _, group in queued),
        "admissionFairSharing": queue.usage_based and any(name == queue.name for name, _ in queued),
        "fairSharing": others and (snapshot.kueue.fair_sharing or queue.fair_sharing),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """The Workloads of a cohort tree as a Schedule takes them, with their expected run times."""

    run_times: Durations
    running: Sequence[Running]
    pending: Mapping[int, tuple[QueuedGroup, PendingGroup | None]]
    """By the id of a group what it adds to the schedule; None: it cannot be admitted."""
    unseen: tuple[Unseen, ...]
    """Workloads of which neither a run time nor a time limit is known."""
    demands: _Demands


def _prepared(case: _Case, contents: _TreeContents, before: _Prepared | None = None) -> _Prepared:
    """Return the Workloads of a tree with their run times; *before*: what most of them are."""
    demands = before.demands if before is not None else _Demands(case.snapshot)
    asked = [
        (name, group, demands.of(name, group.arrival))
        for name, group in contents.queued
        if before is None or id(group) not in before.pending
    ]
    if before is not None and all(_is_known(before.run_times, *row) for row in asked):
        pending = _pending(asked, case.now, before.run_times)
        return replace(before, pending={**before.pending, **pending})
    if before is not None:
        return _prepared(case, contents)
    run_times = Durations(case.run_time_of, UNKNOWN_SECONDS)
    unseen = _learned(run_times, contents.occupants, asked)
    return _Prepared(
        run_times=run_times,
        running=tuple(_running(occupant, case.now, run_times) for occupant in contents.occupants),
        pending=_pending(asked, case.now, run_times),
        unseen=unseen,
        demands=demands,
    )


def _is_known(run_times: Durations, name: str, group: QueuedGroup, shape: Demand | None) -> bool:
    """Return whether a group leaves what is expected of all others as it is."""
    flavors_of = shape.combinations if shape is not None else ()
    return all(run_times.is_settled(name, group.job_class, flavors) for flavors in flavors_of)


def _pending(
    asked: Sequence[tuple[str, QueuedGroup, Demand | None]], now: float, run_times: Durations
) -> dict[int, tuple[QueuedGroup, PendingGroup | None]]:
    # A group is kept beside its id: a freed one's id could be given to another.
    return {
        id(group): (
            group,
            _waiting(name, group, shape, now, run_times)
            if shape is not None and shape.is_possible and group.arrival.count
            else None,
        )
        for name, group, shape in asked
    }


def _learned(
    run_times: Durations,
    occupants: Sequence[Occupant],
    asked: Sequence[tuple[str, QueuedGroup, Demand | None]],
) -> tuple[Unseen, ...]:
    """Look up all run times; return the Workloads with neither a known run time nor a limit."""
    unseen: Counter[tuple[frozenset[FlavorResource], int | None]] = Counter()
    # All are looked up before the first is added, because an unknown run is taken to last as
    # long as the median of the known ones in its ClusterQueue.
    for occupant in occupants:
        flavors = _flavors(occupant.usage)
        known = run_times.learn(occupant.cluster_queue, occupant.job_class, flavors)
        if not (known or occupant.limit_seconds):
            # What holds quota keeps newcomers of every priority waiting, hence None.
            unseen[frozenset(occupant.usage), None] += occupant.count
    for name, group, shape in asked:
        flavors_of = shape.combinations if shape is not None else ()
        are_known = [run_times.learn(name, group.job_class, flavors) for flavors in flavors_of]
        if shape is not None and not (all(are_known) or group.limit_seconds):
            unseen[shape.cells, group.arrival.priority] += group.arrival.count
    return tuple(
        Unseen(cells=cells, priority=priority, count=count)
        for (cells, priority), count in unseen.items()
        if count
    )


def _filled(
    case: _Case,
    contents: _TreeContents,
    prepared: _Prepared,
    coming: Sequence[PendingGroup] = (),
) -> Schedule:
    """Return a schedule of a tree with all its Workloads, and with those that are *coming*."""
    tree = contents.tree
    schedule = Schedule(
        tree,
        [case.snapshot.cluster_queues[name] for name in tree.leaves],
        grain=GRAIN,
        kueue=case.snapshot.kueue,
        keep=case.keep,
    )
    if (use := use_of(case.snapshot, tree)) is not None:
        schedule.order_by_use(use)
    for run in prepared.running:
        schedule.add_running(run)
    for place, (_, group) in enumerate(contents.queued):
        _, waiting = prepared.pending[id(group)]
        if waiting is not None:
            # Only where Workloads are preempted do those that hold quota have to have a place
            # among those that wait.
            age = _age(group.arrival.created) + place if schedule.preempts else None
            schedule.add_waiting(waiting, age=age)
    newest = max((group.arrival.created for _, group in contents.queued), default=0)
    first = _age(newest) + len(contents.queued)
    for place, later in enumerate(coming):
        schedule.add_waiting(later, age=first + place if schedule.preempts else None)
    return schedule


def _age(created: int) -> int:
    """Return a place by age, for times in seconds since 1970, with room for ties."""
    return created << 20


def _flavors(usage: Amounts) -> str:
    """Name the flavors in use, as run times are looked up by: sorted, unique, with commas."""
    return ",".join(sorted({flavor for flavor, _ in usage}))


def left_of(occupant: Occupant, now: float, run_times: Durations) -> tuple[float, float]:
    """Return mean and standard deviation of what is left of running Workloads, in seconds."""
    # What has reserved quota and is not admitted yet has its whole run before it.
    elapsed = 0.0 if occupant.started_at is None else max(0.0, now - occupant.started_at)
    return run_times.left(
        occupant.cluster_queue,
        occupant.job_class,
        _flavors(occupant.usage),
        elapsed=elapsed,
        limit=occupant.limit_seconds,
    )


def _running(occupant: Occupant, now: float, run_times: Durations) -> Running:
    seconds, spread = left_of(occupant, now, run_times)
    elapsed = 0.0 if occupant.started_at is None else max(0.0, now - occupant.started_at)
    flavors = _flavors(occupant.usage)
    return Running(
        cluster_queue=occupant.cluster_queue,
        usage=occupant.usage,
        seconds=seconds,
        spread=spread,
        count=occupant.count,
        priority=occupant.priority,
        # Of equal age, those that hold quota have come before those that wait.
        order=_age(occupant.created) - 1,
        reserved_at=-elapsed,
        local_queue=occupant.local_queue,
        whole=run_times.whole(
            occupant.cluster_queue, occupant.job_class, flavors, limit=occupant.limit_seconds
        ),
    )


def _waiting(
    name: str, queued: QueuedGroup, shape: Demand, now: float, run_times: Durations
) -> PendingGroup:
    """Expect how long pending Workloads will run on each combination of flavors."""
    runs = {
        flavors: run_times.whole(name, queued.job_class, flavors, limit=queued.limit_seconds)
        for flavors in shape.combinations
    }
    seconds, spread = next(iter(runs.values()))
    return PendingGroup(
        cluster_queue=name,
        demand=shape,
        seconds=seconds,
        spread=spread,
        by_flavors=runs if len(runs) > 1 else {},
        priority=queued.arrival.priority,
        count=queued.arrival.count,
        at=max(0.0, queued.at - now),
        key=queued.arrival.key,
        local_queue=f"{queued.arrival.namespace}/{queued.arrival.local_queue}",
    )


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
        "admissionChecks": bool(queue.checks),
        "podsReady": snapshot.kueue.block_admission,
        # What asks for a topology counts as plain quota: whether a domain has room is not known.
        "topology": bool(flavor_plan.with_topology(queue, snapshot)),
    }
    return tuple(reason for reason, holds in reasons.items() if holds)


class _Demands:
    """Finds what pod sets may use in a ClusterQueue, once for all that need the same."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        # The needs are kept beside their id: a freed object's id could be given to another.
        self._known: dict[tuple[str, int], tuple[tuple[PodSetNeeds, ...], Demand | None]] = {}

    def of(self, cluster_queue: str, arrival: Arrival) -> Demand | None:
        """Return what an arrival may use; None: a template of it cannot be read."""
        key = cluster_queue, id(arrival.needs)
        if key not in self._known:
            queue = self._snapshot.cluster_queues[cluster_queue]
            try:
                asked = demand(arrival.needs, queue, self._snapshot)
            except FieldError:
                asked = None
            self._known[key] = arrival.needs, asked
        return self._known[key][1]
