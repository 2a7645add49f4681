"""How far replays can be trusted, and how long all Jobs took in each of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from webhook.hindsight.told import Told


@dataclass(frozen=True, slots=True, kw_only=True)
class Sureness:
    """How far the replay of what happened is off what happened, in percent."""

    jobs: int
    turnaround: float
    """Of the sum of all turnarounds."""
    makespan: float
    one_job: float
    """Median over Jobs, of each one's own turnaround."""
    forecasts: int
    """Decisions whose forecast of the finish could be checked."""
    forecast: float | None
    """By how much they were off, median, in percent of the turnaround."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Makespans:
    """From the first arrival to the last end of all Jobs; None: not replayed, or nobody ended."""

    real: float | None = None
    happened: float | None = None
    static: float | None = None
    promised: float | None = None


def sureness_of(told: Sequence[Told]) -> Sureness | None:
    pairs = [
        (each.happened.finish - each.entry.created, each.turnaround)
        for each in told
        if each.happened and each.happened.finish is not None and each.turnaround > 0
    ]
    real = sum(turnaround for _, turnaround in pairs)
    if not real:
        return None
    spans = makespans_of(told)
    makespan = (spans.happened or 0.0) / spans.real - 1 if spans.real else 0.0
    checked = list(_checked(told))
    return Sureness(
        jobs=len(pairs),
        turnaround=100 * (sum(modelled for modelled, _ in pairs) / real - 1),
        makespan=100 * makespan,
        one_job=100 * median(abs(modelled / seen - 1) for modelled, seen in pairs),
        forecasts=len(checked),
        forecast=100 * median(checked) if checked else None,
    )


def _checked(told: Iterable[Told]) -> Iterator[float]:
    """List by how much forecasts of finishes were off, as parts of the turnaround."""
    for each in told:
        entry = each.entry
        if entry.moves or not each.is_enforced or each.turnaround <= 0:
            continue
        taken = next((one for one in entry.offers if one.option == entry.option), None)
        if taken is not None and taken.finishes_in is not None:
            yield abs(taken.finishes_in - each.turnaround) / each.turnaround


def makespans_of(told: Sequence[Told]) -> Makespans:
    first = min((each.entry.created for each in told), default=0.0)
    return Makespans(
        real=_span((float(each.entry.finished) for each in told), first),
        happened=_span((each.happened.finish for each in told if each.happened), first),
        static=_span((each.static.finish for each in told if each.static), first),
        promised=_span((each.promised.finish for each in told if each.promised), first),
    )


def _span(ends: Iterable[float | None], first: float) -> float | None:
    found = [end for end in ends if end is not None]
    return max(found) - first if found else None
