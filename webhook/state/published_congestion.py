"""The ConfigMap of congestion prices, which the leading controller writes.

All replicas read its prices. What others use beside held Jobs is there for the next leader: only a
controller that begins to lead reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import inf
from typing import Annotated, Any, Final, TypeVar

from pydantic import AwareDatetime, Field, ValidationError

from webhook.api.resources import CONGESTION, CONGESTION_VALUE, RUN_TIMES_LABEL
from webhook.learn.others_use import HOURS, OthersUse, ReleasedJob
from webhook.model import fields
from webhook.model.costs.prices import NO_CONGESTION, CongestionPrices, ScarceCell
from webhook.model.fields import FieldError, field_errors
from webhook.model.policy.custom_object import Strict
from webhook.model.words import rfc3339

_PRICES: Final = "prices.json"
_USE: Final = "others-use.json"
_MOST_PRICES: Final = 4096
"""Cells or policies; each tree of cohorts has a few."""
MOST_USES: Final = 1000
"""Cells, and Jobs that were released: together a third of what a ConfigMap may be."""
_LONGEST_PRICES: Final = 900_000
"""Characters; the API server stores no larger ConfigMap."""
_LONGEST_USE: Final = 500_000
_Price = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
_Amount = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]
_Name = Annotated[str, Field(max_length=320)]
_Published = TypeVar("_Published", bound=Strict)


class PublishedPrice(Strict):
    tree: _Name
    flavor: _Name
    resource: _Name
    cluster: _Name = ""
    """Absent: this one."""
    price: _Price
    wait: _Price | None = None
    """Absent: it is not foreseen that it ends."""


class PublishedCongestion(Strict):
    at: AwareDatetime
    prices: Annotated[tuple[PublishedPrice, ...], Field(max_length=_MOST_PRICES)] = ()
    lateness: Annotated[dict[_Name, _Price], Field(max_length=_MOST_PRICES)] = Field(
        default_factory=dict
    )
    """Policy to how many times its price of lateness counts."""


class CellUse(Strict):
    queue: _Name
    flavor: _Name
    resource: _Name
    hours: Annotated[tuple[_Amount, ...], Field(min_length=HOURS, max_length=HOURS)]
    """By the hour of the day, UTC."""


class ReleasedUse(Strict):
    until: _Amount
    queue: _Name
    flavor: _Name
    resource: _Name
    amount: Annotated[int, Field(ge=0, le=10**18)]


class PublishedUse(Strict):
    cells: Annotated[tuple[CellUse, ...], Field(max_length=MOST_USES)] = ()
    released: Annotated[tuple[ReleasedUse, ...], Field(max_length=MOST_USES)] = ()


def config_map_of(congestion: CongestionPrices) -> Mapping[str, Any]:
    """Return the ConfigMap; without namespace and resourceVersion."""
    prices = [
        {
            # Who knows of no worker clusters still reads the prices of this one.
            **{name: text for name, text in cell._asdict().items() if text},
            "price": float(f"{congestion.prices.get(cell, 0.0):.6g}"),
            **({} if wait == inf else {"wait": round(wait)}),
        }
        for cell, wait in sorted(congestion.waits.items())[:_MOST_PRICES]
    ]
    weights = {name: round(weight, 4) for name, weight in sorted(congestion.weights.items())}
    published = {"at": rfc3339(congestion.at), "prices": prices, "lateness": weights}
    return config_map(_PRICES, json.dumps(published))


def read_congestion(source: Mapping[str, Any]) -> CongestionPrices:
    """Read the prices from their ConfigMap; without their key nothing is scarce.

    Raises:
        FieldError: something in it is not valid.

    """
    published = read_published(source, _PRICES, PublishedCongestion, longest=_LONGEST_PRICES)
    if published is None:
        return NO_CONGESTION
    cells = {
        ScarceCell(entry.tree, entry.flavor, entry.resource, entry.cluster): entry
        for entry in published.prices
    }
    return CongestionPrices(
        at=published.at.timestamp(),
        prices={cell: entry.price for cell, entry in cells.items() if entry.price > 0},
        waits={cell: inf if entry.wait is None else entry.wait for cell, entry in cells.items()},
        weights=published.lateness,
    )


def patch_of_use(others: OthersUse) -> Mapping[str, Any]:
    """Return the ConfigMap with this key alone: written over it, the others stay."""
    cells = [
        {
            "queue": queue,
            "flavor": flavor,
            "resource": resource,
            "hours": [float(f"{amount:.4g}") for amount in hours],
        }
        for (queue, (flavor, resource)), hours in sorted(others.typical.items())[:MOST_USES]
    ]
    # Of too many, those that run longest.
    released = sorted(_rows(others.released), key=lambda row: -float(row["until"]))[:MOST_USES]
    text = json.dumps({"cells": cells, "released": released}, separators=(",", ":"))
    return config_map(_USE, text)


def _rows(released: Iterable[ReleasedJob]) -> Iterable[dict[str, Any]]:
    for job in released:
        for (flavor, resource), amount in job.usage.items():
            yield {
                "until": round(job.until),
                "queue": job.queue,
                "flavor": flavor,
                "resource": resource,
                "amount": amount,
            }


def read_use(source: Mapping[str, Any]) -> OthersUse:
    """Read it from the ConfigMap; nothing was learned where the key is absent.

    Raises:
        FieldError: something in it is not valid.

    """
    others = OthersUse()
    published = read_published(source, _USE, PublishedUse, longest=_LONGEST_USE)
    if published is None:
        return others
    for cell in published.cells:
        others.typical[cell.queue, (cell.flavor, cell.resource)] = list(cell.hours)
    others.released = [
        ReleasedJob(row.until, row.queue, {(row.flavor, row.resource): row.amount})
        for row in published.released
    ]
    return others


def config_map(key: str, text: str) -> Mapping[str, Any]:
    """Return the ConfigMap with one key; without namespace and resourceVersion."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONGESTION, "labels": {RUN_TIMES_LABEL: CONGESTION_VALUE}},
        "data": {key: text},
    }


def read_published(
    source: Mapping[str, Any], key: str, model: type[_Published], *, longest: int
) -> _Published | None:
    """Return what is published under a key; None: the key is absent.

    Raises:
        FieldError: something in it is not valid.

    """
    text, path = fields.texts(source, "data", "").get(key), f"data[{key}]"
    if text is None:
        return None
    try:
        return model.model_validate(fields.from_json(text, path, longest=longest))
    except ValidationError as error:
        first = field_errors(error, {})[0]
        raise FieldError(f"{path}.{first.path}", first.message) from None
