"""``tariff``: prints Tariffs made from what other programs know, for an admin to look through.

``series`` reads a CSV of hours, ``from-opencost`` asks a Prometheus what Nodes cost.
Nothing is applied, and our processes never ask anybody.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NoReturn

import click
import yaml

from webhook.api import calls
from webhook.api.kubernetes_api import ClusterAccess
from webhook.api.prometheus import PrometheusError, query
from webhook.api.resources import FLAVORS, kueue_path
from webhook.commands import terminal
from webhook.commands.kubectl import FAULT, connected, connection_options, listed
from webhook.model import fields
from webhook.model.fields import FieldError
from webhook.model.words import rfc3339

_ENOUGH: Final = 24 * 7
"""Hours: the mean of less than a week says nothing of what is usual."""
_POINTS: Final = "points.json"
_GAUGES: Final = ("node_cpu_hourly_cost", "node_ram_hourly_cost", "node_gpu_hourly_cost")
"""OpenCost's, with money for an hour of a core, a GiB and a device."""


@click.group("tariff")
def command() -> None:
    """Print a Tariff. Check it before you apply it.

    \b
    Examples:
      kubectl fallback tariff series -f electricitymaps.csv --name carbon
      kubectl fallback tariff from-opencost --prometheus http://localhost:9090
    """


@command.command("series", short_help="Carbon intensities hour by hour, with their ConfigMap.")
@click.option(
    "-f",
    "--filename",
    "path",
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    help="A CSV of hourly intensities, as Electricity Maps offers for a zone and year.",
)
@click.option("--name", default="series", help="Name of the Tariff and the ConfigMap.  [series]")
@click.option("--column", default="carbon intensity", help="Its beginning.", show_default=True)
@click.option(
    "--cluster", "clusters", multiple=True, help="The MultiKueueCluster it is for; may be repeated."
)
def series(*, path: str, name: str, column: str, clusters: Sequence[str]) -> None:
    """Print a Tariff with a series of carbon intensities, and the ConfigMap that has its points.

    Use it if intensities are known hour by hour, or to bill a simulation by what really happened.

    Exit codes: 0 done, 2 the file cannot be read.
    """
    points = _points(path, column)
    spec = {
        **({"clusters": list(clusters)} if clusters else {}),
        "carbon": [{"intensity": f"{fmean(value for _, value in points):.1f}"}],
        "series": {"carbon": {"configMap": name, "key": _POINTS}},
    }
    _print(name, spec, f"{len(points)} hours")
    data = {_POINTS: json.dumps([{"from": rfc3339(at), "value": value} for at, value in points])}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
    terminal.say(f"---\n{yaml.safe_dump(config, sort_keys=False).rstrip()}")


def _points(path: str, column: str) -> Sequence[tuple[float, float]]:
    """Return each hour's moment, in seconds since 1970, and value; hours without one are left out.

    A file that cannot be read ends the program.
    """
    points = []
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            lines = csv.DictReader(file)
            names = [_column(lines.fieldnames or (), word, path) for word in ("datetime", column)]
            for line in lines:
                here = f"{path}:{lines.line_num}"
                moment, value = (line[name] or "" for name in names)
                if value:
                    unix = fields.seconds_since_1970(moment, f"{here} {names[0]}")
                    points.append((unix, _amount(value, f"{here} {names[1]}")))
    except (FieldError, OSError, UnicodeDecodeError) as error:
        _fail(str(error))
    if len(points) < _ENOUGH:
        _fail(f"{path}: expected the hours of a week at least, got {len(points)}")
    return points


def _column(header: Sequence[str], beginning: str, path: str) -> str:
    for name in header:
        if name.lower().startswith(beginning.lower()):
            return name
    got = ", ".join(header)[:200]
    raise FieldError(f"{path}:1", f"expected a column that begins with {beginning}, got {got}")


def _amount(written: str, path: str) -> float:
    try:
        amount = float(written)
    except ValueError:
        amount = -1.0
    if not amount >= 0 or not isfinite(amount):
        raise FieldError(path, f"expected an amount of at least 0, got {written[:32]!r}")
    return amount


