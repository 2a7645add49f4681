"""Turns amounts and times into the words that the page shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Final

from webhook.hindsight.savings_record import JOURNAL, Gained, Sums, rounded
from webhook.model import quantity
from webhook.model.words import carbon, figure, span

NOT_KNOWN: Final = "not known"
NOT_REPLAYED: Final = "no controller has replayed the journal yet"
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_THREE_FIGURES: Final = 100


def amount(value: int, resource: str) -> str:
    """Return an amount with about three figures: ``1.5``, ``24``, ``12.5 Gi``."""
    if resource == quantity.CPU:
        return _figures(value / 1000)
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return _bytes(value)
    return f"{value:,}"


def _bytes(value: int) -> str:
    scaled, step = float(value), 0
    while abs(scaled) >= 1024 and step < len(_BINARY) - 1:  # noqa: PLR2004 - Ki
        scaled, step = scaled / 1024, step + 1
    return f"{_figures(scaled)} {_BINARY[step]}".rstrip()


def _figures(value: float) -> str:
    if abs(value) >= _THREE_FIGURES:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value else "0"


def duration(seconds: float | None) -> str:
    """Return a time from now on, or how long something took; one that is past is none."""
    if seconds is None or not isfinite(seconds):
        return NOT_KNOWN
    return span(max(0.0, seconds))


def costs(sums: Sums, currency: str) -> str:
    """Write what is known of a cost: ``12.3 EUR, 4.5 kWh, 1.2 kg CO2``."""
    return ", ".join(_cost(kind, amount, currency) for kind, amount in rounded(sums).items())


def saved_costs(sums: Sums, currency: str) -> str:
    """Write by how much less or more something cost: ``0.8 EUR less, 0.2 kWh more``."""
    return ", ".join(
        f"{_cost(kind, abs(amount), currency)} {'less' if amount >= 0 else 'more'}"
        for kind, amount in rounded(sums).items()
    )


def _cost(kind: str, amount: float, currency: str) -> str:
    units = {"money": currency, "kwh": "kWh", "grams": "CO2"}
    return f"{_COSTS[kind](amount)} {units[kind]}".rstrip()


_COSTS: Final[Mapping[str, Callable[[float], str]]] = {
    "money": figure,
    "kwh": figure,
    "grams": carbon,
}


def rests(savings: Gained, as_of: float) -> str:
    """Return what savings are based on, as of when, and how far they can be trusted."""
    if savings.rests != JOURNAL or not as_of:
        return "by the decisions' forecasts, compared with each Job's first option"
    margin, time = duration(savings.margin_seconds), day_and_minute(as_of)
    return (
        f"by a replay of the journal as of {time}, give or take {margin},"
        " compared with no decisions"
    )


def start(seconds: float | None) -> str:
    """Return in words when something starts, *seconds* from now; None: it is not known."""
    return "now" if seconds is not None and round(seconds) <= 0 else duration(seconds)


def ago(at: float, now: float) -> str:
    return "just now" if round(now - at) < 1 else f"{duration(now - at)} ago"


def clock(at: float) -> str:
    return _utc(at).strftime("%H:%M:%S")


def day_and_minute(at: float) -> str:
    return _utc(at).strftime("%Y-%m-%d %H:%M UTC")


def day_and_second(at: float) -> str:
    return _utc(at).strftime("%Y-%m-%d %H:%M:%S UTC")


def machine_time(at: float) -> str:
    """Return a time for the attribute ``datetime``."""
    return _utc(at).strftime("%Y-%m-%dT%H:%M:%SZ")


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def counted(number: int, noun: str, plural: str = "") -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"
