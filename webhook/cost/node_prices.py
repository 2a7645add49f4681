"""Makes the rates of a Tariff from what hours of Nodes cost, as OpenCost exports it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Final

from webhook.model.queues import ResourceFlavor

GAUGES: Final[Mapping[str, str]] = {
    "cpu": "node_cpu_hourly_cost",
    "memory": "node_ram_hourly_cost",
    "device": "node_gpu_hourly_cost",
}
"""Part of a Node to the gauge with money for an hour of a core, a GiB, a device."""
_MOST_FLAVORS: Final = 16
"""That one entry names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedNode:
    """A Node, with what an hour of its parts costs; a part that is not known is not there."""

    name: str
    labels: Mapping[str, str]
    devices: Collection[str] = ()
    """Resources that count whole devices on it."""
    prices: Mapping[str, float] = field(default_factory=dict)


def rates(
    nodes: Sequence[PricedNode], flavors: Iterable[ResourceFlavor]
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return entries of ``rates``, and the flavors of which nothing is known.

    A flavor costs the mean over the Nodes that have its ``nodeLabels``. Equal ones share an entry.
    """
    unknown = []
    by_rates: defaultdict[tuple[tuple[str, str], ...], list[str]] = defaultdict(list)
    for flavor in sorted(flavors, key=lambda flavor: flavor.name):
        labels = flavor.node_labels.items()
        its_own = [node for node in nodes if labels and labels <= node.labels.items()]
        found = tuple(_rates(its_own))
        if found:
            by_rates[found].append(flavor.name)
        else:
            unknown.append(flavor.name)
    entries = [
        {"flavors": names[start : start + _MOST_FLAVORS], "resources": dict(found)}
        for found, names in by_rates.items()
        for start in range(0, len(names), _MOST_FLAVORS)
    ]
    return entries, tuple(unknown)


def _rates(nodes: Sequence[PricedNode]) -> Iterator[tuple[str, str]]:
    for part in ("cpu", "memory"):
        prices = [node.prices[part] for node in nodes if part in node.prices]
        if prices:
            yield part, _written(fmean(prices))
    for resource in sorted({resource for node in nodes for resource in node.devices}):
        prices = [
            node.prices["device"]
            for node in nodes
            if resource in node.devices and "device" in node.prices
        ]
        if prices:
            yield resource, _written(fmean(prices))


def _written(price: float) -> str:
    return f"{price:.6f}".rstrip("0").rstrip(".")
