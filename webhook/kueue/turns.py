"""Turns in a scheduling cycle, and the quota set aside for heads whose turns come before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from webhook.kueue.quota import Taken, UsageTree

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
    """By turn, with what is set aside for heads by then; those of ``LineTurns`` as it has
    them."""
    ahead: Sequence[float]
    """By node up to which priority newcomers of a ClusterQueue come behind its head, in a later
    cycle; inf: all do, -inf: there is no head. Empty: *before* allows for it."""


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
