"""Weighs what options cost one Job in all: money, energy, time, lateness, congestion, transfer.

All of it is money. What is not known of one option that is compared is left out of all, and said:
compared as nothing, an option of which nothing is known would be the cheapest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from webhook.cost import terms
from webhook.cost.terms import SIGMAS_IN_80_PERCENT, Span
from webhook.decide.wishes import Wishes
from webhook.model.costs.prices import DAY, HOUR, Cost, Place, Prices, Stakes
from webhook.model.decision import Assessment, Rejection
from webhook.model.forecasts import Forecast
from webhook.model.policy.strategy import LeastCost
from webhook.model.reasons import Reason
from webhook.model.words import figure

_LATENESS_TIMES: Final = 4.0
"""An hour of lateness costs so many times an hour of time where the policy does not say."""
_MOST_TIMES: Final = 10.0
"""A Job may raise what its policy gives so many times, so that nobody buys a way past others."""
_TOO_OFTEN: Final = 2.0
_LEFT_OUT: Final[Mapping[str, str]] = {
    "money": "no rate of {} is known, so rates are left out",
    "electricity": "the electricity of {} is not known, so electricity is left out",
    "carbon": "the CO2 of {} is not known, so carbon is left out",
}
_NO_ENERGY: Final = "the power of {} is not known, so electricity and carbon are left out"


TIED: Final = 0.05
"""Costs in all that differ by no more than this part are taken for equal."""


def tied(assessments: Sequence[Assessment]) -> tuple[Assessment, ...]:
    """Return the options that cost about as much as the cheapest of those not refused."""
    totals = [
        (assessment, assessment.cost.total)
        for assessment in assessments
        if assessment.rejection is None and assessment.cost is not None
    ]
    known = [(assessment, total) for assessment, total in totals if total is not None]
    least = min((total for _, total in known), default=0.0)
    return tuple(assessment for assessment, total in known if total <= least * (1 + TIED))


def interruptions(forecast: Forecast, place: Place, wishes: Wishes) -> float:
    """Return how many times as long as undisturbed a Job is expected to run there."""
    if forecast.run is None:
        return 1.0
    return terms.interruption_factor(
        place.interruptions,
        terms.mean_seconds(forecast.run),
        checkpoint=wishes.checkpoint,
        restart=forecast.delay.seconds if forecast.delay is not None else 0.0,
    )


def interrupted(factor: float, place: Place) -> Rejection | None:
    """Refuse a place in which a Job would run twice as long for being interrupted."""
    if factor < _TOO_OFTEN:
        return None
    rate = f"{place.interruptions:g} interruptions an hour"
    detail = f"with {rate} it would run {figure(factor)} times as long"
    return Rejection(reason=Reason.WOULD_BE_INTERRUPTED, detail=detail)


def weigh(assessments: Sequence[Assessment], stakes: Stakes, wishes: Wishes, unix: float) -> None:
    """Fill in all terms of the options' costs; what has no known finish stays as it is.

    *unix* is the moment of the decision, in seconds since 1970.
    """
    for assessment in assessments:
        assessment.cost = _with_terms(assessment, stakes, wishes, unix)
    compare(assessments, stakes.capped)


def compare(assessments: Sequence[Assessment], capped: tuple[str, ...] = ()) -> None:
    """Leave out of all costs what is not known of each, and say so.

    *capped* is what else is to be said of them.
    """
    costs = [(each, each.cost) for each in assessments if each.cost is not None]
    unknown, said = _left_out({each.option: cost for each, cost in costs if each.rejection is None})
    said = (*capped, *said)
    if said:
        nothing = dict.fromkeys(unknown)
        for each, cost in costs:
            each.cost = replace(cost, **nothing, said=said)


def stakes_of(rules: LeastCost, wishes: Wishes, first_hour: float, weight: float = 1.0) -> Stakes:
    """Return what is at stake for a Job, by its policy and by itself.

    *first_hour* is what an hour of the first option costs, *weight* how many times the price of
    lateness counts at present.
    """
    time_given = first_hour if rules.time_value is None else float(rules.time_value)
    time_value, capped_time = _capped("value-of-time", wishes.value_of_time, time_given)
    by_time = rules.lateness.per_hour is None
    late_given = time_given * _LATENESS_TIMES if by_time else float(rules.lateness.per_hour or 0)
    late_hour, capped_late = _capped("lateness", wishes.lateness, late_given)
    if by_time and wishes.lateness is None:
        late_hour = time_value * _LATENESS_TIMES
    return Stakes(
        time_value=time_value,
        late_hour=late_hour * weight,
        late_fixed=float(rules.lateness.fixed) * weight,
        carbon_price=float(rules.carbon_price),
        capped=capped_time + capped_late,
    )


def _capped(name: str, wished: float | None, given: float) -> tuple[float, tuple[str, ...]]:
    most = given * _MOST_TIMES
    if wished is None:
        return given, ()
    if wished <= most:
        return wished, ()
    return most, (f"{name} is capped at {figure(most)}",)


def first_hour(places: Sequence[Place | None], rules: LeastCost, unix: float) -> float:
    """Return what an hour of the first option costs, on average over the next day; 1: nothing."""
    first = next((place for place in places if place is not None), None)
    if first is None:
        return 1.0
    day = Span(reserved=unix, begun=unix, end=unix + DAY)
    cost = terms.cost_of(first.usage, first.prices, day)
    return (cost.paid_with(float(rules.carbon_price)) or 0.0) * HOUR / DAY or 1.0


def _with_terms(assessment: Assessment, stakes: Stakes, wishes: Wishes, unix: float) -> Cost | None:
    """Return an option's cost with all terms; None: its finish is not known."""
    forecast, place = assessment.forecast, assessment.place
    if forecast is None or forecast.run is None:
        return assessment.cost
    # What is refused without a cost has none that means anything.
    if assessment.rejection is not None and assessment.cost is None:
        return None
    factor = interruptions(forecast, place, wishes) if place is not None else 1.0
    span = terms.span_of(forecast, unix, factor)
    if span is None:
        return assessment.cost
    cost = assessment.cost or Cost()
    kilograms = cost.kilograms
    return replace(
        cost,
        carbon=(
            stakes.carbon_price * kilograms
            if stakes.carbon_price and kilograms is not None
            else None
        ),
        time=stakes.time_value * (span.end - unix) / HOUR,
        lateness=_lateness(forecast, span.end - unix, stakes, wishes.deadline),
        congestion=congestion_of(place, span),
        transfer=_transfer(place, wishes),
        stakes=stakes,
    )


