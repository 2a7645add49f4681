"""How namespaces share what is not enough for all, so that none of them takes it from the others.

What holds a place is not put out again, so a namespace gets no place that others will need; what
waits for its turn is served from each namespace in turn. Nothing here knows what is shared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import TypeVar

_Item = TypeVar("_Item")


def share_of(namespace: str, taken: Mapping[str, int], most: int) -> int:
    """Return how many of *most* places a namespace may have: half of what others leave.

    *taken*: namespace to how many places it has. However many that are, the largest of the others
    counts for at most half of all, the next one for half of the rest, and so on.
    """
    left = most
    for count in sorted((n for name, n in taken.items() if name != namespace), reverse=True):
        left -= min(count, max(1, left // 2))
        if left <= 0:
            return 0
    return -(-left // 2)


def has_place(namespace: str, taken: Mapping[str, int], most: int) -> bool:
    """Return whether a namespace may take one more of *most* places."""
    own = taken.get(namespace, 0)
    # What nobody has taken is part of what others leave: most often they need not be sorted.
    return own < most - sum(taken.values()) or own < share_of(namespace, taken, most)


def in_turn(items: Iterable[_Item], namespace_of: Callable[[_Item], str]) -> list[_Item]:
    """Return the first item of each namespace, then the second of each, and so on.

    Those of one turn stay in their order.
    """
    turns: Counter[str] = Counter()
    with_turn: list[tuple[int, _Item]] = []
    for item in items:
        turns[namespace_of(item)] += 1
        with_turn.append((turns[namespace_of(item)], item))
    return [item for _, item in sorted(with_turn, key=itemgetter(0))]
