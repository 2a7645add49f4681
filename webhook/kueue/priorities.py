"""The priority of a Job's Workload, found as Kueue's ``ExtractPriority`` finds it.

https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/reconciler.go
"""

from __future__ import annotations

from webhook.model.job import PRIORITY_LABEL, Job
from webhook.model.policy.fallback_policy import Option
from webhook.model.queues import Snapshot


def priority_of(job: Job, option: Option, snapshot: Snapshot) -> int:
    """Return the priority of the Job's Workload if the Job takes an option."""
    # The priority class for guests becomes the Job's label, so it comes before the Job's own.
    guests = option.guests.priority_class if option.guests else ""
    return snapshot.priority_classes.get(guests, 0) if guests else own_priority(job, snapshot)


def own_priority(job: Job, snapshot: Snapshot) -> int:
    """Return the priority that the Job itself asks for.

    This is the value of the WorkloadPriorityClass in its label, else of the first PriorityClass
    that its pod sets name, else of the cluster's default PriorityClass.
    """
    # A class that does not exist counts as 0. Kueue makes no Workload for such a Job, and it is
    # left as submitted (``unmodelled``).
    name = job.labels.get(PRIORITY_LABEL, "")
    if name:
        return snapshot.priority_classes.get(name, 0)
    name = _of_pods(job)
    return snapshot.pod_priorities.get(name, 0) if name else snapshot.default_priority


def unknown_class(job: Job, snapshot: Snapshot) -> str:
    """Return the kind and name of the Job's priority class where it does not exist; else "".

    A Job that names no class uses the default, which always exists.
    """
    name = job.labels.get(PRIORITY_LABEL, "")
    if name:
        return "" if name in snapshot.priority_classes else f"WorkloadPriorityClass {name}"
    name = _of_pods(job)
    return f"PriorityClass {name}" if name and name not in snapshot.pod_priorities else ""


def _of_pods(job: Job) -> str:
    named = (pod_set.template.priority_class for pod_set in job.pod_sets)
    return next(filter(None, named), "")
