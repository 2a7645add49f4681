"""When the leader looks back at the journal, and what becomes of what it finds."""

import queue
import threading
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from hack.waiting import WAIT_SECONDS
from tests.controller.fakes import AtOnce
from tests.controller.stepping import at
from tests.hindsight import journals
from tests.hindsight.journal_server import OURS, STATIC, UNIX, Server, world
from tests.state.objects import workload
from webhook.api.resources import SAVINGS
from webhook.controller import look_back_process, savings_publisher
from webhook.controller.look_back_process import LookBackError
from webhook.controller.savings_publisher import (
    AGAIN_SECONDS,
    PART,
    RETRY_SECONDS,
    SavingsPublisher,
)
from webhook.hindsight.look_back import look_back
from webhook.hindsight.savings_record import read_savings
from webhook.model.faults import Failures
from webhook.model.policy.fallback_policy import Mode
from webhook.state.run_records_reader import path_of
from webhook.state.snapshot import Snapshot

PLACE = f"{path_of(OURS)}/{SAVINGS}"
BEGAN = datetime.fromtimestamp(journals.BEGAN - 60, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Leader:
    """A publisher whose threads and processes run at once, in the thread that starts them."""

    def __init__(self, monkeypatch, server):
        self.server, self.leads, self.lines = server, True, []
        self.clock, self.slowly, self.meanwhile = 0.0, 0.0, lambda: None
        self.failures = Failures(self.lines.append)
        self.snapshot = world(Mode.OBSERVE)
        clock = SimpleNamespace(monotonic=lambda: self.clock, time=lambda: UNIX)
        monkeypatch.setattr(savings_publisher, "time", clock)
        monkeypatch.setattr(savings_publisher, "threading", SimpleNamespace(Thread=AtOnce))
        self.publisher = SavingsPublisher(
            server,
            OURS,
            is_leader=lambda: self.leads,
            failures=self.failures,
            look_back=self._look_back,
            journal_version=lambda: self.version,
        )

    def _look_back(self, namespace, world):
        saved = look_back_process.saved(namespace, world, self.server)
        self.clock += self.slowly
        self.meanwhile()
        return saved

    def looks(self, version=0, *, clock=None):
        """Step at a time; return whether the journal was read."""
        self.clock = self.clock if clock is None else clock
        self.server.reads.clear()
        self.step(version)
        return bool(self.server.reads)

    def step(self, version):
        self.version = version
        self.publisher.step(at(feed=SimpleNamespace(counted=self.snapshot)))

    @property
    def published(self):
        return read_savings(self.server.held[PLACE]) if PLACE in self.server.held else None


@pytest.fixture
def leader(monkeypatch):
    return Leader(monkeypatch, Server(STATIC))


def test_what_was_saved_is_published_and_replaced(leader):
    leader.looks(0)
    first = leader.published
    leader.looks(1, clock=AGAIN_SECONDS)

    assert first == leader.published
    assert (first.as_of, [each.jobs for each in first.gained]) == (UNIX, [15, 15])
    assert len(first.decisions) == 30
    assert leader.server.writes[-3:] == [("patch", SAVINGS), ("post", SAVINGS), ("patch", SAVINGS)]
    assert leader.lines == []


def test_nothing_is_replayed_again_before_the_journal_has_something_new(leader):
    found = [leader.looks(0), leader.looks(0, clock=10 * AGAIN_SECONDS), leader.looks(1)]

    assert found == [True, False, True]


def test_one_look_back_serves_for_minutes(leader):
    times = (0.0, 1.0, AGAIN_SECONDS - 1, AGAIN_SECONDS, AGAIN_SECONDS + 1)

    found = [leader.looks(number, clock=clock) for number, clock in enumerate(times)]

    assert found == [True, False, False, True, False]


def test_one_that_takes_long_is_made_seldom(leader):
    leader.slowly = 30.0
    leader.looks(0)
    took = leader.clock
    times = (took + AGAIN_SECONDS, took * (PART + 1) - 1, took * (PART + 1))

    found = [leader.looks(number, clock=clock) for number, clock in enumerate(times, 1)]

    assert found == [False, False, True]


def test_nobody_waits_for_one_that_takes_forever_and_no_second_one_begins(leader, monkeypatch):
    begun, end = queue.SimpleQueue(), threading.Event()

    def hang(*_, **__):
        begun.put(leader.clock)
        end.wait(WAIT_SECONDS)

    monkeypatch.setattr(savings_publisher, "threading", threading)
    monkeypatch.setattr(leader.publisher, "publish", hang)
    leader.step(0)
    first = begun.get(timeout=WAIT_SECONDS)
    leader.clock = RETRY_SECONDS
    leader.step(1)
    end.set()

    assert (first, begun.empty()) == (0.0, True)


def test_who_does_not_lead_looks_at_nothing(leader):
    leader.leads = False

    assert not leader.looks()


def test_who_leads_no_more_by_then_writes_nothing(leader):
    def lose():
        leader.leads = False

    leader.meanwhile = lose

    assert leader.looks()
    assert leader.published is None


def test_what_still_runs_keeps_others_waiting_in_replays_too(monkeypatch):
    replayed = []

    def note(journal_entries, world):
        replayed.append(len(journal_entries))
        return look_back(journal_entries, world)

    monkeypatch.setattr(look_back_process, "look_back", note)
    times = {"status": "True", "lastTransitionTime": BEGAN}
    conditions = tuple({"type": name, **times} for name in ("QuotaReserved", "Admitted"))
    running = workload(queue="gpu-lq", conditions=conditions, admitted_to="gpu-cq")
    running["metadata"]["namespace"] = "research"
    alone = Leader(monkeypatch, Server(STATIC))
    alone.looks()
    beside = Leader(monkeypatch, Server(STATIC, running))
    beside.looks()

    assert replayed[1] == replayed[0] + 1
    assert sum(each.jobs for each in beside.published.gained) == 30


def test_what_may_not_be_read_is_said_once_and_tried_again_later(leader):
    leader.server.refuses = True
    found = [leader.looks(0, clock=clock) for clock in (0.0, AGAIN_SECONDS, RETRY_SECONDS)]

    assert found == [False, False, False]
    assert leader.lines == ["savings: you may not get configmaps"]
    leader.server.refuses = False
    assert leader.looks(0, clock=2 * RETRY_SECONDS)


def test_one_that_came_to_nothing_is_counted_named_once_and_tried_again_later(leader):
    def fail():
        raise LookBackError("it took longer than 300 s")

    leader.meanwhile = fail
    found = [leader.looks(0, clock=clock) for clock in (0.0, RETRY_SECONDS - 1, RETRY_SECONDS)]

    assert found == [True, False, True]
    assert leader.failures.counts == {"savings": 2}
    assert leader.lines == ["savings: it took longer than 300 s; said once"]


def test_without_policies_there_is_nothing_to_look_for(leader):
    leader.snapshot = Snapshot()

    assert not leader.looks()
