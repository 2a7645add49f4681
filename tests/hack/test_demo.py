"""What `make demo` says first, and what it shows while Jobs run."""

import re
import subprocess
import sys

from bench.experiment.course import Course
from hack import demo, live
from hack.install import ROOT


def course(queue="gpu-lq", **given):
    known = {"name": "light-1", "template": "light", "submitted_to": "gpu-lq", "due": 0.0}
    return Course(**known, queue=queue, **given)


def test_the_number_is_what_the_readme_shows_and_runs():
    shown = (ROOT / "README.md").read_text()
    (static,) = re.findall(r"^static +\S+ +- +(\S+)", shown, re.MULTILINE)
    (finish,) = re.findall(r"^FinishTime +\S+ +\S+ % +(\d+)m(\d+)s", shown, re.MULTILINE)

    minutes = round(int(finish[0]) + int(finish[1]) / 60)
    assert f": {static} each as they are submitted, {minutes}m with one policy." in demo.HEADLINE
    picture = re.findall(r"docs/\S+\.png", demo.HEADLINE)
    assert [(ROOT / each).is_file() for each in picture] == [True]


def test_nothing_is_imported_before_the_number_that_takes_time_to_import():
    text = "import sys, hack.demo; print(sorted({'bench', 'webhook', 'yaml'} & set(sys.modules)))"

    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, cwd=ROOT
    )

    assert done.stdout == "[]\n"


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
    assert [line.split()[0] for line in printed if "runs" in line] == ["0", "10"]
