"""Light Jobs of several kinds as they are submitted, and the Workloads that Kueue makes of them."""

import copy

from tests import builders
from tests.servers import paper_snapshot
from webhook.admission.patch import value_at
from webhook.jobs import BY_NAME
from webhook.model.queues import KueueConfig
from webhook.state.snapshot import updated

GPU = "nvidia.com/gpu"
LABELS = {"kueue.x-k8s.io/queue-name": "gpu-lq", "workload-type": "light-gpu"}


def pods(*, gpu=True, image="stable-diffusion", cpu="4", memory="6Gi", args=()):
    requests = {"cpu": cpu, "memory": memory, **({GPU: "1"} if gpu else {})}
    resources = {"requests": requests, **({"limits": {GPU: "1"}} if gpu else {})}
    container = {"name": "main", "image": image, "resources": resources}
    env = [{"name": "RUN_ENV", "value": "gpu"}]
    command = {"command": ["python", "run.py"], "args": list(args)}
    return {"spec": {"containers": [{**container, **command, "env": env}]}}


def small():
    return pods(gpu=False, image="small", cpu="1", memory="1Gi")


SPECS = {
    "Job": lambda light: {"template": light},
    "RayJob": lambda light: {
        "entrypoint": "python train.py",
        "rayClusterSpec": {
            "headGroupSpec": {"template": small()},
            "workerGroupSpecs": [{"groupName": "Workers", "replicas": 2, "template": light}],
        },
    },
    "JobSet": lambda light: {
        "replicatedJobs": [
            {"name": "driver", "template": {"spec": {"template": small()}}},
            {"name": "Workers", "replicas": 2, "template": {"spec": {"template": light}}},
        ]
    },
    "PyTorchJob": lambda light: {
        "pytorchReplicaSpecs": {
            "Master": {"replicas": 1, "template": small()},
            "Worker": {"replicas": 2, "template": light},
        }
    },
    "MPIJob": lambda light: {
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": small()},
            "Worker": {"replicas": 2, "template": light},
        }
    },
    "AppWrapper": lambda light: {
        "components": [
            {
                "template": {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "metadata": {"name": "wrapped"},
                    "spec": {"template": light},
                }
            }
        ]
    },
}
"""Each with the pods that ask for GPUs."""


def made(kind, name="train", *, light=None, labels=LABELS, **metadata):
    known = BY_NAME[kind]
    return {
        "apiVersion": known.api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"{kind}-{name}",
            "creationTimestamp": "2026-11-21T06:00:00Z",
            "labels": dict(labels),
            **metadata,
        },
        "spec": SPECS[kind](copy.deepcopy(light or pods())),
    }


def _made_by_its_controller(template):
    containers = [
        {
            "name": each.name,
            "image": each.image,
            "resources": {"requests": each.resources.requests, "limits": each.resources.limits},
        }
        for each in template.containers
    ]
    return {"spec": {"containers": containers}}


def workload_of(source, *, uid="w-1", queue=None, **status):
    """The Workload of a Job as it is: with all its pod sets, and owned by it."""
    job = BY_NAME[source["kind"]].read(source)
    pod_sets = [
        {
            "name": pod_set.name,
            "count": pod_set.count,
            "template": value_at(source, pod_set.path)
            if pod_set.path
            else _made_by_its_controller(pod_set.template),
        }
        for pod_set in job.pod_sets
    ]
    owner = {"apiVersion": source["apiVersion"], "kind": source["kind"], "name": job.name}
    metadata = source["metadata"]
    return {
        "kind": "Workload",
        "metadata": {
            "uid": uid,
            "name": f"{source['kind'].lower()}-{job.name}-a0cfe",
            "namespace": job.namespace,
            "creationTimestamp": metadata["creationTimestamp"],
            "ownerReferences": [{**owner, "uid": metadata["uid"], "controller": True}],
        },
        "spec": {"queueName": job.queue if queue is None else queue, "podSets": pod_sets},
        "status": status,
    }


def kind_of_review(source):
    known = BY_NAME[source["kind"]]
    return {"group": known.group, "version": known.version, "kind": known.kind}


def snapshot(**rest):
    """The paper's queues with a full GPU queue, and its rule for Jobs of these kinds."""
    policy = builders.policy(
        match={
            "jobSelector": {"matchLabels": {"workload-type": "light-gpu"}},
            "kinds": list(SPECS),
        },
        threshold=builders.PAPER_THRESHOLD,
    )
    frameworks = tuple(BY_NAME[kind].framework for kind in SPECS)
    given = {"policies": (policy,), "kueue": KueueConfig(frameworks=frameworks), **rest}
    return updated(paper_snapshot(), **given)