def _fail(message: str, code: int = 2) -> NoReturn:
    terminal.say(message, err=True)
    sys.exit(code)


def _print(name: str, spec: Mapping[str, Any], comment: str) -> None:
    from webhook.model.costs.tariff import TARIFF_KIND
    from webhook.model.policy.fallback_policy import GROUP, VERSION

    head = {"apiVersion": f"{GROUP}/{VERSION}", "kind": TARIFF_KIND, "metadata": {"name": name}}
    whole = {**head, "spec": spec}
    written = yaml.safe_dump(whole, sort_keys=False, default_flow_style=None, width=100)
    terminal.say(f"# {comment}.\n{written.rstrip()}")


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
    if not prometheus.startswith(("http://", "https://")):
        raise click.UsageError("--prometheus: expected a URL such as http://localhost:9090")
    with connected(access) as client:
        flavors = list(listed(client, kueue_path(client.kueue_version(), FLAVORS)))
        nodes = list(listed(client, "/api/v1/nodes"))
    try:
        prices = [_gauge(prometheus, gauge) for gauge in _GAUGES]
    except (FieldError, PrometheusError) as error:
        _fail(f"{prometheus}: {error}", FAULT)
    entries = []
    for flavor in sorted(flavors, key=lambda flavor: str(flavor["metadata"]["name"])):
        wanted, named = (flavor.get("spec") or {}).get("nodeLabels"), flavor["metadata"]["name"]
        labels = ((node, node["metadata"].get("labels") or {}) for node in nodes)
        its_own = [node for node, has in labels if wanted and wanted.items() <= has.items()]
        if resources := _rates(its_own, prices):
            entries.append({"flavors": [named], "resources": resources})
        else:
            why = "no price of a Node with its nodeLabels"
            terminal.say(f"ResourceFlavor {named}: {why}", err=True)
    if not entries:
        _fail(f"{prometheus}: no price of any ResourceFlavor", FAULT)
    _print(name, {"rates": entries}, "List prices, by OpenCost")


def _rates(
    nodes: Sequence[Mapping[str, Any]], prices: Sequence[Mapping[str, float]]
) -> Mapping[str, str]:
    """Return the mean price of each resource over the Nodes that have it."""
    from webhook.adapt.accelerators import is_accelerator

    of_cores, of_memory, of_devices = prices
    values: defaultdict[str, list[float]] = defaultdict(list)
    for node in nodes:
        name, amounts = node["metadata"]["name"], node["status"].get("allocatable") or {}
        has = {resource for resource, amount in amounts.items() if amount != "0"}
        # OpenCost prices whole devices, and no parts of them.
        devices = (each for each in has if is_accelerator(each) and "/mig-" not in each)
        its_prices = {"cpu": of_cores, "memory": of_memory, **dict.fromkeys(devices, of_devices)}
        for resource, by_node in its_prices.items():
            # A Node without devices has a price of 0 for them, one of no known price for all.
            if by_node.get(name, 0.0) > 0:
                values[resource].append(by_node[name])
    return {
        resource: f"{fmean(values[resource]):.6f}".rstrip("0").rstrip(".")
        for resource in sorted(values)
    }


def _gauge(url: str, gauge: str) -> Mapping[str, float]:
    """Return a gauge's newest value by Node.

    Raises:
        FieldError, PrometheusError: there is no answer, or it is not Prometheus's.

    """
    answer = query(url, gauge, seconds=calls.ANSWER_SECONDS)
    data = fields.mapping(answer, "data", gauge)
    values: dict[str, float] = {}
    for sample, here in fields.objects(data, "result", f"{gauge}.data"):
        node = fields.texts(sample, "metric", here).get("node", "")
        # A moment, and then the value.
        for written in fields.sequence(sample, "value", here)[1:]:
            values[node] = _amount(str(written), f"{here}.value")
    return values
