"""What ends the observer, and what does not."""

import pickle
import queue
import threading
from multiprocessing import Pipe
from types import SimpleNamespace

import pytest

from tests.state.feeds import synced_feed
from webhook.api.clock import ClockOffset
from webhook.api.watch import WatchUpdate
from webhook.model.faults import Failures
from webhook.observer import process
from webhook.state.signing_keys import KeyRing


@pytest.fixture
def raised(monkeypatch, capsys):
    """Let an error escape from a thread of a name; return with what the process would end."""
    ended = []

    def raise_in(name):
        def fail():
            raise RuntimeError("gone wrong")

        thread = threading.Thread(target=fail, name=name)
        thread.start()
        thread.join()
        return ended, capsys.readouterr().err

    monkeypatch.setattr(threading, "excepthook", process.end_with)
    monkeypatch.setattr(process.os, "_exit", ended.append)
    return raise_in


def test_without_one_of_its_watches_it_ends_to_be_started_anew(raised):
    ended, told = raised("workloads")

    assert ended == [70]
    assert "RuntimeError: gone wrong" in told


def test_it_ends_though_nobody_can_be_told_why(raised, monkeypatch):
    monkeypatch.setattr(threading, "__excepthook__", lambda _: 1 / 0)

    ended, _ = raised("workloads")

    assert ended == [70]


@pytest.mark.parametrize("name", ["console", "console request", "console jobs"])
def test_it_goes_on_without_its_console(raised, name):
    ended, told = raised(name)

    assert ended == []
    assert "RuntimeError: gone wrong" in told


def test_lines_of_the_server_are_taken_over_and_its_end_is_the_observers(monkeypatch):
    ended, lines = [], []
    server, ours = Pipe()
    monkeypatch.setattr(process.os, "_exit", ended.append)
    server.send(["first", "second"])
    server.close()

    with ours:
        process.listen(ours, lines.extend)

    assert (lines, ended) == (["first", "second"], [0])


class Taker:
    """Takes a few updates, and then its end of the pipe is closed."""

    def __init__(self, most):
        self.left, self.updates, self.log = most, [], print

    def send(self, pickled):
        if not self.left:
            raise BrokenPipeError
        self.left -= 1
        self.updates.append(pickle.loads(pickled))


def published(feed, *, most, message=None):
    """Let the loop go round until the pipe closes."""
    lines, messages, pipe = [], queue.SimpleQueue(), Taker(most)
    if message is not None:
        messages.put(message)
    watching = process.Watching(
        feed=feed,
        forecaster=SimpleNamespace(offer=lambda *_: None, as_of=lambda now: now),
        workers=None,
        ring=KeyRing(),
        failures=Failures(lines.append),
        clock=ClockOffset(),
    )
    console = SimpleNamespace(offer=lambda *_: None)
    with pytest.raises(BrokenPipeError):
        process.publish(watching, messages, pipe, console=console, certificates=lambda: None)
    return pipe.updates, lines


def test_a_turn_that_fails_is_counted_and_told_and_the_next_carries_everything(monkeypatch):
    monkeypatch.setattr(process, "HEARTBEAT_SECONDS", 0.001)
    monkeypatch.setattr(process, "_freeze", lambda: None)
    feed, failing = synced_feed(), [RuntimeError("s3cret")]
    update = feed.update

    def sometimes(now, unix):
        found = update(now, unix)
        if failing:
            raise failing.pop()
        return found

    monkeypatch.setattr(feed, "update", sometimes)

    (failed, after), lines = published(feed, most=2)

    assert (failed.synced, failed.changed, failed.failures) == (False, {}, {"state": 1})
    assert after.synced
    assert {"cluster_queues", "policies"} <= after.changed.keys()
    assert lines[0].startswith("state: RuntimeError at ")
    assert "s3cret" not in lines[0]


def test_a_message_that_fails_costs_that_message(monkeypatch):
    monkeypatch.setattr(process, "HEARTBEAT_SECONDS", 0.001)
    monkeypatch.setattr(process, "_freeze", lambda: None)
    bad = WatchUpdate(kind="no such kind", at=1.0, entries=())

    (update,), lines = published(synced_feed(), most=1, message=bad)

    assert update.synced
    assert update.failures == {"messages": 1}
    assert lines[0].startswith("messages: KeyError at ")
