"""Results as a picture: for each strategy and queue which Jobs ran when, and how many waited."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from webhook.simulate.comparison import duration
from webhook.simulate.results import JobResult, Result

FORMATS: Final = (".png", ".svg")
STAYED_COLOURS: Final = ("#2b5b84", "#7fb3d5", "#82b366", "#9673a6", "#6c757d")
MOVED_COLOURS: Final = ("#e59866", "#d6b656", "#b5651d", "#f0c39a")
"""Warm means moved, in every picture."""
WAITING_COLOUR: Final = "#c0392b"
MOST_BARS: Final = 3_000
"""With more Jobs than this, the number that run is drawn instead of each one's bar."""
_PIXELS_PER_INCH: Final = 110
_UNITS: Final = (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1))
_FEWEST_TICKS: Final = 3
_MOST_TICKS: Final = 9
_APART: Final = tuple(digit * 10**power for power in range(10) for digit in (1, 2, 5))
_LOST_ALPHA: Final = 0.4
"""Runs that a preemption ended are paler."""


def draw(results: Sequence[Result], path: str, *, title: str) -> None:
    """Write the picture; the path's ending selects PNG or SVG.

    Raises:
        ImportError: the extra `plots` is not installed.

    """
    import matplotlib as mpl  # noqa: PLC0415 - an extra, and a second to import

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "kueue-fallback"  # the same results are the same file
    from matplotlib import pyplot as plt  # noqa: PLC0415
    from matplotlib.patches import Patch  # noqa: PLC0415

    places = queues(results)
    colours = colours_of([job for result in results for job in result.jobs])
    figure, grid = plt.subplots(
        2 * len(places),
        len(results),
        figsize=(max(6, 4.5 * len(results)), 1 + 3.2 * len(places)),
        height_ratios=[3, 1] * len(places),
        sharex=True,
        sharey="row",
        squeeze=False,
        layout="constrained",
    )
    for column, result in enumerate(results):
        grid[0][column].set_title(f"{result.strategy}: {duration(result.totals.makespan)}")
        for row, place in enumerate(places):
            jobs = [job for job in result.jobs if _place(job) == place]
            lost = [run for run in _lost(result.jobs) if _place(run) == place]
            _draw_running(grid[2 * row][column], jobs, lost, colours)
            _draw_waiting(grid[2 * row + 1][column], jobs)
        _name_times(grid[-1][column], max(result.totals.makespan or 0.0 for result in results))
    _name_rows(grid, places)
    shown = {**colours, "waiting": WAITING_COLOUR}
    handles = [Patch(color=colour, label=kind) for kind, colour in shown.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(6, len(handles)))
    figure.suptitle(title, x=0.01, ha="left")
    figure.savefig(
        path, dpi=_PIXELS_PER_INCH, metadata={"Date": None} if path.endswith("svg") else {}
    )
    plt.close(figure)


def _name_times(axis: Any, makespan: float) -> None:
    ticks, unit = ticks_of(makespan)
    axis.set_xticks(*zip(*ticks, strict=True))
    axis.set_xlabel(unit)


def _name_rows(grid: Any, places: Sequence[tuple[str, str]]) -> None:
    for row, (queue, cluster) in enumerate(places):
        name = f"{queue} in {cluster}" if cluster else queue
        grid[2 * row][0].set_ylabel(f"{name}: running")
        grid[2 * row + 1][0].set_ylabel("waiting")


def queues(results: Sequence[Result]) -> list[tuple[str, str]]:
    """Return queues and the cluster behind each, first those that Jobs were created for."""
    jobs = [job for result in results for job in result.jobs]
    first = {job.submitted for job in jobs}
    places = {_place(job) for job in jobs}
    # An unused queue is shown, too, so that it is seen to be empty.
    places |= {(name, "") for name in first - {queue for queue, _ in places}}
    return sorted(places, key=lambda place: (place[0] not in first, place))


