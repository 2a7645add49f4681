"""What ends a Job of any kind: its own time limit, those of Jobs that it makes, and of its pods."""

import pytest

from webhook.jobs import BY_NAME

PODS = {"spec": {"containers": [{"name": "main"}]}}
LIMITED = {"spec": {**PODS["spec"], "activeDeadlineSeconds": 60}}
RAY = {"headGroupSpec": {"template": PODS}}


def of_a_job(spec, template=PODS):
    return {"spec": {"template": template, **spec}}


def of_a_jobset(job):
    return {"spec": {"replicatedJobs": [{"name": "workers", "template": job}]}}


def of_an_appwrapper(wrapped):
    return {"spec": {"components": [{"template": wrapped}]}}


@pytest.mark.parametrize(
    ("kind", "given", "seconds"),
    [
        ("Job", of_a_job({}), None),
        ("Job", of_a_job({"activeDeadlineSeconds": 50}, LIMITED), 50),
        ("Job", of_a_job({"activeDeadlineSeconds": 70}, LIMITED), 60),
        ("Job", of_a_job({"parallelism": 2, "completions": 5}, LIMITED), 180),
        ("Job", of_a_job({"parallelism": 5}, LIMITED), 60),
        ("Job", of_a_job({"parallelism": 0, "completions": 5}, LIMITED), 60),
        ("Pod", LIMITED, 60),
        ("JobSet", of_a_jobset(of_a_job({})), None),
        ("JobSet", of_a_jobset(of_a_job({"activeDeadlineSeconds": 60})), 60),
        ("JobSet", of_a_jobset(of_a_job({}, LIMITED)), 60),
        ("JobSet", of_a_jobset(of_a_job({"parallelism": 2, "completions": 4}, LIMITED)), 120),
        ("RayJob", {"spec": {"rayClusterSpec": RAY, "activeDeadlineSeconds": 60}}, 60),
        ("RayJob", {"spec": {"rayClusterSpec": {"headGroupSpec": {"template": LIMITED}}}}, 60),
        ("RayCluster", {"spec": {"headGroupSpec": {"template": LIMITED}}}, 60),
        ("RayCluster", {"spec": RAY}, None),
        ("PyTorchJob", {"spec": {"pytorchReplicaSpecs": {"Worker": {"template": LIMITED}}}}, 60),
        ("MPIJob", {"spec": {"mpiReplicaSpecs": {"Launcher": {"template": LIMITED}}}}, 60),
        (
            "AppWrapper",
            of_an_appwrapper(
                {
                    "apiVersion": "jobset.x-k8s.io/v1alpha2",
                    "kind": "JobSet",
                    **of_a_jobset(of_a_job({}, LIMITED)),
                }
            ),
            60,
        ),
    ],
)
def test_the_first_of_all_limits_ends_a_job(kind, given, seconds):
    named = {"metadata": {"name": "limited", "namespace": "team"}, **given}

    assert BY_NAME[kind].read(named).active_deadline_seconds == seconds
