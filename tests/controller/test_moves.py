"""What the controller writes for a move, and what it makes of the answers."""

from __future__ import annotations

import json

import pytest

from tests.test_reconsider import NOW, OPTIONS, RULES, lane, quota, rule, running, waiting
from webhook.cluster import resources as kinds
from webhook.cluster.errors import Refused
from webhook.cluster.feed import Feed
from webhook.cluster.reduce import read
from webhook.cluster.resources import Resource
from webhook.cluster.watch import Message
from webhook.controller import pending
from webhook.controller.moves import CONFIRM_SECONDS, LOOK_SECONDS, Mover

DECISION = "kueue-fallback.dev/decision"
LATER = LOOK_SECONDS + 1.0


def job(number, *, option="gpu", age=100, moves=0, version="1"):
    """A Job as the API server sends it, decided by the policy."""
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
        self.patched, self.events, self.workloads = [], [], []
        self.version = {"major": "1", "minor": "36", **version}
        self.refuses = refuses

    def kueue_version(self):
        return "v1beta2"

    def get(self, path, params=None):
        assert path == "/version"
        return self.version

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
    found = Feed([Resource(kind=kind, path="") for kind in state_kinds], 0.0)
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
    entries = tuple(read(kind, source) for source in objects)
    feed.take(Message(kind=kind, at=0.0, entries=entries))


def mover(cluster, *jobs, **given):
    found = Mover(cluster, "kueue-fallback", **given)
    entries = tuple(pending.read(pending.PENDING_JOBS, each) for each in jobs)
    found.take(Message(kind=pending.PENDING_JOBS, at=0.0, entries=entries))
    return found


def step(found, feed, now=0.0):
    feed.update(now, NOW + now)
    return found.step(feed, feed.published, now=now, unix=NOW + now)


def eight():
    return [job(number) for number in range(8)]


def test_a_move_is_one_annotation_with_the_resource_version(feed):
    cluster = Cluster()

    step(mover(cluster, *eight()), feed)

    ((path, body),) = cluster.patched
    assert path.startswith("/apis/batch/v1/namespaces/team/jobs/job-")
    assert body["metadata"]["resourceVersion"] == "1"
    annotations = body["metadata"]["annotations"]
    assert annotations["kueue-fallback.dev/move-to"] == "cpu"
    assert annotations["kueue-fallback.dev/move-reason"].startswith("done in ")
    assert set(body) == {"metadata"}
    assert "labels" not in body["metadata"]


def test_no_more_are_in_flight_than_were_seen_to_arrive(feed):
    cluster = Cluster()
    found = mover(cluster, *eight())

    step(found, feed)
    step(found, feed, now=LATER)
    first = len(cluster.patched)
    arrive(feed, cluster, found)
    stepped = step(found, feed, now=2 * LATER)

    assert first == 1
    assert len(stepped.moved) == 1
    assert len(cluster.patched) == 3
    ((path, event),) = cluster.events
    assert path == "/api/v1/namespaces/team/events"
    assert (event["reason"], event["type"]) == ("Moved", "Normal")
    assert event["message"].startswith("moved from gpu to cpu: done in ")


def arrive(feed, cluster, found, *, reserved_in=""):
    """Let the Workloads of all moved Jobs follow."""
    for path, _ in cluster.patched:
        number = int(path.rpartition("-")[2])
        changed = waiting(number, queue="cpu-lq")
        if reserved_in:
            changed = running(f"job-{number}", reserved_in)
            changed["spec"]["queueName"] = "cpu-lq"
            changed["metadata"]["name"] = f"wl-{number}"
        entry = read(kinds.WORKLOADS, changed)
        feed.take(Message(kind=kinds.WORKLOADS, at=0.0, event=("MODIFIED", entry)))


def test_a_stale_admission_is_taken_back_and_then_let_go_on(feed):
    cluster = Cluster()
    found = mover(cluster, *eight())
    step(found, feed)
    arrive(feed, cluster, found, reserved_in="gpu")

    stepped = step(found, feed, now=1.0)

    ((path, body),) = cluster.workloads
    assert "/namespaces/team/workloads/wl-" in path
    assert body["spec"] == {"active": False}
    assert stepped.outcomes["light-gpu", "repaired"] == 1

    number = int(path.rpartition("-")[2])
    freed = waiting(number, queue="cpu-lq", active=False)
    freed["metadata"]["annotations"] = {"kueue-fallback.dev/repair": "gpu-cq"}
    entry = read(kinds.WORKLOADS, freed)
    feed.take(Message(kind=kinds.WORKLOADS, at=0.0, event=("MODIFIED", entry)))
    step(found, feed, now=2.0)

    assert cluster.workloads[1][1]["spec"] == {"active": True}
    assert cluster.workloads[1][1]["metadata"]["annotations"] == {"kueue-fallback.dev/repair": None}


def test_what_no_workload_shows_is_given_up(feed):
    found = mover(Cluster(), *eight())
    step(found, feed)

    stepped = step(found, feed, now=CONFIRM_SECONDS + 1)

    assert stepped.outcomes["light-gpu", "lost"] == 1


@pytest.mark.parametrize(
    ("cluster", "outcome"),
    [
        (Cluster(refuses=Refused(409, "changed")), "conflict"),
        (Cluster(refuses=Refused(422, "field is immutable")), "refused"),
        (Deaf(), "refused"),
    ],
)
def test_a_move_that_does_not_come_off_is_counted(feed, cluster, outcome):
    found = mover(cluster, *eight())

    stepped = step(found, feed)

    assert dict(stepped.outcomes) == {("light-gpu", outcome): 1}
    assert found.in_flight == 0


def test_a_refused_job_is_left_for_a_while(feed):
    cluster = Deaf()
    found = mover(cluster, job(7))

    step(found, feed)
    step(found, feed, now=LATER)

    assert len(cluster.patched) == 1


def test_who_may_not_write_moves_nothing(feed):
    cluster = Cluster()

    step(mover(cluster, *eight(), may_write=lambda: False), feed)

    assert not cluster.patched


@pytest.mark.parametrize(
    "version",
    [
        {"minor": "35"},
        {"minor": "35+"},
        {"emulationMajor": "1", "emulationMinor": "33"},
        {"minor": ""},
    ],
)
def test_older_kubernetes_is_not_asked(feed, version):
    cluster = Cluster(**version)

    stepped = step(mover(cluster, *eight()), feed)

    assert not cluster.patched
    assert {str(obstacle) for _, obstacle in stepped.obstacles or ()} == {"olderKubernetes"}
