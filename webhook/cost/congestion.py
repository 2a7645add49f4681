"""Congestion prices: what is waited for becomes dearer step by step, and cheaper once it is not.

This is dual ascent: the price of a unit of capacity rises while demand exceeds it. Steps are small
and bounded, so that all replicas may use one number that is a minute old.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from statistics import median_low
from typing import Final, NamedTuple

from webhook.cost import terms
from webhook.cost.device_shares import rate_of
from webhook.cost.terms import Span
from webhook.kueue import multikueue
from webhook.kueue.quota import tree_names
from webhook.kueue.tree_forecast import TreeForecast, wait_for
from webhook.model.costs.prices import (
    DAY,
    HOUR,
    NO_CONGESTION,
    CongestionPrices,
    Prices,
    ScarceCell,
)
from webhook.model.policy.fallback_policy import FallbackPolicy, seconds
from webhook.model.policy.strategy import Congestion, CongestionType, LeastCost
from webhook.model.quantity import Amounts, FlavorResource
from webhook.model.snapshot_parts import FallbackSetup, KueueSetup, OffSwitch

STEP_SECONDS: Final = 60.0
"""Between two steps."""
_STEP: Final = 0.02
"""Of the base rate, that a price changes in a step."""
_RECENT: Final = 50
"""Requests of a cell, the newest, of which the median is looked at."""


class CellRequest(NamedTuple):
    """What one Workload asks for, or got, in a ClusterQueue."""

    created: float
    cluster_queue: str
    usage: Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """What prices are made from, at one moment."""

    setup: KueueSetup
    fallback: FallbackSetup
    prices: Prices
    """Those of the cluster."""
    manager: KueueSetup
    """That of the cluster where Jobs are decided: *setup*, or of a worker its manager's."""
    cluster: str = ""
    """The worker cluster; empty: the one where Jobs are decided."""
    forecasts: Mapping[str, TreeForecast]
    """Those of the trees whose capacity has a price."""
    requests: Sequence[CellRequest]
    now: float
    """On the clock of ``Snapshot.as_of``."""
    unix: float
    """The same moment in seconds since 1970."""


def next_price(price: float, wait: float, base: float, rules: Congestion) -> float:
    """Return a price after one step, between 0 and ``most`` times the *base* rate.

    *wait*: seconds until the median request would start.
    """
    target = seconds(rules.wait)
    if wait > target:
        price += _STEP * base
    elif wait < target / 2:
        price -= _STEP * base
    return min(max(price, 0.0), float(rules.most) * base)


def next_prices(before: CongestionPrices, market: Market) -> CongestionPrices:
    """Return a cluster's prices after one step; of trees that no policy names any more, none."""
    if is_off(market.fallback.off):
        return CongestionPrices(at=market.unix, weights=before.weights)
    before = before.at_moment(market.unix)
    asked = _asked(market)
    prices: dict[ScarceCell, float] = {}
    waits: dict[ScarceCell, float] = {}
    trees = rules_by_tree(
        market.fallback.policies, market.setup, manager=market.manager, cluster=market.cluster
    )
    for tree, least_cost in trees.items():
        rules = least_cost.congestion
        for cell, requests in asked.get(tree, {}).items():
            place = ScarceCell(tree, *cell, market.cluster)
            middle = median_low((amount, name) for amount, name in requests)
            waits[place] = _wait_for(market, cell, *middle)
            base = base_rate(cell, market.prices, least_cost, market.unix)
            base = base or _by_time(least_cost, cell, middle[0])
            price = next_price(before.prices.get(place, 0.0), waits[place], base, rules)
            if price > 0:
                prices[place] = price
    return CongestionPrices(at=market.unix, prices=prices, waits=waits, weights=before.weights)


def is_off(off: OffSwitch | None) -> bool:
    """Return whether nothing is decided anywhere."""
    return off is not None and off.is_everywhere


def by_queue(
    published: CongestionPrices,
    setup: KueueSetup,
    off: OffSwitch | None,
    unix: float,
    cluster: str = "",
) -> Mapping[str, Mapping[FlavorResource, float]]:
    """Return what prices add in each ClusterQueue at *unix*, in seconds since 1970.

    *setup* is that of *cluster*, a worker; empty: this one.
    """
    current = NO_CONGESTION if is_off(off) else published.at_moment(unix)
    by_tree: defaultdict[str, dict[FlavorResource, float]] = defaultdict(dict)
    for place, price in current.prices.items():
        if place.cluster == cluster:
            by_tree[place.tree][place.flavor, place.resource] = price
    if not by_tree:
        return {}
    trees = tree_names(setup.cluster_queues, setup.cohorts)
    return {name: by_tree[tree] for name, tree in trees.items() if tree in by_tree}


