"""The ConfigMap of congestion prices: written by the leading controller, read by all replicas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import inf
from typing import Annotated, Any, Final

from pydantic import AwareDatetime, Field, ValidationError

from webhook.api.resources import CONGESTION, CONGESTION_VALUE, RUN_TIMES_LABEL
from webhook.model import fields
from webhook.model.costs.prices import NO_CONGESTION, CongestionPrices, ScarceCell
from webhook.model.fields import FieldError, field_errors
from webhook.model.policy.field_types import Strict
from webhook.model.words import rfc3339

_KEY: Final = "prices.json"
_PATH: Final = f"data[{_KEY}]"
_MOST: Final = 4096
"""Cells or policies; each tree of cohorts has a few."""
_LONGEST: Final = 900_000
"""Characters; the API server stores no larger ConfigMap."""
_Amount = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
_Name = Annotated[str, Field(max_length=320)]


class PublishedPrice(Strict):
    tree: _Name
    flavor: _Name
    resource: _Name
    price: _Amount
    wait: _Amount | None = None
    """Absent: it is not foreseen that it ends."""


class PublishedCongestion(Strict):
    at: AwareDatetime
    prices: Annotated[tuple[PublishedPrice, ...], Field(max_length=_MOST)] = ()
    lateness: Annotated[dict[_Name, _Amount], Field(max_length=_MOST)] = Field(default_factory=dict)
    """Policy to how many times its price of lateness counts."""


def config_map_of(congestion: CongestionPrices) -> Mapping[str, Any]:
    """Return the ConfigMap; without namespace and resourceVersion."""
    prices = [
        {
            **cell._asdict(),
            "price": float(f"{congestion.prices.get(cell, 0.0):.6g}"),
            **({} if wait == inf else {"wait": round(wait)}),
        }
        for cell, wait in sorted(congestion.waits.items())[:_MOST]
    ]
    weights = {name: round(weight, 4) for name, weight in sorted(congestion.weights.items())}
    published = {"at": rfc3339(congestion.at), "prices": prices, "lateness": weights}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONGESTION, "labels": {RUN_TIMES_LABEL: CONGESTION_VALUE}},
        "data": {_KEY: json.dumps(published)},
    }


def read_congestion(source: Mapping[str, Any]) -> CongestionPrices:
    """Read the prices from their ConfigMap; without their key nothing is scarce.

    Raises:
        FieldError: something in it is not valid.

    """
    text = fields.texts(source, "data", "").get(_KEY)
    if text is None:
        return NO_CONGESTION
    parsed = fields.from_json(text, _PATH, longest=_LONGEST)
    try:
        published = PublishedCongestion.model_validate(parsed)
    except ValidationError as error:
        first = field_errors(error, {})[0]
        raise FieldError(f"{_PATH}.{first.path}", first.message) from None
    cells = {
        ScarceCell(entry.tree, entry.flavor, entry.resource): entry for entry in published.prices
    }
    return CongestionPrices(
        at=published.at.timestamp(),
        prices={cell: entry.price for cell, entry in cells.items() if entry.price > 0},
        waits={cell: inf if entry.wait is None else entry.wait for cell, entry in cells.items()},
        weights=published.lateness,
    )
