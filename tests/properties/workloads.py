"""The Workload that Kueue makes of a Job."""

from tests.properties.decisions import KIND


def workload_of(job):
    """What Kueue would make of a Job that is over."""
    read = KIND.read(job)
    metadata = {"uid": "w-1", "namespace": read.namespace, "name": "job-x"}
    metadata["creationTimestamp"] = "2026-11-21T06:00:00Z"
    owner = {"kind": "Job", "name": read.name, "uid": "j-1", "controller": True}
    pod_set = {
        "name": "main",
        "count": read.pod_sets[0].count,
        "template": job["spec"]["template"],
    }
    return {
        "metadata": {**metadata, "ownerReferences": [owner]},
        "spec": {"queueName": read.queue, "podSets": [pod_set]},
    }
