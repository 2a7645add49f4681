"""What others use beside held Jobs, in the ConfigMap of congestion prices, for the next leader.

Only a controller that begins to lead reads it; all else that reads that ConfigMap passes it over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError

from webhook.api.resources import CONGESTION, CONGESTION_VALUE, RUN_TIMES_LABEL
from webhook.learn.others_use import HOURS, OthersUse, ReleasedJob
from webhook.model import fields
from webhook.model.fields import FieldError, field_errors
from webhook.model.policy.field_types import Strict

_KEY: Final = "others-use.json"
_PATH: Final = f"data[{_KEY}]"
MOST: Final = 1000
"""Cells, and Jobs that were released: together a third of what a ConfigMap may be."""
_LONGEST: Final = 500_000
_Amount = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]
_Name = Annotated[str, Field(max_length=320)]


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
    cells: Annotated[tuple[CellUse, ...], Field(max_length=MOST)] = ()
    released: Annotated[tuple[ReleasedUse, ...], Field(max_length=MOST)] = ()


def merge_patch_of(others: OthersUse) -> Mapping[str, Any]:
    """Return the ConfigMap with this key alone: written over it, the others stay."""
    cells = [
        {
            "queue": queue,
            "flavor": flavor,
            "resource": resource,
            "hours": [float(f"{amount:.4g}") for amount in hours],
        }
        for (queue, (flavor, resource)), hours in sorted(others.typical.items())[:MOST]
    ]
    # Of too many, those that run longest.
    released = sorted(_rows(others.released), key=lambda row: -float(row["until"]))[:MOST]
    text = json.dumps({"cells": cells, "released": released}, separators=(",", ":"))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONGESTION, "labels": {RUN_TIMES_LABEL: CONGESTION_VALUE}},
        "data": {_KEY: text},
    }


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
    text = fields.texts(source, "data", "").get(_KEY)
    if text is None:
        return others
    try:
        published = PublishedUse.model_validate(fields.from_json(text, _PATH, longest=_LONGEST))
    except ValidationError as error:
        first = field_errors(error, {})[0]
        raise FieldError(f"{_PATH}.{first.path}", first.message) from None
    for cell in published.cells:
        others.typical[cell.queue, (cell.flavor, cell.resource)] = list(cell.hours)
    others.released = [
        ReleasedJob(row.until, row.queue, {(row.flavor, row.resource): row.amount})
        for row in published.released
    ]
    return others
