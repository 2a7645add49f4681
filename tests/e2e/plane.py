"""What the end-to-end tests share: reading what Kueue did with a Job."""

from typing import Any

from hack.api import ApiClient, Object
from hack.paper import KUEUE
from hack.waiting import WAIT_SECONDS, wait_for


def has_condition(item: Object, kind: str) -> bool:
    return any(
        condition["type"] == kind and condition["status"] == "True"
        for condition in item.get("status", {}).get("conditions") or ()
    )


def job_of(client: ApiClient, namespace: str, name: str) -> Object:
    return client.get("batch/v1", "Job", name, namespace=namespace)


def wait_until_complete(
    client: ApiClient, namespace: str, name: str, *, timeout_seconds: float = WAIT_SECONDS
) -> Object:
    """Wait until a Job has succeeded, and return it."""

    def complete() -> Object | None:
        job = job_of(client, namespace, name)
        return job if has_condition(job, "Complete") else None

    return wait_for(complete, f"Job {name} completes", timeout_seconds=timeout_seconds)


def workload_of(client: ApiClient, job: Object) -> Object | None:
    """Return the one Workload that Kueue made for the Job, or None when there is none yet."""
    uid = job["metadata"]["uid"]
    owned = [
        workload
        for workload in client.list(KUEUE, "Workload", namespace=job["metadata"]["namespace"])
        if any(owner["uid"] == uid for owner in workload["metadata"].get("ownerReferences", ()))
    ]
    assert len(owned) <= 1, f"{len(owned)} Workloads for one Job"
    return owned[0] if owned else None


def wait_until_reserved(client: ApiClient, job: Object) -> Object:
    """Wait until Kueue has reserved quota for the Job, and return the Workload."""

    def reserved() -> Object | None:
        workload = workload_of(client, job)
        return workload if workload and has_condition(workload, "QuotaReserved") else None

    return wait_for(reserved, f"quota is reserved for {job['metadata']['name']}")


def container_of(job: Object) -> dict[str, Any]:
    container: dict[str, Any] = job["spec"]["template"]["spec"]["containers"][0]
    return container
