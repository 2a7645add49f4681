"""The bench's cluster: its queues, its pending Workloads, and events on them."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self

from hack import paper
from hack.api import ApiError, Object
from hack.kwok import GPU
from hack.plane import Plane

NAMESPACE: Final = "bench"
NAMES: Final = paper.Names(namespace=NAMESPACE)
CREATED: Final = "2026-01-01T00:00:00Z"
CONNECTIONS: Final = 24
COHORT_SIZE: Final = 10
SHAPES: Final = 10
GPUS: Final = 4
"""Of each queue; one Workload uses one."""
PROGRESS_EVERY: Final = 2000
_DEFINITIONS: Final = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
_WEBHOOKS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def create_queues(plane: Plane, count: int) -> None:
    """Create the paper's two queues and many more in cohorts; return when Kueue has them active."""
    plane.client.apply_all(on_cluster(count))
    plane.wait("ClusterQueues", lambda: _are_active(plane, count))


def on_cluster(count: int) -> list[Object]:
    """Return namespace, flavors, queues and policy, in order of creation.

    The CPU queue is wide, so that every review is one with a whole patch.
    """
    policy = paper.policy(NAMES)
    policy["spec"]["strategy"]["threshold"][1] = {"option": "cpu", "andReservingBelow": 1_000_000}
    wide = {"cpu": "1000000", "memory": "4000Ti"}
    pair = paper.queues(NAMES)
    pair[3] = paper.cluster_queue(NAMES.cpu_cluster_queue, flavor=NAMES.cpu_flavor, quota=wide)
    quota = {"cpu": "1000", "memory": "4000Gi", GPU: str(GPUS)}
    names = queue_names(count)
    others = [paper.cluster_queue(name, flavor=NAMES.gpu_flavor, quota=quota) for name in names[2:]]
    for number, queue in enumerate(others):
        queue["spec"]["cohortName"] = f"cohort-{number // COHORT_SIZE}"
    local_queues = [paper.local_queue(name, NAMESPACE, cluster_queue=name) for name in names[2:]]
    labels = {"kubernetes.io/metadata.name": NAMESPACE}
    metadata = {"name": NAMESPACE, "labels": labels}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    return [namespace, *pair, *others, *local_queues, policy]


def queue_names(count: int) -> list[str]:
    """Name the LocalQueues; those after the first two are named as their ClusterQueues."""
    return [NAMES.gpu_queue, NAMES.cpu_queue, *(f"queue-{number}" for number in range(2, count))]


def _are_active(plane: Plane, count: int) -> bool:
    active = [
        condition
        for queue in plane.client.list(paper.KUEUE, "ClusterQueue")
        for condition in queue.get("status", {}).get("conditions", ())
        if (condition["type"], condition["status"]) == ("Active", "True")
    ]
    return len(active) == count


def create_workloads(plane: Plane, count: int, queues: int, report: Callable[[str], None]) -> float:
    """Create Workloads, spread over the queues; return the seconds that it took.

    Kueue is stopped first, and its webhooks are taken away: the first ones of each queue are given
    its GPUs here, and the others stay pending.
    """
    plane.stop("kueue")
    _convert_without_kueue(plane)
    for kind in _WEBHOOKS:
        for found in plane.client.list("admissionregistration.k8s.io/v1", kind):
            if "kueue-fallback" not in found["metadata"]["name"]:
                plane.client.delete(
                    "admissionregistration.k8s.io/v1", kind, found["metadata"]["name"]
                )
    places = queue_names(queues)
    plane.wait("Kueue's webhooks to be gone", lambda: _passes(plane, workload(0, places)))
    started = time.monotonic()
    with ThreadPoolExecutor(max_workers=CONNECTIONS) as pool:
        for first in range(0, count, PROGRESS_EVERY):
            numbers = range(first, min(first + PROGRESS_EVERY, count))
            tuple(pool.map(plane.client.create, (workload(n, places) for n in numbers)))
            done, seconds = numbers[-1] + 1, time.monotonic() - started
            report(f"{done} Workloads, {done / seconds:.0f} a second")
        first_ones = range(min(count, GPUS * queues))
        tuple(pool.map(lambda n: _admit(plane, n, places), first_ones))
    return time.monotonic() - started


