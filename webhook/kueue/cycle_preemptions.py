"""Preemptions of one scheduling cycle: who tries them, and what they leave for the heads after.

A head that is issued preemptions does not get its quota in this cycle: its victims have to stop
first. Until then it stays the only head of its ClusterQueue. Nothing here knows of time.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/scheduler.go
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from operator import gt
from typing import NamedTuple

from webhook.kueue.assignment import Assignment, Level, Oracle, PreemptionMode
from webhook.kueue.preemption import Preemptor, Victim
from webhook.kueue.preemptor import Possibility
from webhook.kueue.queue_heads import ClusterQueueHeads, Shape
from webhook.kueue.quota import Taken, UsageTree
from webhook.kueue.quota_holders import QuotaHolders, is_obtainable
from webhook.kueue.whole_tree import all_unused
from webhook.model.queues import ANY, PREEMPTION_OVER_BORROWING

MODES = {
    Possibility.NO_CANDIDATES: PreemptionMode.NO_CANDIDATES,
    Possibility.PREEMPT: PreemptionMode.PREEMPT,
    Possibility.RECLAIM: PreemptionMode.RECLAIM,
}


class Outcome(Enum):
    """What became of a head that does not fit."""

    WAITS = auto()
    """There is nobody to preempt for it."""
    SKIPPED = auto()
    """Others come before it in this cycle; it is tried again in the next one."""
    PREEMPTS = auto()
    """Its victims are chosen, and it waits for them to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedPreemptions:
    """A head and those whom it preempts."""

    heads: ClusterQueueHeads
    key: str
    """That of the head's group."""
    victims: tuple[Victim, ...]


