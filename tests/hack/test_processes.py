"""Programs that die with their starter, and are found again by their mark."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hack.processes import MARK, Processes, Program, end_leftovers
from hack.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
# Says a word, then stays, with a child that stays too.
PARENT = "echo hello; sleep 600 & wait"


@pytest.fixture
def processes(tmp_path):
    running = Processes(tmp_path)
    yield running
    for name in running.names():
        running.kill(name)
    end_leftovers(tmp_path)


def _shell(name, script):
    return Program(name=name, command=["/bin/sh", "-c", script])


def _wait_for_word(processes, name, word="hello"):
    wait_for(lambda: word in processes.log(name).read_text(), f"{name} says {word}")


def test_a_killed_program_takes_its_children_along(processes, tmp_path):
    processes.run(_shell("one", PARENT))
    _wait_for_word(processes, "one")

    processes.kill("one")

    wait_for(lambda: end_leftovers(tmp_path) == 0, "no child is left")
    assert not processes.is_running("one")
    assert processes.died() == ()


def test_a_stopped_program_can_end_in_its_own_way_and_be_started_again(processes):
    processes.run(_shell("one", "trap 'echo bye; exit 0' TERM; echo hello; sleep 600 & wait"))
    _wait_for_word(processes, "one")

    processes.stop("one")
    processes.start("one")
    wait_for(lambda: processes.log("one").read_text().count("hello") == 2, "it says it again")

    assert processes.log("one").read_text().splitlines() == ["hello", "bye", "hello"]


def test_a_program_that_ended_by_itself_is_named(processes):
    processes.run(_shell("short", "exit 3"))

    wait_for(lambda: processes.died() == ("short",), "it ended")


def test_a_running_program_is_not_started_twice(processes):
    processes.run(_shell("one", PARENT))

    with pytest.raises(ValueError, match=r"^one is running already$"):
        processes.start("one")


def test_leftovers_of_one_folder_are_ended_and_those_of_another_stay(processes, tmp_path):
    other = subprocess.Popen(["sleep", "600"], env={**os.environ, MARK: f"{tmp_path}-other"})
    processes.run(_shell("one", PARENT))
    _wait_for_word(processes, "one")

    assert end_leftovers(tmp_path) == 2

    assert other.poll() is None
    other.kill()
    other.wait()


def test_programs_die_with_a_killed_starter(tmp_path):
    script = (
        "import pathlib, sys, time\n"
        "from hack.processes import Processes, Program\n"
        "p = Processes(pathlib.Path(sys.argv[1]))\n"
        "p.run(Program(name='one', command=['/bin/sleep', '600']))\n"
        "print(p.pid('one'), flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as starter:
        pid = starter.stdout.readline().strip()

        starter.send_signal(signal.SIGKILL)

    wait_for(lambda: not Path("/proc", pid).exists(), "the program has ended")
