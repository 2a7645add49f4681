"""Weights of lateness: how many times its price counts follows how many Jobs end late.

The controller's leader publishes them with the congestion prices, for all replicas; replays follow
them by the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.policy.strategy import LatenessWeight

AGAIN_SECONDS: Final = 600.0
"""Between two changes of one weight."""
_JOBS: Final = 50
"""The share is a mean over about so many Jobs, the newer ones counting more."""
_FACTOR: Final = 1.1
_DEAD_BAND: Final = 0.02
_PERCENT: Final = 100.0


class LateShares:
    """The share of late Jobs of each policy, and when its weight was last changed."""

    def __init__(self) -> None:
        self.shares: dict[str, float] = {}
        self.changed: dict[str, float] = {}

    def note(self, policy: str, *, late: bool) -> None:
        """Note that one Job with a deadline has ended."""
        # None is taken to have been late before, so that the first ones say little.
        share = self.shares.get(policy, 0.0)
        self.shares[policy] = share + (late - share) / _JOBS


def followed_lateness(policy: FallbackPolicy) -> LatenessWeight | None:
    """Return how a policy's price of lateness follows what is late; None: it is fixed."""
    least_cost = policy.spec.strategy.least_cost
    return least_cost.lateness.adapt if least_cost is not None else None


def next_weight(weight: float, share: float, rules: LatenessWeight) -> float:
    """Return how many times the price of lateness counts, between 1 and ``most``."""
    target = rules.target / _PERCENT
    if share > target + _DEAD_BAND:
        weight *= _FACTOR
    elif share < target - _DEAD_BAND:
        weight /= _FACTOR
    return min(max(weight, 1.0), float(rules.most))


def weighted(
    before: Mapping[str, float], late: LateShares, policies: Iterable[FallbackPolicy], unix: float
) -> Mapping[str, float]:
    """Return the weights of all policies that ask for one, as of *unix*."""
    weights: dict[str, float] = {}
    for policy in policies:
        rules = followed_lateness(policy)
        if rules is None:
            continue
        weight, share = before.get(policy.name, 1.0), late.shares.get(policy.name)
        if share is not None and unix - late.changed.get(policy.name, 0.0) >= AGAIN_SECONDS:
            weight, late.changed[policy.name] = next_weight(weight, share, rules), unix
        weights[policy.name] = weight
    return weights
