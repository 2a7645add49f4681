"""What the console shows, as JSON: names in camel case, amounts in base units."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

from webhook.console.view import Cell, Policy, View
from webhook.model.quantity import CPU


def amount(value: int, resource: str) -> float:
    """Write an amount in base units: cpu in cores, everything else as it is counted."""
    if resource != CPU or value % 1000 == 0:
        return value // 1000 if resource == CPU else value
    return value / 1000


def view_json(view: View) -> dict[str, Any]:
    found: dict[str, Any] = plain(view)
    return found


def plain(value: Any) -> Any:
    """Turn values into what JSON knows; it knows no infinity, which becomes null."""
    if isinstance(value, Cell):
        return cell_json(value)
    if isinstance(value, Policy):
        decided = [{"option": option, "count": count} for option, count in value.decided]
        return {**_of_fields(value), "decided": decided}
    if is_dataclass(value):
        return _of_fields(value)
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return value


def cell_json(cell: Cell) -> dict[str, Any]:
    amounts = {
        "available": cell.available,
        "quota": cell.nominal,
        "reserved": cell.reserved,
        "used": cell.used,
        "borrowed": cell.borrowed,
    }
    written = {name: amount(value, cell.resource) for name, value in amounts.items()}
    return {"flavor": cell.flavor, "resource": cell.resource, **written}


def _of_fields(value: Any) -> dict[str, Any]:
    return {_camel(each.name): plain(getattr(value, each.name)) for each in fields(value)}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
