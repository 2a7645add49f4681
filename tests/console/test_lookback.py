"""What the journal adds to the console: decisions of others that left nothing, and gains."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.console import worlds
from tests.console.journal_server import GIVEN, OURS, STATIC, UNIX, Server, world
from tests.console.viewers import Only
from tests.console.worlds import decision, known
from tests.hindsight import journals
from tests.state.objects import workload
from webhook.console import lookback, quota_api
from webhook.console.access import Everybody
from webhook.console.collect import collect, restricted
from webhook.console.decisions import DecisionStore
from webhook.console.gained import NOTHING, merged
from webhook.console.lookback import AGAIN_SECONDS, PART, RETRY_SECONDS, Looker
from webhook.console.view import JOURNAL
from webhook.model.policy.fallback_policy import Mode
from webhook.state.feed import Counted

DECIDED = journals.entries(GIVEN, journals.happened(GIVEN, "FinishTime"), mode="Enforce")


class Replica:
    """What one replica's console knows: its own lines, and the journal."""

    def __init__(self, server, mode, lines=()):
        self.clock, self.said, self.breaths = 0.0, [], []
        self.slowly = 0.0
        self.book = DecisionStore()
        for line in lines:
            self.book.put_line(line)
        self.snapshot = world(mode)
        self.looker = Looker(
            lambda: server,
            OURS,
            self.said.append,
            clock=lambda: self.clock,
            unix=lambda: UNIX,
            sleep=self.breathe,
        )

    def breathe(self, seconds):
        self.breaths.append(seconds)
        self.clock += self.slowly

    def view(self):
        self.looker.step(self.snapshot)
        counted = Counted(snapshot=self.snapshot, admitted={}, profiles={})
        found = self.looker.found(self.snapshot)
        given = {"decisions": self.book.newest(), "lookback": found, "counted": counted}
        return collect(known(unix=UNIX, judged={}, **given))


def line(entry):
    """Write what a server logs of a Job."""
    time = datetime.fromtimestamp(int(entry.created), UTC).isoformat()
    decision = {"id": f"d-{entry.name}", "time": time, "policy": entry.job_class}
    decision |= {"mode": "Observe", "option": "gpu", "reason": "stays"}
    where = {"namespace": entry.namespace, "name": entry.name}
    return json.dumps({**where, "decision": decision}).encode()


@pytest.fixture
def two_replicas():
    """Each of them has decided every other Job."""
    server = Server(STATIC)
    return tuple(Replica(server, Mode.OBSERVE, map(line, STATIC[first::2])) for first in (0, 1))


def test_each_of_two_replicas_shows_the_decisions_that_the_other_has_made(two_replicas):
    views = [replica.view() for replica in two_replicas]

    for view, own in zip(views, (STATIC[0::2], STATIC[1::2]), strict=True):
        made = [each for each in view.decisions if not each.is_replayed]
        replayed = {each.job for each in view.decisions if each.is_replayed}
        assert {each.id for each in made} == {f"d-{entry.name}" for entry in own}
        assert len(view.decisions) == len(STATIC)
        assert replayed == {each.name for each in STATIC} - {each.name for each in own}


def test_a_decision_on_a_job_without_a_name_yet_stands_for_one_that_is_made_from_it():
    known_ones = [decision("d-1", job="light-", mode="Observe")] * 2
    told = [
        decision(f"job-{number}", job=f"light-{number}", mode="Observe", at=worlds.UNIX + at)
        for number, at in enumerate((-60.0, -60.0, -59.0, -40.0))
    ]
    told.append(decision("job-9", job="heavy-1", mode="Observe"))

    found = merged(known_ones, told)

    assert [each.id for each in found] == ["job-3", "job-2", "d-1", "d-1", "job-9"]


def test_the_quota_api_tells_a_replay_from_a_decision(two_replicas):
    answer = quota_api.decisions(two_replicas[0].view(), {"limit": "500"}, Everybody())

    told = {each["isReplayed"]: each for each in answer["decisions"]}
    assert (told[False]["reason"], told[False]["mode"]) == ("stays", "Observe")
    assert told[True]["mode"] == "Observe"
    reasons = {each["reason"] for each in answer["decisions"] if each["isReplayed"]}
    assert reasons == {
        "a replay of the journal would send it to cpu-lq (cpu)",
        "a replay of the journal would leave it where it is (best)",
        "a replay of the journal would leave it where it is (onlyOption)",
    }


