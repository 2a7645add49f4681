"""With how many pods Kueue admits a Workload that does with fewer than it asks for.

Mirrors Kueue's ``PodSetReducer``, which takes the most pods that fit, from all pod sets alike.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/podset_reducer.go
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from webhook.model.queues import PodSetNeeds

_Fitting = TypeVar("_Fitting")


def can_be_reduced(needs: Sequence[PodSetNeeds]) -> bool:
    """Return whether Kueue may admit some pod set with fewer pods than it asks for."""
    return any(fewest(need) < need.count for need in needs)


def fewest(need: PodSetNeeds) -> int:
    """Return the fewest pods with which Kueue may admit a pod set."""
    return need.count if need.min_count is None else min(need.min_count, need.count)


def with_fewest(needs: tuple[PodSetNeeds, ...]) -> tuple[PodSetNeeds, ...]:
    """Return what Kueue admits at the least; the same object where nothing can be reduced."""
    if not can_be_reduced(needs):
        return needs
    return tuple(replace(need, count=fewest(need), known={}) for need in needs)


def most_that_fit(
    needs: Sequence[PodSetNeeds], fit: Callable[[tuple[PodSetNeeds, ...]], _Fitting | None]
) -> _Fitting | None:
    """Return what *fit* returns for the least reduced needs that fit; None: none fit.

    All pods were tried before. *fit* returns None for needs that do not fit.
    """
    total = sum(need.count - fewest(need) for need in needs)
    least, unknown = 0, total + 1
    found: _Fitting | None = None
    while total and least < unknown:
        middle = (least + unknown) // 2
        if (fitting := fit(_reduced(needs, middle, total))) is None:
            least = middle + 1
        else:
            unknown, found = middle, fitting
    return found


def _reduced(needs: Sequence[PodSetNeeds], part: int, total: int) -> tuple[PodSetNeeds, ...]:
    """Take *part* of all *total* pods that may be missing, from each pod set in proportion."""
    return tuple(
        replace(need, count=need.count - (need.count - fewest(need)) * part // total, known={})
        for need in needs
    )
