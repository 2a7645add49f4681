"""Tells by Kueue's log when the quota of a run was free: for which scheduling cycle."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nextafter
from typing import Final

from tests.e2e.timed_player import Course, Run, SeenCycle

HEARD_SECONDS: Final = 0.1
"""So soon after it has said that a Workload has stopped, Kueue has its quota."""
LATE_SECONDS: Final = 1.0
"""On a busy machine it is at most so late."""


def quota_free_at(course: Course, run: Run) -> float:
    """Return when the quota of a run was free for the first cycle that Kueue began after that."""
    if run.seen_by:
        began = next(each.at for each in course.cycles if each.number == run.seen_by)
        return nextafter(began, -inf)
    return _likely_free_at(course, run)


def _likely_free_at(course: Course, run: Run) -> float:
    began = {cycle.number: cycle.at for cycle in course.cycles}
    if run.is_in_between and _started_in(course, run.cycle, after=run.ended):
        return nextafter(began[run.cycle], -inf)
    # What Kueue writes to its log after the heads of a cycle it may say to be a moment older.
    free_at = max(run.ended, nextafter(began.get(run.cycle, 0.0), inf))
    if run.finished:
        return free_at
    # It says that a Workload has stopped before it takes its quota back and queues it again, in
    # one step. A cycle or two may come in between.
    tried = (each.at for each in course.cycles if each.at > free_at and run.name in each.tried)
    again = next(tried, inf)
    is_soon = again < free_at + HEARD_SECONDS
    if is_soon and not any(free_at < other.started < again for other in course.runs):
        return nextafter(again, -inf)
    return free_at


def _started_in(course: Course, number: int, *, after: float) -> bool:
    """Tell whether a head of a cycle has started in it, after a moment of it."""
    cycle = next((each for each in course.cycles if each.number == number), None)
    if cycle is None:
        return False
    until = min((each.at for each in course.cycles if each.number > number), default=inf)
    return any(run.name in cycle.tried and after <= run.started < until for run in course.runs)


def may_have_seen(course: Course, run: Run) -> list[SeenCycle]:
    """Return the cycles that may have been the first to see the quota of a run free."""
    after = [each for each in course.cycles if each.at > run.ended - HEARD_SECONDS]
    found: list[SeenCycle] = []
    for cycle in after:
        # A head that finds nothing is tried again at once: the first of equal cycles is enough.
        if not found or found[-1].tried != cycle.tried:
            found.append(cycle)
        if cycle.at > run.ended + LATE_SECONDS or run.name in cycle.tried:
            break
    return found


def seen_by(course: Course, index: int, number: int) -> Course:
    runs = [*course.runs]
    runs[index] = replace(runs[index], seen_by=number)
    return replace(course, runs=runs)
