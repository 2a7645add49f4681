"""The Workloads of one cohort tree that hold quota, in groups, and whom Kueue would preempt.

Equal Workloads stay one group until some of them are preempted, and only for an attempt to preempt
is each of them told apart. Nothing here knows of cycles, nor of time but as numbers to compare.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from operator import le, lt, sub

from webhook.kueue.preemption import Preemptor, QuotaHolder, Victim
from webhook.kueue.preemptor import Possibility, Preemptions
from webhook.kueue.queue_heads import QueueEntry
from webhook.kueue.quota import Taken, UsageTree
from webhook.model.queues import (
    LOWER_OR_NEWER_EQUAL_PRIORITY,
    LOWER_PRIORITY,
    NEVER,
    ClusterQueue,
    KueueConfig,
)

_LAST = 1 << 53
"""Keys count down from here: of several that got quota at one time, the last is preempted first."""


# Not frozen, as a forecast makes one for each start, and that takes three times as long.
@dataclass(slots=True, kw_only=True)
class StartedWorkloads:
    """Equal Workloads that started together on the same flavors."""

    at: float
    """When they started, in seconds since the beginning of the schedule."""
    key: str
    cluster_queue: str
    flavors: tuple[str, ...]
    """One for each part of the demand."""
    usage: Taken
    """Of all of them together."""
    count: int
    finish: float
    """When they finish, or are expected to, in seconds since the beginning of the schedule."""
    spread: float = 0.0
    """Standard deviation of *at*, in seconds."""


@dataclass(slots=True, kw_only=True)
class RunningGroup:
    """Workloads that hold quota and give it back at the same time."""

    leaf: int
    taken: Taken
    """Of all of them together."""
    count: int
    """0: all of them were preempted."""
    variance: float
    """Of the run time of each one, in seconds squared."""
    priority: float | None = None
    """None: it is not known, and they are not preempted."""
    begun: StartedWorkloads | None = None
    """Their start; None: it was before the schedule began, or starts are not recorded."""
    is_over: bool = False
    """They have finished, and their quota lies idle until Kueue's next requeue batch."""
    entry: QueueEntry | None = None
    """As what they waited, and wait again once they are preempted; None: it is not known."""
    uid: str = ""
    """By which Kueue draws between equals; empty: not known, and the last to start comes first."""
    local_queue: str = ""
    order: float = 0.0
    """Their place by age among those that wait: the least is the oldest."""
    reserved_at: float = 0.0
    """When they got their quota, in seconds since the beginning of the schedule."""
    ends_at: float = inf
    """When their runs end, in seconds since the beginning of the schedule."""
    holders: list[QuotaHolder] = field(default_factory=list)
    """Each of them by itself, once somebody has tried to preempt."""

    @property
    def each(self) -> Taken:
        return tuple((cell, amount // self.count) for cell, amount in self.taken)

    def split(self, count: int) -> RunningGroup:
        """Take *count* of the Workloads out, and return them as a group."""
        each, left = self.each, self.count - count
        leaving = replace(
            self,
            count=count,
            taken=_times(each, count),
            begun=_part(self.begun, each, count),
            holders=[],
        )
        self.count, self.taken, self.begun = left, _times(each, left), _part(self.begun, each, left)
        return leaving


def _times(each: Taken, count: int) -> Taken:
    return tuple((cell, amount * count) for cell, amount in each)


def _part(begun: StartedWorkloads | None, each: Taken, count: int) -> StartedWorkloads | None:
    return None if begun is None else replace(begun, count=count, usage=_times(each, count))


def is_obtainable(
    taken: Iterable[tuple[int, int]],
    free: Mapping[int, int] | Sequence[int],
    reach: Sequence[int] | None,
    lower: Sequence[int] | None,
    within: Sequence[int] | None = None,
) -> bool:
    """Return whether a Workload may get by preemption what is not free; False is certain.

    *reach*: up to how much of each cell its ClusterQueue may reclaim for. *lower*: what those use
    whom it may preempt there. *within*: what the ClusterQueue has left of its own quota, where that
    is known by itself: with its victims gone, it may reclaim for as much more as they used.
    """
    for cell, amount in taken:
        short, own = amount - max(0, free[cell]), lower[cell] if lower else 0
        if short <= own:
            continue
        left = reach if within is None else within
        if reach is None or left is None or amount > max(reach[cell], left[cell] + own):
            return False
    return True


class QuotaHolders:
    """Who holds quota in one tree, and what somebody else could get of it by preemption."""

    def __init__(
        self, tree: UsageTree, queues: Mapping[int, ClusterQueue], kueue: KueueConfig
    ) -> None:
        """*queues* are those of the tree, by their node."""
        self._tree, self.queues = tree, queues
        self.fair_sharing = kueue.fair_sharing
        self.preemptions = Preemptions(
            tree,
            {leaf: queue.preemption for leaf, queue in queues.items()},
            strategies=kueue.preemption_strategies if kueue.fair_sharing else None,
        )
        reclaiming = {
            leaf: queue.preemption
            for leaf, queue in queues.items()
            if queue.preemption.reclaim_within_cohort != NEVER
        }
        self._reaches = {
            leaf: self._potential(leaf)
            for leaf, policy in reclaiming.items()
            if tree.keeps or kueue.fair_sharing or policy.borrow_within_cohort != NEVER
        }
        """ClusterQueue's node to what it may reclaim for, where it may borrow meanwhile."""
        # Without a right to borrow, one reclaims only for a subtree that leaves quota unused.
        self._reclaiming = reclaiming.keys() - self._reaches.keys()
        self._groups: dict[str, RunningGroup] = {}
        """The group of each Workload that is told apart, by its key."""
        self._new: dict[int, RunningGroup] = {}
        """Groups of which no Workload is told apart yet."""
        self._usage: defaultdict[int, dict[float, list[int]]] = defaultdict(dict)
        """Node to priority to the usage of each cell, and the number of Workloads at the end."""
        self._lower: dict[int, dict[float, Sequence[int] | None]] = {}
        """Node to priority to what ``lower`` returned, until others hold quota there."""
        self.lowest = [inf] * len(tree.parents)
        """Node to the lowest priority there; inf: nobody holds quota."""
        self._serial = 0
        self.version = 0
        """How often who holds quota has changed."""
        self.changed: set[int] = set()
        """ClusterQueues of which others hold quota than when the caller last emptied this set."""

    def order_by_use(self, use: Mapping[str, float]) -> None:
        """Let those of LocalQueues go first that use most; *use* may change later."""
        self.preemptions.order_by_use(use)

    def hold(self, group: RunningGroup) -> None:
        """Note that a group holds quota; the caller charges the tree."""
        if group.priority is not None:
            self._new[id(group)] = group
            self._count(group, 1)

    def release(self, group: RunningGroup) -> None:
        """Note that a group no longer holds quota; the caller releases it in the tree."""
        if group.priority is None:
            return
        self._count(group, -1)
        if self._new.pop(id(group), None) is None:
            for holder in group.holders:
                self.preemptions.remove(holder)
                del self._groups[holder.key]
            group.holders.clear()

    def evict(self, victims: Iterable[Victim]) -> list[RunningGroup]:
        """Let victims that hold quota be evicted, and return them as groups of their own.

        They hold their quota until ``release``. Who is being evicted already is left out.
        """
        chosen: defaultdict[int, list[QuotaHolder]] = defaultdict(list)
        for victim in victims:
            if not victim.holder.is_evicted:
                chosen[id(self._groups[victim.holder.key])].append(victim.holder)
        leaving: list[RunningGroup] = []
        for holders in chosen.values():
            group = self._groups[holders[0].key]
            part = group.split(len(holders))
            for holder in holders:
                group.holders.remove(holder)
                self.preemptions.remove(holder)
                evicted = replace(holder, is_evicted=True)
                self.preemptions.add(evicted)
                part.holders.append(evicted)
                self._groups[holder.key] = part
            leaving.append(part)
        return leaving

    def targets(self, preemptor: Preemptor, short: Collection[int]) -> tuple[Victim, ...]:
        """Return whom Kueue would preempt for quota of the cells *short*; nobody: it is no help."""
        if not self.may_help(preemptor):
            return ()
        self._tell_apart()
        return self.preemptions.targets(preemptor, short)

    def possibility(self, preemptor: Preemptor, cell: int, amount: int) -> tuple[Possibility, int]:
        """As ``Preemptions.possibility``, with all that hold quota now.

        *preemptor* asks for this alone.
        """
        if not self.may_help(preemptor):
            return Possibility.NO_CANDIDATES, self._tree.height(preemptor.leaf, cell, amount)[0]
        self._tell_apart()
        return self.preemptions.possibility(preemptor, cell, amount)

    def frees_own_quota(self, preemptor: Preemptor, cell: int, amount: int) -> bool:
        """Return whether preemption certainly brings this, and within its ClusterQueue's own quota.

        False: it need not.
        """
        tree, leaf = self._tree, preemptor.leaf
        policy, at = self.queues[leaf].preemption, preemptor.leaf * tree.width + cell
        is_plain = tree.shares_all and not self.fair_sharing
        by_priority = policy.within_cluster_queue == LOWER_PRIORITY
        if not (is_plain and by_priority and policy.borrow_within_cohort == NEVER):
            return False
        free, lower = tree.available(leaf, cell), self.lower(leaf, preemptor.priority)
        # Those of its own ClusterQueue are enough. Others are preempted with it only as far as it
        # need not borrow then, or where a cohort below the root has that much unused:
        # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/classical/hierarchical_preemption.go#L81
        if lower is None or lower[cell] < amount - free or tree.used[at] + free > tree.nominal[at]:
            return False
        cohorts = (node * tree.width + cell for node in list(tree.path(leaf))[1:-1])
        return all(tree.subtree[at] - tree.used[at] < amount for at in cohorts)

    def may_help(self, preemptor: Preemptor) -> bool:
        """Return whether preemption may bring what is not free; False is certain."""
        tree, leaf, first = self._tree, preemptor.leaf, preemptor.leaf * self._tree.width
        left = map(sub, tree.nominal[first : first + tree.width], tree.used[first:])
        return is_obtainable(
            preemptor.taken,
            {cell: tree.available(leaf, cell) for cell, _ in preemptor.taken},
            self.reach(leaf, self.unused(leaf)),
            self.lower(leaf, preemptor.priority),
            # Who uses all of its own quota has no claim to that of others without borrowing.
            [max(0, amount) for amount in left],
        )

    def reach(self, leaf: int, unused: Sequence[int]) -> Sequence[int] | None:
        """Return up to how much of each cell a ClusterQueue may reclaim for; None: nothing.

        *unused*: what ``unused`` returns of it.
        """
        return unused if leaf in self._reclaiming else self._reaches.get(leaf)

    def groups(self) -> Collection[RunningGroup]:
        """Return all groups that hold quota and whose priority is known."""
        return (self._new | {id(group): group for group in self._groups.values()}).values()

    def used_below(self, leaf: int, priority: float) -> Sequence[int]:
        """Return what lower priorities use of each cell in a ClusterQueue."""
        rows = [usage for level, usage in self._usage[leaf].items() if level < priority]
        return [sum(column) for column in zip(*rows, strict=True)][:-1] or [0] * self._tree.width

    def priorities(self) -> set[float]:
        return {priority for levels in self._usage.values() for priority in levels}

    def lower(self, leaf: int, priority: float) -> Sequence[int] | None:
        """Return the usage, by cell, that *priority* may preempt in its ClusterQueue.

        None: nobody there.
        """
        known = self._lower.setdefault(leaf, {})
        if priority not in known:
            known[priority] = self._used_by_lower(leaf, priority)
        return known[priority]

    def _used_by_lower(self, leaf: int, priority: float) -> Sequence[int] | None:
        policy = self.queues[leaf].preemption.within_cluster_queue
        if policy == NEVER or self.lowest[leaf] > priority:
            return None
        reaches = le if policy == LOWER_OR_NEWER_EQUAL_PRIORITY else lt
        rows = [usage for level, usage in self._usage[leaf].items() if reaches(level, priority)]
        return [sum(column) for column in zip(*rows, strict=True)] or None

    def _potential(self, leaf: int) -> Sequence[int]:
        width = self._tree.width
        return self._tree.potentials[leaf * width : (leaf + 1) * width]

    def unused(self, leaf: int) -> Sequence[int]:
        """Return the most that a ClusterQueue and the cohorts below the root leave of their quota.

        Up to that much a ClusterQueue may reclaim without the right to borrow meanwhile.
        """
        first, *above = list(self._tree.path(leaf))[:-1] or [leaf]
        most = self.unused_at(first)
        for node in above:
            most = list(map(max, most, self.unused_at(node)))
        return most

    def unused_at(self, node: int) -> Sequence[int]:
        """Return what a node leaves of its quota; negative where it borrows."""
        tree, width = self._tree, self._tree.width
        cells = slice(node * width, (node + 1) * width)
        return list(map(sub, tree.subtree[cells], tree.used[cells]))

    def _count(self, group: RunningGroup, sign: int) -> None:
        self.changed.add(group.leaf)
        self._lower.pop(group.leaf, None)
        self.version += 1
        levels = self._usage[group.leaf]
        priority = group.priority
        assert priority is not None  # noqa: S101 - its callers have looked
        row = levels.get(priority)
        if row is None:
            row = levels[priority] = [0] * (self._tree.width + 1)
            self.lowest[group.leaf] = min(self.lowest[group.leaf], priority)
        for cell, amount in group.taken:
            row[cell] += sign * amount
        row[-1] += sign * group.count
        if not row[-1]:
            del levels[priority]
            self.lowest[group.leaf] = min(levels, default=inf)

    def _tell_apart(self) -> None:
        for group in self._new.values():
            taken = group.each
            for _ in range(group.count):
                self._serial += 1
                key = f"{_LAST - self._serial}"
                holder = QuotaHolder(
                    key=key,
                    leaf=group.leaf,
                    taken=taken,
                    priority=group.priority or 0,
                    reserved_at=group.reserved_at,
                    queued_at=group.order,
                    uid=group.uid or key,
                    local_queue=group.local_queue,
                )
                group.holders.append(holder)
                self._groups[key] = group
                self.preemptions.add(holder)
        self._new.clear()
