"""A manager with many GPU clusters behind MultiKueue, all of them played, and a webhook beside it.

It needs no control plane, so that what is asked is the server process alone, with as many watches
as that many clusters take.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hack import kueue, multikueue, paper, tools
from hack.api import Object
from hack.embedded.api_server import EmbeddedServer
from hack.install import NAMESPACE
from hack.kwok import GPU
from webhook.state.cluster_watches import PREFIX

NAMES: Final = paper.Names(namespace="team")
WORKERS: Final = tuple(f"worker-{number}" for number in range(10))
PENDING: Final = 3
"""Workloads that wait on each worker, beside those that hold its GPUs."""
GPUS: Final = 4
RUN_SECONDS: Final = 20
_SINCE: Final = "2026-01-01T00:00:00Z"


@contextlib.contextmanager
def played(folder: Path) -> Iterator[tuple[EmbeddedServer, dict[str, EmbeddedServer]]]:
    """Play the manager and its workers; kubeconfigs of all lie in the folder."""
    with contextlib.ExitStack() as stack:
        workers = {name: stack.enter_context(EmbeddedServer(_on_worker())) for name in WORKERS}
        for name, worker in workers.items():
            kubeconfig_path(folder, name).write_text(json.dumps(worker.kubeconfig()))
        manager = stack.enter_context(EmbeddedServer(_on_manager(folder)))
        kubeconfig_path(folder).write_text(json.dumps(manager.kubeconfig()))
        yield manager, workers


def kubeconfig_path(folder: Path, name: str = "manager") -> Path:
    return folder / f"{name}.kubeconfig"


def workload(name: str, *, runs: bool = False) -> Object:
    """Return a Workload of one GPU that waits in the GPU queue, or that runs there."""
    template = paper.light_job("light", NAMES)["spec"]["template"]
    status: Object = {}
    if runs:
        usage = {"cpu": "4", "memory": "6Gi", GPU: "1"}
        flavors = dict.fromkeys(usage, NAMES.gpu_flavor)
        assigned = {"name": "main", "count": 1, "flavors": flavors, "resourceUsage": usage}
        status = {
            "admission": {
                "clusterQueue": NAMES.gpu_cluster_queue,
                "podSetAssignments": [assigned],
            },
            "conditions": [_condition("QuotaReserved"), _condition("Admitted")],
        }
    return {
        "apiVersion": paper.KUEUE,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": NAMES.namespace, "creationTimestamp": _SINCE},
        "spec": {
            "queueName": NAMES.gpu_queue,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
        "status": status,
    }


def _on_worker() -> list[Object]:
    return [
        _namespace(),
        *multikueue.worker_queues(NAMES, gpus=str(GPUS)),
        *(workload(f"runs-{number}", runs=True) for number in range(GPUS)),
        *(workload(f"waits-{number}") for number in range(PENDING)),
    ]


def _on_manager(folder: Path) -> list[Object]:
    policy = paper.policy(NAMES)
    policy["spec"]["options"][1]["slowdown"] = 3.5
    known = {"runTime": f"{RUN_SECONDS}s"}
    policy["spec"]["strategy"] = {"type": "FinishTime", "finishTime": known}
    many = str(GPUS * len(WORKERS) * 1000)
    return [
        *kueue.played(tools.kueue_version()),
        _namespace(),
        *multikueue.manager_queues(NAMES, gpus=many),
        *multikueue.check(WORKERS),
        *(item for name in WORKERS for item in _link(folder, name)),
        policy,
    ]


def _link(folder: Path, name: str) -> list[Object]:
    kubeconfig = kubeconfig_path(folder, name)
    _, cluster = multikueue.worker(name, kubeconfig)
    return [
        {**cluster, "status": {"conditions": [_condition("Active")]}},
        multikueue.kubeconfig_secret(f"{PREFIX}{name}", NAMESPACE, kubeconfig),
    ]


def _namespace() -> Object:
    labels = {"kubernetes.io/metadata.name": NAMES.namespace}
    metadata = {"name": NAMES.namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _condition(kind: str) -> Object:
    return {
        "type": kind,
        "status": "True",
        "reason": "Played",
        "message": "",
        "lastTransitionTime": _SINCE,
    }
