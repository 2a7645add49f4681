"""Lets congestion prices follow the queues, and publishes them for all replicas.

Only the leader does, once a minute, on forecasts of the state as it is; a new leader goes on from
what the last one published. The price of lateness follows how many Jobs with a deadline end late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from webhook.api import published
from webhook.api.kubernetes_api import ClusterError, KubernetesApi
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.world import World
from webhook.cost.congestion import STEP_SECONDS, adaptive, is_off, next_prices
from webhook.model.costs.prices import NO_CONGESTION, CongestionPrices
from webhook.model.faults import Attention
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.policy.strategy import LatenessWeight
from webhook.state import run_records_reader
from webhook.state.forecast_input import ForecastInput, ForecastInputs, market_of, trees_of
from webhook.state.published_congestion import config_map_of
from webhook.state.snapshot import Snapshot

RETRY_SECONDS: Final = 10.0
"""After a failed write."""


class CongestionPublisher:
    def __init__(
        self,
        transport: KubernetesApi,
        namespace: str,
        *,
        max_state_age: float,
        is_leader: Callable[[], bool],
        take_late: Callable[[], Iterable[tuple[str, bool]]],
        metrics: ControllerMetrics,
    ) -> None:
        """Publish in *namespace*; *is_leader* is called before each write.

        While the state is older than *max_state_age* seconds all prices stay as they are.
        *take_late* is that of ``Records``.
        """
        self._transport, self._namespace = transport, namespace
        self._max_state_age, self._is_leader = max_state_age, is_leader
        self._take_late, self._metrics = take_late, metrics
        self._last = NO_CONGESTION
        """As published by us."""
        self._late = LateShares()
        self._said = ""
        self._due = 0.0

    def step(self, world: World) -> tuple[str, ...]:
        """Publish the next prices if it is time; return the lines to log."""
        for policy, late in self._take_late():
            self._late.note(policy, late=late)
        lines = self._publish(world)
        self._metrics.costs.show_congestion(world.snapshot.costs.scarcity.at_moment(world.unix))
        return lines

    def _publish(self, world: World) -> tuple[str, ...]:
        names = followed(world.snapshot)
        before = max(self._last, world.snapshot.costs.scarcity, key=lambda prices: prices.at)
        if not names or not self._is_leader() or world.now < self._due:
            return ()
        if world.unix - before.at < STEP_SECONDS:
            return ()
        # What nobody knows any more says nothing of who waits; published prices run out by then.
        if not world.knows_workloads(self._max_state_age):
            return ()
        return self._write(self._next(before, world, names), world.now)

    def _next(
        self, before: CongestionPrices, world: World, names: frozenset[str]
    ) -> CongestionPrices:
        snapshot, now, unix = world.snapshot, world.now, world.unix
        contents = {name: world.feed.contents_of(name) for name in names}
        if not is_off(snapshot.fallback.off):
            forecast = ForecastInput(snapshot=snapshot, counted=contents, now=now, unix=unix)
            forecasts = ForecastInputs().forecasts(forecast)
            snapshot = replace(snapshot, forecasts=forecasts)
        market = market_of(snapshot, contents, now=now, unix=unix)
        weights = weighted(
            before.at_moment(unix).weights, self._late, snapshot.fallback.policies, unix
        )
        return replace(next_prices(before, market), weights=weights)

    def _write(self, prices: CongestionPrices, now: float) -> tuple[str, ...]:
        if not self._is_leader():
            return ()
        body, place = config_map_of(prices), run_records_reader.path_of(self._namespace)
        try:
            published.overwrite(self._transport, place, body)
        except ClusterError as error:
            self._due = now + RETRY_SECONDS
            said, self._said = self._said, Attention(f"congestion prices: {error}")
            return () if said == self._said else (self._said,)
        self._said, self._last = "", prices
        return ()


def followed(snapshot: Snapshot) -> frozenset[str]:
    """Return the ClusterQueues whose Workloads must be known: the trees whose capacity has a price.

    Those of policies whose price of lateness follows what is late are among them.
    """
    policies = (policy for policy in snapshot.fallback.policies if adaptive(policy) is not None)
    return trees_of(policies, snapshot)


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
        least_cost = policy.spec.strategy.least_cost
        rules = least_cost.lateness.adapt if least_cost is not None else None
        if rules is None:
            continue
        weight, share = before.get(policy.name, 1.0), late.shares.get(policy.name)
        if share is not None and unix - late.changed.get(policy.name, 0.0) >= AGAIN_SECONDS:
            weight, late.changed[policy.name] = next_weight(weight, share, rules), unix
        weights[policy.name] = weight
    return weights
