"""What the controller reads of a Job that its owner has written records on."""

import json
import random

import pytest

from tests.controller.hostile import DECIDED, job
from tests.controller.journals import past
from tests.controller.keeping import Keeping, kept
from tests.controller.objects import Objects
from webhook.controller import followed_watches
from webhook.decide import decision_record
from webhook.hindsight.journal_keeper import known_of
from webhook.jobs import JOB
from webhook.model.fields import FieldError
from webhook.model.job import DECISION, UNDONE, read_left
from webhook.reconsider import pending_jobs

JOBS, PENDING = followed_watches.followed(JOB), pending_jobs.followed(JOB)
PLACE = "/spec/template/spec/affinity"
HUGE = "1" + 400 * "0"


def nested(depth):
    return '{"a":' * depth + "{}" + "}" * depth


def decision(**changes):
    return json.dumps({**DECIDED, **changes})


HOSTILE = {
    "a number that no float holds": decision(options=[{"name": "a", "startsIn": 7}]).replace(
        "7", HUGE
    ),
    "half a character": decision(policy="\ud800"),
    "nesting without end": decision(original={PLACE: "x"}).replace('"x"', nested(700)),
    "more than is read": decision(reason="x" * 70_000),
    "a name of a kilobyte": decision(policy="x" * 1000),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_decision_that_is_none_of_ours_is_no_decision(text):
    with pytest.raises(FieldError):
        decision_record.from_annotations({DECISION: text})


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_job_with_a_forged_decision_is_followed_as_one_without(text):
    source = job(**{DECISION: text, UNDONE: "p"})

    seen, waiting = JOBS.read(JOBS.kind, source), PENDING.read(PENDING.kind, source)

    assert (seen.problem, waiting.problem) == ("", "")
    assert (seen.value.happening, waiting.value.policy) == (None, "")


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_the_journal_keeps_a_job_with_a_forged_decision_and_those_beside_it(text):
    server = Objects()
    keeping = Keeping(server)
    keeping.show_job(job(**{DECISION: text}))
    keeping.show(past("hostile"), past("plain", job_uid="j-2", name="other"))

    assert keeping.step().errors == ()
    assert sorted(kept(server)) == ["hostile", "plain"]


def test_a_job_of_which_no_entry_can_be_made_is_left_out_and_the_others_stay():
    server = Objects()
    keeping = Keeping(server)
    keeping.show(past("hostile", submitted="no JSON"), past("plain"))

    assert keeping.step().errors == ()
    assert sorted(kept(server)) == ["plain"]


def test_an_undo_with_a_time_that_no_calendar_has_is_none():
    assert read_left("9999-12-31T23:59:59-14:00 gpu-cq") is None
    assert read_left("2026-11-21T06:00:00Z a,b").cluster_queues == {"a", "b"}


def test_a_job_with_more_labels_than_anybody_needs_gets_no_entry():
    source = job()
    source["metadata"]["labels"] |= {
        f"l{number}": random.Random(number).randbytes(30).hex() for number in range(1000)
    }
    server = Objects()
    keeping = Keeping(server)
    keeping.show_job(source)
    keeping.show(past("hostile"), past("plain", job_uid="j-2", name="other"))

    keeping.step()

    assert known_of(source).packed == b""
    assert sorted(kept(server)) == ["plain"]


def test_what_is_known_of_jobs_has_a_limit_in_bytes(monkeypatch):
    monkeypatch.setattr("webhook.hindsight.journal_keeper.MOST_BYTES", 1000)
    server = Objects()
    keeping = Keeping(server)
    for number in range(20):
        source = job()
        source["metadata"]["uid"] = f"j-{number}"
        source["metadata"]["labels"]["note"] = random.Random(number).randbytes(30).hex()
        keeping.show_job(source)

    assert sum(len(each.packed) for each in keeping.journal.known()) <= 1000
    assert keeping.journal.known()[-1].uid == "j-19"


def test_a_namespace_with_many_jobs_leaves_those_of_others_known(monkeypatch):
    monkeypatch.setattr("webhook.hindsight.journal_keeper.MOST_JOBS", 8)
    keeping = Keeping(Objects())
    keeping.show_job(job())
    for number in range(20):
        source = job()
        source["metadata"] |= {"uid": f"n-{number}", "namespace": "noisy"}
        keeping.show_job(source)

    known = [each.uid for each in keeping.journal.known()]

    assert known == ["j-1", "n-16", "n-17", "n-18", "n-19"]
