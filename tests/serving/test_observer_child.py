"""A fork in the observer's place, made by a program of one thread as a worker of gunicorn is."""

import json
import subprocess
import sys

import pytest

SERVER = """
import json, os, signal, socket, sys
from webhook.serving.observer_child import ForkedChild

SECONDS = 30.0
port = socket.create_server(("127.0.0.1", 0))
woken, waker = os.pipe()
os.set_blocking(waker, False)
signal.set_wakeup_fd(waker)
signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGPIPE, signal.SIG_IGN)

def run():
    {run}

with ForkedChild(run) as child:
    {parent}
"""


def outcome(*, run, parent):
    """What the program prints: the parent is *parent*, its fork runs *run*."""
    program = SERVER.format(run="\n    ".join(run), parent="\n    ".join(parent))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return json.loads(done.stdout)


def test_it_has_three_pipes_and_nothing_else_of_its_parent():
    found = outcome(
        run=[
            "handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGPIPE)",
            "files = sorted(os.listdir('/proc/self/fd'))[:-1]",
            "print(json.dumps([files, handlers, signal.set_wakeup_fd(-1)]), flush=True)",
            "sys.stderr.write(sys.stdin.readline())",
            "sys.stderr.flush()",
            "sys.stdin.read()",
        ],
        parent=[
            "child.stdin.write(b'a line\\n')",
            "told = child.stderr.readline().decode()",
            "child.stdin.close()",
            "files, handlers, wakeup = json.loads(child.stdout.read())",
            "print(json.dumps([files, handlers, wakeup, told]))",
        ],
    )

    # Of handlers, only that a closed pipe is an error is kept.
    assert found == [["0", "1", "2"], [0, 1], -1, "a line\n"]


def test_an_error_ends_it_alone_and_is_told():
    code, after, told = outcome(
        run=["raise RuntimeError('gone wrong')"],
        parent=[
            "told = child.stderr.read().decode()",
            "print(json.dumps([child.wait(), child.poll(), told]))",
        ],
    )

    assert (code, after) == (70, 70)
    assert told.splitlines()[-1] == "RuntimeError: gone wrong"


def test_one_that_has_ended_is_sent_no_signal():
    found = outcome(
        run=["os._exit(3)"],
        parent=["code = child.wait()", "child.kill()", "print(json.dumps([code, child.wait()]))"],
    )

    assert found == [3, 3]


@pytest.mark.parametrize(("way", "code"), [("terminate", -15), ("kill", -9)])
def test_it_ends_when_it_is_asked_or_killed(way, code):
    found = outcome(
        run=["print('ready', flush=True)", "sys.stdin.read()"],
        parent=[
            "child.stdout.readline()",
            "before = child.poll()",
            f"child.{way}()",
            "print(json.dumps([before, child.wait()]))",
        ],
    )

    assert found == [None, code]
