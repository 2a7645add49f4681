"""Lets congestion prices follow the queues, and publishes them for all replicas.

Only the leader does, once a minute, on forecasts of the state as it is; a new leader goes on from
what the last one published. The price of lateness follows how many Jobs with a deadline end late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from webhook.api import published
from webhook.api.kubernetes_api import ClusterError, KubernetesApi
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.world import World
from webhook.cost.congestion import STEP_SECONDS, adaptive, is_off, next_prices
from webhook.cost.lateness_weights import LateShares, followed_lateness, weighted
from webhook.model.costs.prices import NO_CONGESTION, CongestionPrices
from webhook.model.faults import Attention
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
        names, policies = followed(world.snapshot), world.snapshot.fallback.policies
        before = max(self._last, world.snapshot.costs.scarcity, key=lambda prices: prices.at)
        if not names and not any(map(followed_lateness, policies)):
            return ()
        if not self._is_leader() or world.now < self._due:
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

    A price of lateness follows what has ended, and needs none of them.
    """
    policies = (policy for policy in snapshot.fallback.policies if adaptive(policy) is not None)
    return trees_of(policies, snapshot)
