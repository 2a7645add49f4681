"""The leader releases held Jobs; every replica tells which are overdue."""

import pytest

from tests.controller.stepping import Metered, at
from tests.reconsider.holds import GPU, HOUR, NOW, held, world
from webhook.api.kubernetes_api import Forbidden, NotServed, Refused
from webhook.api.resources import ReadObject
from webhook.api.watch import WatchUpdate
from webhook.controller.followed_watches import WatchedJob, followed
from webhook.controller.hold_keeper import (
    MOST_AT_ONCE,
    OVERDUE_SECONDS,
    PLAN_SECONDS,
    PUBLISH_SECONDS,
    HoldKeeper,
)
from webhook.jobs import JOB
from webhook.learn.others_use import HOURS
from webhook.model.costs.prices import Prices
from webhook.model.queues import Held
from webhook.reconsider.hold_plan import Release
from webhook.state.published_congestion import read_use

GATE, OURS = "kueue.x-k8s.io/admission-gated-by", "kueue-fallback.dev/hold"


class Server:
    """Takes releases of Jobs, and holds one ConfigMap."""

    def __init__(self):
        self.patched, self.answer = [], None
        self.stored, self.unread = None, None

    def patch(self, path, body):
        if "/noisy/" in path:
            raise Refused(422, "too large")
        if "/configmaps/" in path:
            if self.stored is None:
                raise NotServed(path)
            self.stored = body
            return
        if self.answer is not None:
            raise self.answer
        self.patched.append((path, body))

    def post(self, path, body):
        assert path == "/api/v1/namespaces/ours/configmaps"
        self.stored = body

    def get(self, path, params):
        assert params == {"fieldSelector": "metadata.name=kueue-fallback-prices"}
        if self.unread is not None:
            raise self.unread
        return {"items": [] if self.stored is None else [self.stored]}


def told(*jobs, kind="jobs"):
    entries = tuple(
        ReadObject((job.namespace, job.name), WatchedJob(uid="u", created=0.0, job=None, held=job))
        for job in jobs
    )
    return WatchUpdate(kind=kind, at=0.0, entries=entries)


def keeping(*jobs, leads=True):
    server = Server()
    keeper = kept_by(server, leads=leads)
    keeper.part.take(told(*jobs))
    return server, keeper


def kept_by(server, *, leads=True):
    def make(metrics):
        return HoldKeeper(server, "ours", is_leader=lambda: leads, metrics=metrics)

    return Metered(make, "released_jobs")


def step(keeper, hours, given=None):
    return keeper.step(at(hours * HOUR, NOW + hours * HOUR, snapshot=given or world()))


def counts(keeper, unix):
    """Return how many Jobs are held, and how many of them for too long."""
    keeper.part.show(at(unix=unix))
    return keeper.shown("held_jobs"), keeper.shown("held_overdue_jobs")


def test_a_job_whose_hour_has_come_loses_our_gate_and_keeps_others():
    # What its prices were is not known any more, so that its own latest start tells.
    unpriced = world(of_prices=Prices())
    server, keeper = keeping(held("a", others="example.com/gate"), held("b", until=9, latest=1.9))

    early, late = step(keeper, 0.5, unpriced), step(keeper, 2.0, unpriced)

    assert early.counts == {}
    assert late.counts == {Release.PLANNED: 1, Release.LATEST: 1}
    bodies = dict(server.patched)
    path = "/apis/batch/v1/namespaces/team/jobs/"
    assert bodies[f"{path}a"] == {
        "metadata": {
            "resourceVersion": "1",
            "annotations": {GATE: "example.com/gate"},
            "labels": {"kueue-fallback.dev/held": None},
        }
    }
    assert bodies[f"{path}b"]["metadata"]["annotations"] == {GATE: None}
    assert set(late.lines) == {
        "Job team/a: released from its hold: its hour has come",
        "Job team/b: released from its hold: its latest start has come",
    }
    assert step(keeper, 2.1).counts == {}


def test_who_does_not_lead_releases_nobody_and_tells_who_is_overdue():
    server, keeper = keeping(held(latest=1.0), held("b"), leads=False)

    assert step(keeper, 50.0).counts == {}
    assert server.patched == []
    assert counts(keeper, NOW) == (2, 0)
    assert counts(keeper, NOW + HOUR + OVERDUE_SECONDS + 1) == (2, 1)


