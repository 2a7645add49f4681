"""What Kueue counts of what serves, and that it is decided at its creation only."""

import pytest

from tests.builders import policy
from tests.servers import paper_snapshot
from webhook.adapt.adaptation import adapt
from webhook.decide import match
from webhook.jobs import BY_NAME
from webhook.kueue import requests
from webhook.model.queues import KueueConfig
from webhook.model.reasons import Obstacle, Skip
from webhook.model.snapshot_parts import ClusterObjects

DEPLOYMENT, STATEFULSET = BY_NAME["Deployment"], BY_NAME["StatefulSet"]
LWS = BY_NAME["LeaderWorkerSet"]
PARENT = "kueue.x-k8s.io/pod-suspending-parent"
ONE = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}


def served(kind, *, replicas=None, parent="", metadata=None):
    annotations = {PARENT: parent} if parent else {}
    spec = {"template": {"metadata": {"annotations": annotations}, **ONE}}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": "web", "namespace": "team", **(metadata or {})},
        "spec": spec if replicas is None else {**spec, "replicas": replicas},
    }


def lws(*, replicas=2, size=4, leader=True):
    group = {"size": size, "workerTemplate": ONE, **({"leaderTemplate": ONE} if leader else {})}
    metadata = {"name": "web", "namespace": "team"}
    return {"metadata": metadata, "spec": {"replicas": replicas, "leaderWorkerTemplate": group}}


@pytest.mark.parametrize(
    ("kind", "source", "workloads", "pods"),
    [
        (DEPLOYMENT, served(DEPLOYMENT, replicas=3), 3, [("main", 1)]),
        (DEPLOYMENT, served(DEPLOYMENT), 1, [("main", 1)]),
        (STATEFULSET, served(STATEFULSET, replicas=3), 1, [("main", 3)]),
        (STATEFULSET, served(STATEFULSET), 1, [("main", 1)]),
        (LWS, lws(), 2, [("leader", 1), ("worker", 3)]),
        (LWS, lws(leader=False), 2, [("main", 4)]),
        (LWS, lws(replicas=None, size=None), 1, [("leader", 1), ("worker", 0)]),
    ],
)
def test_pods_are_counted_one_by_one_together_or_in_groups(kind, source, workloads, pods):
    job = kind.read(source)

    needs = requests.needs(job, ClusterObjects(), KueueConfig())
    assert (job.workloads, [(each.name, each.count) for each in needs]) == (workloads, pods)
    assert {each.per_pod["nvidia.com/gpu"] for each in needs} == {1}


@pytest.mark.parametrize(
    "job",
    [
        STATEFULSET.read(served(STATEFULSET, parent="leaderworkerset.x-k8s.io/leaderworkerset")),
        DEPLOYMENT.read(served(DEPLOYMENT, replicas=0)),
        LWS.read(lws(replicas=0)),
    ],
)
def test_what_has_no_pods_or_is_a_part_of_another_is_not_decided(job):
    snapshot = paper_snapshot()

    assert job.pod_sets == ()
    assert match.skip(job, snapshot) in (Skip.NO_POD_SETS, Skip.KIND_NOT_MANAGED)


def test_leader_and_workers_are_edited_at_their_own_places():
    before = LWS.read(lws())
    _, cpu = policy().spec.options

    edits = LWS.edits(before, adapt(before, cpu))

    assert {edit.path[:3] for edit in edits} == {
        ("spec", "leaderWorkerTemplate", "leaderTemplate"),
        ("spec", "leaderWorkerTemplate", "workerTemplate"),
    }


@pytest.mark.parametrize("kind", [STATEFULSET, LWS])
def test_what_makes_its_pods_in_an_order_never_ends_and_is_never_moved(kind):
    assert not kind.finishes
    assert kind.held_back(lws()) is Obstacle.CREATION_ONLY
    assert kind.immutable((), None) is Obstacle.CREATION_ONLY


@pytest.mark.parametrize(
    ("spec", "metadata", "obstacle"),
    [
        ({"strategy": {"type": "RollingUpdate"}}, {}, None),
        ({"strategy": {"type": "Recreate"}}, {}, Obstacle.RECREATES),
        ({"paused": True}, {}, Obstacle.PAUSED),
        ({}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, Obstacle.BEING_DELETED),
    ],
)
def test_a_deployment_is_moved_if_its_rollout_can_keep_old_pods(spec, metadata, obstacle):
    source = served(DEPLOYMENT, metadata=metadata)

    assert not DEPLOYMENT.finishes
    assert DEPLOYMENT.held_back({**source, "spec": {**source["spec"], **spec}}) is obstacle


@pytest.mark.parametrize("kind", [DEPLOYMENT, STATEFULSET, LWS])
def test_it_may_be_created_anew_as_long_as_none_of_its_pods_serves(kind):
    source = served(kind)

    assert kind.kept_from_anew(source) is None
    assert kind.kept_from_anew({**source, "status": {"readyReplicas": 1}}) is Obstacle.PODS_ACTIVE
    deleted = served(kind, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert kind.kept_from_anew(deleted) is Obstacle.BEING_DELETED


def test_kueues_note_on_the_pods_stands_for_a_suspension():
    noted = served(DEPLOYMENT, parent="deployment")

    assert [DEPLOYMENT.is_suspended(source) for source in (served(DEPLOYMENT), noted)] == [
        False,
        True,
    ]
