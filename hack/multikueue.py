"""`make up CLUSTERS=3`: worker clusters with the GPUs, behind the one of `make up`.

usage: python -m hack.multikueue WORKER...
"""

import base64
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from hack import kueue
from hack.cluster import ROOT, Cluster
from hack.kwok import GPU
from hack.paper import KUEUE, Names, queues
from webhook.state.cluster_watches import PREFIX

Object = dict[str, Any]

CONTROLLER: Final = "kueue.x-k8s.io/multikueue"
WORKERS: Final = ("worker", "worker-2")
"""The clusters that `make up CLUSTERS=3` puts behind the first."""
READER: Final = "manager-reader"
READER_MANIFEST: Final = ROOT / "examples/worker-reader.yaml"
CHECK: Final = "gpu-clusters"
SECRET_KEY: Final = "kubeconfig"  # noqa: S105 - a name


def worker(name: str, kubeconfig: Path) -> list[Object]:
    """Return one worker and the Secret by which Kueue reaches it."""
    return [
        kubeconfig_secret(name, kueue.NAMESPACE, kubeconfig),
        {
            "apiVersion": KUEUE,
            "kind": "MultiKueueCluster",
            "metadata": {"name": name},
            "spec": {"clusterSource": {"kubeConfig": {"location": name, "locationType": "Secret"}}},
        },
    ]


def kubeconfig_secret(name: str, namespace: str, kubeconfig: Path) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "data": {SECRET_KEY: base64.b64encode(kubeconfig.read_bytes()).decode()},
    }


def check(clusters: Sequence[str], name: str = CHECK) -> list[Object]:
    """Return the AdmissionCheck that sends Workloads to one of the clusters."""
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": name}
    return [
        {
            "apiVersion": KUEUE,
            "kind": "MultiKueueConfig",
            "metadata": {"name": name},
            "spec": {"clusters": list(clusters)},
        },
        {
            "apiVersion": KUEUE,
            "kind": "AdmissionCheck",
            "metadata": {"name": name},
            "spec": {"controllerName": CONTROLLER, "parameters": parameters},
        },
    ]


def with_check(queue: Object, name: str = CHECK) -> Object:
    """Return the ClusterQueue with an AdmissionCheck."""
    strategy = {"admissionChecks": [{"name": name}]}
    return {**queue, "spec": {**queue["spec"], "admissionChecksStrategy": strategy}}


def manager_queues(names: Names, *, gpus: str = "4", check_name: str = CHECK) -> list[Object]:
    """Return the paper's queues at the manager: its GPU queue is on the workers."""
    items = queues(names)
    number = next(i for i, item in enumerate(items) if _name(item) == names.gpu_cluster_queue)
    items[number] = with_check(_with_gpus(items[number], gpus), check_name)
    return items


def _with_gpus(queue: Object, gpus: str) -> Object:
    quota = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    next(cell for cell in quota if cell["name"] == GPU)["nominalQuota"] = gpus
    return queue


def _name(item: Object) -> str:
    name: str = item["metadata"]["name"]
    return name


def worker_queues(names: Names, *, gpus: str = "4") -> list[Object]:
    """Return the GPU queue as a worker has it: MultiKueue wants the LocalQueue's own name."""
    gpu_flavor, _, gpu_queue, _, gpu_local_queue, _ = queues(names)
    return [gpu_flavor, _with_gpus(gpu_queue, gpus), gpu_local_queue]


def main() -> None:
    names = Names(namespace="research")
    manager, workers = Cluster(), [Cluster(name=name) for name in sys.argv[1:]]
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": names.namespace},
    }
    links = check([behind.name for behind in workers])
    for behind in workers:
        if not behind.kubeconfig.exists():
            starting = [sys.executable, "-m", "hack.up", "--name", behind.name, "--bare"]
            subprocess.run(starting, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        _apply(behind, [namespace, *worker_queues(names)])
        _apply(behind, [item for item in yaml.safe_load_all(READER_MANIFEST.read_text()) if item])
        links += [*worker(behind.name, behind.kubeconfig), _reader(behind)]
    gpus = str(4 * len(workers))
    _apply(manager, [namespace, *links, *manager_queues(names, gpus=gpus)])
    print(
        NEXT_STEPS.format(
            workers=" and ".join(behind.name for behind in workers),
            queue=names.gpu_queue,
            kubeconfig=os.path.relpath(workers[0].kubeconfig),
            clusters=len(workers) + 1,
        )
    )


NEXT_STEPS: Final = """
Behind it: {workers}. Jobs of LocalQueue {queue} run there, through MultiKueue.
Leave out examples/queues.yaml: the queues are there, in namespace research.
  kubectl get multikueueclusters
  KUBECONFIG={kubeconfig} kubectl get jobs -n research
  make down CLUSTERS={clusters}"""


def _reader(cluster: Cluster) -> Object:
    """Return the Secret by which the webhook at the manager looks at a worker's queues."""
    asked = ("create", "token", READER, "--namespace=kueue-fallback", "--duration=720h")
    token = subprocess.run(
        [cluster.programs / "kubectl", "--kubeconfig", cluster.kubeconfig, *asked],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = cluster.folder / f"{READER}.kubeconfig"
    path.touch(0o600)
    path.write_text(yaml.safe_dump(config))
    return kubeconfig_secret(f"{PREFIX}{cluster.name}", "kueue-fallback", path)


def _apply(cluster: Cluster, items: Sequence[Object]) -> None:
    subprocess.run(
        [cluster.programs / "kubectl", "--kubeconfig", cluster.kubeconfig, "apply", "-f", "-"],
        input=yaml.safe_dump_all(items),
        text=True,
        check=True,
        stdout=subprocess.DEVNULL,
    )


if __name__ == "__main__":
    main()
