"""Runs the replays of all strategies, in parallel if they are long, and compares their results.

The comparison is a table for people and JSON for programs; how one strategy is replayed is not
known here.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from math import inf
from typing import Any, Final, TypeVar

from pydantic.alias_generators import to_camel

from webhook.model.tables import aligned
from webhook.model.words import figure, span
from webhook.simulate.replay import replay
from webhook.simulate.results import (
    JobCost,
    JobResult,
    Result,
    ServiceResult,
    Totals,
    totals,
)
from webhook.simulate.scenario import STATIC, Arm, Scenario

_Part = TypeVar("_Part")
VERSION: Final = 1
_MOST_KINDS: Final = 8
"""Of Jobs; more would not fit in a line."""
_NO_CLASS: Final = "(none)"
"""In place of a priority class."""
HERE: Final = "(manager)"
"""In place of a worker cluster."""
_HEADER: Final = (
    "STRATEGY",
    "MAKESPAN",
    "SAVED",
    "TURNAROUND",
    "P95",
    "WAIT",
    "DEVICE HOURS",
    "MOVED",
    "SLOWER",
)


_COSTS: Final[Mapping[str, Callable[[JobCost], float | None]]] = {
    "MONEY": lambda costs: costs.money,
    "KWH": lambda costs: costs.kwh,
    "KG CO2": lambda costs: costs.kilograms,
    "TRANSFER": lambda costs: costs.transfer,
}
"""Columns of what strategies came to, between their names and ``LATE`` and ``TOTAL``."""


def table(scenario: Scenario, results: Sequence[Result]) -> str:
    """Return the strategies side by side; fits 100 columns with names of usual length."""
    lines = [
        _title(scenario),
        "",
        *aligned([_HEADER, *(_row(result, results) for result in results)]),
    ]
    if scenario.prices is not None:
        lines += ["", *aligned(list(_cost_rows(results)))]
    if scenario.services:
        lines += ["", *aligned(list(_service_rows(results)))]
    if 1 < len(scenario.templates) <= _MOST_KINDS:
        header = ("MEAN TURNAROUND", *scenario.templates)
        rows = [(result.strategy, *_by_job(result, scenario)) for result in results]
        lines += ["", *aligned([header, *rows])]
    if 1 < len(names := priority_classes(results)) <= _MOST_KINDS:
        header = ("TURNAROUND BY PRIORITY", *(name or _NO_CLASS for name in names))
        lines += ["", *aligned([header, *_turnarounds(results, names, Result.of_priority)])]
    # Wide Jobs wait longer than others: under BestEffortFIFO narrow ones overtake them.
    if 1 < len(widths := _widths(results)) <= _MOST_KINDS:
        header = ("TURNAROUND BY ACCELERATORS", *map(str, widths))
        lines += ["", *aligned([header, *_turnarounds(results, widths, Result.of_width)])]
    if any(job.preempted for result in results for job in result.jobs):
        header = ("PREEMPTED", *(name or _NO_CLASS for name in names))
        rows = [(result.strategy, *_preempted(result, names)) for result in results]
        lines += ["", *aligned([header, *rows])]
    if scenario.workers:
        clusters = ("", *scenario.workers)
        header = ("JOBS RUN IN", *(name or HERE for name in clusters))
        rows = [(result.strategy, *_run_in(result, clusters)) for result in results]
        lines += ["", *aligned([header, *rows])]
    return "\n".join([*lines, *_notes(results)])


def priority_classes(results: Sequence[Result]) -> Sequence[str]:
    """Return the priority classes of Jobs, by name; empty stands for none."""
    return sorted({job.priority_class for result in results for job in result.jobs})


def _widths(results: Sequence[Result]) -> Sequence[int]:
    """Return how many accelerators Jobs need, ascending."""
    return sorted({job.accelerators for result in results for job in result.jobs})


def _turnarounds(
    results: Sequence[Result],
    parts: Sequence[_Part],
    jobs_of: Callable[[Result, _Part], Sequence[JobResult]],
) -> list[tuple[str, ...]]:
    """Return a row for each result: the mean turnaround of each part of its Jobs."""
    rows = []
    for result in results:
        means = (totals(jobs_of(result, part)).mean_turnaround for part in parts)
        rows.append((result.strategy, *map(duration, means)))
    return rows


def _preempted(result: Result, names: Sequence[str]) -> list[str]:
    return [str(totals(result.of_priority(name)).preempted) for name in names]


def _by_job(result: Result, scenario: Scenario) -> list[str]:
    return [duration(totals(result.of(name)).mean_turnaround) for name in scenario.templates]


def _run_in(result: Result, clusters: Iterable[str]) -> list[str]:
    counts = Counter(job.cluster for job in result.jobs if job.start is not None)
    return [str(counts[name]) for name in clusters]


def _title(scenario: Scenario) -> str:
    jobs = scenario.submissions
    if not jobs:
        return f"{scenario.name}: services, and no Jobs"
    last = jobs[-1].at - jobs[0].at
    kinds = ", ".join(
        f"{sum(job.template == name for job in jobs)} {name}" for name in scenario.templates
    )
    if len(scenario.templates) > _MOST_KINDS:
        kinds = f"{len(scenario.templates)} kinds"
    return f"{scenario.name}: {len(jobs)} Jobs in {duration(last)} ({kinds})"


def _row(result: Result, results: Sequence[Result]) -> tuple[str, ...]:
    figures, less = result.totals, saved(result, results)
    return (
        result.strategy,
        duration(figures.makespan),
        "-" if less is None else f"{round(less, 1) + 0.0:.1f} %",
        duration(figures.mean_turnaround),
        duration(figures.p95_turnaround),
        duration(figures.mean_wait),
        f"{sum(figures.device_hours.values()):.2f}",
        str(figures.moved),
        str(figures.slower),
    )


def _cost_rows(results: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    """Yield the header and each strategy's row; what data costs to bring only where some was."""
    known = [result.totals.costs for result in results]
    is_brought = any(costs is not None and costs.transfer is not None for costs in known)
    columns = {name: find for name, find in _COSTS.items() if name != "TRANSFER" or is_brought}
    yield ("COST", *columns, "LATE", "TOTAL")
    for result, costs in zip(results, known, strict=True):
        if costs is None:
            yield (result.strategy, *"-" * (len(columns) + 2))
            continue
        amounts = [_amount(find(costs)) for find in columns.values()]
        yield (result.strategy, *amounts, str(result.totals.late), _amount(costs.total))


