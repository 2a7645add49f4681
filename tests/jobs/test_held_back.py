"""What on a Job itself keeps it from being moved."""

import pytest

from webhook.jobs import BY_NAME
from webhook.jobs.batch import held_back
from webhook.model.fields import FieldError

STARTED = "2026-11-21T06:00:00Z"


def pending(*, metadata=None, status=None, **spec):
    return {
        "metadata": {"name": "light-1", "namespace": "team", **(metadata or {})},
        "spec": {"suspend": True, "template": {"spec": {"containers": [{"name": "main"}]}}, **spec},
        "status": status or {},
    }


def condition(kind, status="True"):
    return {"conditions": [{"type": kind, "status": status}]}


@pytest.mark.parametrize(
    "job",
    [
        pending(),
        pending(managedBy="kubernetes.io/job-controller"),
        pending(metadata={"labels": {"kueue.x-k8s.io/stopping": "false"}}),
        pending(status={"active": 0, "startTime": STARTED, **condition("Suspended")}),
        pending(completions=2, status={"succeeded": 1, "failed": 1, "terminating": 0}),
        pending(status={"uncountedTerminatedPods": {}}),
        {**pending(), "status": None},
    ],
)
def test_a_job_that_waits_may_be_moved(job):
    assert held_back(job) is None


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (pending(suspend=False), "notSuspended"),
        (pending(suspend=None), "notSuspended"),
        (pending(metadata={"annotations": {"kueue.x-k8s.io/stopping": "true"}}), "stopping"),
        (pending(metadata={"labels": {"kueue.x-k8s.io/stopping": "true"}}), "stopping"),
        (pending(status={"active": 1}), "podsActive"),
        (pending(status={"terminating": 1}), "podsActive"),
        (pending(status={"uncountedTerminatedPods": {"succeeded": ["uid-1"]}}), "podsActive"),
        (pending(status={"uncountedTerminatedPods": {"failed": ["uid-1"]}}), "podsActive"),
        (pending(completions=1, status={"succeeded": 1}), "finished"),
        (pending(status=condition("SuccessCriteriaMet")), "finished"),
        (pending(status={"startTime": STARTED}), "started"),
        (pending(status={"startTime": STARTED, **condition("Suspended", "False")}), "started"),
        (pending(metadata={"deletionTimestamp": STARTED}), "beingDeleted"),
        (pending(status=condition("Failed")), "finished"),
        (pending(managedBy="kueue.x-k8s.io/multikueue"), "managedBy"),
        (pending(metadata={"labels": {"kueue.x-k8s.io/multikueue-origin": "a"}}), "managedBy"),
    ],
)
def test_any_other_is_held_back_for_a_reason(job, reason):
    assert held_back(job) == reason


def test_a_wrong_type_is_named_with_its_place():
    with pytest.raises(FieldError) as caught:
        held_back(pending(status={"active": "1"}))

    assert str(caught.value) == "status.active: expected a whole number, got a string"


SUSPENDED = {"suspend": True}
ELSEWHERE = {"suspend": True, "managedBy": "kueue.x-k8s.io/multikueue"}


def ray(state):
    return {"jobDeploymentStatus": state}


@pytest.mark.parametrize(
    ("kind", "spec", "status", "reason"),
    [
        ("JobSet", SUSPENDED, {}, None),
        ("JobSet", {}, {}, "notSuspended"),
        ("JobSet", SUSPENDED, {"replicatedJobsStatus": [{"active": 1}]}, "podsActive"),
        ("JobSet", SUSPENDED, condition("Completed"), "finished"),
        ("JobSet", ELSEWHERE, {}, "managedBy"),
        ("PyTorchJob", {"runPolicy": SUSPENDED}, {}, None),
        ("PyTorchJob", {"runPolicy": {}}, {}, "notSuspended"),
        (
            "PyTorchJob",
            {"runPolicy": SUSPENDED},
            {"replicaStatuses": {"Worker": {"active": 1}}},
            "podsActive",
        ),
        ("PyTorchJob", {"runPolicy": SUSPENDED}, condition("Succeeded"), "finished"),
        ("PyTorchJob", {"runPolicy": ELSEWHERE}, {}, "managedBy"),
        (
            "PyTorchJob",
            {"runPolicy": {"suspend": True, "managedBy": "kubeflow.org/training-operator"}},
            {},
            None,
        ),
        ("AppWrapper", SUSPENDED, {}, None),
        ("AppWrapper", {}, {}, "notSuspended"),
        ("AppWrapper", SUSPENDED, {"phase": "Succeeded"}, "finished"),
        ("AppWrapper", SUSPENDED, condition("QuotaReserved"), "podsActive"),
        ("AppWrapper", ELSEWHERE, {}, "managedBy"),
        (
            "AppWrapper",
            {"suspend": True, "managedBy": "workload.codeflare.dev/appwrapper-controller"},
            {},
            None,
        ),
        ("RayJob", SUSPENDED, {}, None),
        ("RayJob", SUSPENDED, ray("Suspended"), None),
        ("RayJob", {"suspend": True, "managedBy": "ray.io/kuberay-operator"}, {}, None),
        ("RayJob", {}, {}, "notSuspended"),
        ("RayJob", SUSPENDED, ray("Suspending"), "podsActive"),
        ("RayJob", SUSPENDED, ray("Complete"), "finished"),
        ("RayJob", ELSEWHERE, {}, "managedBy"),
        ("TrainJob", SUSPENDED, {}, None),
        ("TrainJob", {}, {}, "notSuspended"),
        ("TrainJob", SUSPENDED, {"jobsStatus": [{"name": "node", "active": 1}]}, "podsActive"),
    ],
)
def test_another_kind_is_held_back_by_its_own_fields(kind, spec, status, reason):
    job = {"metadata": {"name": "train", "namespace": "team"}, "spec": spec, "status": status}

    assert BY_NAME[kind].held_back(job) == reason