def test_a_policy_that_observes_shows_what_it_would_have_saved():
    view = Replica(Server(STATIC), Mode.OBSERVE).view()

    assert view.savings is None
    assert view.would_save.rests == JOURNAL
    assert (view.would_save.jobs, view.would_save.since) == (30, journals.BEGAN)
    assert view.would_save.saved_seconds > view.would_save.margin_seconds > 0
    assert [(each.policy, each.mode) for each in view.gained] == [
        ("heavy", "Observe"),
        ("light", "Observe"),
    ]
    assert {each.name: dict(each.decided) for each in view.policies} == {
        "heavy": {"gpu": 15, "": 0},
        "light": {"gpu": 15 - view.would_save.moved, "cpu": view.would_save.moved, "": 0},
    }


def test_what_was_carried_out_is_told_by_the_journal_and_not_by_forecasts():
    view = Replica(Server(DECIDED), Mode.ENFORCE).view()

    assert (view.savings.rests, view.savings.jobs, view.savings.moved) == (JOURNAL, 30, 6)
    assert view.savings.saved_seconds == sum(each.saved_seconds for each in view.gained) > 0
    assert (view.would_save, view.decisions) == (None, ())


def test_gains_in_namespaces_that_may_not_be_seen_are_left_out():
    view = Replica(Server(DECIDED), Mode.ENFORCE).view()

    found = restricted(view, Only("elsewhere"))

    assert (found.savings, found.gained) == (None, ())
    assert restricted(view, Only("research")).savings == view.savings


def test_advice_is_told_as_it_was_given():
    advised = [replace(each, mode="Advise", queue="gpu-lq") for each in DECIDED]

    view = Replica(Server(advised), Mode.ADVISE).view()

    newest = next(each for each in view.decisions if each.option == "cpu")
    assert not any(each.is_replayed for each in view.decisions)
    assert len(view.decisions) == 30
    assert newest.reason == f"advised sending it to {newest.queue} (cpu), as the journal tells"


def test_what_still_runs_keeps_others_waiting_in_replays_too():
    quota = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": TIME}
    admitted = {"type": "Admitted", "status": "True", "lastTransitionTime": TIME}
    running = workload(queue="gpu-lq", conditions=(quota, admitted), admitted_to="gpu-cq")
    running["metadata"]["namespace"] = "research"
    alone, beside = Server(STATIC), Server(STATIC, running)

    found = [Replica(server, Mode.OBSERVE) for server in (alone, beside)]
    views = [replica.view() for replica in found]

    assert len(found[1].breaths) - len(found[0].breaths) == 2  # one in each replay
    assert views[0].would_save.jobs == views[1].would_save.jobs == 30


TIME = datetime.fromtimestamp(journals.BEGAN - 60, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture
def looking(monkeypatch):
    """A replica whose looks are made at once, in the thread that asks."""

    class AtOnce:
        def __init__(self, *, target, args, **_):
            self.start = lambda: target(*args)

    monkeypatch.setattr(lookback.threading, "Thread", AtOnce)
    server = Server(STATIC)
    found = Replica(server, Mode.OBSERVE)
    found.server = server
    return found


def looks(replica):
    replica.server.reads.clear()
    replica.looker.found(replica.snapshot)
    return bool(replica.server.reads)


def test_a_look_serves_for_a_minute(looking):
    found = []
    for looking.clock in (0.0, 1.0, AGAIN_SECONDS - 1, AGAIN_SECONDS, AGAIN_SECONDS + 1):
        found.append(looks(looking))

    assert found == [True, False, False, True, False]


def test_a_look_that_takes_long_is_taken_seldom(looking):
    looking.slowly = 1.0
    looks(looking)
    took = looking.clock
    found = []
    for looking.clock in (took + AGAIN_SECONDS, took * (PART + 1) - 1, took * (PART + 1)):
        found.append(looks(looking))

    assert found == [False, False, True]


def test_without_a_right_to_the_journal_forecasts_remain_and_it_is_said_once(looking):
    looking.server.refuses = True
    for looking.clock in (0.0, RETRY_SECONDS):
        assert looking.looker.found(looking.snapshot) == NOTHING

    said = "console: the journal cannot be read: you may not get configmaps"
    assert looking.said == [said]


def test_without_policies_there_is_nothing_to_look_for(looking):
    looking.snapshot = replace(looking.snapshot, policies=())

    assert not looks(looking)


def test_an_empty_journal_asks_for_nothing_more(looking):
    looking.server.held.clear()

    assert looking.looker.found(looking.snapshot) == NOTHING
    assert not [path for path in looking.server.reads if "workloads" in path]