class CyclePreemptions:
    """The preemptions in one tree, cycle by cycle."""

    def __init__(self, tree: UsageTree, holders: QuotaHolders) -> None:
        self.issued: list[IssuedPreemptions] = []
        """Those of the last cycle; victims may be among them that were issued before."""
        self._tree, self._holders = tree, holders
        self._waiting: dict[int, ClusterQueueHeads] = {}
        """ClusterQueue's node to the head for which victims are stopping."""
        self._victims: set[str] = set()
        """Keys of all victims of this cycle."""
        self.reserved: Sequence[int] | None = None
        """The usage after the last cycle, with what is free and its preemptors keep for themselves;
        None: they keep nothing."""
        self._now: list[int] | None = None
        """The usage as it is; None: nobody has preempted in this cycle."""
        self._after: list[int] = []
        """The usage as it will be when all victims have gone and their preemptors have come."""
        self._rivals: set[object] = set()
        """The likenesses of heads that were skipped because another one takes their victims."""
        self._without_room: set[object] = set()
        """Those of heads that were skipped for want of room since anybody preempted."""
        self._wants: dict[int, _Wants] = {}
        """ClusterQueue to its heads, where one may find somebody to preempt, or waits for it."""
        self._most: list[int] | None = [0] * tree.width
        """By cell, no less than any pending Workload needs; None: some have a choice of flavors."""
        self.tells_modes = True
        """The oracle says of each head what preempting can do; False: where its height or the
        choice of flavors depends on it."""

    def begin(self, of_leaf: Mapping[int, Sequence[ClusterQueueHeads]]) -> list[ClusterQueueHeads]:
        """Begin a cycle, and return the heads that may preempt in it."""
        self.issued, self.reserved = [], None
        self._victims.clear()
        self._forget_skipped()
        if self._has_room_for_all():
            return []
        for leaf in self._holders.changed:
            wants = _wants(self._tree, self._holders, of_leaf.get(leaf, ()))
            if wants is None:
                self._wants.pop(leaf, None)
            else:
                self._wants[leaf] = wants
        self._holders.changed.clear()
        return _hopeful(self._tree, self._holders, self._wants) if self._wants else []

    def end(self) -> None:
        """End the cycle: the usage is again what it is."""
        if self._now is not None:
            # By shares, newcomers may come first, or preempt beyond their quota: that is not known.
            if not self._holders.fair_sharing:
                self.reserved = self._tree.used[:]
            self._tree.used[:] = self._now
            self._now = None

    def _has_room_for_all(self) -> bool:
        """Return whether every head fits, so that nobody needs to preempt; False: some may not."""
        # So it is in most cycles. Where nobody has a limit, what is free is free for all.
        return (
            self._tree.shares_all
            and self._most is not None
            and self._tree.has(0, tuple(enumerate(self._most)))
        )

    def joined(self, leaf: int, shape: Shape) -> None:
        """Note that a Workload of this shape has come."""
        self._holders.changed.add(leaf)
        if shape.only is None:
            self._most = None
        elif self._most is not None:
            for cell, amount in shape.only:
                self._most[cell] = max(self._most[cell], amount)

    def is_closed(self, heads: ClusterQueueHeads) -> bool:
        """Return whether another head of the same ClusterQueue waits for its victims to stop."""
        # Kueue takes such a head first in each cycle, and one head of a ClusterQueue in a cycle:
        # ``preemptorWorkload`` in ``cluster_queue.go``.
        return self._waiting.get(heads.leaf, heads) is not heads

    def awaited(self) -> frozenset[int]:
        """Return the ClusterQueues, by node, in which a head waits and nobody else is tried."""
        # A StrictFIFO head is the first of its ClusterQueue only until a higher priority comes.
        return frozenset(leaf for leaf, heads in self._waiting.items() if not heads.is_strict)

    def comes_first(self, heads: ClusterQueueHeads) -> bool:
        """Return whether victims stop for a head, which makes it the first of its ClusterQueue."""
        return self._waiting.get(heads.leaf) is heads

    def is_awaited(self, leaf: int) -> bool:
        """Return whether some head of a ClusterQueue waits for its victims to stop."""
        return leaf in self._waiting

    def charge(self, leaf: int, taken: Taken, count: int) -> None:
        """Charge what reserves quota in this cycle."""
        tree = self._tree
        self._forget_skipped()
        if self._now is None:
            tree.charge(leaf, taken, count)
            return
        for usage in (self._now, self._after):
            tree.used[:] = usage
            tree.charge(leaf, taken, count)
            usage[:] = tree.used
        self._restrict()

    def admitted(self, heads: ClusterQueueHeads) -> None:
        """Note that a head got its quota, so that nobody stops for it any more."""
        if self._waiting.get(heads.leaf) is heads:
            del self._waiting[heads.leaf]

    def oracle(self, heads: ClusterQueueHeads) -> Oracle:
        """Return whether a queue's head may preempt for quota of one cell."""
        has_choice = heads.entries[0][2].shape.only is None
        by_height = heads.queue.preference == PREEMPTION_OVER_BORROWING
        needs_mode = self.tells_modes or has_choice or by_height
        highest = 0

        def possibility(cell: int, amount: int) -> Level:
            nonlocal highest
            # Preempting lowers heights, and of several cells only the greatest height counts.
            if not needs_mode and self._tree.height(heads.leaf, cell, amount)[0] <= highest:
                return PreemptionMode.NO_CANDIDATES, 0
            preemptor = _preemptor(heads, ((cell, amount),))
            if not needs_mode and self._holders.frees_own_quota(preemptor, cell, amount):
                return PreemptionMode.NO_CANDIDATES, 0
            possible, height = self._holders.possibility(preemptor, cell, amount)
            highest = max(highest, height)
            return MODES[possible], height

        return possibility

    def may_help(self, heads: ClusterQueueHeads) -> bool:
        """Return whether preemption may bring a head what is not free; False is certain."""
        shape = heads.entries[0][2].shape
        if shape.only is not None:
            return self._holders.may_help(_preemptor(heads, shape.only))
        return all(
            any(self._holders.may_help(_preemptor(heads, taken)) for _, taken in choices)
            for choices in shape.least.parts
        )

    def finds_victims(self, heads: ClusterQueueHeads, assigned: Assignment) -> bool:
        """Return whether Kueue would preempt for all that a queue's head is assigned."""
        return bool(self.victims(heads, assigned))

    def victims(self, heads: ClusterQueueHeads, assigned: Assignment) -> tuple[Victim, ...]:
        """Return whom Kueue would preempt for a head at the present usage."""
        if assigned.mode <= PreemptionMode.WAITS:
            return ()
        tree, leaf, taken = self._tree, heads.leaf, assigned.taken
        short = [cell for cell, amount in taken if tree.available(leaf, cell) < amount]
        return self._holders.targets(_preemptor(heads, taken), short) if short else ()

    def issue(self, heads: ClusterQueueHeads, victims: Sequence[Victim]) -> None:
        """Note that a head preempts these."""
        key = heads.entries[0][2].waiting.key
        self.issued.append(IssuedPreemptions(heads=heads, key=key, victims=tuple(victims)))

    def is_in_vain(self, heads: ClusterQueueHeads) -> bool:
        """Return whether another head just like this one was skipped since anybody was served."""
        if not self._rivals and not self._without_room:
            return False
        likeness = self._likeness(heads)
        return likeness is not None and (likeness in self._rivals or likeness in self._without_room)

    def _forget_skipped(self) -> None:
        self._rivals.clear()
        self._without_room.clear()

    def _likeness(self, heads: ClusterQueueHeads) -> object:
        """Return what the preemptions of a head depend on at one usage; None: on it alone.

        Of heads within their quota, below one cohort, it does not matter whose they are: they
        preempt others first, and those have that cohort in common.
        """
        tree, leaf, (*rank, entry) = self._tree, heads.leaf, heads.entries[0]
        only, policy = entry.shape.only, heads.queue.preemption.reclaim_within_cohort
        if only is None or not tree.shares_all or not tree.owns(leaf, only):
            return None
        # Who is evicted already goes first, also in its own ClusterQueue.
        if self._holders.preemptions.is_evicting(leaf):
            return None
        if policy == ANY:
            rank = []
        return tree.parents[leaf], only, policy, *rank

    def attempt(
        self,
        heads: ClusterQueueHeads,
        assigned: Assignment,
        *,
        began: Sequence[int] | None = None,
        kept: Sequence[tuple[int, Taken]] = (),
    ) -> Outcome:
        """Preempt for a head that does not fit, if Kueue would.

        *began*: the usage with which the cycle began; None: as it is. *kept*: quota that is set
        aside for heads that come before it, by ClusterQueue's node.
        """
        tree, leaf, taken = self._tree, heads.leaf, assigned.taken
        if assigned.mode <= PreemptionMode.WAITS:
            self._waiting.pop(leaf, None)
            return Outcome.WAITS
        # Kueue chooses the targets by the usage that the cycle began with.
        restricted = list(tree.used)
        if began is not None or self._now is not None:
            tree.used[:] = self._now or () if began is None else began
        short = [cell for cell, amount in taken if tree.available(leaf, cell) < amount]
        victims = self._holders.targets(_preemptor(heads, taken), short) if short else ()
        tree.used[:] = restricted
        if not victims:
            self._waiting.pop(leaf, None)
            return Outcome.SKIPPED if not short else Outcome.WAITS
        # Kueue skips a head some of whose targets another one preempts in the same cycle.
        is_rival = not self._victims.isdisjoint(victim.holder.key for victim in victims)
        if is_rival or not self._fits(leaf, taken, victims, kept):
            if not kept and all(victim.holder.leaf != leaf for victim in victims):
                (self._rivals if is_rival else self._without_room).add(self._likeness(heads))
            return Outcome.SKIPPED
        # Its victims are chosen by the same usage as before, but there is other room now.
        self._without_room.clear()
        self._victims.update(victim.holder.key for victim in victims)
        self._waiting[leaf] = heads
        self.issue(heads, victims)
        return Outcome.PREEMPTS

    def _fits(
        self,
        leaf: int,
        taken: Taken,
        victims: Sequence[Victim],
        kept: Sequence[tuple[int, Taken]],
    ) -> bool:
        """Return whether there is room once all victims of this cycle have gone; if so, take it."""
        tree = self._tree
        restricted = list(tree.used)
        if self._now is not None:
            tree.used[:] = self._after
        for victim in victims:
            tree.charge(victim.holder.leaf, victim.holder.taken, -1)
        for node, aside in kept:
            tree.charge(node, aside)
        has_room = tree.has(leaf, taken)
        for node, aside in kept:
            tree.charge(node, aside, -1)
        if not has_room:
            tree.used[:] = restricted
            return False
        tree.charge(leaf, taken)
        self._after = list(tree.used)
        self._now = restricted if self._now is None else self._now
        self._restrict()
        return True

    def _restrict(self) -> None:
        """Let the heads after find free what is free both now and when the victims have gone."""
        # Kueue nominates by the usage at the beginning of the cycle, and checks again by that
        # with all preemptions of the cycle (``fits`` in ``scheduler.go``).
        if self._now is not None:
            self._tree.used[:] = map(max, self._now, self._after)


