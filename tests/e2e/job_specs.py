"""One Job of each kind, made of the paper's pods, and what Kueue and its controller make of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from hack import paper
from hack.api import Object
from hack.kwok import GPU
from tests.e2e.lives import RUNS_ON
from webhook.jobs import BY_NAME

SERVING = ("Deployment", "LeaderWorkerSet", "StatefulSet")
"""What never ends, and is queued by its pods."""
RUNTIME = "paper"
_OWN_NAME = "name-of-the-job"


def made(kind: str, names: paper.Names, *, labels: Mapping[str, str], name: str = "") -> Object:
    """Return one in the GPU queue; without a name it is called by its kind."""
    name = name or kind.lower()
    metadata = {"name": name, "namespace": names.namespace}
    metadata["labels"] = {paper.QUEUE_LABEL: names.gpu_queue, **labels}
    version, spec = BY_NAME[kind].api_version, SPECS[kind]()
    spec = json.loads(json.dumps(spec).replace(_OWN_NAME, name))
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def pods() -> Object:
    """Return the pods of one of the paper's Jobs, which ask for a GPU and for its nodes."""
    spec = paper.gpu_job("any", paper.Names(), labels={}, run={})["spec"]["template"]["spec"]
    spec = {**spec, "nodeSelector": {"nvidia.com/gpu.present": "true"}}
    return {"metadata": {"annotations": RUNS_ON}, "spec": spec}


def small() -> Object:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    container = {"name": "small", "image": "stable-diffusion", "resources": resources}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"metadata": {"annotations": RUNS_ON}, "spec": spec}


def _restarted(template: Object) -> Object:
    """Return pods of which the controller says when they restart."""
    del template["spec"]["restartPolicy"]
    return template


def _wrapped() -> Object:
    metadata, spec = {"name": _OWN_NAME}, {"backoffLimit": 0, "template": pods()}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    return {"components": [{"template": job}]}


def _replicas(field: str, first: str | None, container: str = "main") -> Object:
    """Return the pods of a framework; its webhook asks for a container of this name."""
    specs: Object = {"Worker": {"replicas": 1, "template": pods()}}
    if first:
        specs[first] = {"replicas": 1, "template": small()}
    for spec in specs.values():
        spec["template"]["spec"]["containers"][0]["name"] = container
    return {field: specs}


def _ray_cluster() -> Object:
    workers = {"groupName": "Workers", "replicas": 1, "minReplicas": 1, "maxReplicas": 1}
    workers |= {"rayStartParams": {}, "template": _restarted(pods())}
    head = {"rayStartParams": {}, "template": _restarted(small())}
    return {"headGroupSpec": head, "workerGroupSpecs": [workers]}


def _ray_job() -> Object:
    """Return a RayJob whose submitter runs as long as the Ray job that it follows.

    KubeRay fails a RayJob that goes on for half a minute after its submitter has ended.
    """
    return {
        "entrypoint": "python train.py",
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": _ray_cluster(),
        "submitterPodTemplate": small(),
        "submitterConfig": {"backoffLimit": 0},
    }


def _spark() -> Object:
    return {
        "type": "Python",
        "mode": "cluster",
        "sparkVersion": "4.0.0",
        "mainApplicationFile": "local:///train.py",
        "driver": {"coreRequest": "1", "memory": "1g", "annotations": dict(RUNS_ON)},
        "executor": {
            "annotations": dict(RUNS_ON),
            "instances": 1,
            "coreRequest": "4",
            "memory": "6g",
            "gpu": {"name": GPU, "quantity": 1},
            "env": [{"name": "RUN_ENV", "value": "gpu"}],
            "nodeSelector": {"nvidia.com/gpu.present": "true"},
        },
    }


def _serving() -> Object:
    template = _restarted(pods())
    template["metadata"]["labels"] = {"app": _OWN_NAME}
    return {"replicas": 1, "selector": {"matchLabels": {"app": _OWN_NAME}}, "template": template}


def _group() -> Object:
    template = _restarted(pods())
    return {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}}


def training_runtime() -> Object:
    """Return the paper's pods as a runtime; what it pins to nodes, no TrainJob could take off."""
    template = pods()
    del template["spec"]["nodeSelector"]
    template["spec"]["containers"][0]["name"] = "node"
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    spec = {"backoffLimit": 0, "template": template}
    job = {"metadata": {"labels": labels}, "spec": spec}
    jobs = [{"name": "node", "replicas": 1, "template": job}]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": RUNTIME},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": jobs}}},
    }


SPECS: Mapping[str, Callable[[], Object]] = {
    "AppWrapper": _wrapped,
    "Deployment": _serving,
    "JAXJob": lambda: _replicas("jaxReplicaSpecs", None, "jax"),
    "JobSet": lambda: {
        "replicatedJobs": [
            {"name": "workers", "template": {"spec": {"backoffLimit": 0, "template": pods()}}}
        ]
    },
    "LeaderWorkerSet": _group,
    "MPIJob": lambda: _replicas("mpiReplicaSpecs", "Launcher"),
    "PaddleJob": lambda: _replicas("paddleReplicaSpecs", "Master", "paddle"),
    "Pod": lambda: dict(pods()["spec"]),
    "PyTorchJob": lambda: _replicas("pytorchReplicaSpecs", "Master", "pytorch"),
    "RayCluster": _ray_cluster,
    "RayJob": _ray_job,
    "SparkApplication": _spark,
    "StatefulSet": _serving,
    "TFJob": lambda: _replicas("tfReplicaSpecs", "Chief", "tensorflow"),
    "TrainJob": lambda: {"runtimeRef": {"name": RUNTIME}, "trainer": {"numNodes": 1}},
    "XGBoostJob": lambda: _replicas("xgbReplicaSpecs", "Master", "xgboost"),
}
POD_SETS: Mapping[str, list[str]] = {
    "AppWrapper": ["appwrapper-0"],
    "Deployment": ["main"],
    "JAXJob": ["worker"],
    "JobSet": ["workers"],
    "LeaderWorkerSet": ["main"],
    "MPIJob": ["launcher", "worker"],
    "PaddleJob": ["master", "worker"],
    "Pod": ["main"],
    "PyTorchJob": ["master", "worker"],
    "RayCluster": ["head", "workers"],
    "RayJob": ["head", "workers", "submitter"],
    "SparkApplication": ["driver", "executor"],
    "StatefulSet": ["main"],
    "TFJob": ["chief", "worker"],
    "TrainJob": ["node"],
    "XGBoostJob": ["master", "worker"],
}
"""The pod sets of the Workload of each."""
PODS = {kind: len(names) for kind, names in POD_SETS.items()} | {"LeaderWorkerSet": 2}
