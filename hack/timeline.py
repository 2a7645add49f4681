"""When each Job of a run was submitted, started and finished, and what follows from that.

Pure but for `draw`, which writes a picture.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
REASON: Final = "kueue-fallback.dev/reason"
COLOURS: Final = {"heavy": "#2b5b84", "light": "#7fb3d5", "light, on CPU": "#e59866"}
WAITING_COLOUR: Final = "#e5e7e9"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One Job's way through a run; seconds since the run's first submission."""

    name: str
    queue: str
    submitted: float
    started: float | None = None
    finished: float | None = None
    reason: str = ""

    @property
    def is_heavy(self) -> bool:
        return self.name.startswith("heavy")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run that is over: its title and all Jobs, in order of submission."""

    title: str
    courses: tuple[Course, ...]

    @property
    def makespan_seconds(self) -> float:
        """From the first submission to the last completion."""
        return max(course.finished or 0.0 for course in self.courses)

    @property
    def turnaround_seconds(self) -> float:
        """From submission to completion, the mean over all Jobs."""
        spans = [(course.finished or 0.0) - course.submitted for course in self.courses]
        return sum(spans) / len(spans)

    def moved(self, queue: str) -> int:
        return sum(course.queue == queue for course in self.courses)


def read_course(job: Mapping[str, Any], before: Course | None, now: float) -> Course:
    """Return what is known of a Job after this sight of it, at `now`.

    The Job's own time stamps have whole seconds only, which is too coarse for shortened times.
    """
    metadata = job["metadata"]
    submitted = before.submitted if before else now
    started = before.started if before else None
    finished = before.finished if before else None
    if started is None and not job["spec"].get("suspend") and job["status"].get("startTime"):
        started = now
    if finished is None and _is_over(job):
        finished = now
    return Course(
        name=metadata["name"],
        queue=metadata.get("labels", {}).get(QUEUE_LABEL, ""),
        submitted=submitted,
        started=started,
        finished=finished,
        reason=metadata.get("annotations", {}).get(REASON, "").removeprefix("kueue-fallback: "),
    )


def since_first(run: Run) -> Run:
    """Return the run with all times counted from its first submission."""
    first = min(course.submitted for course in run.courses)
    return dataclasses.replace(
        run, courses=tuple(_earlier(course, first) for course in run.courses)
    )


def _earlier(course: Course, seconds: float) -> Course:
    return dataclasses.replace(
        course,
        submitted=course.submitted - seconds,
        started=None if course.started is None else course.started - seconds,
        finished=None if course.finished is None else course.finished - seconds,
    )


def _is_over(job: Mapping[str, Any]) -> bool:
    return any(
        condition["type"] in {"Complete", "Failed"} and condition["status"] == "True"
        for condition in job["status"].get("conditions", ())
    )


def draw(runs: Sequence[Run], path: Path, *, cpu_queue: str, faster: float) -> None:
    """Write one picture with a row for each run and a bar for each Job."""
    import matplotlib as mpl  # noqa: PLC0415 - a second that only the picture is worth

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415
    from matplotlib.patches import Patch  # noqa: PLC0415

    figure, axes = plt.subplots(
        len(runs),
        1,
        sharex=True,
        squeeze=False,
        figsize=(10, 4.2 * len(runs)),
        layout="constrained",
    )
    for axis, run in zip(axes[:, 0], runs, strict=True):
        for row, course in enumerate(run.courses):
            _draw_course(axis, row, course, cpu_queue)
        axis.axvline(run.makespan_seconds, color="black", linewidth=0.8, linestyle=":")
        axis.set_title(f"{run.title}: {run.makespan_seconds:.0f} s", loc="left")
        axis.set_ylabel("Jobs, in order of submission")
        axis.invert_yaxis()
    axes[-1, 0].set_xlabel(f"seconds (all times are 1/{faster:g} of the published experiment's)")
    patches = [Patch(color=WAITING_COLOUR, label="waiting")]
    patches += [Patch(color=colour, label=label) for label, colour in COLOURS.items()]
    figure.legend(handles=patches, loc="outside upper right", ncols=len(patches), frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw_course(axis: Any, row: int, course: Course, cpu_queue: str) -> None:
    finished = course.finished or course.submitted
    started = finished if course.started is None else course.started
    kind = "heavy" if course.is_heavy else "light"
    label = "light, on CPU" if course.queue == cpu_queue else kind
    axis.barh(row, started - course.submitted, left=course.submitted, color=WAITING_COLOUR)
    axis.barh(row, finished - started, left=started, color=COLOURS[label])
