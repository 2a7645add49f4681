"""The two ends of the pipe, with a child of few lines in the observer's place."""

import queue
import subprocess
import sys
from functools import partial

import pytest

from hack.waiting import WAIT_SECONDS, wait_for
from webhook.serving.observer_link import ObserverLink
from webhook.state.pipe import Update

CHILD = """
import sys, time
from multiprocessing.connection import Connection
from webhook.state.pipe import Update
pipe = Connection(int(sys.argv[-1]))
"""
SAYS = """
pipe.send({"msg": "hello"})
for number in range(2):
    pipe.send(Update(changed={"generation": number}, as_of=float(number)))
"""


@pytest.fixture
def linked():
    links = []

    def start(program, **rest):
        updates, lines, starts = queue.SimpleQueue(), queue.SimpleQueue(), queue.SimpleQueue()
        command = [sys.executable, "-c", CHILD + program]
        on_start = partial(starts.put, "start")
        link = ObserverLink(
            command, updates.put, lambda line: lines.put(line["msg"]), on_start=on_start, **rest
        )
        links.append(link)
        link.start()
        return updates, lines, starts, link

    yield start
    for link in links:
        link.stop()


def test_updates_and_log_lines_of_the_child_arrive(linked):
    updates, lines, _, _ = linked(SAYS + "pipe.recv()")

    assert updates.get(timeout=WAIT_SECONDS) == Update(changed={"generation": 0}, as_of=0.0)
    assert updates.get(timeout=WAIT_SECONDS) == Update(changed={"generation": 1}, as_of=1.0)
    assert lines.get(timeout=WAIT_SECONDS) == "hello"


def test_a_child_that_ends_is_started_again(linked):
    _, lines, starts, _ = linked(SAYS + "sys.exit(3)")

    found = [lines.get(timeout=WAIT_SECONDS) for _ in range(3)]

    assert found == ["hello", "the observer ended with 3; starting it again in 0.2 s", "hello"]
    assert [starts.get(timeout=WAIT_SECONDS) for _ in range(2)] == ["start", "start"]


@pytest.mark.parametrize("cut", [b"\\0\\0\\0\\xffab", b"\\0\\0\\0\\2ab"])
def test_a_message_cut_short_ends_the_child_and_another_begins(linked, cut):
    _, lines, _, _ = linked(f"import os; os.write(pipe.fileno(), b'{cut.decode()}')")

    assert lines.get(timeout=WAIT_SECONDS).startswith("the observer ended with ")


def test_stopping_ends_the_child(linked):
    updates, _, _, link = linked(SAYS + "pipe.recv()")
    updates.get(timeout=WAIT_SECONDS)

    link.stop()

    assert link.pid is None


def test_lines_reach_the_child(linked):
    _, lines, _, link = linked('pipe.send({"msg": pipe.recv()[0]})')

    # The child that is told first may have ended before it could read.
    wait_for(lambda: link.tell(["a line"]) or not lines.empty(), "a child says the line")

    assert lines.get() == "a line"


def test_lines_that_the_child_does_not_take_are_dropped_and_nobody_waits(linked, tmp_path):
    go = tmp_path / "go"
    _, lines, _, link = linked(f"""
from pathlib import Path
pipe.send({{"msg": "here"}})
while not Path({str(go)!r}).exists():
    time.sleep(0.01)
while True:
    pipe.send({{"msg": pipe.recv()[0][:3]}})
""")
    lines.get(timeout=WAIT_SECONDS)
    sent = [f"{number:03} {'x' * 100_000}" for number in range(400)]

    for line in sent:
        link.tell([line])
    go.touch()
    taken = []
    while "end" not in taken:
        link.tell(["end"])
        taken.append(lines.get(timeout=WAIT_SECONDS))

    count = taken.index("end")
    assert taken[:count] == [line[:3] for line in sent[:count]]
    assert 0 < count < len(sent)


def test_a_child_that_says_nothing_is_killed_and_another_begins(linked):
    hangs = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass"

    _, lines, starts, _ = linked(hangs, silent_seconds=0.5)

    found = [lines.get(timeout=WAIT_SECONDS) for _ in range(2)]
    assert found[0] == "the observer has been silent for 0 s"
    assert found[1] == "the observer ended with -9; starting it again in 0.2 s"
    assert [starts.get(timeout=WAIT_SECONDS) for _ in range(2)] == ["start", "start"]


def test_one_that_hangs_in_the_middle_of_a_message_is_killed_too(linked):
    _, lines, _, _ = linked(
        "import os; os.write(pipe.fileno(), b'\\0\\0\\0\\xffab'); time.sleep(1000)",
        silent_seconds=0.5,
    )

    assert lines.get(timeout=WAIT_SECONDS) == "the observer has been silent for 0 s"


def test_starts_within_the_last_minute_are_told_without_the_first_of_all():
    notices = queue.SimpleQueue()
    link = ObserverLink(
        [sys.executable, "-c", ""], print, lambda _: None, lambda: notices.put(link.notice())
    )
    link.start()
    found = [notices.get(timeout=WAIT_SECONDS) for _ in range(3)]
    link.stop()

    text = "the observer was started again {} within a minute"
    assert found == ["", text.format("once"), text.format("2 times")]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does it on Linux alone")
def test_an_observer_that_goes_round_in_circles_ends_with_its_server():
    child = (
        "from webhook.server.lifecycle import end_with_parent as end; end(); print(1, flush=True)"
    )
    server = f"""
import subprocess, sys, threading
subprocess.Popen([sys.executable, "-c", {child + chr(10) + "while True: pass"!r}])
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", server], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"1\n"
        process.kill()

        # Both hold the pipe's other end: it closes when neither is there any more.
        assert process.stdout.read() == b""
