"""What Kueue counts of JobSets, and what may change in them."""

import pytest

from tests.builders import policy
from webhook.adapt.adaptation import adapt
from webhook.jobs import KINDS
from webhook.kueue import requests
from webhook.model.fields import FieldError
from webhook.model.queues import KueueConfig
from webhook.model.snapshot_parts import ClusterObjects

JOBSET = KINDS["jobset.x-k8s.io", "v1alpha2", "JobSet"]
GPU = {"requests": {"cpu": "4"}, "limits": {"nvidia.com/gpu": "1"}}


def replicated(name="workers", *, replicas=1, node_selector=None, **job):
    container = {"name": "main", "resources": GPU}
    pods = {"spec": {"containers": [container], "nodeSelector": node_selector or {}}}
    return {"name": name, "replicas": replicas, "template": {"spec": {"template": pods, **job}}}


def jobset(*jobs, status=None, **spec):
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {"replicatedJobs": list(jobs or (replicated(),)), **spec},
        "status": status or {},
    }


@pytest.mark.parametrize(
    ("job", "count"),
    [
        (replicated(), 1),
        (replicated(replicas=3), 3),
        (replicated(replicas=2, parallelism=4), 8),
        (replicated(replicas=2, parallelism=4, completions=3), 6),
        (replicated(replicas=0), 0),
    ],
)
def test_the_pods_of_all_replicas_are_counted(job, count):
    (needs,) = requests.needs(JOBSET.read(jobset(job)), ClusterObjects(), KueueConfig())

    assert (needs.name, needs.count, needs.per_pod) == (
        "workers",
        count,
        {"cpu": 4000, "nvidia.com/gpu": 1},
    )


def test_each_replicated_job_is_edited_at_its_own_place():
    before = JOBSET.read(jobset(replicated("leader"), replicated("workers")))
    _, cpu = policy().spec.options

    edits = JOBSET.edits(before, adapt(before, cpu))

    assert {edit.path[:3] for edit in edits} == {
        ("spec", "replicatedJobs", "leader"),
        ("spec", "replicatedJobs", "workers"),
    }


def test_replicated_jobs_need_names_of_their_own():
    with pytest.raises(FieldError, match="expected a name of its own for each"):
        JOBSET.read(jobset(replicated(), replicated()))


@pytest.mark.parametrize(
    ("adaptation", "reason"),
    [
        ({"accelerator": "Remove"}, "immutableResources"),
        ({"image": "other"}, "immutableImage"),
        ({"runtimeClassName": "x"}, "immutableRuntimeClass"),
    ],
)
def test_what_its_webhook_refuses_is_an_obstacle(adaptation, reason):
    before = JOBSET.read(jobset())
    option = {"name": "cpu", "queue": "cpu-lq", "adaptation": adaptation}
    (cpu,) = policy(option).spec.options

    assert JOBSET.obstacle_to(JOBSET.edits(before, adapt(before, cpu))) == reason
