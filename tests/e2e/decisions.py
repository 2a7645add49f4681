"""What the tests of decisions share: filling queues, and reading what was decided."""

import contextlib
import json
import urllib.request
from collections.abc import Iterator
from typing import Any

from hack import paper
from hack.api import ApiClient, Object
from hack.controlplane import ControlPlane
from hack.install import Installation
from hack.waiting import wait_for
from webhook.decide import decision_record

DECISION = "kueue-fallback.dev/decision"
REASON = "kueue-fallback.dev/reason"
OPTION = "kueue-fallback.dev/option"
POLICY_API = "kueue-fallback.dev/v1alpha1"
SLOW = 0.05
"""`faster` of Jobs that must not end during a test: 20 times slower than the paper's."""


def decision_of(job: Object) -> dict[str, Any] | None:
    annotations = job["metadata"].get("annotations", {})
    return dict(decision_record.parsed(annotations)) if DECISION in annotations else None


def queue_of(job: Object) -> str | None:
    return job["metadata"].get("labels", {}).get(paper.QUEUE_LABEL)


def options(decision: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the options that were weighed, by name."""
    return {option["name"]: option for option in decision["options"]}


def finish_time(names: paper.Names, **known: str) -> Object:
    """Return the paper's options as a policy of the strategy FinishTime."""
    found = paper.policy(names)
    found["spec"]["options"][1]["slowdown"] = 3.5
    found["spec"]["strategy"] = {"type": "FinishTime", "finishTime": known}
    return found


def probe(client: ApiClient, names: paper.Names) -> dict[str, Any] | None:
    """Ask what would be decided for a light Job now; nothing is created."""
    return decision_of(client.create(paper.light_job("probe", names), dry_run=True))


def wait_until_policy_decides(client: ApiClient, names: paper.Names) -> None:
    """Wait until the webhook decides by a policy, and knows all that its options lead to.

    Each kind of object comes by a watch of its own: a policy may be seen before a flavor is.
    """
    told: list[Object | None] = []

    def decided() -> bool:
        told.append(probe(client, names))
        return told[-1] is not None and "not found" not in json.dumps(told[-1])

    wait_for(decided, lambda: f"the webhook decides by the policy, and sees its queues: {told[-1]}")


def counts(client: ApiClient, names: paper.Names) -> dict[str, int | None] | None:
    """Tell how many Workloads the webhook sees pending, by option."""
    decision = probe(client, names)
    if decision is None:
        return None
    return {option["name"]: option.get("pending") for option in decision["options"]}


@contextlib.contextmanager
def applied_policy(
    client: ApiClient, policy: Object, names: paper.Names, *, until_decided: bool = True
) -> Iterator[None]:
    """Apply a policy and wait until the webhook decides by it; delete it in the end."""
    client.apply(policy)
    try:
        if until_decided:
            wait_until_policy_decides(client, names)
        yield
    finally:
        client.delete(POLICY_API, "FallbackPolicy", policy["metadata"]["name"])


def limited(job: Object, seconds: int = 1280) -> Object:
    """Say for how long a Job may run at most, so that something is known of who waits for it."""
    job["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = str(seconds)
    return job


def fill(
    plane: ControlPlane, names: paper.Names, *, gpu: int, cpu: int = 0, is_known: bool = True
) -> None:
    """Put Jobs that do not end into both queues, and wait until the webhook sees them judged.

    *is_known*: it is known for how long they may run.
    """
    jobs = [paper.heavy_job(f"fill-gpu-{number}", names, faster=SLOW) for number in range(gpu)]
    jobs += [cpu_job(f"fill-cpu-{number}", names) for number in range(cpu)]
    plane.client.create_all([limited(job) for job in jobs] if is_known else jobs)
    wait_until_counted(plane.client, names, gpu=gpu, cpu=cpu)


def wait_until_counted(client: ApiClient, names: paper.Names, *, gpu: int, cpu: int = 0) -> None:
    """Wait until Kueue has judged so many Workloads of one Job each, and the webhook sees it."""
    wanted = {"gpu": max(0, gpu - 4), "cpu": max(0, cpu - 6)}

    def settled() -> bool:
        found = []
        for name in (names.gpu_cluster_queue, names.cpu_cluster_queue):
            status = client.get(paper.KUEUE, "ClusterQueue", name).get("status", {})
            found.append((status.get("pendingWorkloads", 0), status.get("reservingWorkloads", 0)))
        return found == [(wanted["gpu"], min(gpu, 4)), (wanted["cpu"], min(cpu, 6))]

    wait_for(settled, f"Kueue has judged {gpu + cpu} Workloads")
    wait_for(lambda: counts(client, names) == wanted, f"the webhook counts {wanted}")


def cpu_job(name: str, names: paper.Names) -> Object:
    container = {
        "name": "main",
        "image": "stable-diffusion",
        "resources": {"requests": {"cpu": "4", "memory": "6Gi"}},
    }
    return paper.job(
        name,
        names.namespace,
        labels={paper.QUEUE_LABEL: names.cpu_queue},
        run={"cpu-run": 2000},
        container=container,
    )


def metric(webhook: Installation, name: str) -> float:
    """Read one sample without labels from the webhook's metrics."""
    with urllib.request.urlopen(f"{webhook.endpoints['metrics']}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.split(" ")[0] == name))
