"""What Kueue's own webhooks refuse in Jobs that name a queue, and so we add none to them."""

import pytest

from webhook.jobs import BY_NAME

PODS = {"spec": {"containers": [{"name": "main"}]}}
CLUSTER = {"headGroupSpec": {"template": PODS}}
AUTOSCALED = {**CLUSTER, "enableInTreeAutoscaling": True}
NAMED_HEAD = {**CLUSTER, "workerGroupSpecs": [{"groupName": "head", "template": PODS}]}
ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}
SPARK = {"mode": "cluster", "driver": {}, "executor": {}}


def rayjob(cluster=CLUSTER, **spec):
    return {"rayClusterSpec": cluster, "shutdownAfterJobFinishes": True, **spec}


@pytest.mark.parametrize(
    ("kind", "spec", "annotations", "refused"),
    [
        ("RayJob", rayjob(), {}, ""),
        (
            "RayJob",
            rayjob(shutdownAfterJobFinishes=False),
            {},
            "it does not set spec.shutdownAfterJobFinishes",
        ),
        ("RayJob", rayjob(AUTOSCALED), ELASTIC, ""),
        (
            "RayJob",
            rayjob(NAMED_HEAD),
            {},
            "spec.rayClusterSpec.workerGroupSpecs[0].groupName is head",
        ),
        ("RayCluster", CLUSTER, {}, ""),
        (
            "RayCluster",
            AUTOSCALED,
            {},
            "it sets spec.enableInTreeAutoscaling and is no elastic Job",
        ),
        ("RayCluster", NAMED_HEAD, {}, "spec.workerGroupSpecs[0].groupName is head"),
        ("SparkApplication", SPARK, {}, ""),
        (
            "SparkApplication",
            {**SPARK, "mode": "client"},
            {},
            "its mode is client, and Kueue takes cluster alone",
        ),
        (
            "SparkApplication",
            {**SPARK, "dynamicAllocation": {"enabled": True}},
            {},
            "it uses dynamicAllocation and is no elastic Job",
        ),
        ("SparkApplication", {**SPARK, "dynamicAllocation": {"enabled": True}}, ELASTIC, ""),
    ],
)
def test_a_job_says_what_kueue_would_refuse_if_it_named_a_queue(kind, spec, annotations, refused):
    metadata = {"name": "x", "namespace": "team", "annotations": annotations}

    assert BY_NAME[kind].read({"metadata": metadata, "spec": spec}).refused_with_queue == refused


def jobset(name, **job):
    workers = {"name": "workers", "replicas": 9, "template": {"spec": {"template": PODS, **job}}}
    return {"replicatedJobs": [workers]}


@pytest.mark.parametrize(
    ("kind", "name", "most"),
    [
        ("JobSet", {"name": "short"}, 2**31 - 1),
        ("JobSet", {"name": "t" * 44}, 100),
        ("JobSet", {"name": "t" * 45}, 10),
        ("JobSet", {"generateName": "t" * 40}, 10),
        ("JobSet", {"name": "t" * 60}, 9),
        ("PyTorchJob", {"name": "t" * 53}, 100),
        ("PyTorchJob", {"name": "t" * 54}, 10),
        ("MPIJob", {"name": "t" * 54}, 10),
    ],
)
def test_no_more_replicas_than_names_have_room_for(kind, name, most):
    workers = {"Worker": {"replicas": 9, "template": PODS}}
    spec = {
        "JobSet": jobset("workers", completions=1),
        "PyTorchJob": {"pytorchReplicaSpecs": workers},
        "MPIJob": {"mpiReplicaSpecs": workers},
    }[kind]

    (pod_set,) = BY_NAME[kind].read({"metadata": name, "spec": spec}).pod_sets

    assert pod_set.replicas.most == most
