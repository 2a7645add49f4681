"""Starts of pending Workloads for which Kueue may preempt newcomers of their cohort tree."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import inf

from webhook.kueue.profile import is_later
from webhook.model.forecasts import Outranking
from webhook.model.queues import ANY, LOWER_PRIORITY, NEVER, Preemption

_MOST_OUTRANKING = 64
"""Most starts of which a profile tells whom they may preempt, the earliest."""


class OutrankingStarts:
    """Starts of pending Workloads for which others of their tree may be preempted, step by step."""

    def __init__(
        self,
        policies: Mapping[int, Preemption],
        started: Mapping[tuple[float, int, float], int],
        *,
        times: Sequence[float],
        used: Sequence[Sequence[int]],
        lowest: Sequence[Sequence[float]],
    ) -> None:
        """Take what a finished ``StartRecord`` has; *policies* are by ClusterQueue's node."""
        self._policies, self._used, self._lowest = policies, used, lowest
        self._own: defaultdict[int, Counter[tuple[int, float]]] = defaultdict(Counter)
        """ClusterQueue's node to step and priority to the number of starts."""
        self._reclaiming: Counter[tuple[int, float]] = Counter()
        """Step, and below which priority they take quota back, to the number of starts."""
        self._since: dict[int, float] = {}
        """Step to its first start. Where one ends as another starts, steps are long."""
        for (at, leaf, priority), count in started.items():
            # Who starts at once does so before any newcomer.
            if at > times[0]:
                step = bisect_right(times, at) - 1
                self._since.setdefault(step, at)
                self._own[leaf][step, priority] += count
                below = _below(self._policies[leaf].reclaim_within_cohort, priority)
                self._reclaiming[step, below] += count

    def of(
        self, leaf: int, owned: Callable[[Sequence[int]], tuple[int, ...]], *, has_cohort: bool
    ) -> tuple[Outranking, ...]:
        """Return those that may preempt newcomers of one ClusterQueue.

        *owned* tells by a tree's usage what is unused of the ClusterQueue's own quota.
        """
        counts: Counter[tuple[int, float, bool]] = Counter()
        policy = self._policies[leaf]
        if has_cohort:
            counts.update({(*key, False): count for key, count in self._reclaiming.items()})
        for (step, priority), count in self._own[leaf].items():
            counts[step, _below(policy.reclaim_within_cohort, priority), False] -= count
            counts[step, _below(policy.within_cluster_queue, priority), True] += count
        known = sorted(key for key, count in counts.items() if count > 0 and key[1] > -inf)
        return tuple(
            Outranking(
                at=self._since[step],
                below=below,
                owned=None if is_own else owned(self._used[step]),
                spared_above=self._lowest[step][leaf],
                workloads=counts[step, below, is_own],
            )
            for step, below, is_own in known[:_MOST_OUTRANKING]
        )

    def own(self, leaf: int) -> tuple[tuple[float, float], ...]:
        """Return when pending Workloads of one ClusterQueue start, with their highest priority."""
        highest: dict[float, float] = {}
        for step, priority in self._own.get(leaf, ()):
            at = self._since[step]
            highest[at] = max(priority, highest.get(at, -inf))
        return tuple(sorted(highest.items()))


def _below(policy: str, priority: float) -> float:
    """Return below which priority a policy lets Workloads of this priority preempt newcomers."""
    if policy in (NEVER, ANY):
        return -inf if policy == NEVER else inf
    # A newcomer is the newest of its priority, but for those that are still to come.
    return priority + (policy != LOWER_PRIORITY and not is_later(priority))
