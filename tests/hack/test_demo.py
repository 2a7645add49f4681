"""`make demo`, whole but in a fraction of its time; and what it shows while Jobs run."""

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from subprocess import PIPE

import pytest

from bench.experiment.course import Course
from hack import live, played_burst
from hack.install import ROOT


def course(queue="gpu-lq", **given):
    known = {"name": "light-1", "template": "light", "submitted_to": "gpu-lq", "due": 0.0}
    return Course(**known, queue=queue, **given)


FASTER = 40
COMMAND = (sys.executable, "-m", "hack.demo", f"--faster={FASTER}")


@pytest.fixture
def elsewhere(tmp_path):
    """Return the environment of a demonstration whose files lie in a folder of the test."""
    return {**os.environ, "TMPDIR": str(tmp_path)}


def test_what_is_printed_is_what_was_played_and_nothing_of_it_is_left(elsewhere, tmp_path):
    picture = tmp_path / "demo.png"

    done = subprocess.run(
        [*COMMAND, f"--output={picture}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=elsewhere,
    )

    assert (done.returncode, done.stderr) == (0, "")
    rows = {title: row_of(title, done.stdout) for title in played_burst.TITLES.values()}
    without = rows.pop("no policy")
    assert (without.saved, without.moved) == (None, 0)
    for row in rows.values():
        assert row.saved == pytest.approx(
            100 * (1 - row.makespan / without.makespan), abs=rounded(row, without)
        )
    seen, moved = of_the_report(done.stdout)
    assert (seen, moved) == (JOBS, rows[played_burst.MOVES.title].moved)
    assert "How sure: a replay of what happened to 30 Jobs is off by" in done.stdout
    commands = [line.split()[3] for line in done.stdout.splitlines() if line.startswith("$ ")]
    assert commands == ["explain", "report", "undo"]
    assert "is as it was submitted, in LocalQueue gpu-lq." in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == [picture]


JOBS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    makespan: int
    saved: int | None
    moved: int


def row_of(title, printed):
    pattern = rf"^{title} +(\d+) s +(?:-|(-?\d+) %) +\d+ s +(\d+)$"
    (found,) = re.findall(pattern, printed, re.MULTILINE)
    makespan, saved, moved = found
    return Row(makespan=int(makespan), saved=int(saved) if saved else None, moved=int(moved))


def rounded(row, without):
    """Return by how much what is computed of rounded seconds may be off, in percent."""
    return 0.5 + 100 * 0.5 * (1 + row.makespan / without.makespan) / (without.makespan - 0.5)


def of_the_report(printed):
    """Return how many Jobs the report has seen, and how many of them were moved."""
    found = re.findall(r"^\w+-moves +experiment-moves +(\d+) +(\d+) ", printed, re.MULTILINE)
    return tuple(sum(map(int, column)) for column in zip(*found, strict=True))


def test_an_interrupt_leaves_nothing(elsewhere, tmp_path):
    with subprocess.Popen(
        COMMAND, stdout=PIPE, stderr=PIPE, text=True, cwd=ROOT, env=elsewhere
    ) as process:
        for line in process.stdout:
            if line.startswith("starting kueue-fallback"):
                break
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()

    assert (process.returncode, said) == (130, "\nInterrupted; nothing is left running.\n")
    assert list(tmp_path.iterdir()) == []


def test_a_line_for_each_arm_has_its_jobs_as_a_bar():
    played = {
        "static": [
            course(),
            course(created=1.0),
            course(created=1.0, started=2.0),
            course(created=1.0, started=2.0, finished=3.0),
        ],
        "moves": [
            course(created=1.0),
            course("cpu-lq", created=1.0),
            course("cpu-lq", created=1.0, started=2.0),
            course(created=1.0, started=2.0),
        ],
    }

    assert live.lines(played, {"static": "no policy", "moves": "moved"}, 4.0) == [
        "   4 s   # runs   + runs, moved   . waits",
        "  no policy  #.                               1 of 4 ended",
        "  moved      #+..                             0 of 4 ended",
    ]


def test_without_a_terminal_the_state_is_printed_now_and_then(capsys):
    view = live.View({"static": "no policy"})

    for now in (0.0, 1.0, live.PLAIN_EVERY_SECONDS):
        view.show({"static": [course()]}, now)

    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed if "runs" in line] == [
        "0",
        f"{live.PLAIN_EVERY_SECONDS:.0f}",
    ]