def _place(job: JobResult) -> tuple[str, str]:
    return job.queue, job.cluster


def _kind(job: JobResult) -> str:
    return f"{job.template}, {job.option}" if job.is_moved else job.template


def colours_of(jobs: Sequence[JobResult]) -> dict[str, str]:
    """Return the colour of each kind that is drawn, those that stayed first."""
    drawn = [*jobs, *_lost(jobs)]
    moved = {_kind(job) for job in drawn if job.is_moved}
    stayed = {_kind(job) for job in drawn} - moved
    return {
        **dict(zip(sorted(stayed), itertools.cycle(STAYED_COLOURS), strict=False)),
        **dict(zip(sorted(moved), itertools.cycle(MOVED_COLOURS), strict=False)),
    }


def lanes(jobs: Sequence[JobResult]) -> list[tuple[int, JobResult]]:
    """Assign each Job that ran the lowest line that is free when it starts."""
    ends: list[float] = []
    placed = []
    for job in sorted(
        (job for job in jobs if job.start is not None), key=lambda job: job.start or 0.0
    ):
        start, end = job.start or 0.0, job.finish or job.start or 0.0
        lane = next((number for number, busy in enumerate(ends) if busy <= start), len(ends))
        ends[lane : lane + 1] = [end]
        placed.append((lane, job))
    return placed


def ticks_of(makespan: float) -> tuple[list[tuple[float, str]], str]:
    """Return where an axis of *makespan* seconds has ticks, with their labels, and its unit."""
    unit, seconds = next(
        ((name, seconds) for name, seconds in _UNITS if makespan >= _FEWEST_TICKS * seconds),
        _UNITS[-1],
    )
    apart = next(each for each in _APART if makespan <= _MOST_TICKS * each * seconds)
    last = int(makespan // (apart * seconds))
    return [(n * apart * seconds, f"{n * apart}") for n in range(last + 1)], unit


def steps(changes: Sequence[tuple[float, int]]) -> tuple[list[float], list[int]]:
    """Accumulate changes to a step function: ascending times, and the value from each on."""
    moments, counts = [0.0], [0]
    for moment, change in sorted(changes):
        if moment > moments[-1]:
            moments.append(moment)
            counts.append(counts[-1])
        counts[-1] += change
    return moments, counts


def _lost(jobs: Iterable[JobResult]) -> list[JobResult]:
    """Return each run that a preemption ended as if it were a Job's only one."""
    return [
        replace(job, queue=run.queue, start=run.start, finish=run.end)
        for job in jobs
        for run in job.lost
    ]


def _draw_running(
    axis: Any, jobs: Sequence[JobResult], lost: Sequence[JobResult], colours: dict[str, str]
) -> None:
    ran = [job for job in jobs if job.start is not None and job.finish is not None]
    if len(ran) > MOST_BARS:
        for kind, colour in colours.items():
            here = [job for job in ran if _kind(job) == kind]
            starts = [(job.start or 0.0, 1) for job in here]
            axis.step(
                *steps([*starts, *((job.finish or 0.0, -1) for job in here)]),
                where="post",
                color=colour,
            )
        return
    cut = {id(run) for run in lost}
    for lane, job in lanes([*ran, *lost]):
        start = job.start or 0.0
        axis.barh(
            lane,
            (job.finish or 0.0) - start,
            left=start,
            height=0.85,
            color=colours[_kind(job)],
            edgecolor="white",
            linewidth=0.5,
            alpha=_LOST_ALPHA if id(job) in cut else 1.0,
        )
    axis.set_yticks([])


def _draw_waiting(axis: Any, jobs: Sequence[JobResult]) -> None:
    began = [(job.arrival, 1) for job in jobs]
    axis.step(
        *steps([*began, *((job.start, -1) for job in jobs if job.start is not None)]),
        where="post",
        color=WAITING_COLOUR,
    )
    axis.set_ylim(0, max(1.0, axis.get_ylim()[1]))
