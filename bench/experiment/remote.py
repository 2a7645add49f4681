"""The paper's experiment in its own topology: the GPU queue of each arm is on a worker cluster.

The manager keeps the CPU queue, and of the GPU queue a copy that leads there through MultiKueue.
There is one worker, which Kueue knows by a name for each arm: what it sends to a cluster it sends
at five writes of a kind a second, and one arm's Jobs must not wait for those of another.
"""

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.experiment.arms import Arm
from bench.plane import say
from hack import multikueue
from hack.controlplane import ControlPlane
from hack.install import Installation
from hack.kwok import GPU
from hack.plane import Plane
from webhook.state.cluster_watches import PREFIX

Object = dict[str, Any]


def cluster_of(arm: Arm) -> str:
    return f"gpu-worker-{arm.key}"


def check_of(arm: Arm) -> str:
    return f"gpu-clusters-{arm.key}"


@contextlib.contextmanager
def installed(arms: Sequence[Arm]) -> Iterator[tuple[Installation, Plane]]:
    """Start a manager with the webhook, and a worker behind it that the webhook may look at."""
    folder = Path(tempfile.mkdtemp(prefix="kueue-fallback-experiment-"))
    watched = ",".join(map(cluster_of, arms))
    try:
        say("starting two control planes")
        with (
            ControlPlane(folder / "worker", report=say) as worker,
            ControlPlane(folder / "manager", report=say) as manager,
            Installation(manager, chart_values=[f"clusters.watchWorkers={{{watched}}}"]) as found,
        ):
            for arm in arms:
                manager.client.apply_all(_link(arm, worker.kubeconfig))
            yield found, worker
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _link(arm: Arm, kubeconfig: Path) -> list[Object]:
    """Return what leads an arm's Jobs to the worker, and lets the webhook look at it."""
    name = cluster_of(arm)
    reader = multikueue.kubeconfig_secret(f"{PREFIX}{name}", "kueue-fallback", kubeconfig)
    check = multikueue.check([name], check_of(arm))
    return [*multikueue.worker(name, kubeconfig), *check, reader]


def at_manager(items: Sequence[Object], arm: Arm) -> list[Object]:
    """Let the arm's ClusterQueues with GPUs lead to the worker."""
    check = check_of(arm)
    return [multikueue.with_check(item, check) if _has_gpus(item) else item for item in items]


def at_worker(items: Sequence[Object]) -> list[Object]:
    """Keep what the worker needs: the queues with GPUs under the same names."""
    behind = {item["metadata"]["name"] for item in items if _has_gpus(item)}
    return [
        item
        for item in items
        if item["kind"] in ("Namespace", "ResourceFlavor")
        or item["metadata"]["name"] in behind
        or item["spec"].get("clusterQueue") in behind
    ]


def wait_until_empty(worker: Plane, *, timeout_seconds: float = 120.0) -> None:
    """Wait until MultiKueue has taken away what a round left."""
    deadline = time.monotonic() + timeout_seconds
    while not _is_empty(worker):
        if time.monotonic() > deadline:
            raise TimeoutError("Workloads are left on the worker")
        time.sleep(0.5)


def _is_empty(worker: Plane) -> bool:
    try:
        return not worker.client.list("kueue.x-k8s.io/v1beta2", "Workload")
    except OSError:
        # Nobody spoke with it during the round, and it has hung up.
        return False


def _has_gpus(item: Object) -> bool:
    groups = item.get("spec", {}).get("resourceGroups", ())
    return any(GPU in group["coveredResources"] for group in groups)