class _Wants(NamedTuple):
    """The heads of one ClusterQueue."""

    pending: Sequence[tuple[ClusterQueueHeads, Shape, float, int]]
    """Each with its shape, its priority, and the place of what it needs in *taken*."""
    lower: Sequence[int] | None
    """What those use in the ClusterQueue whom the one of the highest priority may preempt."""
    taken: Sequence[Taken | None]
    """What they need, each once; None: one has a choice of flavors."""
    amounts: Sequence[Sequence[int]] | None
    """By cell, how much of it they need, in ascending order; None: one has a choice of flavors."""


def _wants(
    tree: UsageTree, holders: QuotaHolders, of_leaf: Sequence[ClusterQueueHeads]
) -> _Wants | None:
    """Return what the heads of a ClusterQueue want; None: nobody is pending."""
    firsts = [(heads, heads.entries[0]) for heads in of_leaf if heads.entries]
    if not firsts:
        return None
    taken: dict[Taken | None, int] = {}
    pending = [
        (heads, entry.shape, -priority, taken.setdefault(entry.shape.only, len(taken)))
        for heads, (priority, _, entry) in firsts
    ]
    amounts: list[list[int]] = [[] for _ in range(tree.width)]
    for only in taken:
        for cell, amount in only or ():
            insort(amounts[cell], amount)
    return _Wants(
        pending=pending,
        lower=holders.lower(firsts[0][0].leaf, max(priority for _, _, priority, _ in pending)),
        taken=tuple(taken),
        amounts=None if None in taken else amounts,
    )


