"""Two queues that are full and stay so: what is created waits, and costs no pods.

Jobs beyond the first ten in the GPU queue belong into the CPU queue by the threshold rule.
"""

import json
from typing import Final

from hack import bodies, load, paper
from hack.plane import Plane

NAMES: Final = paper.Names(namespace="bench")
# More than the rule lets wait, beside those that run.
WAITING: Final = 12
RUNNING: Final = 4
_DAY: Final = 86_400.0


def create(plane: Plane) -> None:
    client = plane.client
    client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMES.namespace}})
    client.apply_all(paper.queues(NAMES))
    policy = paper.policy(NAMES)
    policy["spec"]["strategy"]["threshold"][1] = {"option": "cpu", "orPendingBelow": 1_000_000}
    client.apply(policy)
    client.create_all([_endless_job(f"heavy-{n}") for n in range(RUNNING + WAITING)])
    client.create(_all_of_the_cpu_queue())
    plane.wait("the queues to be full", lambda: _is_full(plane))


def _endless_job(name: str) -> paper.Object:
    return paper.gpu_job(name, NAMES, labels=paper.HEAVY, run={"gpu-run": _DAY})


def _all_of_the_cpu_queue() -> paper.Object:
    requests = {"cpu": "24", "memory": "60Gi"}
    container = {"name": "main", "image": "any", "resources": {"requests": requests}}
    return paper.job(
        "heavy-cpu",
        NAMES.namespace,
        labels={paper.QUEUE_LABEL: NAMES.cpu_queue, **paper.HEAVY},
        run={"cpu-run": _DAY},
        container=container,
    )


def _is_full(plane: Plane) -> bool:
    gpu, cpu = (
        plane.client.get(paper.KUEUE, "ClusterQueue", name).get("status", {})
        for name in (NAMES.gpu_cluster_queue, NAMES.cpu_cluster_queue)
    )
    admitted = (gpu.get("admittedWorkloads"), cpu.get("admittedWorkloads"))
    return (*admitted, gpu.get("pendingWorkloads")) == (RUNNING, 1, WAITING)


def api_server(plane: Plane) -> load.ApiServer:
    """Return where light Jobs are created, and their template."""
    path = plane.state / "jobs.jsonl"
    path.write_text(json.dumps(bodies.job(NAMES)))
    return load.ApiServer(
        port=plane.api_port,
        authority=plane.pki.certificate("ca"),
        certificate=plane.pki.certificate("admin"),
        key=plane.pki.key("admin"),
        namespace=NAMES.namespace,
        bodies=path,
    )


def wait_until_alone(plane: Plane) -> None:
    """Wait until Kueue has nothing left of the Jobs that were deleted."""
    plane.wait("Workloads to be gone", lambda: _workloads(plane) == RUNNING + WAITING + 1)


def _workloads(plane: Plane) -> int:
    path = plane.client.path(paper.KUEUE, "Workload", namespace=NAMES.namespace)
    found = plane.client.send("GET", path, query={"limit": "1"}).json()
    return len(found["items"]) + int(found["metadata"].get("remainingItemCount") or 0)
