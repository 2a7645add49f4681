from types import SimpleNamespace

from tests.builders import policy, team_policy
from tests.controller.objects import Objects
from tests.controller.stepping import values
from tests.learn.runs import DAY, failure, success
from webhook.api.kubernetes_api import Forbidden
from webhook.api.resources import POLICIES, our_path
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.policy_status import reference_of
from webhook.controller.records import MOST_AT_ONCE, Teller
from webhook.learn.estimates import RunTimeLearner

EVENTS = reference_of("light-gpu").events
NOW = 1_795_240_800
POLICY = policy().model_copy(update={"generation": 1})
PLACE = ("light-gpu", "cpu")


def server():
    found = Objects()
    policy_of_cluster = {"metadata": {"name": "light-gpu", "uid": "u-1"}}
    found.held[f"{our_path(POLICIES)}/light-gpu"] = policy_of_cluster
    return found


def failing(*keys):
    runs = RunTimeLearner()
    for key in keys:
        runs.add(success(NOW - 1000, key=key))
        for number in range(3):
            runs.add(failure(NOW - 300 + number, key=key, uid=number))
    return runs


def teller_of(there, is_leader=lambda: True):
    metrics = ControllerMetrics()
    return Teller(there, is_leader=is_leader, metrics=metrics), metrics


def look(teller, runs, now=NOW, policies=(POLICY,)):
    found, metrics = teller
    lines = found.step(runs.records, runs.take_changed(), policies, now)
    return SimpleNamespace(lines=lines, counts=values(metrics, "keeps_failing"))


def events(found):
    return [body for path, body in found.held.items() if path.startswith(EVENTS)]


def test_a_refusal_becomes_one_line_one_event_and_a_count():
    there = server()
    teller, runs = teller_of(there), failing("k")

    first, second = look(teller, runs), look(teller, runs, NOW + 5)

    text = (
        "option cpu is refused to Jobs of class k (trainer) until 2026-11-22T05:43:20Z: they "
        "failed there 3 times and never succeeded, and they do elsewhere"
    )
    assert first.lines == [f"FallbackPolicy light-gpu: {text}"]
    assert dict(first.counts) == dict(second.counts) == {PLACE: 1}
    assert second.lines == []
    (event,) = events(there)
    assert event["involvedObject"] == {
        "apiVersion": "kueue-fallback.dev/v1alpha1",
        "kind": "FallbackPolicy",
        "name": "light-gpu",
        "uid": "u-1",
    }
    assert (event["type"], event["reason"]) == ("Warning", "KeepsFailing")
    assert event["message"] == text
    assert event["metadata"]["namespace"] == "default"


def test_after_a_restart_the_event_is_not_written_again():
    there = server()

    told = [look(teller_of(there), failing("k"), NOW + seconds) for seconds in (0, 60)]

    assert [len(each.lines) for each in told] == [1, 1]
    assert len(events(there)) == 1


def test_who_does_not_lead_counts_and_says_nothing_until_it_leads():
    there, leading = server(), []
    teller, runs = teller_of(there, lambda: bool(leading)), failing("k")
    following = look(teller, runs)
    before = events(there)
    leading.append(teller)

    led = look(teller, runs, NOW + 5)

    assert (dict(following.counts), following.lines, before) == ({PLACE: 1}, [], [])
    assert (dict(led.counts), len(led.lines), len(events(there))) == ({PLACE: 1}, 1, 1)


def test_a_refused_event_is_said_and_everything_else_goes_on():
    there = server()
    there.refusal = Forbidden(EVENTS, "no right")

    told = look(teller_of(there), failing("k"))

    assert told.lines[1:] == ["FallbackPolicy light-gpu: no Event written: no right"]
    assert dict(told.counts) == {PLACE: 1}


def test_many_at_once_are_all_counted_and_some_become_events():
    there = server()
    keys = [f"k-{number}" for number in range(MOST_AT_ONCE + 5)]

    told = look(teller_of(there), failing(*keys))

    assert dict(told.counts) == {PLACE: len(keys)}
    assert len(events(there)) == MOST_AT_ONCE


def test_of_a_namespaces_own_policy_the_event_is_in_its_namespace():
    there, own = Objects(), team_policy().model_copy(update={"generation": 1})
    place = reference_of("team/light")
    there.held[f"{place.collection}/light"] = {"metadata": {"name": "light", "uid": "u-1"}}
    runs = RunTimeLearner()
    for number in range(3):
        failed = failure(NOW - 300 + number, key="k", uid=number)
        runs.add(failed._replace(policy="team/light"))
    runs.add(success(NOW - 1000, key="k", policy="team/light"))

    told = look(teller_of(there), runs, policies=(own,))

    (event,) = (body for path, body in there.held.items() if path.startswith(place.events))
    assert place.events == "/api/v1/namespaces/team/events"
    assert event["metadata"]["name"].partition(".")[0] == "light"
    assert event["involvedObject"] == {
        "apiVersion": "kueue-fallback.dev/v1alpha1",
        "kind": "TeamFallbackPolicy",
        "namespace": "team",
        "name": "light",
        "uid": "u-1",
    }
    assert told.lines[0].startswith("TeamFallbackPolicy team/light: option cpu is refused")


def test_when_it_ends_the_count_goes_and_a_new_refusal_is_told_again():
    there = server()
    teller, runs = teller_of(there), failing("k")
    look(teller, runs)

    ended = look(teller, runs, NOW + DAY)
    for number in range(3):
        runs.add(failure(NOW + DAY + number, uid=10 + number))
    runs.add(success(NOW + DAY))
    again = look(teller, runs, NOW + DAY + 5)

    assert (dict(ended.counts), dict(again.counts)) == ({}, {PLACE: 1})
    assert len(events(there)) == 2
