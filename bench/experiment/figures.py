"""What rounds come to: makespans, forecasts against what happened, targets. Pure."""

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from bench.experiment.arms import Arm
from bench.experiment.course import Course
from bench.report import Target, spread, table
from webhook.model.queues import KueueConfig
from webhook.simulate.results import percentile

# One round: what each arm's Jobs did.
Played = Mapping[str, Sequence[Course]]

SHORT_WAIT_SECONDS: Final = {50: 50.0, 90: 20.0}
"""Waits shorter than this count as this long for the percentile: 5 s are then 10 or 25 %."""
BUSY_LAG_SECONDS: Final = 1.0
BUSY_OVERHEAD_SECONDS: Final = 4.0
COLUMNS: Final = ("makespan s", "saved %", "turnaround s", "moved", "start off, p50 %", "p90 %")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One arm in one round."""

    makespan: float
    turnaround: float
    by_template: Mapping[str, float]
    """Mean turnaround of each kind of Job."""
    moved: tuple[str, ...]
    failed: int
    overhead: float | None
    """Median seconds for which quota was held beyond the run time."""
    overhead_p90: float | None
    gap: float | None
    """Median seconds from the end of a Job to the start of the next one that waited for it."""
    lag_p90: float
    """Seconds by which Jobs were created too late."""
    forecasts: tuple[tuple[float, float], ...]
    """(forecast wait, real wait) of each Job with a forecast."""


def figures(courses: Sequence[Course]) -> Figures:
    created = [course.created or 0.0 for course in courses]
    overheads = [each for course in courses if (each := course.overhead_seconds) is not None]
    templates = dict.fromkeys(course.template for course in courses)
    return Figures(
        makespan=max(course.finished or 0.0 for course in courses) - min(created),
        turnaround=_turnaround(courses),
        by_template={
            name: _turnaround([course for course in courses if course.template == name])
            for name in templates
        },
        moved=tuple(course.name for course in courses if course.queue != course.submitted_to),
        failed=sum(course.failed for course in courses),
        overhead=statistics.median(overheads) if overheads else None,
        overhead_p90=percentile(overheads, 90) if overheads else None,
        gap=_gap(courses),
        lag_p90=percentile([(course.created or 0.0) - course.due for course in courses], 90),
        forecasts=tuple(
            (course.starts_in, course.wait_seconds)
            for course in courses
            if course.starts_in is not None and course.wait_seconds is not None
        ),
    )


def _turnaround(courses: Sequence[Course]) -> float:
    return statistics.mean((each.finished or 0.0) - (each.created or 0.0) for each in courses)


def _gap(courses: Sequence[Course]) -> float | None:
    """Take the time in which a queue's quota lay idle between two Jobs."""
    gaps = []
    for course in courses:
        if course.started is None or (course.wait_seconds or 0.0) < BUSY_LAG_SECONDS:
            continue
        ends = [
            other.finished
            for other in courses
            if other.queue == course.queue
            and other.finished is not None
            and other.finished <= course.started
        ]
        if ends:
            gaps.append(course.started - max(ends))
    return statistics.median(gaps) if gaps else None


def overhead_of(rounds: Iterable[Figures]) -> float:
    """Tell for how long each Job holds quota beyond its run time.

    With what quota lies idle afterwards for longer than Kueue's own period, which a replay knows.
    """
    requeue = KueueConfig().requeue_seconds
    found = [(each.overhead or 0.0) + max(0.0, (each.gap or 0.0) - requeue) for each in rounds]
    return statistics.median(found) if found else 0.0


def forecast_error(pairs: Sequence[tuple[float, float]], percent: int) -> float | None:
    """Tell by how many percent of the wait so many percent of the forecasts are off at most."""
    floor = SHORT_WAIT_SECONDS[percent]
    errors = [100 * abs(said - real) / max(real, floor) for said, real in pairs]
    return percentile(errors, percent) if errors else None


def places(rounds: Iterable[Figures]) -> list[tuple[float, float]]:
    """Pair the forecast waits of each round with the real ones by length, whoever waited so.

    Kueue takes Jobs that were created within one second in the order of their Workloads' UIDs,
    which are drawn: who of them starts when cannot be known, when one of them starts can be.
    """
    found: list[tuple[float, float]] = []
    for each in rounds:
        said, real = zip(*each.forecasts, strict=True) if each.forecasts else ((), ())
        found += zip(sorted(said), sorted(real), strict=True)
    return found


def saved(arm: Sequence[Figures], static: Sequence[Figures]) -> list[float]:
    """Tell, round by round, by how many percent of the static one a makespan is shorter."""
    return [
        100 * (1 - each.makespan / other.makespan) for each, other in zip(arm, static, strict=True)
    ]


def lines(
    rounds: Mapping[str, Sequence[Figures]],
    arms: Sequence[Arm],
    simulated: Mapping[str, float],
) -> list[str]:
    """Lay out one scenario: a row for each arm, then what `simulate` says of its makespan."""
    header = ("", *COLUMNS, "simulated s", "off by %")
    return table(header, (_row(arm, rounds, simulated) for arm in arms))


