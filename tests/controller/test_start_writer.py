"""The leader writes on decided Jobs when each is expected to start, and only what is new."""

import json

import pytest

from tests.controller.stepping import at
from tests.state.feeds import REQUIRED, synced_feed
from tests.state.objects import PENDING, cluster_queue, local_queue, reserving, workload
from webhook.api.kubernetes_api import NotServed, Unreachable
from webhook.api.watch import WatchUpdate
from webhook.controller import start_writer
from webhook.controller.start_writer import MOST_AT_ONCE, STEP_SECONDS, StartWriter
from webhook.model import forecasts
from webhook.model.job import DECIDED_BY, EXPECTED_START
from webhook.state.pipe import apply_update
from webhook.state.snapshot import Snapshot

UNIX = 1_796_112_000.0
POLICY = {
    "metadata": {"name": "light-gpu"},
    "spec": {
        "mode": "Enforce",
        "match": {"jobSelector": {}},
        "options": [{"name": "gpu", "queue": "gpu-lq"}],
        "strategy": {"type": "FinishTime", "finishTime": {"runTime": "10m"}},
    },
}


def waits(name, *, policy="light-gpu"):
    found = workload(name, conditions=(PENDING,), cpu="8")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": True}
    found["metadata"]["ownerReferences"] = [owner]
    if policy:
        for pod_set in found["spec"]["podSets"]:
            metadata = pod_set["template"].setdefault("metadata", {})
            metadata.setdefault("annotations", {})[DECIDED_BY] = policy
    return found


class Cluster:
    """An API server that keeps annotations, behind a feed of who waits."""

    def __init__(self, *pending):
        self.leads, self.error, self.patched = True, None, []
        self.feed = synced_feed(
            clusterqueues=[cluster_queue(cpu="8")],
            localqueues=[local_queue()],
            resourceflavors=[{"metadata": {"name": "a100"}}],
            fallbackpolicies=[POLICY],
            workloads=[reserving("runs", cpu="8"), *pending],
        )
        self.snapshot = Snapshot()
        self.writer = StartWriter(self, max_state_age=15.0, is_leader=lambda: self.leads)

    def patch(self, path, body):
        if self.error is not None:
            raise self.error
        self.patched.append((path, body["metadata"]["annotations"]))

    def step(self, seconds, *, age=0.0):
        for kind in REQUIRED:
            self.feed.take(WatchUpdate(kind=kind, at=seconds - age))
        update = self.feed.update(seconds, UNIX + seconds)
        self.snapshot = apply_update(self.snapshot, update)
        given = at(seconds, UNIX + seconds, snapshot=self.snapshot, feed=self.feed)
        return self.writer.step(given)


def test_each_decided_job_that_waits_is_told_its_start_and_its_place():
    cluster = Cluster(waits("a"), waits("b"), waits("others", policy=""))

    lines = cluster.step(1.0)

    paths = {path.rpartition("/")[2]: said for path, said in cluster.patched}
    told = {name: forecasts.read_expected_start(said) for name, said in paths.items()}
    assert lines == ()
    assert set(told) == {"a", "b"}
    assert {(each.cluster_queue, each.pending) for each in told.values()} == {("gpu-cq", 3)}
    assert len({each.position for each in told.values()}) == 2
    assert min(each.at for each in told.values()) > UNIX


def test_what_has_not_changed_by_a_tenth_is_not_written_again(monkeypatch):
    monkeypatch.setattr(start_writer, "STEP_SECONDS", 1.0)
    monkeypatch.setattr(start_writer, "REST", 0.0)
    cluster = Cluster(waits("a"))

    for seconds in (1.0, 5.0, 10.0):
        cluster.step(seconds)

    assert len(cluster.patched) == 1


def test_nothing_is_looked_at_more_often_than_once_a_minute(monkeypatch):
    cluster = Cluster(waits("a"))
    looks = []
    monkeypatch.setattr(cluster.writer, "_forecast", lambda world: looks.append(world.now))

    for seconds in (1.0, 2.0, STEP_SECONDS, 1.0 + STEP_SECONDS):
        cluster.step(seconds)

    assert looks == [1.0, 1.0 + STEP_SECONDS]


def test_who_does_not_lead_or_knows_nothing_new_writes_nothing():
    for leads, age in ((False, 0.0), (True, 16.0)):
        cluster = Cluster(waits("a"))
        cluster.leads = leads

        cluster.step(20.0, age=age)

        assert cluster.patched == []


def test_many_are_written_a_few_at_a_time():
    cluster = Cluster(*(waits(f"job-{number}") for number in range(MOST_AT_ONCE + 3)))

    cluster.step(1.0)
    first = len(cluster.patched)
    cluster.step(2.0)

    assert (first, len(cluster.patched)) == (MOST_AT_ONCE, MOST_AT_ONCE + 3)


@pytest.mark.parametrize(
    ("error", "said"),
    [(NotServed("gone"), ()), (Unreachable("no route"), ("expected starts: no route",))],
)
def test_a_write_that_fails_is_told_once_and_one_job_that_has_gone_not(error, said):
    cluster = Cluster(waits("a"), waits("b"))
    cluster.error = error

    first, second = cluster.step(1.0), cluster.step(2.0)

    assert (first, second) == (said, ())


def test_the_annotation_is_short_json():
    cluster = Cluster(waits("a"))
    cluster.step(1.0)

    ((path, said),) = cluster.patched

    assert path.endswith("/jobs/a")
    assert set(json.loads(said[EXPECTED_START])) == {
        *("starts", "asOf", "clusterQueue", "position", "pending")
    }