def _hopeful(
    tree: UsageTree, holders: QuotaHolders, wants: Mapping[int, _Wants]
) -> list[ClusterQueueHeads]:
    """Return the heads that do not fit, and may get by preemption what is not free.

    By bounds that cost little, as most heads in most cycles have no hope of it.
    """
    borrowed, width = _borrowed(tree), tree.width
    unused = all_unused(tree) if borrowed else []
    hopeful: list[ClusterQueueHeads] = []
    free: Sequence[int] = ()
    for leaf in sorted(wants):
        pending, most_lower, taken, amounts = wants[leaf]
        # Where nobody has a limit, what is free is free for all.
        if not free or not tree.shares_all:
            free = [tree.available(leaf, cell) for cell in range(width)]
        reach = holders.reach(leaf, unused[leaf * width : (leaf + 1) * width]) if borrowed else None
        if amounts is not None and not _is_any_obtainable(amounts, free, reach, most_lower):
            continue
        is_short = [only is None or _is_short(only, free) for only in taken]
        hopeful += [
            heads
            for heads, shape, priority, place in pending
            if is_short[place] and _may_get(shape, free, reach, holders.lower(leaf, priority))
        ]
    return hopeful


def _is_any_obtainable(
    amounts: Sequence[Sequence[int]],
    free: Sequence[int],
    reach: Sequence[int] | None,
    lower: Sequence[int] | None,
) -> bool:
    """Return whether one of these amounts is not free, and preemption may bring it.

    Those of each cell are in ascending order: the least that is not free is the easiest to get.
    """
    if lower is None and (reach is None or not any(map(gt, reach, free))):
        return False
    for cell, of_cell in enumerate(amounts):
        place = bisect_right(of_cell, free[cell])
        if place < len(of_cell) and is_obtainable(((cell, of_cell[place]),), free, reach, lower):
            return True
    return False


def _is_short(only: Taken, free: Sequence[int]) -> bool:
    for cell, amount in only:  # noqa: SIM110 - twice as fast as any()
        if free[cell] < amount:
            return True
    return False


def _may_get(
    shape: Shape, free: Sequence[int], reach: Sequence[int] | None, lower: Sequence[int] | None
) -> bool:
    """Return whether preemption may bring a Workload what is not free; False is certain.

    *reach*: up to how much it may reclaim quota. *lower*: what those use whom it may preempt in
    its ClusterQueue.
    """
    if shape.only is not None:
        return is_obtainable(shape.only, free, reach, lower)
    return all(
        any(is_obtainable(taken, free, reach, lower) for _, taken in choices)
        for choices in shape.least.parts
    )


def _borrowed(tree: UsageTree) -> list[int]:
    """Return the cells of which some ClusterQueue uses more than its nominal quota."""
    first, end = min(tree.leaves.values()) * tree.width, len(tree.used)
    return [
        cell
        for cell in range(tree.width)
        if any(
            map(
                gt,
                tree.used[first + cell : end : tree.width],
                tree.nominal[first + cell : end : tree.width],
            )
        )
    ]


def borrows(tree: UsageTree, heads: ClusterQueueHeads) -> int:
    """Return 1 if a head that preempts would borrow once its victims are gone, else 0."""
    shape, first = heads.entries[0][2].shape, heads.leaf * tree.width
    for cell, amount in shape.only or ():
        own = tree.subtree[first + cell] - tree.used[first + cell]
        # The victims leave just enough room, so that what is used is then what can be used now.
        if amount > own and max(0, tree.available(heads.leaf, cell)) > own:
            return 1
    return 0


def _preemptor(heads: ClusterQueueHeads, taken: Taken) -> Preemptor:
    priority, order, _ = heads.entries[0]
    return Preemptor(leaf=heads.leaf, taken=taken, priority=-priority, queued_at=order)
