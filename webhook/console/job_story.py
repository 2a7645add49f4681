"""Tells one Job from its submission to its end, with the forecast beside what happened. Pure.

What may be seen was decided before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from webhook.console import phrases
from webhook.console.view import View
from webhook.hindsight.savings_record import ShownDecision
from webhook.model.reasons import Obstacle
from webhook.model.words import span
from webhook.state.waiting_line import WaitingWorkload
from webhook.state.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStory:
    """Times are in seconds since 1970; None: not reached, or not known."""

    namespace: str
    job: str
    decision: ShownDecision | None
    workload: Workload | None
    """The last one that it has had."""
    line: WaitingWorkload | None
    """Its place among those that wait."""
    is_searched: bool
    """Whether its Workload was looked for."""

    @property
    def admitted(self) -> float | None:
        return float(self.workload.admitted) or None if self.workload else None

    @property
    def ended(self) -> float | None:
        run = self.workload.run if self.workload else None
        return float(run.run.finished) if run and run.has_ended else None

    @property
    def state(self) -> str:
        """Return how it is, in a word: pending, running, succeeded."""
        workload = self.workload
        if workload is None:
            return "gone, or not seen"
        if self.ended is not None and workload.run and workload.run.run.succeeded:
            return "succeeded"
        if self.ended is not None or workload.obstacle is Obstacle.FINISHED:
            return "over"
        if workload.admitted:
            return "running" if workload.has_ready_pods else "starting"
        return "holds quota" if workload.reserved_at else "pending"

    @property
    def moments(self) -> Iterator[tuple[str, float | None, str]]:
        """Yield what happened or is to come, when, and more about it."""
        decision, workload = self.decision, self.workload
        came = float(workload.created) if workload else decision.at if decision else None
        yield "Submitted", came, ""
        if decision is not None:
            where = f"to {decision.option} in {decision.queue}" if decision.option else "left alone"
            words = f"{where}, by {decision.recorded.policy}: {decision.recorded.reason}"
            # A move is a decision, too, and takes the time of the first one.
            yield "Decided", came if decision.moves else decision.at, words
            for move in decision.moves:
                yield "Moved", move.unix, f"to {move.option}: {move.reason}"
        if workload is not None:
            yield "Quota", float(workload.reserved_at) or None, self._quota(workload)
            ready = float(workload.run.ready) or None if workload.run else None
            took = _between(self.admitted, ready)
            waited = f"{span(took)} after its admission" if took is not None else ""
            yield "Pods ready", ready, waited or ("all of them" if workload.has_ready_pods else "")
            yield "End", self.ended, self._end()

    @property
    def compared(self) -> Iterator[tuple[str, str, str]]:
        """Yield what is compared, as it was forecast for the option taken, and as it was.

        What is not known is empty.
        """
        decision = self.decision
        options = decision.recorded.options if decision else ()
        option = next((each for each in options if decision and each.name == decision.option), None)
        if decision is None or option is None:
            return
        rows = (
            ("Starts after", option.starts_in, _between(decision.at, self.admitted)),
            ("Runs", option.runs, _between(self.admitted, self.ended)),
            ("Done after", option.finishes_in, _between(decision.at, self.ended)),
        )
        for what, forecast, truth in rows:
            yield what, _words(forecast), _words(truth)
        if options[0].name != option.name:
            instead = _words(options[0].finishes_in)
            yield f"Done after, in {options[0].name} instead", instead, ""

    def _quota(self, workload: Workload) -> str:
        line = self.line
        if workload.reserved_at:
            flavors = f" on {workload.flavors.replace(',', ', ')}" if workload.flavors else ""
            return f"in {workload.cluster_queue}{flavors}"
        if line is None:
            return "it has none"
        within = f", within {line.start.range_words}" if line.start.range_words else ""
        place = f"{line.position} of {line.pending} who wait in {line.cluster_queue}"
        return f"{place}; starts {line.start.words}{within}"

    def _end(self) -> str:
        if self.state not in ("succeeded", "over"):
            return ""
        if self.ended is None:
            return "over; when is not known"
        return "succeeded" if self.state == "succeeded" else "failed"


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
    lines = (each for each in view.waiting or () if each.workload.job == job)
    return JobStory(
        namespace=namespace,
        job=job,
        decision=decision,
        workload=workloads[-1] if workloads else None,
        line=next((each for each in lines if each.workload.namespace == namespace), None),
        is_searched=workloads is not None,
    )


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else max(0.0, end - start)


def _words(seconds: float | None) -> str:
    return "" if seconds is None else phrases.duration(seconds)
