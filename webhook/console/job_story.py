"""Tells one Job from its submission to its end, with the forecast beside what happened. Pure.

What may be seen was decided before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from webhook.console import phrases
from webhook.console.view import View
from webhook.decide.decision_record import RecordedOption
from webhook.hindsight.savings_record import ShownDecision
from webhook.model.reasons import Obstacle
from webhook.model.words import span
from webhook.state.waiting_line import WaitingWorkload
from webhook.state.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMoment:
    at: float | None
    """Seconds since 1970; None: it has not come."""
    what: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStory:
    namespace: str
    job: str
    state: str
    """In a word: pending, running, succeeded."""
    decision: ShownDecision | None
    moments: tuple[JobMoment, ...]
    compared: tuple[tuple[str, str, str], ...]
    """What is compared, as it was forecast, and as it was; an empty one is not known."""
    is_searched: bool
    """Whether its Workload was looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Course:
    """Times in seconds since 1970; None: not reached, or not known."""

    submitted: float | None
    reserved: float | None = None
    admitted: float | None = None
    ready: float | None = None
    ended: float | None = None
    is_over: bool = False
    has_succeeded: bool = False


def job_story(
    view: View, namespace: str, job: str, workloads: Sequence[Workload] | None
) -> JobStory | None:
    """Tell what is known of a Job; None: nothing is.

    *workloads* are its own, the oldest first; None: they could not be looked for.
    """
    key = namespace, job
    decision = next((each for each in view.decisions if (each.namespace, each.job) == key), None)
    if decision is None and not workloads:
        return None
    waiting = (each for each in view.waiting or () if each.workload.job == job)
    line = next((each for each in waiting if each.workload.namespace == namespace), None)
    workload = workloads[-1] if workloads else None
    course = _course(workload, decision)
    option = _taken(decision)
    return JobStory(
        namespace=namespace,
        job=job,
        state=_state(workload, course),
        decision=decision,
        moments=tuple(_moments(decision, workload, line, course)),
        compared=tuple(_compared(decision, option, course)),
        is_searched=workloads is not None,
    )


def _taken(decision: ShownDecision | None) -> RecordedOption | None:
    options = () if decision is None else decision.recorded.options
    return next((each for each in options if decision and each.name == decision.option), None)


def _course(workload: Workload | None, decision: ShownDecision | None) -> _Course:
    if workload is None:
        return _Course(submitted=decision.at if decision else None)
    run = workload.run
    ended = run if run is not None and run.has_ended else None
    return _Course(
        submitted=float(workload.created),
        reserved=float(workload.reserved_at) or None,
        admitted=float(workload.admitted) or None,
        ready=float(run.ready) or None if run else None,
        ended=float(ended.run.finished) if ended else None,
        is_over=ended is not None or workload.obstacle is Obstacle.FINISHED,
        has_succeeded=bool(ended and ended.run.succeeded),
    )


def _state(workload: Workload | None, course: _Course) -> str:
    if workload is None:
        return "gone, or not seen"
    if course.is_over:
        return "succeeded" if course.has_succeeded else "over"
    if course.admitted:
        return "running" if workload.has_ready_pods else "starting"
    return "holds quota" if course.reserved else "pending"


def _moments(
    decision: ShownDecision | None,
    workload: Workload | None,
    line: WaitingWorkload | None,
    course: _Course,
) -> Iterator[JobMoment]:
    yield JobMoment(at=course.submitted, what="Submitted", words="")
    if decision is not None:
        where = f"to {decision.option} in {decision.queue}" if decision.option else "left alone"
        words = f"{where}, by {decision.recorded.policy}: {decision.recorded.reason}"
        # A move is a decision, too, and takes the time of the first one.
        at = course.submitted if decision.moves else decision.at
        yield JobMoment(at=at, what="Decided", words=words)
        for move in decision.moves:
            yield JobMoment(at=move.unix, what="Moved", words=f"to {move.option}: {move.reason}")
    if workload is not None:
        yield JobMoment(at=course.reserved, what="Quota", words=_quota(workload, line, course))
        yield JobMoment(at=course.ready, what="Pods ready", words=_pods(workload, course))
        yield JobMoment(at=course.ended, what="End", words=_end(course))


def _quota(workload: Workload, line: WaitingWorkload | None, course: _Course) -> str:
    if course.reserved:
        flavors = f" on {workload.flavors.replace(',', ', ')}" if workload.flavors else ""
        return f"in {workload.cluster_queue}{flavors}"
    if line is None:
        return "it has none"
    place = f"{line.position} of {line.pending} who wait in {line.cluster_queue}"
    within = line.start.range_words
    starts = f"starts {line.start.words}"
    return f"{place}; {starts}{f', within {within}' if within else ''}"


def _pods(workload: Workload, course: _Course) -> str:
    if course.ready and course.admitted:
        return f"{span(max(0.0, course.ready - course.admitted))} after its admission"
    return "all of them" if workload.has_ready_pods else ""


def _end(course: _Course) -> str:
    if not course.is_over:
        return ""
    if course.ended is None:
        return "over; when is not known"
    return "succeeded" if course.has_succeeded else "failed"


def _compared(
    decision: ShownDecision | None, option: RecordedOption | None, course: _Course
) -> Iterator[tuple[str, str, str]]:
    """Yield the forecast for the option that was taken, beside what then happened."""
    if decision is None or option is None:
        return
    rows = (
        ("Starts after", option.starts_in, _between(decision.at, course.admitted)),
        ("Runs", option.runs, _between(course.admitted, course.ended)),
        ("Done after", option.finishes_in, _between(decision.at, course.ended)),
    )
    for what, forecast, truth in rows:
        yield what, _words(forecast), _words(truth)
    first = decision.recorded.options[0]
    if first.name != option.name:
        yield f"Done after, in {first.name} instead", _words(first.finishes_in), ""


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else max(0.0, end - start)


def _words(seconds: float | None) -> str:
    return "" if seconds is None else phrases.duration(seconds)
