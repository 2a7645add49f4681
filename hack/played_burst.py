"""The burst of the paper's experiment, live: three ways to decide at once, each in its own queues.

Then what a user would type next: `explain` of a Job that was moved, `report`, and an `undo`.
"""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final

from bench.experiment import objects
from bench.experiment.arms import NONE, Arm, Comparison, scenario_of
from bench.experiment.course import Course, as_result
from bench.experiment.figures import figures
from bench.experiment.play import Audience, Site, play
from hack.install import ROOT, Installation
from hack.live import View
from hack.paper import KUEUE
from hack.plane import Plane
from hack.waiting import wait_for
from webhook.decide.wishes import ALLOW
from webhook.learn.workload_runs import is_finished
from webhook.simulate import plot
from webhook.simulate.results import Result

SCENARIO: Final = "burst"
RULE: Final = Arm(key="rule", title="the paper's rule", strategy="Threshold")
MOVES: Final = Arm(
    key="moves", title="FinishTime, reconsidered", strategy="FinishTime", reconsiders=True
)
BURST: Final = Comparison(scenarios=(SCENARIO,), arms=(NONE, RULE, MOVES))
TITLES: Final = {NONE.key: "no policy", RULE.key: RULE.title, MOVES.key: MOVES.title}
CPU_PLACES: Final = 6
"""So many of its Jobs run in the CPU queue at once."""
SLOWER: Final = 0.1
COLUMNS: Final = "100"
_NOW: Final = "If you submitted it again now:"
"""What `explain` says after this is of queues that are empty by then."""

# By key of an arm.
Played = Mapping[str, Sequence[Course]]


class DemoError(Exception):
    """A command did not end well; the text says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast it is played."""

    faster: float
    """Divides all times of the paper's experiment."""
    stagger_seconds: float
    """As in ``Site``."""


def play_on(installation: Installation, pace: Pace, *, picture: Path) -> None:
    """Play it where this project is installed; leave the queues and policies of each way."""
    plane, began = installation.plane, time.monotonic()
    print(
        "\n15 heavy and 15 light Jobs come at once, to 4 GPUs; beside them 6 Jobs fit on CPUs.\n"
        f"Times are 1/{pace.faster:g} of the paper's experiment's. "
        f"The page: {installation.endpoints['console']}/\n",
        flush=True,
    )

    def look(played: Played) -> None:
        _tell(played)
        _wait_until_noted(plane)
        _explain(plane, played[MOVES.key])
        # More than since the first Job came, as it takes a moment to ask.
        since = f"{2 * (time.monotonic() - began):.0f}s"
        _type(plane, f"report -n {objects.namespace_of(MOVES)} --since {since}")
        _undo(plane)

    rounds = play(
        Site(plane, stagger_seconds=pace.stagger_seconds),
        BURST,
        rounds=1,
        time_scale=pace.faster,
        audience=Audience(say=lambda _: None, show=View(TITLES).show, look=look),
    )
    (played,) = rounds[SCENARIO]
    _draw(played, picture, pace.faster)
    print(f"\nThe same as a picture, warm where Jobs were moved: {picture}")


def _tell(played: Played) -> None:
    """Print what each arm took, and what the last one saved."""
    found = {key: figures(courses) for key, courses in played.items()}
    without, width = found[NONE.key].makespan, max(map(len, TITLES.values()))
    print(f"\n{'':{width}}  all done after   saved   a Job takes   moved")
    for key, title in TITLES.items():
        own = found[key]
        saved = "-" if key == NONE.key else f"{100 * (1 - own.makespan / without):.0f} %"
        print(
            f"{title:{width}}  {own.makespan:12.0f} s  {saved:>6}"
            f"  {own.turnaround:10.0f} s  {len(own.moved):6}"
        )
    sys.stdout.flush()


def _explain(plane: Plane, courses: Sequence[Course]) -> None:
    """Show why the first Job went elsewhere when it came, or else that one was moved later."""
    moved = [course for course in courses if course.queue != course.submitted_to]
    at_once = [course for course in moved if course.starts_in is not None]
    for course in (at_once or moved)[:1]:
        _type(plane, f"explain {course.name} -n {objects.namespace_of(MOVES)}", until=_NOW)


def _undo(plane: Plane) -> None:
    """Let one Job more than there are places go to the CPU queue, and put back the one that waits.

    Their pods run for minutes, as this may take its time on a busy machine.
    """
    scenario = scenario_of(SCENARIO, MOVES).faster(SLOWER)
    light = next(each for each in scenario.submissions if each.template == "light")
    for number in range(CPU_PLACES + 1):
        job = objects.job(scenario, light, MOVES, round_name=f"undo-{number}")
        job["metadata"]["annotations"] = {ALLOW: "cpu"}
        plane.client.create(job)
    name = _one_that_waits(plane)
    _type(plane, f"undo {name} -n {objects.namespace_of(MOVES)}")


def _one_that_waits(plane: Plane) -> str:
    def found() -> str | None:
        jobs = plane.client.list("batch/v1", "Job", namespace=objects.namespace_of(MOVES))
        new = [job for job in jobs if job["metadata"]["name"].startswith("undo-")]
        waiting = [str(job["metadata"]["name"]) for job in new if job["spec"].get("suspend")]
        return waiting[0] if len(waiting) == 1 else None

    return wait_for(found, "one Job waits for a CPU")


def _wait_until_noted(plane: Plane) -> None:
    """Wait until Kueue has noted the ends of all Jobs, of which the report tells."""
    namespace = objects.namespace_of(MOVES)

    def are_noted() -> bool:
        workloads = plane.client.list(KUEUE, "Workload", namespace=namespace)
        return all(map(is_finished, workloads))

    wait_for(are_noted, "all Workloads are finished")


def _type(plane: Plane, text: str, *, until: str = "") -> None:
    """Run a command as a user would, and print it with what it says up to a line."""
    print(f"\n$ kubectl fallback {text}", flush=True)
    command = [sys.executable, "-m", "webhook", *shlex.split(text)]
    done = subprocess.run(
        [*command, "--kubeconfig", str(plane.kubeconfig)],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": COLUMNS},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    lines = takewhile(lambda line: line != until or not until, done.stdout.splitlines())
    print("\n".join(lines).rstrip(), flush=True)
    if done.returncode:
        raise DemoError(f"kubectl fallback {text} ended with {done.returncode}")


def _draw(played: Played, picture: Path, faster: float) -> None:
    results = [
        Result(strategy=title, jobs=tuple(map(as_result, played[key])))
        for key, title in TITLES.items()
    ]
    plot.draw(results, str(picture), title=f"Burst, live, {faster:g} times as fast")
