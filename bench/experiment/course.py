"""One Job's way through a round, and what is read off the Job for it. Pure."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Final

from webhook.model.job import DECISION
from webhook.simulate.results import JobResult, LostRun

Object = Mapping[str, Any]
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Times in seconds since the round began; what is None has not been seen."""

    name: str
    template: str
    submitted_to: str
    # When it should have been created.
    due: float
    created: float | None = None
    queue: str = ""
    option: str = ""
    # Forecast at its creation for the option taken: seconds from then.
    starts_in: float | None = None
    started: float | None = None
    finished: float | None = None
    # What its pod is told to run.
    run_seconds: float = 0.0
    failed: bool = False
    # Runs that a preemption ended.
    lost: tuple[LostRun, ...] = ()

    @property
    def is_over(self) -> bool:
        return self.created is not None and self.finished is not None

    @property
    def wait_seconds(self) -> float | None:
        if self.started is None or self.created is None:
            return None
        return self.started - self.created

    @property
    def overhead_seconds(self) -> float | None:
        """How much longer it held its quota than its pod ran."""
        if self.started is None or self.finished is None:
            return None
        return self.finished - self.started - self.run_seconds


def decided(job: Object) -> tuple[str, float | None]:
    """Return the option taken and when it was forecast to start there, in seconds."""
    text = job["metadata"].get("annotations", {}).get(DECISION)
    if text is None:
        return "", None
    decision = json.loads(text)
    taken = decision.get("option") or ""
    options = (each for each in decision.get("options", ()) if each["name"] == taken)
    starts_in = next((each.get("startsIn") for each in options), None)
    return taken, None if starts_in is None else float(starts_in)


def seen(course: Course, job: Object, now: float) -> Course:
    """Return what is known after this sight of the Job.

    The Job's own time stamps have whole seconds only.
    """
    started, finished = course.started, course.finished
    status = job.get("status", {})
    lost = course.lost
    if job["spec"].get("suspend"):
        # Preempted, if it was started: what counts is its last start.
        if started is not None:
            lost = (*lost, LostRun(course.queue, started, now))
        started = None
    elif started is None and status.get("startTime"):
        started = now
    ended = [each["type"] for each in status.get("conditions", ()) if each["status"] == "True"]
    failed = course.failed or "Failed" in ended
    if finished is None and ("Complete" in ended or failed):
        finished = now
    queue = job["metadata"].get("labels", {}).get(QUEUE_LABEL, "")
    return dataclasses.replace(
        course, queue=queue, started=started, finished=finished, failed=failed, lost=lost
    )


def as_result(course: Course) -> JobResult:
    """Let what really happened be drawn and summed like a replay."""
    return JobResult(
        name=course.name,
        template=course.template,
        arrival=course.due if course.created is None else course.created,
        submitted=course.submitted_to,
        queue=course.queue,
        option=course.option,
        start=course.started,
        finish=course.finished,
        preempted=len(course.lost),
        lost=course.lost,
    )
