"""Lets congestion prices follow the queues, and publishes them for all replicas.

Only the leader does, once a minute, on forecasts of the state as it is; a new leader goes on from
what the last one published. The price of lateness follows how many Jobs with a deadline end late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from webhook.api.kubernetes_api import ClusterError
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.world import World
from webhook.cost.congestion import STEP_SECONDS, adaptive, is_off, next_prices
from webhook.cost.lateness_weights import LateShares, followed_lateness, weighted
from webhook.model.costs.prices import NO_CONGESTION, CongestionPrices
from webhook.model.faults import Attention
from webhook.state.cluster_watches import ClusterWatches
from webhook.state.forecast_input import ForecastInput, ForecastInputs, market_of, trees_of
from webhook.state.published_congestion import config_map_of
from webhook.state.snapshot import Snapshot

RETRY_SECONDS: Final = 10.0
"""After a failed write."""


class CongestionPublisher:
    def __init__(
        self,
        write: Callable[[Mapping[str, Any]], object],
        workers: ClusterWatches | None,
        *,
        max_state_age: float,
        is_leader: Callable[[], bool],
        take_late: Callable[[], Iterable[tuple[str, bool]]],
        metrics: ControllerMetrics,
    ) -> None:
        """Publish by *write*, which is given the ConfigMap; *is_leader* is called before each.

        While the state is older than *max_state_age* seconds all prices stay as they are; those of
        one of the *workers* while its own is. *take_late* is that of ``Records``.
        """
        self._overwrite, self._workers = write, workers
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
        if not self._is_leader() or world.now < self._due:
            return ()
        if not names and not any(map(followed_lateness, policies)):
            # Of policies that are gone no price is left.
            is_left = before.prices or before.weights
            return self._write(CongestionPrices(at=world.unix), world.now) if is_left else ()
        if world.unix - before.at < STEP_SECONDS:
            return ()
        # What nobody knows any more says nothing of who waits; published prices run out by then.
        if names and not world.knows_workloads(self._max_state_age):
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
        market = market_of(snapshot, contents, now=now, unix=unix, manager=snapshot)
        own = next_prices(before, market)
        parts = [own, *self._in_workers(before.at_moment(unix), snapshot, now, unix)]
        weights = weighted(
            before.at_moment(unix).weights, self._late, snapshot.fallback.policies, unix
        )
        return replace(
            own,
            prices={cell: price for part in parts for cell, price in part.prices.items()},
            waits={cell: wait for part in parts for cell, wait in part.waits.items()},
            weights=weights,
        )

    def _in_workers(
        self, before: CongestionPrices, manager: Snapshot, now: float, unix: float
    ) -> Iterator[CongestionPrices]:
        """Yield the next prices of each watched worker cluster."""
        if self._workers is None or is_off(manager.fallback.off):
            return
        for name, snapshot in self._workers.counted().items():
            # Until there are forecasts, a new leader goes on from what the last one published.
            if snapshot is None or not snapshot.forecasts or self._is_old(snapshot, now):
                yield only_of(name, before)
                continue
            # Its forecasts are kept for the queues to which policies lead, and for their trees.
            contents = {
                queue: self._workers.contents_of(name, queue)
                for queue in snapshot.forecasts.keys() & snapshot.setup.cluster_queues.keys()
            }
            market = market_of(
                snapshot, contents, now=now, unix=unix, manager=manager, cluster=name
            )
            yield next_prices(before, market)

    def _is_old(self, snapshot: Snapshot, now: float) -> bool:
        return now - snapshot.as_of > self._max_state_age

    def _write(self, prices: CongestionPrices, now: float) -> tuple[str, ...]:
        if not self._is_leader():
            return ()
        try:
            self._overwrite(config_map_of(prices))
        except ClusterError as error:
            self._due = now + RETRY_SECONDS
            said, self._said = self._said, Attention(f"congestion prices: {error}")
            return () if said == self._said else (self._said,)
        self._said, self._last = "", prices
        return ()


def only_of(cluster: str, prices: CongestionPrices) -> CongestionPrices:
    """Return the prices of one cluster."""
    return replace(
        prices,
        prices={cell: price for cell, price in prices.prices.items() if cell.cluster == cluster},
        waits={cell: wait for cell, wait in prices.waits.items() if cell.cluster == cluster},
    )


def followed(snapshot: Snapshot) -> frozenset[str]:
    """Return the ClusterQueues whose Workloads must be known: the trees whose capacity has a price.

    A price of lateness follows what has ended, and needs none of them.
    """
    policies = (policy for policy in snapshot.fallback.policies if adaptive(policy) is not None)
    return trees_of(policies, snapshot)
