"""What a Job that ran has cost, and what it would have cost as submitted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.cost import terms
from webhook.cost.terms import Span
from webhook.decide.wishes import read_wishes
from webhook.hindsight.journal import JournalEntry
from webhook.model.costs.prices import Cost, Prices
from webhook.model.faults import attempted
from webhook.model.quantity import Amounts
from webhook.simulate.results import JobResult

KINDS: Final = ("money", "kwh", "grams")
"""What is summed up: money by rates and for electricity, energy, and CO2."""


def amounts_of(cost: Cost | None) -> Mapping[str, float]:
    """Return what is known of a cost, by kind."""
    if cost is None:
        return {}
    known = {"money": cost.paid, "kwh": cost.kwh, "grams": cost.carbon_grams}
    return {kind: amount for kind, amount in known.items() if amount is not None}


def saved(without: Cost | None, with_decision: Cost | None) -> Mapping[str, float]:
    """Return by how much less a Job cost than it would have, by kind, where both are known."""
    if without is None or with_decision is None:
        return {}
    before, after = amounts_of(without), amounts_of(with_decision)
    # Money of which one side knows a part that the other does not is not compared.
    if _parts(without) != _parts(with_decision):
        before = {kind: amount for kind, amount in before.items() if kind != "money"}
    return {kind: before[kind] - after[kind] for kind in KINDS if kind in before and kind in after}


def _parts(cost: Cost) -> tuple[bool, bool]:
    return cost.money is None, cost.electricity is None


def spent_by(entry: JournalEntry, prices: Mapping[str, Prices]) -> Cost | None:
    """Return what a Job that is over has cost; None: it did not run, or nothing is known."""
    if not entry.outcome or not entry.admitted or entry.finished < entry.admitted:
        return None
    return _over(dict(entry.used), prices.get(entry.cluster), entry.admitted, entry.finished)


def replayed_cost(result: JobResult | None, prices: Mapping[str, Prices]) -> Cost | None:
    """Return what a Job cost in a replay, whose times are in seconds since 1970."""
    if result is None or result.start is None or result.finish is None:
        return None
    return _over(result.held, prices.get(result.cluster), result.start, result.finish)


def _over(usage: Amounts, prices: Prices | None, begin: float, end: float) -> Cost | None:
    if prices is None or not usage:
        return None
    return terms.cost_of(usage, prices, Span(reserved=begin, begun=begin, end=end))


def is_late(entry: JournalEntry) -> bool | None:
    """Tell whether a Job that is over ended after its deadline; None: it has none."""
    # An annotation that cannot be read says nothing.
    wishes, _ = attempted(lambda: read_wishes(entry.annotations, entry.created))
    if wishes is None or wishes.deadline is None or not entry.outcome:
        return None
    return entry.finished > entry.created + wishes.deadline
