"""What a Job asks of Kueue that is not modelled here, so that the Job is left as submitted.

A decision about such a Job would be a guess (docs/decisions/0019).
"""

from __future__ import annotations

from webhook.kueue.flavor_plan import asks_for_topology
from webhook.kueue.priorities import unknown_class
from webhook.kueue.requests import needs
from webhook.model.job import Job
from webhook.model.pods import PodTemplate
from webhook.model.queues import Snapshot

MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"


def unmodelled(job: Job, queue: str, snapshot: Snapshot) -> str:
    """Return what is not modelled about a Job in a LocalQueue, in words; empty: nothing.

    Raises:
        FieldError: a quantity of the Job cannot be read.

    """
    # Only quota is modelled, not which nodes of a topology have room.
    if any(asks_for_topology(pod_set.template) for pod_set in job.pod_sets):
        return "its topology request"
    if name := unknown_class(job, snapshot):
        return f"the priority of {name}, which is not there,"
    if any(_claims(pod_set.template) for pod_set in job.pod_sets):
        return "the use of resource claims"
    # With partial admission Kueue may admit fewer pods than the Job asks for.
    if MIN_PARALLELISM in job.annotations:
        return f"its annotation {MIN_PARALLELISM}"
    return _mapped_device(job, queue, snapshot)


def _claims(template: PodTemplate) -> bool:
    containers = (*template.containers, *template.init_containers)
    return template.claims or any(container.claims for container in containers)


def _mapped_device(job: Job, queue: str, snapshot: Snapshot) -> str:
    """Return an extended resource that Kueue may count as devices of a DeviceClass; empty: none.

    A resource that no quota covers by its own name may be covered by that of its DeviceClass, which
    is not known here.

    Raises:
        FieldError: a quantity of the Job cannot be read.

    """
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/dra/extended_resources.go
    local_queue = snapshot.local_queues.get((job.namespace, queue))
    name = local_queue.cluster_queue if local_queue is not None else ""
    cluster_queue = snapshot.cluster_queues.get(name)
    if cluster_queue is None or not snapshot.kueue.maps_devices:
        return ""
    covered = {resource for group in cluster_queue.groups for resource in group.resources}
    asked = {resource for each in needs(job, snapshot) for resource in each.per_pod}
    # The name of an extended resource has a domain, and so a slash.
    found = sorted(each for each in asked - covered if "/" in each)
    return f"{found[0]} by deviceClassMappings" if found else ""