def _service_rows(results: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    """Yield the header, and a row for each service in each strategy."""
    yield ("SERVICE", "STRATEGY", "OPTION", "FEWEST", "MEAN", "MOST", "WITHIN LATENCY", "COST")
    of_names = zip(*(result.services for result in results), strict=True)
    for services in of_names:
        for result, service in zip(results, services, strict=True):
            yield (
                service.name,
                result.strategy,
                service.option or "-",
                str(service.fewest),
                figure(service.mean_replicas),
                str(service.most),
                f"{figure(100 * service.within)} %",
                _amount(service.cost.total if service.cost else None),
            )


def _amount(known: float | None) -> str:
    return "-" if known is None else figure(known)


def saved(result: Result, results: Sequence[Result]) -> float | None:
    """Return by how many percent its makespan is shorter than that of the static strategy.

    None: one of the two is not known, or it is the static one itself.
    """
    static = next(
        (candidate.totals.makespan for candidate in results if candidate.strategy == STATIC), None
    )
    makespan = result.totals.makespan
    if not static or makespan is None or result.strategy == STATIC:
        return None
    return 100 * (1 - makespan / static)


def _notes(results: Sequence[Result]) -> list[str]:
    notes = [
        f"{result.strategy}: {left} Jobs never ended"
        for result in results
        if (left := result.totals.jobs - result.totals.finished)
    ]
    return ["", *notes] if notes else []


def duration(seconds: float | None) -> str:
    """Return a time; None: there is none."""
    return "-" if seconds is None else span(seconds)


def to_json(scenario: Scenario, results: Sequence[Result], *, seed: int) -> Mapping[str, Any]:
    """Return the results for programs; seconds as numbers, keys in camelCase."""
    return {
        "version": VERSION,
        "scenario": scenario.name,
        "seed": seed,
        "jobs": len(scenario.submissions),
        "strategies": [_result_json(result, results) for result in results],
    }


def _result_json(result: Result, results: Sequence[Result]) -> Mapping[str, Any]:
    return {
        "strategy": result.strategy,
        "totals": {
            **_totals_json(result.totals),
            "savedPercent": _rounded(saved(result, results)),
        },
        "byJob": {
            name: _totals_json(totals(result.of(name)))
            for name in dict.fromkeys(job.template for job in result.jobs)
        },
        "byPriority": {
            name: _totals_json(totals(result.of_priority(name)))
            for name in priority_classes([result])
        },
        "byAccelerators": {
            str(width): _totals_json(totals(result.of_width(width))) for width in _widths([result])
        },
        "byCluster": {
            name: _totals_json(totals(result.in_cluster(name)))
            for name in sorted({job.cluster for job in result.jobs} - {""})
        },
        "jobs": [_job_json(job) for job in result.jobs],
        **(
            {"services": [_service_json(each) for each in result.services]}
            if result.services
            else {}
        ),
    }


def _service_json(service: ServiceResult) -> Mapping[str, Any]:
    return {
        "name": service.name,
        "queue": service.queue,
        "option": service.option or None,
        "targetLatency": service.target,
        "withinPercent": _rounded(100 * service.within),
        "replicas": {
            "fewest": service.fewest,
            "mean": _rounded(service.mean_replicas),
            "most": service.most,
        },
        "deviceHours": _rounded(service.device_hours),
        **_costs_json(service.cost, None),
        "moments": [
            {
                "at": _rounded(moment.at),
                "rate": _rounded(moment.rate),
                "replicas": moment.replicas,
                "latency": None if moment.latency == inf else _rounded(moment.latency),
            }
            for moment in service.moments
        ],
    }


def _totals_json(figures: Totals) -> Mapping[str, Any]:
    left_out = {"costs", "late"} if figures.interrupted else {"costs", "late", "interrupted"}
    plain = {key: value for key, value in asdict(figures).items() if key not in left_out}
    return {
        **{to_camel(key): _rounded(value) for key, value in plain.items()},
        **_costs_json(figures.costs, figures.late),
    }


def _costs_json(costs: JobCost | None, late: float | None) -> Mapping[str, Any]:
    """Return what something came to, and how late it was; nothing where nothing has a price."""
    if costs is None:
        return {}
    return {
        "money": _rounded(costs.money),
        "kWh": _rounded(costs.kwh),
        "kgCO2": _rounded(costs.kilograms),
        **({} if costs.transfer is None else {"transfer": _rounded(costs.transfer)}),
        "late": _rounded(late),
        "total": _rounded(costs.total),
    }


def _job_json(job: JobResult) -> Mapping[str, Any]:
    return {
        "name": job.name,
        "job": job.template,
        "arrival": _rounded(job.arrival),
        "submittedTo": job.submitted,
        "queue": job.queue,
        "priorityClass": job.priority_class or None,
        "accelerators": job.accelerators,
        "preempted": job.preempted,
        **({"interrupted": job.interrupted} if job.interrupted else {}),
        "cluster": job.cluster or None,
        "option": job.option or None,
        "start": _rounded(job.start),
        "finish": _rounded(job.finish),
        "staticFinish": _rounded(job.static_finish),
        **_costs_json(job.cost, job.cost.late if job.cost else None),
    }


def _rounded(value: Any) -> Any:
    """Round to milliseconds: finer differences come from floating point."""
    if isinstance(value, Mapping):
        return {key: _rounded(nested) for key, nested in value.items()}
    return round(value, 3) if isinstance(value, float) else value


LONG_FROM = 2_000
"""Jobs. A process takes a tenth of a second to start, and so many Jobs take half a second."""


def replay_all(
    scenario: Scenario, arms: Sequence[Arm], *, progress: Callable[[int], None] = lambda _: None
) -> Mapping[str, Result]:
    """Replay all *arms*; *progress* gets the number of arrived Jobs, over all of them.

    In parallel, which changes no result, those of a replay count once it has ended.

    Raises:
        FieldError: as for ``replay``.

    """
    processes = min(len(arms), _processors())
    if processes > 1 and len(scenario.submissions) >= LONG_FROM:
        return _at_once(scenario, arms, progress, processes)
    return _one_by_one(scenario, arms, progress)


def _processors() -> int:
    # Without fork a process starts empty, and imports everything again.
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


def _one_by_one(
    scenario: Scenario, arms: Iterable[Arm], progress: Callable[[int], None]
) -> Mapping[str, Result]:
    results: dict[str, Result] = {}

    def tell(come: int) -> None:
        progress(len(results) * len(scenario.submissions) + come)

    for arm in arms:
        results[arm.name] = replay(scenario, arm, progress=tell)
    return results


def _at_once(
    scenario: Scenario,
    arms: Sequence[Arm],
    progress: Callable[[int], None],
    processes: int,
) -> Mapping[str, Result]:
    # Those that forecast take longest.
    order = sorted(arms, key=lambda arm: not any(p.spec.strategy.forecasts for p in arm.policies))
    with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as pool:
        futures = {arm.name: pool.submit(replay, scenario, arm) for arm in order}
        try:
            for done, future in enumerate(as_completed(futures.values()), 1):
                future.result()
                progress(done * len(scenario.submissions))
        finally:
            # After a failure, replays that have not begun are not started.
            pool.shutdown(wait=False, cancel_futures=True)
    return {arm.name: futures[arm.name].result() for arm in arms}