def test_a_gate_of_ours_that_no_decision_explains_is_taken_off_at_once():
    server, keeper = keeping(held(hold=None))

    assert counts(keeper, NOW) == (1, 1)
    assert step(keeper, 0.0).counts == {Release.UNKNOWN: 1}
    assert len(server.patched) == 1


@pytest.mark.parametrize(
    ("error", "lines", "again"),
    [
        (Refused(409, "changed"), [], 1),
        (Forbidden("jobs", "no"), ["Job team/a: not released: no"], 1),
        (NotServed("/x"), None, 0),
    ],
    ids=["changed", "forbidden", "gone"],
)
def test_what_cannot_be_released_now_is_tried_again(error, lines, again):
    server, keeper = keeping(held())
    server.answer = error

    first = step(keeper, 2.0)
    server.answer = None
    step(keeper, 2.01)

    assert lines is None or list(first.lines) == lines
    assert len(server.patched) == again


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        ({GATE: OURS}, ("", False)),
        ({GATE: f"example.com/gate,{OURS}"}, ("example.com/gate", False)),
        ({GATE: OURS, "kueue-fallback.dev/hold": "none"}, ("", True)),
        ({GATE: "example.com/gate"}, None),
        ({}, None),
    ],
    ids=["ours", "beside another", "refuses", "another", "none"],
)
def test_a_held_job_is_known_by_its_metadata_alone(annotations, want):
    metadata = {
        "name": "train",
        "namespace": "team",
        "uid": "u",
        "resourceVersion": "7",
        "creationTimestamp": "2026-11-21T06:00:00Z",
        "annotations": annotations,
    }

    watched = followed(JOB).read("jobs", {"metadata": metadata}).value

    found = watched.held and (watched.held.others, watched.held.refuses)
    assert found == want
    assert watched.held is None or (watched.held.version, watched.held.hold) == ("7", None)


def using(gpus):
    return world(held={"gpu-cq": Held(usage={GPU: gpus})})


def lead_for(keeper, seconds, given, *, since=0.0):
    for minute in range(int(seconds // PLAN_SECONDS) + 1):
        now = since + minute * PLAN_SECONDS
        keeper.step(at(now, NOW + now, snapshot=given))


def test_another_leader_goes_on_with_what_others_were_learned_to_use():
    server, keeper = keeping(held(gpus=2, until=0.0, latest=0.0, hours=3.0))
    lead_for(keeper, PUBLISH_SECONDS, using(6))
    published = read_use(server.stored)
    next_leader = kept_by(server)
    lead_for(next_leader, PUBLISH_SECONDS, using(8), since=4000.0)

    hours = read_use(server.stored).typical["gpu-cq", GPU]
    assert published.typical == {("gpu-cq", GPU): [pytest.approx(6.0, abs=0.5)] * HOURS}
    # What was released before it led is no use of others either: six, and not eight.
    assert max(hours) < 6.5
    assert [job.usage for job in published.released] == [{GPU: 2}]


def test_what_cannot_be_read_is_told_and_holds_end_all_the_same():
    server, keeper = keeping(held())
    server.unread = Forbidden("configmaps", "no")

    before, after = step(keeper, 0.0, using(0)), step(keeper, 2.0, using(0))

    assert list(before.lines) == ["what others use beside held Jobs: no"]
    assert after.counts == {Release.PLANNED: 1}
    assert server.stored is None


def test_many_are_released_step_by_step():
    server, keeper = keeping(*(held(f"j-{number}", gpus=0) for number in range(MOST_AT_ONCE + 5)))

    step(keeper, 9.0)
    first = len(server.patched)
    step(keeper, 9.01)

    assert (first, len(server.patched)) == (MOST_AT_ONCE, MOST_AT_ONCE + 5)


def test_jobs_that_cannot_be_released_keep_no_other_namespace_waiting():
    noisy = [held(f"n{n:02}", namespace="noisy", latest=1.0) for n in range(MOST_AT_ONCE)]
    server, keeper = keeping(*noisy, held("a"))

    released = step(keeper, 2.0)

    assert released.counts == {Release.PLANNED: 1}
    assert [path for path, _ in server.patched] == ["/apis/batch/v1/namespaces/team/jobs/a"]


def test_other_kinds_and_jobs_that_are_gone_are_left_alone():
    _, keeper = keeping(held())
    keeper.part.take(told(kind="rayjobs"))
    kept = counts(keeper, NOW)
    keeper.part.take(WatchUpdate(kind="jobs", at=0.0, event=("DELETED", told(held()).entries[0])))

    assert (kept, counts(keeper, NOW)) == ((1, 0), (0, 0))