def _row(
    arm: Arm, rounds: Mapping[str, Sequence[Figures]], simulated: Mapping[str, float]
) -> tuple[object, ...]:
    own = rounds[arm.key]
    static = rounds.get("static")
    less = "-" if static is None or own is static else spread_of_mean(saved(own, static))
    pairs = [pair for each in own for pair in each.forecasts]
    beside = simulated.get(arm.key)
    return (
        arm.title,
        spread_of_mean([each.makespan for each in own]),
        less,
        spread_of_mean([each.turnaround for each in own]),
        spread([len(each.moved) for each in own], digits=0),
        _number(forecast_error(pairs, 50)),
        _number(forecast_error(pairs, 90)),
        _number(beside),
        _number(None if beside is None else deviation(own, beside)),
    )


def deviation(own: Sequence[Figures], simulated: float) -> float:
    real = statistics.mean(each.makespan for each in own)
    return 100 * (simulated - real) / real


def by_template_lines(rounds: Mapping[str, Sequence[Figures]], arms: Sequence[Arm]) -> list[str]:
    """Lay out the mean turnaround of each kind of Job."""
    templates = list(rounds[arms[0].key][0].by_template)
    rows = (
        (
            arm.title,
            *(
                spread_of_mean([each.by_template[name] for each in rounds[arm.key]])
                for name in templates
            ),
        )
        for arm in arms
    )
    return table(("mean turnaround s", *templates), rows)


def places_lines(rounds: Mapping[str, Sequence[Figures]], arms: Sequence[Arm]) -> list[str]:
    """Lay out how far off forecasts are but for who of a second's Jobs comes first."""
    rows = []
    for arm in arms:
        if pairs := places(rounds[arm.key]):
            off = [_number(forecast_error(pairs, percent)) for percent in (50, 90)]
            rows.append((arm.title, *off))
    return table(("whoever comes first", "start off, p50 %", "p90 %"), rows) if rows else []


def spread_of_mean(values: Sequence[float]) -> str:
    """Spell the mean with the range."""
    mean = f"{statistics.mean(values):.1f}"
    return f"{mean} ({min(values):.1f}-{max(values):.1f})" if len(values) > 1 else mean


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def complaints(rounds: Mapping[str, Sequence[Figures]], *, time_scale: float) -> list[str]:
    """Say what makes the figures worth little."""
    found = []
    for key, each in ((key, each) for key, own in rounds.items() for each in own):
        if each.lag_p90 > BUSY_LAG_SECONDS:
            found.append(f"{key}: Jobs were created {each.lag_p90:.1f} s late (p90)")
        if (each.overhead_p90 or 0.0) > BUSY_OVERHEAD_SECONDS:
            found.append(
                f"{key}: Jobs held quota {each.overhead_p90:.1f} s longer than they ran (p90)"
            )
        if each.failed:
            found.append(f"{key}: {each.failed} Jobs failed")
    if found:
        found.insert(0, "The machine was too busy, these figures are not to be trusted:")
    if time_scale != 1:
        found.append("Times are shortened, but not what Kubernetes takes to start and end a pod.")
    return found


SAVED_AT_LEAST: Final[Mapping[str, Mapping[str, float]]] = {
    "uniform": {"threshold": 9, "learned": 22, "moves": 22},
    "burst": {"threshold": 9, "learned": 28, "moves": 28},
}
REMOTE_LESS: Final = 2
"""Points of what must be saved that the way to a worker cluster may cost."""
NEVER_WORSE: Final = ("priors", "over", "under", "far-over", "far-under")
WORSE_AT_MOST: Final = -2.0
FORECASTING: Final = ("priors", "learned", "over", "under")
OFF_AT_MOST: Final = {50: 10.0, 90: 25.0}
SIMULATION_OFF_AT_MOST: Final = 5.0


def targets(
    scenario: str,
    rounds: Mapping[str, Sequence[Figures]],
    simulated: Mapping[str, float],
    *,
    clusters: int = 1,
) -> list[Target]:
    """Hold one scenario's figures to what is promised; only of the arms that ran."""
    found = []
    static = rounds.get("static")
    less = 0 if clusters == 1 else REMOTE_LESS
    wanted = {**SAVED_AT_LEAST.get(scenario, {}), **dict.fromkeys(NEVER_WORSE, WORSE_AT_MOST)}
    for key, least in wanted.items():
        if key in rounds and static is not None:
            mean = statistics.mean(saved(rounds[key], static))
            name = f"{scenario}: {key} saves, % of static, mean"
            found.append(Target(name=name, value=mean, limit=least - less, at_least=True))
    for key in FORECASTING:
        pairs = [pair for each in rounds.get(key, ()) for pair in each.forecasts]
        for percent, most in OFF_AT_MOST.items():
            if (off := forecast_error(pairs, percent)) is not None:
                name = f"{scenario}: {key} forecasts are off, % of the wait, p{percent}"
                found.append(Target(name=name, value=off, limit=most))
    for key, makespan in simulated.items():
        off = abs(deviation(rounds[key], makespan))
        name = f"{scenario}: simulate is off for {key}, %"
        found.append(Target(name=name, value=off, limit=SIMULATION_OFF_AT_MOST))
    return found


def as_json(rounds: Mapping[str, Sequence[Figures]]) -> dict[str, Any]:
    return {key: [dataclasses.asdict(each) for each in own] for key, own in rounds.items()}
