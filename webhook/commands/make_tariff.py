"""``tariff``: prints Tariffs made from what other programs know, for an admin to look through.

``typical`` and ``series`` read a year of carbon intensities, ``spot`` a cloud's history of prices,
``from-opencost`` asks a Prometheus
what Nodes cost, with the user's own rights. Nothing is applied, and our processes never ask
anybody.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from webhook.api.cluster_access import ClusterAccess
from webhook.commands import terminal
from webhook.commands.connect import FAULT, connected
from webhook.commands.kubectl_flags import connection_options
from webhook.model.fields import FieldError
from webhook.model.words import rfc3339

if TYPE_CHECKING:
    from webhook.api.client import Client
    from webhook.cost.node_prices import PricedNode
    from webhook.model.queues import ResourceFlavor

_ENOUGH: Final = 24 * 7
"""Points: less than a week says nothing of what is typical."""
_LIFE_CYCLE: Final = ("life cycle", "lca")
_MOST_BYTES: Final = 32 << 20
_POINTS: Final = "points.json"
_SLICE: Final = "/mig-"
"""In the name of a resource that is a part of a device."""


@click.group("tariff")
def command() -> None:
    """Print a Tariff. Check it before you apply it.

    \b
    Examples:
      kubectl fallback tariff typical -f electricitymaps.csv --time-zone Asia/Seoul
      kubectl fallback tariff series -f electricitymaps.csv --name carbon
      kubectl fallback tariff spot -f p3.2xlarge.json --zone us-east-1a --flavor v100-spot
      kubectl fallback tariff from-opencost --prometheus http://localhost:9090
    """


_file_option = click.option(
    "-f",
    "--filename",
    "path",
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    help="A CSV of hourly intensities, as Electricity Maps offers for a zone and year.",
)
_cluster_option = click.option(
    "--cluster", "clusters", multiple=True, help="The MultiKueueCluster it is for; may be repeated."
)
_life_cycle_option = click.option(
    "--life-cycle", is_flag=True, help="Use life-cycle intensities instead of direct ones."
)


@command.command("typical", short_help="Carbon intensities by season, kind of day and hour.")
@_file_option
@click.option("--name", default="typical", help="The Tariff's name.  [typical]")
@click.option("--time-zone", default="UTC", help="Time zone of the hours and days.  [UTC]")
@_life_cycle_option
@_cluster_option
def typical(
    *, path: str, name: str, time_zone: str, life_cycle: bool, clusters: Sequence[str]
) -> None:
    """Print the `carbon` of a Tariff, from the hours of a past year.

    Exit codes: 0 done, 2 the file cannot be read.
    """
    from webhook.cost import typical_hours
    from webhook.model.costs.tariff import TARIFF_KIND
    from webhook.state.price_compiler import zone_of

    zone = zone_of(time_zone)
    if zone is None:
        _fail(f"--time-zone: there is no time zone {time_zone}")
    points = _points(path, life_cycle=life_cycle)
    entries = typical_hours.entries(points, zone, "intensity")
    spec = {**_of(clusters), "timeZone": time_zone, "carbon": entries}
    _print(TARIFF_KIND, name, spec, f"Means of {len(points)} hours by season, kind of day and hour")


@command.command("series", short_help="Carbon intensities hour by hour, with their ConfigMap.")
@_file_option
@click.option("--name", default="series", help="Name of the Tariff and the ConfigMap.  [series]")
@_life_cycle_option
@_cluster_option
def series(*, path: str, name: str, life_cycle: bool, clusters: Sequence[str]) -> None:
    """Print a Tariff with a series of carbon intensities, and the ConfigMap that has its points.

    Use it if intensities are known hour by hour, or to bill a simulation by what really happened.

    Exit codes: 0 done, 2 the file cannot be read.
    """
    import yaml

    from webhook.model.costs.tariff import TARIFF_KIND

    points = _points(path, life_cycle=life_cycle)
    spec = {
        **_of(clusters),
        "carbon": [{"intensity": f"{fmean(value for _, value in points):.1f}"}],
        "series": {"carbon": {"configMap": name, "key": _POINTS}},
    }
    _print(TARIFF_KIND, name, spec, f"{len(points)} hours")
    written = json.dumps([{"from": rfc3339(at), "value": value} for at, value in points])
    texts = {_POINTS: written}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": texts}
    terminal.say(f"---\n{yaml.safe_dump(config, sort_keys=False).rstrip()}")


@command.command("spot", short_help="Rates of spot capacity over time, with their ConfigMap.")
@click.option(
    "-f",
    "--filename",
    "path",
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    help="What `aws ec2 describe-spot-price-history --output json` prints for one instance type.",
)
@click.option("--zone", required=True, help="The availability zone.")
@click.option("--flavor", required=True, help="The ResourceFlavor whose Nodes these are.")
@click.option(
    "--resource", default="nvidia.com/gpu", help="The resource the price is for.  [nvidia.com/gpu]"
)
@click.option("--per", default=1, help="How many of the resource an instance has.  [1]")
@click.option("--name", default="spot", help="Name of the Tariff and the ConfigMap.  [spot]")
def spot(*, path: str, zone: str, flavor: str, resource: str, per: int, name: str) -> None:
    """Print a Tariff with a series of rates, and the ConfigMap that has its points.

    Exit codes: 0 done, 2 the file cannot be read, or has no price of the zone.
    """
    import yaml

    from webhook.model.costs.tariff import TARIFF_KIND

    points = _spot_prices(path, zone)
    written = [{"from": rfc3339(at), "value": round(price / per, 6)} for at, price in points]
    usual = fmean(price / per for _, price in points)
    series = {"flavors": [flavor], "resource": resource, "configMap": name, "key": _POINTS}
    spec = {
        "rates": [{"flavors": [flavor], "resources": {resource: f"{usual:.4f}"}}],
        "series": {"rates": [series]},
    }
    _print(TARIFF_KIND, name, spec, f"{len(points)} prices in {zone}")
    texts = {_POINTS: json.dumps(written)}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": texts}
    terminal.say(f"---\n{yaml.safe_dump(config, sort_keys=False).rstrip()}")


def _spot_prices(path: str, zone: str) -> Sequence[tuple[float, float]]:
    """Return the prices of a zone, the oldest first."""
    from webhook.model import fields

    try:
        whole = fields.from_json(Path(path).read_text(encoding="utf-8"), path, longest=_MOST_BYTES)
        found = {
            fields.seconds_since_1970(fields.text(entry, "Timestamp", here), here): _amount(
                fields.text(entry, "SpotPrice", here), f"{here}.SpotPrice"
            )
            for entry, here in fields.objects(whole, "SpotPriceHistory", path)
            if entry.get("AvailabilityZone") == zone
        }
    except (FieldError, OSError, UnicodeDecodeError) as error:
        _fail(str(error))
    if not found:
        _fail(f"{path}: no price of {zone}")
    return sorted(found.items())


def _of(clusters: Sequence[str]) -> Mapping[str, Any]:
    return {"clusters": list(clusters)} if clusters else {}


def _points(path: str, *, life_cycle: bool) -> Sequence[tuple[float, float]]:
    try:
        points = list(_intensities(Path(path), life_cycle=life_cycle))
    except (FieldError, OSError, UnicodeDecodeError) as error:
        _fail(str(error))
    if len(points) < _ENOUGH:
        _fail(f"{path}: expected the hours of a week at least, got {len(points)}")
    return points


def _fail(message: str, code: int = 2) -> NoReturn:
    terminal.say(message, err=True)
    sys.exit(code)


def _print(kind: str, name: str, spec: Mapping[str, Any], comment: str) -> None:
    import yaml

    from webhook.model.costs.tariff import read_tariff
    from webhook.model.policy.custom_object import PolicyError
    from webhook.model.policy.fallback_policy import GROUP, VERSION

    whole = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }
    try:
        read_tariff(whole)
    except PolicyError as error:
        _fail(str(error))
    written = yaml.safe_dump(whole, sort_keys=False, default_flow_style=None, width=100)
    terminal.say(f"# {comment}.\n{written.rstrip()}")


def _intensities(path: Path, *, life_cycle: bool) -> Iterator[tuple[float, float]]:
    from webhook.model import fields

    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.DictReader(file)
        time, value = _columns(lines.fieldnames or (), str(path), life_cycle=life_cycle)
        for line in lines:
            here = f"{path}:{lines.line_num}"
            written = line[value]
            # Hours of which nothing is known are left empty.
            if not written:
                continue
            moment = fields.seconds_since_1970(line[time] or "", f"{here} {time}")
            yield moment, _amount(written, f"{here} {value}")


def _amount(written: str, path: str) -> float:
    try:
        amount = float(written)
    except ValueError:
        amount = -1.0
    if not amount >= 0 or not isfinite(amount):
        raise FieldError(path, f"expected an amount of at least 0, got {written[:32]!r}")
    return amount


def _columns(header: Sequence[str], path: str, *, life_cycle: bool) -> tuple[str, str]:
    """Return the columns of the time and of the intensity."""
    times = (name for name in header if name.lower().startswith("datetime"))
    values = [name for name in header if "carbon" in name.lower() and "intensity" in name.lower()]
    over_life = [name for name in values if any(word in name.lower() for word in _LIFE_CYCLE)]
    wanted = over_life if life_cycle else [name for name in values if name not in over_life]
    time = next(times, "")
    if not time or not wanted:
        missing = "a column that begins with Datetime" if not time else "a column Carbon intensity"
        raise FieldError(f"{path}:1", f"expected {missing}, got {', '.join(header)[:200]}")
    return time, wanted[0]


@command.command("from-opencost", short_help="Rates from what Nodes cost according to OpenCost.")
@click.option(
    "--prometheus", required=True, metavar="URL", help="The Prometheus with OpenCost's gauges."
)
@click.option("--name", default="opencost", help="The Tariff's name.  [opencost]")
@connection_options
def from_opencost(*, prometheus: str, name: str, access: ClusterAccess) -> None:
    """Print the `rates` of a Tariff: for each ResourceFlavor the mean over its Nodes.

    These are list prices. A machine that you own, and that would idle otherwise, costs little more
    than its electricity (docs/costs.md).

    You need the right to list Nodes and ResourceFlavors.

    Exit codes: 0 done, 1 Prometheus or the cluster cannot be asked, or knows no price of any
    flavor.
    """
    from webhook.api.prometheus import PrometheusError
    from webhook.cost import node_prices
    from webhook.model.costs.tariff import TARIFF_KIND

    if not prometheus.startswith(("http://", "https://")):
        raise click.UsageError("--prometheus: expected a URL such as http://localhost:9090")
    with connected(access) as client:
        flavors, labelled = _flavors(client), _nodes(client)
    try:
        prices = {part: _gauge(prometheus, gauge) for part, gauge in node_prices.GAUGES.items()}
    except (FieldError, PrometheusError) as error:
        _fail(f"{prometheus}: {error}", FAULT)
    nodes = [_priced(node, prices) for node in labelled]
    entries, unknown = node_prices.rates(nodes, flavors)
    for flavor in unknown:
        terminal.say(f"ResourceFlavor {flavor}: no price of a Node with its nodeLabels", err=True)
    if not entries:
        _fail(f"{prometheus}: no price of any ResourceFlavor", FAULT)
    _print(TARIFF_KIND, name, {"rates": entries}, "List prices, by OpenCost")


def _flavors(client: Client) -> Sequence[ResourceFlavor]:
    from webhook.api.resources import FLAVORS
    from webhook.api.watch import list_pages, path_of
    from webhook.state.readers import READERS
    from webhook.state.watched import watched

    (resource,) = (
        each for each in watched(namespace="", kueue_namespace="") if each.kind == FLAVORS
    )
    read = READERS[FLAVORS]
    pages = list_pages(client, path_of(client, resource))
    return [read(source) for page in pages for source in page.get("items") or ()]


def _nodes(client: Client) -> Sequence[PricedNode]:
    from webhook.adapt.accelerators import is_accelerator
    from webhook.api.watch import list_pages
    from webhook.cost.node_prices import PricedNode

    return [
        PricedNode(
            name=source["metadata"]["name"],
            labels=source["metadata"].get("labels") or {},
            devices=tuple(
                resource
                for resource, amount in (source["status"].get("allocatable") or {}).items()
                if is_accelerator(resource) and _SLICE not in resource and amount != "0"
            ),
        )
        for page in list_pages(client, "/api/v1/nodes")
        for source in page.get("items") or ()
    ]


def _priced(node: PricedNode, prices: Mapping[str, Mapping[str, float]]) -> PricedNode:
    from dataclasses import replace

    known = {part: by_node[node.name] for part, by_node in prices.items() if node.name in by_node}
    # A Node without devices has a price of 0 for them, and one that OpenCost cannot price for all.
    return replace(node, prices={part: price for part, price in known.items() if price > 0})


def _gauge(url: str, gauge: str) -> Mapping[str, float]:
    """Return a gauge's newest value by Node.

    Raises:
        FieldError, PrometheusError: there is no answer, or it is not Prometheus's.

    """
    from webhook.api import calls
    from webhook.api.prometheus import query
    from webhook.model import fields

    answer = query(url, gauge, seconds=calls.ANSWER_SECONDS)
    data = fields.mapping(answer, "data", gauge)
    values: defaultdict[str, float] = defaultdict(float)
    for sample, here in fields.objects(data, "result", f"{gauge}.data"):
        labels = fields.texts(sample, "metric", here)
        pair = fields.sequence(sample, "value", here)
        node = labels.get("node") or labels.get("instance") or ""
        if len(pair) == 2:  # noqa: PLR2004 - a moment and a value
            values[node] = _amount(str(pair[1]), f"{here}.value")
    return dict(values)
