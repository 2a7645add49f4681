import json
from dataclasses import replace

import pytest

from tests import kinds
from tests.controller.journals import ENDED, past
from tests.controller.keeping import Keeping, kept
from tests.controller.objects import Objects
from tests.controller.watched_jobs import stored
from tests.servers import Server, paper_snapshot
from webhook.api.kubernetes_api import Forbidden
from webhook.hindsight.entries import read_finished
from webhook.hindsight.journal import (
    SHARDS,
    SLOT_SECONDS,
    SUCCEEDED,
    Written,
    hours_kept,
    name_of,
    slot_of,
)
from webhook.hindsight.journal_keeper import MOST_CLEARED, MOST_WRITTEN

HOUR = slot_of(ENDED)


def test_what_has_ended_is_written_to_the_place_of_its_hour():
    server = Objects()
    keeping = Keeping(server)
    keeping.show(past("a"), past("b", finished=ENDED - SLOT_SECONDS))

    assert keeping.step() == Written(tried=True, written=2)
    assert server.writes == [("post", name_of(HOUR)), ("post", name_of(HOUR - 1))]
    assert {key: each.finished for key, each in kept(server).items()} == {
        "a": ENDED,
        "b": ENDED - SLOT_SECONDS,
    }


def test_what_is_told_again_after_a_restart_is_not_written_again():
    server = Objects()
    before = Keeping(server)
    before.show(past("a"))
    before.step()

    after = Keeping(server)
    after.show(past("a"))

    assert after.step() == Written(tried=True)
    assert len(server.writes) == 1


def test_what_is_new_in_the_journal_is_told_once_whoever_leads():
    server = Objects()
    first, second = Keeping(server), Keeping(server)
    first.show(past("a"))
    first.step()
    second.show(past("a"), past("b"))
    second.step()

    told = [[entry.key for entry in each.journal.take_new()] for each in (first, second, first)]

    assert told == [["a"], ["b"], []]


def test_two_controllers_at_once_lose_nothing():
    server = Objects()
    both = [Keeping(server), Keeping(server)]
    for keeping, key in zip(both, ("a", "b"), strict=True):
        keeping.show(past("first"))
        keeping.step()
        keeping.show(past(key))

    looks = [keeping.step().written for _ in range(2) for keeping in both]

    assert sorted(kept(server)) == ["a", "b", "first"]
    assert sum(looks) == 2


def test_what_cannot_be_written_is_tried_again():
    server = Objects()
    keeping = Keeping(server)
    server.refusal = Forbidden("configmaps", "configmaps is forbidden")
    keeping.show(past("a"))

    first, second = keeping.step(), keeping.step()

    assert first.errors == ("journal: configmaps is forbidden",)
    assert second == Written(tried=True, written=1)


def test_only_some_are_written_at_once_and_the_newest_first():
    server = Objects()
    keeping = Keeping(server)
    hours = range(MOST_WRITTEN + 2)
    keeping.show(*(past(f"w-{hour}", finished=ENDED - hour * SLOT_SECONDS) for hour in hours))

    assert [keeping.step().written for _ in range(3)] == [MOST_WRITTEN, 2, 0]
    assert server.writes[0] == ("post", name_of(HOUR))


def test_an_hour_takes_the_place_of_the_one_that_is_too_old():
    server = Objects()
    keeping = Keeping(server)
    keeping.show(past("old"))
    keeping.step()
    keeping.unix += SHARDS * SLOT_SECONDS
    keeping.show(past("new", finished=ENDED + SHARDS * SLOT_SECONDS), past("too old"))

    keeping.step()

    assert set(kept(server)) == {"new"}
    assert len(server.held) == 1


def ended_before(key, hours):
    return past(key, finished=ENDED - hours * SLOT_SECONDS)


