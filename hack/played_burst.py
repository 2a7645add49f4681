"""The published experiment's burst, live: three ways to decide at once, each in its own queues.

Then what a user would type next: `explain` of a Job that was moved, `report`, and an `undo`.
"""

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Final

from bench.experiment import objects
from bench.experiment.arms import NONE, Arm, Comparison, scenario_of
from bench.experiment.course import Course, as_result
from bench.experiment.figures import figures
from bench.experiment.play import Audience, Site, play
from bench.experiment.rounds import RoundError
from hack.controlplane import ControlPlane
from hack.install import PATIENT, ROOT, Installation
from hack.live import View
from hack.plane import NotReadyError, Plane
from webhook.decide.match import ALLOW
from webhook.simulate import plot
from webhook.simulate.results import Result

SCENARIO: Final = "burst"
RULE: Final = Arm(key="rule", title="the published rule", strategy="Threshold")
MOVES: Final = Arm(
    key="moves", title="FinishTime, reconsidered", strategy="FinishTime", reconsiders=True
)
BURST: Final = Comparison(scenarios=(SCENARIO,), arms=(NONE, RULE, MOVES))
TITLES: Final = {NONE.key: "no policy", RULE.key: RULE.title, MOVES.key: MOVES.title}
CPU_PLACES: Final = 6
"""So many of its Jobs run in the CPU queue at once."""
WAIT_SECONDS: Final = 120.0
SLOWER: Final = 0.1
COLUMNS: Final = "100"
_NOW: Final = "If you submitted it again now:"
"""What `explain` says after this is of queues that are empty by then."""

# By key of an arm.
Played = Mapping[str, Sequence[Course]]


class DemoError(Exception):
    """Something does not come, or a command does not end well; the text says what."""


def show(*, faster: float, picture: Path) -> int:
    """Play it on a control plane of its own, and return what the program ends with."""
    try:
        with tempfile.TemporaryDirectory(prefix="kueue-fallback-demo-") as folder:
            print("\nNow live. Programs that are not there yet are built first.", flush=True)
            plane = ControlPlane(Path(folder), report=_starting)
            with plane, Installation(plane, chart_values=PATIENT) as installation:
                play_on(installation, faster=faster, picture=picture)
    except (DemoError, NotReadyError, RoundError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 3
    return 0


def _starting(what: str) -> None:
    print(f"starting {what}", flush=True)


def play_on(installation: Installation, *, faster: float, picture: Path) -> None:
    """Play it where this project is installed; leave the queues and policies of each way."""
    plane, began = installation.plane, time.monotonic()
    print(
        "\n15 heavy and 15 light Jobs come at once, to 4 GPUs; beside them 6 Jobs fit on CPUs.\n"
        f"Times are 1/{faster:g} of the published experiment's. "
        f"The page: {installation.endpoints['console']}/\n",
        flush=True,
    )

    def look(played: Played) -> None:
        _tell(played)
        since = f"{time.monotonic() - began:.0f}s"
        _explain(plane, played[MOVES.key])
        _type(plane, f"report -n {objects.namespace_of(MOVES)} --since {since}")
        _undo(plane)

    outcome = play(
        Site(plane),
        BURST,
        rounds=1,
        time_scale=faster,
        audience=Audience(say=lambda _: None, show=View(TITLES).show, look=look),
    )
    (played,) = outcome.rounds[SCENARIO]
    _draw(played, picture, faster)
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
    namespace, deadline = objects.namespace_of(MOVES), time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        jobs = plane.client.list("batch/v1", "Job", namespace=namespace)
        new = [job for job in jobs if job["metadata"]["name"].startswith("undo-")]
        waiting = [job["metadata"]["name"] for job in new if job["spec"].get("suspend")]
        if len(waiting) == 1:
            return str(waiting[0])
        time.sleep(0.2)
    raise DemoError(f"{len(waiting)} Jobs wait for a CPU, and not one")


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
