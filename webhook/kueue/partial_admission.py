"""With how many pods Kueue admits a Workload that does with fewer than it asks for.

Mirrors Kueue's ``PodSetReducer``, which takes the most pods that fit, from all pod sets alike.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/podset_reducer.go
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar, overload

from webhook.model.queues import PodSetNeeds

_Fitting = TypeVar("_Fitting")
AskedT = TypeVar("AskedT")


def most_missing(needs: Sequence[PodSetNeeds]) -> int:
    """Return without how many of its pods Kueue may admit a Workload at the most."""
    return sum(need.count - fewest(need) for need in needs)


def fewest(need: PodSetNeeds) -> int:
    """Return the fewest pods with which Kueue may admit a pod set."""
    return need.count if need.min_count is None else min(need.min_count, need.count)


def with_missing(needs: Sequence[PodSetNeeds], missing: int) -> tuple[PodSetNeeds, ...]:
    """Return the needs without *missing* pods, which are taken from each pod set in proportion."""
    most = most_missing(needs)
    return tuple(
        replace(need, count=need.count - (need.count - fewest(need)) * missing // most, known={})
        for need in needs
    )


def most_that_fit(most: int, fit: Callable[[int], _Fitting | None]) -> _Fitting | None:
    """Return what *fit* returns for the least number of missing pods that fits; None: none does.

    *most* may be missing; that all are there was tried before. *fit* returns None where the others
    do not fit.
    """
    least, unknown = 0, most + 1
    found: _Fitting | None = None
    while most and least < unknown:
        middle = (least + unknown) // 2
        if (fitting := fit(middle)) is None:
            least = middle + 1
        else:
            unknown, found = middle, fitting
    return found


class FewerPods(Sequence[AskedT], Generic[AskedT]):
    """What a Workload asks for without one of its pods, without two, and so on.

    Each is worked out when it is first looked at: there may be thousands, of which few are tried.
    """

    def __init__(self, most: int, without: Callable[[int], AskedT]) -> None:
        self._most, self._without = most, without
        self._known: dict[int, AskedT] = {}

    def __len__(self) -> int:
        return self._most

    @overload
    def __getitem__(self, index: int) -> AskedT: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[AskedT]: ...
    def __getitem__(self, index: int | slice) -> AskedT | Sequence[AskedT]:
        if isinstance(index, slice):
            return [self[place] for place in range(self._most)[index]]
        missing = range(1, self._most + 1)[index]
        if missing not in self._known:
            self._known[missing] = self._without(missing)
        return self._known[missing]