def _convert_without_kueue(plane: Plane) -> None:
    """Let versions differ in their names alone: who would convert them has been stopped."""
    change = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
    for definition in plane.client.list(*_DEFINITIONS):
        if definition["spec"].get("conversion", {}).get("strategy") == "Webhook":
            plane.client.patch(*_DEFINITIONS, definition["metadata"]["name"], change)


def _admit(plane: Plane, number: int, queues: list[str]) -> None:
    """Say of a Workload what Kueue says of one that runs."""
    plane.client.patch(
        paper.KUEUE,
        "Workload",
        _workload_name(number),
        {"status": running(number, queues)},
        namespace=NAMESPACE,
        subresource="status",
    )


def running(number: int, queues: list[str]) -> Object:
    """Return the status of a Workload that runs."""
    queue = queues[number % len(queues)]
    is_cpu = queue == NAMES.cpu_queue
    flavor = NAMES.cpu_flavor if is_cpu else NAMES.gpu_flavor
    requests = workload(number, queues)["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    usage = requests["resources"]["requests"]
    assigned = {
        "name": "main",
        "count": 1,
        "flavors": dict.fromkeys(usage, flavor),
        "resourceUsage": usage,
    }
    own = {
        NAMES.gpu_queue: NAMES.gpu_cluster_queue,
        NAMES.cpu_queue: NAMES.cpu_cluster_queue,
    }
    admission = {"clusterQueue": own.get(queue, queue), "podSetAssignments": [assigned]}
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    conditions = [_condition(kind, "True", since) for kind in ("QuotaReserved", "Admitted")]
    return {"admission": admission, "conditions": conditions}


def _condition(kind: str, status: str, since: str = CREATED) -> Object:
    return {
        "type": kind,
        "status": status,
        "reason": "Bench",
        "message": "",
        "lastTransitionTime": since,
    }


def _passes(plane: Plane, item: Object) -> bool:
    """Tell whether the API server has noticed that it has no webhook to call any more."""
    try:
        plane.client.create(item, dry_run=True)
    except ApiError:
        return False
    return True


def workload(number: int, queues: list[str]) -> Object:
    """Return one Workload as Kueue makes it of a Job; some shapes come again and again."""
    queue = queues[number % len(queues)]
    template = paper.light_job("light", NAMES)["spec"]["template"]
    container = template["spec"]["containers"][0]
    container["env"] += [{"name": f"VARIABLE_{n}", "value": f"{n}"} for n in range(5)]
    container["resources"]["requests"]["cpu"] = str(1 + number // len(queues) % SHAPES)
    if queue == NAMES.cpu_queue:
        del container["resources"]["requests"][GPU]
        del container["resources"]["limits"]
    return {
        "apiVersion": paper.KUEUE,
        "kind": "Workload",
        "metadata": {"name": _workload_name(number), "namespace": NAMESPACE},
        "spec": {
            "queueName": queue,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
    }


def _workload_name(number: int) -> str:
    return f"job-bench-{number}"


class Events:
    """Changes of Workloads at a fixed rate while the `with` block runs: evicted, queued again."""

    def __init__(self, plane: Plane, rate: float, *, workloads: int, queues: int) -> None:
        self._plane = plane
        self._rate = rate
        self._workloads = workloads
        self._running = min(workloads - 1, GPUS * queues)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.done = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_failure: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        started = time.monotonic()
        while not self._over.wait(max(0.0, started + self.done / self._rate - time.monotonic())):
            # Those that run are left alone.
            number = self._running + self.done * 7 % (self._workloads - self._running)
            self._change(number, "False" if self.done // self._workloads % 2 == 0 else "True")
            self.done += 1

    def _change(self, number: int, requeued: str) -> None:
        self._plane.client.patch(
            paper.KUEUE,
            "Workload",
            _workload_name(number),
            {"status": {"conditions": [_condition("Requeued", requeued)]}},
            namespace=NAMESPACE,
            subresource="status",
        )
