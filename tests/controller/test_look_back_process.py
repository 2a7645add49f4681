"""The process that looks back: what it is told and tells, and how it ends."""

import json
import os
import resource
import signal
import subprocess
import sys

import pytest

from tests.commands.apiserver import serving
from tests.hindsight.journal_server import OURS, STATIC, UNIX, Server, answering, world
from webhook.api.kubernetes_api import ClusterError
from webhook.controller import look_back_process
from webhook.controller.look_back_process import LookBackError, run, saved
from webhook.hindsight.look_back import LookBackInput
from webhook.hindsight.savings_record import config_map, read_savings
from webhook.model.policy.fallback_policy import Mode


def told():
    return OURS, LookBackInput(snapshot=world(Mode.OBSERVE), now=UNIX)


def program(text):
    return [sys.executable, "-c", f"import sys; sys.stdin.buffer.read(); {text}"]


def test_it_tells_what_was_saved_as_this_process_would(tmp_path):
    server = Server(STATIC)
    server.writes.clear()
    with serving(answering(server), tmp_path) as kubeconfig:
        packed = run(str(kubeconfig), *told())

    assert read_savings(config_map(packed)) == read_savings(config_map(saved(*told(), server)))
    assert server.writes == []


def test_what_the_api_server_refuses_is_an_error_of_the_cluster(tmp_path):
    server = Server(STATIC)
    server.refuses = True
    with (
        serving(answering(server), tmp_path) as kubeconfig,
        pytest.raises(ClusterError, match="you may not get configmaps"),
    ):
        run(str(kubeconfig), *told())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sys.exit(3)", "its process ended with 3"),
        ("import os; os.kill(os.getpid(), 9)", "its process ended with -9"),
        ("print('no JSON')", "its process gave no answer"),
        ("print('[]')", "its process gave no answer"),
        ("print('{}')", "its process gave no answer"),
        ("print('{\"saved\": 1}')", "its process gave no answer"),
    ],
)
def test_whatever_becomes_of_it_is_an_error_that_says_so(text, message):
    with pytest.raises(LookBackError) as error:
        run("", *told(), command=program(text))

    assert str(error.value) == message


def test_one_that_takes_too_long_is_killed():
    with pytest.raises(LookBackError) as error:
        run("", *told(), command=program("sys.stdin.close(); input()"), longest_seconds=0)

    assert str(error.value) == "it took longer than 0 s"


@pytest.mark.parametrize("error", [RuntimeError, RecursionError, ZeroDivisionError, MemoryError])
def test_a_failure_is_named_by_its_place_and_never_by_its_text(monkeypatch, capsys, error):
    def fail(*_, **__):
        raise error("s3cret")

    monkeypatch.setattr(look_back_process, "saved", fail)
    said = look_back_process.look_back_answer(*told(), Server(STATIC))

    is_memory = error is MemoryError
    words = "it needs more memory than it may have" if is_memory else f"{error.__name__} at "
    assert said["failed"].startswith(words)
    assert "s3cret" not in json.dumps(said)


LIMITED = """
import os, resource, signal
from webhook.controller import look_back_process
look_back_process.limit_process()
print(resource.getrlimit(resource.RLIMIT_DATA)[0], signal.alarm(0), os.nice(0))
try:
    bytearray(400 << 20)
except MemoryError:
    print("refused")
"""


def test_it_is_bounded_in_memory_and_time_and_gives_way():
    found = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True
    )

    niceness = min(19, os.nice(0) + look_back_process.NICENESS)
    limits = (look_back_process.MOST_MEMORY, int(look_back_process.LONGEST_SECONDS), niceness)
    assert found.stdout == " ".join(map(str, limits)) + "\nrefused\n"
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] != look_back_process.MOST_MEMORY


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does it on Linux alone")
def test_it_ends_with_its_parent_even_while_it_works():
    child = """
from webhook.controller import look_back_process
look_back_process.limit_process()
print(1, flush=True)
while True: pass
"""
    parent = f"""
import subprocess, sys
subprocess.Popen([sys.executable, "-c", {child!r}])
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"1\n"
        process.send_signal(signal.SIGKILL)

        # Both hold the pipe's other end: it closes when neither is there any more.
        assert process.stdout.read() == b""