def keeping_after(server, *pasts, days):
    """Return a controller of this setting, which has looked at every place of the journal."""
    keeping = Keeping(server, days=days)
    keeping.show(*pasts)
    for _ in range(SHARDS // MOST_CLEARED):
        keeping.step()
    return keeping


@pytest.mark.parametrize("days", [1, 2, 7])
def test_so_many_days_are_kept_as_the_setting_says(days):
    server, hours = Objects(), hours_kept(days)

    keeping_after(server, ended_before("in", hours - 1), ended_before("out", hours), days=days)

    assert set(kept(server)) == {"in"}


def test_what_has_become_too_old_is_taken_out_once_also_where_nothing_ends_any_more():
    server = Objects()
    keeping = keeping_after(server, ended_before("a", 0), ended_before("b", 1), days=1)
    keeping.unix += (hours_kept(1) - 1) * SLOT_SECONDS
    before = len(server.writes)

    steps = [keeping.step() for _ in range(hours_kept(1) // MOST_CLEARED + 1)]

    assert server.writes[before:] == [("patch", name_of(HOUR - 1))]
    assert sum(step.written for step in steps) == 1
    assert set(kept(server)) == {"a"}


def test_what_could_not_be_taken_out_is_tried_again_and_not_by_who_does_not_lead():
    server, leads = Objects(), [True]
    keeping_after(server, ended_before("week", 150), days=7)
    keeping = Keeping(server, is_leader=lambda: leads[0])
    server.refusal = Forbidden("configmaps", "configmaps is forbidden")

    leads[0] = False
    followed = keeping.step()
    leads[0] = True
    steps = [keeping.step() for _ in range(SHARDS // MOST_CLEARED)]

    assert followed == Written()
    assert [step.errors for step in steps if step.errors] == [("journal: configmaps is forbidden",)]
    assert kept(server) == {}


@pytest.mark.parametrize(("seen", "created"), [(ENDED - 99.4, -99.4), (ENDED - 50.0, -99.001)])
def test_a_job_that_was_seen_to_come_is_told_apart_within_its_second(seen, created):
    server = Objects()
    keeping = Keeping(server)
    keeping.unix = seen
    keeping.show_job(stored(uid="j-1"))
    keeping.unix = float(ENDED)
    keeping.show(past("a", created=ENDED - 100))

    keeping.step()

    assert kept(server)["a"].created == ENDED + created


def test_a_decision_is_remembered_with_the_job_as_it_came():
    server = Objects()
    keeping = Keeping(server)
    source = stored(uid="j-1")
    decided, _ = Server(paper_snapshot()).create(source)
    keeping.show_job(decided, event=None)
    adapted = decided["spec"]["template"]
    adapted["spec"]["containers"][0].pop("image")
    pod_set = {"name": "main", "count": 1, "template": adapted}
    keeping.show(past("a", queue="cpu-lq", submitted=json.dumps([pod_set])))
    keeping.journal.step(paper_snapshot(), 0.0)

    (decision,) = kept(server).values()
    assert (decision.policy, decision.mode, decision.option) == ("light-gpu", "Enforce", "cpu")
    assert [(offer.name, offer.queue) for offer in decision.options] == [
        ("gpu", "gpu-lq"),
        ("cpu", "cpu-lq"),
    ]
    assert decision.labels == source["metadata"]["labels"]
    submitted, ran = json.loads(decision.submitted), json.loads(decision.ran)
    requests = [
        each["template"]["spec"]["containers"][0]["resources"]["requests"]
        for each in (submitted, ran)
    ]
    assert requests == [
        {"cpu": "4", "memory": "6Gi", "nvidia.com/gpu": "1"},
        {"cpu": "4", "memory": "6Gi"},
    ]


def test_a_job_of_another_kind_is_asked_for_and_kept_as_it_came():
    source = kinds.made("RayJob")
    decided, _ = Server(kinds.snapshot()).create(source, kind=kinds.kind_of_review(source))
    server = Objects()
    server.held["/apis/ray.io/v1/namespaces/team/rayjobs/train"] = decided
    keeping = Keeping(server)
    workload = read_finished(kinds.workload_of(decided))
    keeping.show(replace(workload, finished=ENDED, outcome=SUCCEEDED))
    keeping.journal.step(kinds.snapshot(), 0.0)

    (decision,) = kept(server).values()
    assert (decision.kind, decision.name, decision.option) == ("RayJob", "train", "cpu")
    assert kinds.GPU in decision.submitted
    assert kinds.GPU not in decision.ran


def test_one_that_is_there_again_under_its_name_is_another_and_not_kept():
    source = kinds.made("RayJob")
    server = Objects()
    server.held["/apis/ray.io/v1/namespaces/team/rayjobs/train"] = source
    keeping = Keeping(server)
    decided, _ = Server(kinds.snapshot()).create(source, kind=kinds.kind_of_review(source))
    decided["metadata"]["uid"] = "another"
    keeping.show_job(decided)
    keeping.show(replace(read_finished(kinds.workload_of(decided)), finished=ENDED))
    keeping.journal.step(kinds.snapshot(), 0.0)

    assert kept(server) == {}
