"""The two ends of the pipe, with a child of few lines in the observer's place."""

import io
import os
import queue
import sys
import threading

import pytest

from webhook.cluster.link import Lines, ObserverLink
from webhook.cluster.pipe import Update, apply_update, read_update, write_update
from webhook.cluster.seen import Seen
from webhook.model.queues import Snapshot

WAIT_SECONDS = 30.0
CHILD = """
import sys
from webhook.cluster.pipe import Update, write_update
print("hello", file=sys.stderr, flush=True)
for number in range(2):
    write_update(sys.stdout.buffer, Update(changed={"generation": number}, as_of=float(number)))
"""


@pytest.fixture
def linked():
    links = []

    def start(program):
        updates, lines, starts = queue.SimpleQueue(), queue.SimpleQueue(), queue.SimpleQueue()
        command = [sys.executable, "-c", program]
        link = ObserverLink(command, updates.put, lines.put, on_start=lambda: starts.put("start"))
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


def test_an_update_goes_through_the_pipe_whole():
    update = Update(changed={"generation": 3}, seen=(Seen("d1"),), as_of=5.0, synced=True)
    stream = io.BytesIO()

    write_update(stream, update)
    write_update(stream, Update())
    stream.seek(0)

    assert [read_update(stream) for _ in range(3)] == [update, Update(), None]
    assert apply_update(Snapshot(), update) == Snapshot(generation=3, as_of=5.0)


def test_a_program_that_cannot_be_started_is_tried_again():
    lines = queue.SimpleQueue()
    link = ObserverLink(["/nowhere/observer"], lambda _: None, lines.put)
    link.start()

    found = [lines.get(timeout=WAIT_SECONDS) for _ in range(2)]
    link.stop()

    assert [line.partition(";")[0] for line in found] == [
        "the observer cannot be run: [Errno 2] No such file or directory: '/nowhere/observer'"
    ] * 2


def test_lines_reach_the_child(linked):
    _, lines, _, link = linked("import sys; print(sys.stdin.readline().strip(), file=sys.stderr)")

    told = threading.Event()

    def tell():
        while not told.wait(0.01):
            link.tell(b"a line")

    teller = threading.Thread(target=tell)
    teller.start()
    try:
        # Another child may have been told before.
        assert lines.get(timeout=WAIT_SECONDS) == "a line"
    finally:
        told.set()
        teller.join()


def test_without_a_child_lines_go_nowhere():
    link = ObserverLink(["false"], lambda _: None, lambda _: None)

    link.tell(b"a line")

    assert link.pid is None


def test_a_full_pipe_drops_lines_and_cuts_none():
    read_end, write_end = os.pipe()
    lines = Lines(write_end)
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


def test_a_pipe_that_nobody_reads_any_more_is_no_error():
    read_end, write_end = os.pipe()
    os.close(read_end)
    lines = Lines(write_end)

    lines.put(b"a line")
    lines.put(b"another")

    with pytest.raises(BrokenPipeError):
        os.write(write_end, b"x")
    os.close(write_end)