def rules_by_tree(
    policies: Iterable[FallbackPolicy], setup: KueueSetup, *, manager: KueueSetup, cluster: str
) -> Mapping[str, LeastCost]:
    """Return the trees whose capacity has a price, each with the first policy's rules for it.

    They are the trees of *setup*; the rest as in ``Market``.
    """
    trees = tree_names(setup.cluster_queues, setup.cohorts)
    found: dict[str, LeastCost] = {}
    for policy in policies:
        least_cost = adaptive(policy)
        if least_cost is None:
            continue
        there = _sent_to(cluster, policy, setup, manager) if cluster else _queues_of(policy, setup)
        for name in there:
            if name in trees:
                found.setdefault(trees[name], least_cost)
    return found


def adaptive(policy: FallbackPolicy) -> LeastCost | None:
    """Return how a policy compares costs, if what is scarce has a price for it."""
    least_cost = policy.spec.strategy.least_cost
    if least_cost is None or least_cost.congestion.type is not CongestionType.ADAPTIVE:
        return None
    return least_cost


def _queues_of(policy: FallbackPolicy, setup: KueueSetup) -> Iterator[str]:
    named = {option.queue for option in policy.spec.options if option.queue}
    yield from (option.cluster_queue for option in policy.spec.options if option.cluster_queue)
    for (_, name), local_queue in setup.local_queues.items():
        if name in named:
            yield local_queue.cluster_queue


def _sent_to(
    cluster: str, policy: FallbackPolicy, setup: KueueSetup, manager: KueueSetup
) -> Iterator[str]:
    """Yield the ClusterQueues of a worker, *setup*, to which a policy leads through MultiKueue."""
    named = {option.queue for option in policy.spec.options}
    given = {option.cluster_queue for option in policy.spec.options}
    for place, local_queue in manager.local_queues.items():
        sender = manager.cluster_queues.get(local_queue.cluster_queue)
        # MultiKueue creates the Job on the worker with the same namespace and queue name.
        if (
            sender is not None
            and place in setup.local_queues
            and (local_queue.name in named or sender.name in given)
            and cluster in multikueue.behind(sender, manager)
        ):
            yield setup.local_queues[place].cluster_queue


def _asked(market: Market) -> Mapping[str, Mapping[FlavorResource, list[tuple[int, str]]]]:
    """Return for each tree and cell what its newest requests ask for, and in which queue."""
    trees = tree_names(market.setup.cluster_queues, market.setup.cohorts)
    asked: defaultdict[str, defaultdict[FlavorResource, list[tuple[int, str]]]]
    asked = defaultdict(lambda: defaultdict(list))
    for request in sorted(market.requests, key=lambda request: -request.created):
        tree = asked[trees.get(request.cluster_queue, "")]
        for cell, amount in request.usage.items():
            if amount > 0 and len(tree[cell]) < _RECENT:
                tree[cell].append((amount, request.cluster_queue))
    return asked


def _wait_for(market: Market, cell: FlavorResource, amount: int, cluster_queue: str) -> float:
    """Return in how many seconds so much of a cell is free for a new Job; 0: it is now.

    Without a forecast nothing is known to wait.
    """
    forecast = market.forecasts.get(cluster_queue)
    if forecast is None:
        return 0.0
    usage = {cell: amount}
    return wait_for(forecast, cluster_queue, usage, market.setup, market.now).seconds


def base_rate(cell: FlavorResource, prices: Prices, rules: LeastCost, unix: float) -> float:
    """Return what an hour of one unit of a cell costs on average over the next day.

    Where it has no rate, its electricity and carbon; 0: these are not known either.
    """
    rate, part = rate_of(cell, prices) or (None, 0.0)
    mean = 0.0 if rate is None else part * rate.over(unix, unix + DAY) * HOUR / DAY
    if mean > 0 and not isnan(mean):
        return mean
    day = Span(reserved=unix, begun=unix, end=unix + DAY)
    cost = terms.cost_of({cell: terms.one_unit(cell)}, prices, day)
    carbon = float(rules.carbon_price) * (cost.kilograms or 0.0)
    return ((cost.electricity or 0.0) + carbon) * HOUR / DAY


def _by_time(rules: LeastCost, cell: FlavorResource, amount: int) -> float:
    """Return the rate at which the median request costs as much as an hour of time is worth."""
    value = 1.0 if rules.time_value is None else float(rules.time_value)
    return value / terms.units(cell, amount)