def _lateness(forecast: Forecast, finish: float, stakes: Stakes, deadline: float | None) -> float:
    if deadline is None:
        return 0.0
    return late_cost(stakes, deadline - finish, sigma_of(forecast))


def sigma_of(forecast: Forecast) -> float:
    """Return the standard deviation of a finish, in seconds."""
    low, high = forecast.finish_low or 0.0, forecast.finish_high or 0.0
    return (high - low) / SIGMAS_IN_80_PERCENT


def late_cost(stakes: Stakes, slack: float, sigma: float) -> float:
    """Return what lateness is expected to cost, *slack* seconds before the deadline."""
    late, probability = terms.tardiness(slack, sigma)
    return stakes.late_hour * late / HOUR + stakes.late_fixed * probability


def congestion_of(place: Place | None, span: Span) -> float:
    """Return what those who wait for the same would give for it."""
    if place is None or not place.congestion:
        return 0.0
    hourly = sum(
        terms.units(cell, amount) * place.congestion.get(cell, 0.0)
        for cell, amount in place.usage.items()
    )
    return hourly * (span.end - span.begun) / HOUR


def _transfer(place: Place | None, wishes: Wishes) -> float:
    if place is None:
        return 0.0
    return transfer_of(place.prices, wishes.data) * (1 - place.warm)


def transfer_of(prices: Prices, data: Sequence[tuple[str, float]]) -> float:
    """Return the money for bringing *data*, names with their GiB, to where it is not held."""
    return prices.transfer * sum(size for name, size in data if name not in prices.holds)


def _left_out(compared: Mapping[str, Cost]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the terms that are not known of all options though of some, and a sentence of each."""
    missing = {
        term: [name for name, cost in compared.items() if getattr(cost, term) is None]
        for term in _LEFT_OUT
    }
    unknown = tuple(term for term, names in missing.items() if 0 < len(names) < len(compared))
    without_power = [name for name, cost in compared.items() if cost.kwh is None]
    said = [
        _LEFT_OUT[term].format(", ".join(missing[term]))
        for term in unknown
        if term == "money" or not without_power
    ]
    if without_power and any(term != "money" for term in unknown):
        said.append(_NO_ENERGY.format(", ".join(without_power)))
    return unknown, tuple(said)
