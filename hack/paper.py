"""The queues, Jobs and policy of the paper's experiment, under any names. Pure.

The paper is on dynamic selection of the ClusterQueue; its system is
https://github.com/Kimcheolhui/kueue-scheduling.
4 GPUs of one kind against 24 CPUs with 60Gi; each Job asks for 4 CPUs, 6Gi and a GPU; light Jobs
could do without the GPU, at 3.5 times the run time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hack.kwok import ACCELERATOR_LABEL, GPU

Object = dict[str, Any]

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
LIGHT: Final[Mapping[str, str]] = {"workload-type": "light-gpu"}
HEAVY: Final[Mapping[str, str]] = {"workload-type": "heavy-gpu"}
HEAVY_SECONDS: Final = 32.0
LIGHT_SECONDS: Final = 20.0
LIGHT_SECONDS_ON_CPU: Final = 70.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names of one set of queues; the cluster-scoped ones differ from test to test."""

    namespace: str = "default"
    gpu_queue: str = "gpu-lq"
    cpu_queue: str = "cpu-lq"
    gpu_cluster_queue: str = "gpu-cq"
    cpu_cluster_queue: str = "cpu-cq"
    gpu_flavor: str = "t4"
    cpu_flavor: str = "default"
    policy: str = "light-gpu"


def names_with(suffix: str, *, namespace: str) -> Names:
    """Return names of which the cluster-scoped ones end in the suffix."""
    return Names(
        namespace=namespace,
        gpu_cluster_queue=f"gpu-cq-{suffix}",
        cpu_cluster_queue=f"cpu-cq-{suffix}",
        gpu_flavor=f"t4-{suffix}",
        cpu_flavor=f"default-{suffix}",
        policy=f"light-gpu-{suffix}",
    )


def namespace(names: Names) -> Object:
    """Return the queues' own namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.namespace}}


def queues(names: Names) -> list[Object]:
    """Return two ResourceFlavors, two ClusterQueues and two LocalQueues, in order of creation."""
    gpu_quota = {"cpu": "1000", "memory": "4000Gi", GPU: "4"}
    cpu_quota = {"cpu": "24", "memory": "60Gi"}
    return [
        resource_flavor(names.gpu_flavor, node_labels={ACCELERATOR_LABEL: "t4"}),
        resource_flavor(names.cpu_flavor),
        cluster_queue(names.gpu_cluster_queue, flavor=names.gpu_flavor, quota=gpu_quota),
        cluster_queue(names.cpu_cluster_queue, flavor=names.cpu_flavor, quota=cpu_quota),
        local_queue(names.gpu_queue, names.namespace, cluster_queue=names.gpu_cluster_queue),
        local_queue(names.cpu_queue, names.namespace, cluster_queue=names.cpu_cluster_queue),
    ]


def resource_flavor(name: str, *, node_labels: Mapping[str, str] | None = None) -> Object:
    spec = {"nodeLabels": dict(node_labels)} if node_labels else {}
    return _object(KUEUE, "ResourceFlavor", {"name": name}, spec)


def cluster_queue(name: str, *, flavor: str, quota: Mapping[str, str]) -> Object:
    resources = [{"name": resource, "nominalQuota": amount} for resource, amount in quota.items()]
    group = {
        "coveredResources": list(quota),
        "flavors": [{"name": flavor, "resources": resources}],
    }
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    return _object(KUEUE, "ClusterQueue", {"name": name}, spec)


def local_queue(name: str, namespace: str, *, cluster_queue: str) -> Object:
    metadata = {"name": name, "namespace": namespace}
    return _object(KUEUE, "LocalQueue", metadata, {"clusterQueue": cluster_queue})


def light_job(name: str, names: Names, *, faster: float = 1.0) -> Object:
    """Return a Job that could do without its GPU; `faster` divides its run times."""
    run = {"gpu-run": LIGHT_SECONDS / faster, "cpu-run": LIGHT_SECONDS_ON_CPU / faster}
    return gpu_job(name, names, labels=LIGHT, run=run)


def heavy_job(name: str, names: Names, *, faster: float = 1.0) -> Object:
    return gpu_job(name, names, labels=HEAVY, run={"gpu-run": HEAVY_SECONDS / faster})


def gpu_job(
    name: str, names: Names, *, labels: Mapping[str, str], run: Mapping[str, float]
) -> Object:
    """Return a Job of one GPU in the GPU queue; `run` holds seconds of gpu-run and cpu-run."""
    requests = {"cpu": "4", "memory": "6Gi", GPU: "1"}
    container = {
        "name": "main",
        "image": "stable-diffusion",
        "env": [{"name": "RUN_ENV", "value": "gpu"}],
        "resources": {"requests": requests, "limits": {GPU: "1"}},
    }
    return job(
        name,
        names.namespace,
        labels={QUEUE_LABEL: names.gpu_queue, **labels},
        run=run,
        container=container,
    )


def job(
    name: str,
    namespace: str,
    *,
    labels: Mapping[str, str],
    run: Mapping[str, float],
    container: Object,
) -> Object:
    """Return a Job of one pod that runs for the seconds in `run`, by device."""
    annotations = {f"sim.example.com/{key}": f"{value * 1000:.0f}ms" for key, value in run.items()}
    pod = {"restartPolicy": "Never", "containers": [container]}
    template = {"metadata": {"annotations": annotations}, "spec": pod}
    metadata = {"name": name, "namespace": namespace, "labels": dict(labels)}
    return _object("batch/v1", "Job", metadata, {"backoffLimit": 0, "template": template})


def policy(names: Names, *, mode: str = "Enforce") -> Object:
    """Return the paper's rule as a FallbackPolicy for the light Jobs of one namespace."""
    selector = {"matchLabels": {"kubernetes.io/metadata.name": names.namespace}}
    adaptation = {
        "accelerator": "Remove",
        "env": {"RUN_ENV": "cpu"},
    }
    threshold = [
        {"option": "gpu", "orPendingBelow": 10},
        {"option": "cpu", "andReservingBelow": 3},
    ]
    spec = {
        "mode": mode,
        "match": {"namespaceSelector": selector, "jobSelector": {"matchLabels": dict(LIGHT)}},
        "options": [
            {"name": "gpu", "queue": names.gpu_queue},
            {"name": "cpu", "queue": names.cpu_queue, "adaptation": adaptation},
        ],
        "strategy": {"type": "Threshold", "threshold": threshold},
    }
    metadata = {"name": names.policy}
    return _object("kueue-fallback.dev/v1alpha1", "FallbackPolicy", metadata, spec)


def _object(api_version: str, kind: str, metadata: Object, spec: Object) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
