"""Whether Jobs that were moved ran once each, with what the queue that admitted them is for."""

import contextlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any

from hack import paper
from hack.api import ApiClient, Object
from hack.controlplane import ControlPlane
from hack.delaying_proxy import Call, Wanted
from hack.waiting import wait_for
from tests.e2e.decisions import decision_of, queue_of
from tests.e2e.plane import has_condition

REPAIR = "kueue-fallback.dev/repair"
ENV = "kueue-fallback.dev/env.RUN_ENV"


_OF_WORKLOAD = re.compile(r"/workloads/job-(.+)-[0-9a-f]{5}(/status)?(\?|$)")


def admissions(jobs_named: str) -> Wanted:
    """Tell the calls by which Kueue gives quota to Jobs whose names begin so."""

    def gives(call: Call) -> bool:
        found = _OF_WORKLOAD.search(call.path)
        is_status = call.method == "PATCH" and found is not None and bool(found[2])
        is_meant = found is not None and found[1].startswith(jobs_named)
        return is_status and is_meant and b'"podSetAssignments"' in call.body

    return gives


def updates(jobs_named: str) -> Wanted:
    """Tell the calls by which Workloads follow Jobs that have changed."""

    def follows(call: Call) -> bool:
        found = _OF_WORKLOAD.search(call.path)
        is_whole = call.method == "PUT" and found is not None and not found[2]
        return is_whole and found is not None and found[1].startswith(jobs_named)

    return follows


def set_quotas(client: ApiClient, names: paper.Names, *, gpu: int, cpu: int) -> None:
    """Leave room for so many Jobs in each of the paper's queues; they may be stopped or not."""
    wanted = {
        names.gpu_cluster_queue: {"cpu": "1000", "memory": "4000Gi", paper.GPU: str(gpu)},
        names.cpu_cluster_queue: {"cpu": str(4 * cpu), "memory": f"{6 * cpu}Gi"},
    }
    flavors = (names.gpu_flavor, names.cpu_flavor)
    for (name, quota), flavor in zip(wanted.items(), flavors, strict=True):
        client.apply(paper.cluster_queue(name, flavor=flavor, quota=quota))


def workloads(client: ApiClient, namespace: str) -> dict[str, Object]:
    """List the Workloads by the names of their Jobs."""
    found = client.list(paper.KUEUE, "Workload", namespace=namespace)
    return {each["metadata"]["ownerReferences"][0]["name"]: each for each in found}


def jobs(client: ApiClient, namespace: str, names: Collection[str]) -> dict[str, Object]:
    found = client.list("batch/v1", "Job", namespace=namespace)
    return {each["metadata"]["name"]: each for each in found if each["metadata"]["name"] in names}


@contextlib.contextmanager
def no_pod_ends(plane: ControlPlane) -> Iterator[None]:
    """Let pods neither run nor end, so that nothing is over before somebody has looked at it."""
    plane.kill("kwok")
    try:
        yield
    finally:
        # Else the next one leaves the nodes alone until the leases of the killed one run out.
        leases = plane.client.path("coordination.k8s.io/v1", "Lease", namespace="kube-node-lease")
        plane.client.send("DELETE", leases)
        plane.start("kwok")


def is_settled(workload: Object, names: paper.Names) -> bool:
    """Whether it has quota where it belongs, or is about to give it back."""
    belongs = {
        names.gpu_queue: names.gpu_cluster_queue,
        names.cpu_queue: names.cpu_cluster_queue,
    }[workload["spec"]["queueName"]]
    admission = workload.get("status", {}).get("admission") or {}
    is_there = admission.get("clusterQueue") == belongs and has_condition(workload, "QuotaReserved")
    return is_there or workload["spec"].get("active") is False


def wait_until_all_complete(
    client: ApiClient, names: paper.Names, of: Collection[str]
) -> dict[str, Object]:
    """Wait until all of these Jobs have succeeded, and Kueue knows it; return them."""

    def unfinished() -> list[str]:
        found, own = jobs(client, names.namespace, of), workloads(client, names.namespace)
        return sorted(
            name
            for name in of
            if not has_condition(found[name], "Complete")
            or not has_condition(own.get(name, {}), "Finished")
        )

    wait_for(lambda: not unfinished(), f"all of {len(of)} Jobs are complete")
    return jobs(client, names.namespace, of)


def wrong(
    client: ApiClient, names: paper.Names, of: Collection[str]
) -> dict[str, dict[str, tuple[Any, Any]]]:
    """Say of each Job that is over what is not as it should be: (what it is, what it should be)."""
    found, own = jobs(client, names.namespace, of), workloads(client, names.namespace)
    pods = _successful_pods(client, names.namespace)
    told = {name: _wrong_with(found[name], own[name], pods[name], names) for name in of}
    return {name: each for name, each in told.items() if each}


def _wrong_with(
    job: Object, workload: Object, pods: list[Object], names: paper.Names
) -> dict[str, tuple[Any, Any]]:
    queue = queue_of(job)
    option, cluster_queue = {
        names.gpu_queue: ("gpu", names.gpu_cluster_queue),
        names.cpu_queue: ("cpu", names.cpu_cluster_queue),
    }[queue or ""]
    found = {
        "successes": (job["status"].get("succeeded"), 1),
        "failures": (job["status"].get("failed", 0), 0),
        "ran in": ([_ran_in(pod) for pod in pods], [option]),
        "option": ((decision_of(job) or {}).get("option", option), option),
        "finished": (has_condition(workload, "Finished"), True),
        "queue": (workload["spec"]["queueName"], queue),
        "admitted in": (workload["status"]["admission"]["clusterQueue"], cluster_queue),
        "under repair": (REPAIR in workload["metadata"].get("annotations", {}), False),
    }
    return {what: pair for what, pair in found.items() if pair[0] != pair[1]}


def _ran_in(pod: Object) -> str:
    """Tell by what the pod got for which option it was made; a GPU needs a node with GPUs too."""
    has_gpu = paper.GPU in pod["spec"]["containers"][0]["resources"].get("limits", {})
    on_gpu_node = "accelerator" in pod["spec"].get("nodeSelector", {})
    option = "gpu" if has_gpu else "cpu"
    told = pod["metadata"].get("annotations", {}).get(ENV, option)
    return option if (on_gpu_node, told) == (has_gpu, option) else "a mixture"


def _successful_pods(client: ApiClient, namespace: str) -> dict[str, list[Object]]:
    found = defaultdict(list)
    for pod in client.list("v1", "Pod", namespace=namespace):
        if pod["status"]["phase"] == "Succeeded":
            found[pod["metadata"]["labels"]["job-name"]].append(pod)
    return found


def reserved(client: ApiClient, cluster_queue: str) -> dict[str, str]:
    """Sum what is reserved in a ClusterQueue, by resource."""
    status = client.get(paper.KUEUE, "ClusterQueue", cluster_queue)["status"]
    return {
        resource["name"]: resource["total"]
        for flavor in status["flavorsReservation"]
        for resource in flavor["resources"]
    }
