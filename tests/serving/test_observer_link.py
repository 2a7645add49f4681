"""The two ends of the pipe, with a child of few lines in the observer's place."""

import os
import queue
import subprocess
import sys
import threading
from functools import partial

import pytest

from hack.waiting import WAIT_SECONDS, wait_for
from webhook.serving.observer_link import ObserverLink, PipeWriter
from webhook.state.pipe import Update

CHILD = """
import sys
from webhook.state.pipe import Update, write_update
print("hello", file=sys.stderr, flush=True)
for number in range(2):
    write_update(sys.stdout.buffer, Update(changed={"generation": number}, as_of=float(number)))
"""


@pytest.fixture
def linked():
    links = []

    def start(program, **rest):
        updates, lines, starts = queue.SimpleQueue(), queue.SimpleQueue(), queue.SimpleQueue()
        command = [sys.executable, "-c", program]
        on_start = partial(starts.put, "start")
        link = ObserverLink(command, updates.put, lines.put, on_start=on_start, **rest)
        links.append(link)
        link.start()
        return updates, lines, starts, link

    yield start
    for link in links:
        link.stop()


def test_updates_and_log_lines_of_the_child_arrive(linked):
    updates, lines, _, _ = linked(CHILD + "sys.stdin.read()")

    assert updates.get(timeout=WAIT_SECONDS) == Update(changed={"generation": 0}, as_of=0.0)
    assert updates.get(timeout=WAIT_SECONDS) == Update(changed={"generation": 1}, as_of=1.0)
    assert lines.get(timeout=WAIT_SECONDS) == "hello"


def test_a_child_that_ends_is_started_again(linked):
    _, lines, starts, _ = linked(CHILD + "sys.exit(3)")

    found = [lines.get(timeout=WAIT_SECONDS) for _ in range(3)]

    assert found == ["hello", "the observer ended with 3; starting it again in 0.2 s", "hello"]
    assert [starts.get(timeout=WAIT_SECONDS) for _ in range(2)] == ["start", "start"]


def test_a_frame_cut_short_ends_the_child_and_another_begins(linked):
    cut = "import sys; sys.stdout.buffer.write(b'\\0\\0\\0\\xffab'); sys.stdout.buffer.flush()"

    _, lines, _, _ = linked(cut)

    assert lines.get(timeout=WAIT_SECONDS).startswith("the observer ended with ")


def test_stopping_ends_the_child(linked):
    updates, _, _, link = linked(CHILD + "sys.stdin.read()")
    updates.get(timeout=WAIT_SECONDS)

    link.stop()

    assert link.pid is None


def test_lines_reach_the_child(linked):
    _, lines, _, link = linked("import sys; print(sys.stdin.readline().strip(), file=sys.stderr)")

    # The child that is told first may have ended before it could read.
    wait_for(lambda: link.tell(b"a line") or not lines.empty(), "a child says the line")

    assert lines.get() == "a line"


def test_a_full_pipe_drops_lines_and_cuts_none():
    read_end, write_end = os.pipe()
    lines = PipeWriter(write_end)
    sent = [str(number).encode() * 1000 for number in range(100, 400)]

    for line in sent:
        lines.put(line)
    received = os.read(read_end, 1 << 20)
    for line in sent:
        lines.put(line)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as rest:
        received += rest.read()

    *whole, last = received.split(b"\n")
    assert set(whole) <= set(sent)
    assert last in (b"", *(line[: len(last)] for line in sent))
    assert len(sent) > len(whole) > 10


def test_a_child_that_says_nothing_is_killed_and_another_begins(linked):
    hangs = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass"

    _, lines, starts, _ = linked(hangs, silent_seconds=0.5)

    found = [lines.get(timeout=WAIT_SECONDS) for _ in range(2)]
    assert found[0] == "the observer has been silent for 0 s"
    assert found[1] == "the observer ended with -9; starting it again in 0.2 s"
    assert [starts.get(timeout=WAIT_SECONDS) for _ in range(2)] == ["start", "start"]


def test_a_child_is_not_silent_while_what_it_said_is_taken_over():
    taken, going_on, lines = threading.Event(), threading.Event(), queue.SimpleQueue()

    def take(update):
        taken.set()
        going_on.wait(WAIT_SECONDS)

    command = [sys.executable, "-c", CHILD + "sys.stdin.read()"]
    link = ObserverLink(command, take, lines.put, silent_seconds=WAIT_SECONDS)
    link.start()
    taken.wait(WAIT_SECONDS)

    assert link.silent_for() == 0.0
    going_on.set()
    link.stop()


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
