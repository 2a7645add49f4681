"""What the controller says of running Jobs that would save elsewhere."""

from __future__ import annotations

import pytest

from tests.controller import moving
from tests.controller.moving import job, tell
from tests.controller.stepping import at, values
from tests.reconsider.queued_jobs import NOW, running
from webhook.api import resources as kinds
from webhook.api.kubernetes_api import Refused, Unreachable
from webhook.api.watch import WatchUpdate
from webhook.controller import followed_watches
from webhook.controller.adviser import STEP_SECONDS, Adviser
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.jobs import JOB

feed = moving.feed
RATE = 10.0


class Api:
    """Gives Jobs and takes Events."""

    def __init__(self, *jobs):
        self.jobs = {each["metadata"]["name"]: each for each in jobs}
        self.asked, self.events, self.answers = [], [], []

    def fetch(self, namespace, reference):
        self.asked.append(reference)
        return self.jobs.get(reference)

    def post(self, path, body):
        if self.answers:
            raise self.answers.pop(0)
        self.events.append((path, body))
        return body


def policy(**cost):
    return {
        "apiVersion": "kueue-fallback.dev/v1alpha1",
        "kind": "FallbackPolicy",
        "metadata": {"name": "light-gpu"},
        "spec": {
            "mode": "Enforce",
            "match": {"jobSelector": {}},
            "options": [
                {"name": "gpu", "queue": "gpu-lq"},
                {"name": "cpu", "queue": "cpu-lq", "slowdown": 0.2},
            ],
            "strategy": {"type": "Cost", "cost": {"runTime": "4h", "timeValue": "1", **cost}},
        },
    }


@pytest.fixture
def priced(feed):
    rates = [{"flavors": ["a100"], "resources": {"cpu": str(RATE)}}]
    tariff = {"kind": "Tariff", "metadata": {"name": "t"}, "spec": {"rates": rates}}
    tell(feed, kinds.TARIFFS, tariff)
    tell(feed, kinds.POLICIES, policy())
    tell(feed, kinds.WORKLOADS, running("job-1"))
    return feed


def resuming(number=1):
    found = job(number)
    found["metadata"]["annotations"]["kueue-fallback.dev/checkpoint"] = "10m"
    found["spec"]["suspend"] = False
    found["status"] = {"startTime": "2026-11-21T05:59:00Z", "active": 1}
    return found


def adviser(api, *jobs, leads=True):
    metrics = ControllerMetrics()
    found = Adviser(
        api,
        api.fetch,
        max_state_age=1000.0,
        is_leader=lambda: leads,
        keys=lambda: None,
        metrics=metrics,
    )
    watched = followed_watches.followed(JOB)
    entries = tuple(watched.read(watched.kind, each) for each in jobs)
    found.take(WatchUpdate(kind=watched.kind, at=0.0, entries=entries))
    return found, metrics


def stepped(told, feed, now=0.0):
    """Step; return what the Jobs of each policy would save, and the lines to log."""
    feed.update(now, NOW + now)
    found, metrics = told
    lines = found.step(at(now, NOW + now, snapshot=feed.published, feed=feed))
    return values(metrics, "advised_saving"), lines


def test_an_event_tells_once_of_a_run_that_would_cost_less_elsewhere(priced):
    api = Api(resuming())
    found = adviser(api, resuming())

    times = (0.0, STEP_SECONDS / 2, STEP_SECONDS + 1)
    shown = [stepped(found, priced, now)[0] for now in times]

    ((path, event),) = api.events
    assert path == "/api/v1/namespaces/team/events"
    assert (event["reason"], event["involvedObject"]["name"]) == ("Advised", "job-1")
    assert event["message"].startswith("what is left of it would cost ")
    assert event["message"].endswith(
        "; `kubectl fallback advise job-1 -n team` prints how, once it has a checkpoint"
    )
    assert shown[0]["light-gpu"] > 100
    assert [saving.keys() for saving in shown] == [{"light-gpu"}] * 3


def test_whoever_does_not_lead_says_nothing(priced):
    api = Api(resuming())

    assert stepped(adviser(api, resuming(), leads=False), priced) == ({}, [])
    assert (api.asked, api.events) == ([], [])


def test_jobs_that_wait_or_have_no_checkpoint_are_not_even_read(priced):
    plain = job(1)
    plain["spec"]["suspend"] = False
    api = Api(plain, resuming(2))

    assert stepped(adviser(api, plain, resuming(2)), priced) == ({}, [])
    assert api.asked == []


def test_an_event_that_another_leader_wrote_is_not_written_again(priced):
    api = Api(resuming())
    api.answers = [Refused(409, "exists")]
    found = adviser(api, resuming())

    assert stepped(found, priced)[1] == []
    stepped(found, priced, now=STEP_SECONDS + 1)

    assert api.events == []


def test_what_cannot_be_written_is_told_and_tried_again(priced):
    api = Api(resuming())
    api.answers = [Unreachable("gone")]
    found = adviser(api, resuming())

    _, (line,) = stepped(found, priced)
    stepped(found, priced, now=STEP_SECONDS + 1)

    assert line == "Job team/job-1: no Event written: gone"
    assert len(api.events) == 1
