"""Turns in a scheduling cycle, and the quota set aside for heads whose turns come before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from webhook.kueue.quota import Taken, UsageTree

_Key = TypeVar("_Key", int, float)
Turn: TypeAlias = tuple[int, float]
"""A place in the order of a cycle, after all heads with this key: how high up it borrows, negated
priority."""
Line: TypeAlias = tuple[int, str]
"""Whose newcomers are served alike: a ClusterQueue's node, and a LocalQueue (``namespace/name``) if
it serves these by their use; "": all of the ClusterQueue."""
Kept: TypeAlias = tuple[int, float, int, Taken]
"""Quota set aside for a head: its height, its negated priority, its node, the amounts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnUsage:
    """The usage at the turns of newcomers in one cycle."""

    before: Sequence[list[int]]
    """By turn, with what is set aside for heads by then."""
    ahead: Sequence[float]
    """By node up to which priority newcomers of a ClusterQueue come behind its head, in a later
    cycle; inf: all do, -inf: there is no head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineUsage:
    """The usage at the turns of newcomers at one moment, by line and rank."""

    rows: Sequence[Sequence[list[int]]]
    """By rank the usage with which a newcomer must fit then, of each kind of lines."""
    kinds: Sequence[int]
    """For each line, or for each node of the tree, the place of its kind in *rows*."""


def by_kind(
    cycles: Sequence[TurnUsage], after: list[int], behind: Sequence[float], *, is_again: bool
) -> LineUsage:
    """Return the usage at the turns of newcomers in all cycles of a moment, by node.

    A turn comes in the first cycle in which no head of the ClusterQueue comes before, or the usage
    is that *after* the cycles. *behind*: for each rank the lowest priority that comes before it.
    *is_again*: it comes again in each later cycle, and after them.
    """
    keys, kinds = _kinds([cycle.ahead for cycle in cycles])

    def at_turn(key: tuple[float, ...], rank: int) -> list[int]:
        tried = [
            cycle.before[rank]
            for ahead, cycle in zip(key, cycles, strict=True)
            if ahead < behind[rank]
        ]
        return least([after, *tried]) if is_again else next(iter(tried), after)

    return LineUsage(
        rows=[[at_turn(key, rank) for rank in range(len(behind))] for key in keys], kinds=kinds
    )


def joined(moments: Sequence[LineUsage]) -> LineUsage:
    """Join several moments: of each line and rank the least usage in any of them, cell by cell."""
    keys, kinds = _kinds([moment.kinds for moment in moments])
    known: dict[tuple[int, ...], list[int]] = {}
    rows = []
    for key in keys:
        of_kind = (moment.rows[place] for moment, place in zip(moments, key, strict=True))
        row = []
        for usages in zip(*of_kind, strict=True):
            # Many turns come at one usage.
            same = tuple(map(id, usages))
            if same not in known:
                known[same] = least(usages)
            row.append(known[same])
        rows.append(row)
    return LineUsage(rows=rows, kinds=kinds)


def _kinds(columns: Sequence[Sequence[_Key]]) -> tuple[Sequence[tuple[_Key, ...]], Sequence[int]]:
    """Return the different rows of a table with these columns, and for each row its place."""
    rows = list(zip(*columns, strict=True))
    places = {row: place for place, row in enumerate(dict.fromkeys(rows))}
    return list(places), list(map(places.__getitem__, rows))


def least(usages: Sequence[list[int]]) -> list[int]:
    """Return the least of several usages, cell by cell."""
    first, *others = {id(usage): usage for usage in usages}.values()
    found = list(map(min, first, *others)) if others else first
    # Many turns come at one usage, which is recognized by being the same list.
    return first if found == first else found


def set_aside_before(turn: Turn, kept: Iterable[Kept]) -> Sequence[tuple[int, Taken]]:
    """Return what is set aside for heads that come before a turn, by ClusterQueue's node."""
    return [(leaf, aside) for height, order, leaf, aside in kept if (height, order) <= turn]


def at_turn(tree: UsageTree, turn: Turn, kept: Iterable[Kept]) -> UsageTree:
    """Return a tree with what is set aside for heads that come before a turn charged.

    It is the same tree where that is nothing.
    """
    before = set_aside_before(turn, kept)
    if not before:
        return tree
    charged = tree.copy()
    for leaf, aside in before:
        charged.charge(leaf, aside)
    return charged


def with_set_aside(tree: UsageTree, kept: Iterable[Kept]) -> list[int]:
    """Return a copy of the tree's usage, with what is set aside for heads added."""
    # The tree is charged and released again, because that also counts what reaches the cohorts.
    asides = [(leaf, aside) for _, _, leaf, aside in kept if aside]
    for leaf, aside in asides:
        tree.charge(leaf, aside)
    used = list(tree.used)
    for leaf, aside in asides:
        tree.charge(leaf, aside, -1)
    return used
