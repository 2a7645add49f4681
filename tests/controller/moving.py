"""A cluster as the controller's moves see it: what is watched of it, and what it answers."""

from __future__ import annotations

import json

import pytest

from tests.controller.stepping import Metered, at, values
from tests.reconsider.queued_jobs import (
    NOW,
    OPTIONS,
    RULES,
    lane,
    quota,
    rule,
    running,
    time,
    waiting,
)
from tests.state.objects import condition
from webhook.api import resources as kinds
from webhook.api.resources import Resource
from webhook.api.watch import WatchUpdate
from webhook.controller.mover import STEP_SECONDS, Mover
from webhook.jobs import JOB
from webhook.reconsider import pending_jobs
from webhook.state.feed import Feed
from webhook.state.readers import read_by_kind

DECISION = "kueue-fallback.dev/decision"
LATER = STEP_SECONDS + 1.0


def job(number, *, option="gpu", age=100, moves=0, moved_ago=0, version="1"):
    """A Job as the API server sends it, decided by the policy."""
    stay = {"time": time(moved_ago), "option": option, "reason": "moved"}
    decision = {
        "version": 1,
        "id": f"id-{number}",
        "time": "2026-11-21T05:58:00Z",
        "policy": "light-gpu",
        "mode": "Enforce",
        "option": option,
        "reason": "stays",
        "from": {"queue": "gpu-lq"},
        "original": {},
        "moves": moves,
        "history": [stay] if moves else [],
        "options": [
            {"name": name, "queue": f"{name}-lq", "clusterQueue": f"{name}-cq"}
            for name in ("gpu", "cpu")
        ],
    }
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "4"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"job-{number}",
            "namespace": "team",
            "uid": f"uid-{number}",
            "resourceVersion": version,
            "creationTimestamp": "2026-11-21T05:58:00Z",
            "labels": {
                "kueue.x-k8s.io/queue-name": f"{option}-lq",
                "kueue-fallback.dev/option": option,
            },
            "annotations": {DECISION: json.dumps(decision)},
        },
        "spec": {"suspend": True, "template": {"spec": {"containers": [container]}}},
        "status": {},
    }


class Cluster:
    """An API server with the webhook behind it, as far as moves are concerned."""

    def __init__(self, *, refuses=None, **version):
        self.patched, self.events, self.workloads, self.stored = [], [], [], {}
        self.version = {"major": "1", "minor": "36", **version}
        self.refuses = refuses

    def kueue_version(self):
        return "v1beta2"

    def get(self, path, params=None):
        if params is None:
            assert path == "/version"
            return self.version
        assert path == "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads"
        name = params["fieldSelector"].removeprefix("metadata.name=")
        return {"items": [self.stored[name]] if name in self.stored else []}

    def post(self, path, body):
        self.events.append((path, body))
        return body

    def patch(self, path, body):
        if "/workloads/" in path:
            self.workloads.append((path, body))
            return {}
        self.patched.append((path, body))
        if self.refuses:
            raise self.refuses
        number = path.rpartition("-")[2]
        return job(number, option=self.moved_to(body), moves=1, version="2")

    def moved_to(self, body):
        return body["metadata"]["annotations"]["kueue-fallback.dev/move-to"]


class Deaf(Cluster):
    """Its webhook is down: annotations are stored, and nothing else comes of them."""

    def moved_to(self, body):
        return "gpu"


@pytest.fixture
def feed():
    state_kinds = (kinds.CLUSTER_QUEUES, kinds.LOCAL_QUEUES, kinds.POLICIES)
    found = Feed([Resource(kind=kind, path="", read=read_by_kind) for kind in state_kinds], 0.0)
    tell(found, kinds.CLUSTER_QUEUES, quota("gpu", "4"), quota("cpu", "9"))
    tell(found, kinds.LOCAL_QUEUES, lane("gpu"), lane("cpu"))
    flavor = {"kind": "ResourceFlavor", "metadata": {"name": "a100"}, "spec": {}}
    tell(found, kinds.FLAVORS, flavor)
    tell(found, kinds.POLICIES, policy_object())
    tell(found, kinds.WORKLOADS, running("first"), *map(waiting, range(8)))
    return found


def policy_object():
    spec = rule().spec
    assert spec.reconsider is not None
    return {
        "apiVersion": "kueue-fallback.dev/v1alpha1",
        "kind": "FallbackPolicy",
        "metadata": {"name": "light-gpu"},
        "spec": {
            "mode": "Enforce",
            "match": {"jobSelector": {}},
            "options": [dict(option) for option in OPTIONS],
            "strategy": {"finishTime": {"runTime": "20s"}},
            "reconsider": RULES,
        },
    }


def tell(feed, kind, *objects):
    entries = tuple(read_by_kind(kind, source) for source in objects)
    feed.take(WatchUpdate(kind=kind, at=0.0, entries=entries))


class Moving(Metered):
    """A mover with its metrics."""

    def __init__(self, cluster, **given):
        def make(metrics):
            return Mover(cluster, "kueue-fallback", metrics=metrics, **given)

        super().__init__(make, "controller_moves")

    @property
    def in_flight(self):
        return self.part.in_flight

    @property
    def obstacles(self):
        return values(self.metrics, "controller_not_moved_jobs")


def mover(cluster, *jobs, **given):
    found = Moving(cluster, **given)
    list_pending(found, *jobs)
    return found


def list_pending(found, *jobs, kind=JOB):
    watched = pending_jobs.followed(kind)
    entries = tuple(watched.read(watched.kind, each) for each in jobs)
    found.part.take(WatchUpdate(kind=watched.kind, at=0.0, entries=entries))


def step(found, feed, now=0.0):
    feed.update(now, NOW + now)
    return found.step(at(now, NOW + now, snapshot=feed.published, feed=feed))


def eight():
    return [job(number) for number in range(8)]


def arrive(feed, cluster, found):
    """Let the Workloads of all moved Jobs follow."""
    for path, _ in cluster.patched:
        number = int(path.rpartition("-")[2])
        change(feed, cluster, waiting(number, queue="cpu-lq"))


def change(feed, cluster, workload):
    """Let a Workload be what it is now."""
    workload["metadata"]["resourceVersion"] = "5"
    cluster.stored[workload["metadata"]["name"]] = workload
    entry = read_by_kind(kinds.WORKLOADS, workload)
    feed.take(WatchUpdate(kind=kinds.WORKLOADS, at=0.0, event=("MODIFIED", entry)))


def stale(number, *, to="gpu", queue="cpu", reserved_ago=0, admitted_ago=0, ready=False):
    """A Workload that has followed its Job and holds quota where that was before."""
    times = {"QuotaReserved": reserved_ago, "Admitted": admitted_ago}
    since = {kind: time(ago) for kind, ago in times.items() if ago is not None}
    if ready:
        since["PodsReady"] = time(0)
    found = running(f"job-{number}", to)
    found["metadata"]["name"] = f"wl-{number}"
    found["spec"]["queueName"] = f"{queue}-lq"
    found["status"]["conditions"] = [
        {**condition(kind), "lastTransitionTime": at} for kind, at in since.items()
    ]
    return found
