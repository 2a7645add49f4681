"""Jobs in namespaces that Kueue leaves alone, and Jobs that Kubernetes makes and names itself."""

import json

import pytest
import yaml

from hack import paper
from hack.waiting import wait_for
from tests.e2e.conftest import LEFT_ALONE
from tests.e2e.decisions import POLICY_API, applied_policy, decision_of, fill, queue_of
from tests.e2e.hello_jobs import hello_policy
from tests.e2e.plane import wait_until_complete, wait_until_reserved

BY_JOB_CONTROLLER = {
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "controller-uid",
    "job-name",
}


@pytest.fixture
def unmanaged(plane, webhook, namespace):
    """The paper's queues in a namespace that Kueue does not manage, and a policy for it."""
    name = f"{namespace}-unmanaged"
    metadata = {"name": name, "labels": {LEFT_ALONE: "yes"}}
    plane.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    names = paper.names_with(name, namespace=name)
    plane.client.apply_all([*paper.queues(names), hello_policy(names)])
    yield names
    plane.client.delete(POLICY_API, "FallbackPolicy", names.policy)
    plane.client.delete("v1", "Namespace", name)


def test_a_job_where_kueue_manages_nothing_is_untouched_and_runs(plane, queues, unmanaged):
    create = ("create", "job", "hello", "--image=busybox", "-n")
    with applied_policy(plane.client, hello_policy(queues), queues, until_decided=False):
        wait_for(
            lambda: plane.kubectl(*create, queues.namespace, "--dry-run=server").stderr,
            "the webhook decides in the managed namespace",
        )

        done = plane.kubectl(*create, unmanaged.namespace)
        complete = wait_until_complete(plane.client, unmanaged.namespace, "hello")

    assert (done.returncode, done.stdout, done.stderr) == (0, "job.batch/hello created\n", "")
    assert set(complete["metadata"]["labels"]) == BY_JOB_CONTROLLER
    assert set(complete["spec"]["template"]["metadata"]["labels"]) == BY_JOB_CONTROLLER
    assert "annotations" not in complete["metadata"]
    assert "annotations" not in complete["spec"]["template"]["metadata"]


def test_jobs_of_a_cron_job_and_with_generated_names_are_decided(plane, webhook, queues):
    client, namespace = plane.client, queues.namespace
    light = paper.light_job("x", queues, faster=20)
    with applied_policy(client, paper.policy(queues), queues):
        fill(plane, queues, gpu=14)
        job = wait_for(lambda: by_cron_job(client, light, queues), "the CronJob's Job")
        generated = {**light["metadata"], "generateName": "light-"}
        del generated["name"]
        manifest = yaml.safe_dump({**light, "metadata": generated})
        done = plane.kubectl("create", "-f", "-", "-o", "json", given=manifest)
        named = json.loads(done.stdout)
        workload = wait_until_reserved(client, named)
        complete = wait_until_complete(client, namespace, named["metadata"]["name"])

    assert job["metadata"]["ownerReferences"][0]["controller"] is True
    assert (decision_of(job)["option"], queue_of(job)) == ("cpu", queues.cpu_queue)
    assert named["metadata"]["name"].startswith("light-")
    assert queue_of(named) == queues.cpu_queue
    marks = workload["spec"]["podSets"][0]["template"]["metadata"]["annotations"]
    assert marks["kueue-fallback.dev/decision-id"] == decision_of(named)["id"]
    assert decision_of(complete) == decision_of(named)


def by_cron_job(client, job, names):
    """Return the Job of a CronJob that has missed one New Year's Day: it is made now."""
    template = {"metadata": {"labels": job["metadata"]["labels"]}, "spec": job["spec"]}
    if not client.find("batch/v1", "CronJob", "yearly", namespace=names.namespace):
        client.create(
            {
                "apiVersion": "batch/v1",
                "kind": "CronJob",
                "metadata": {"name": "yearly", "namespace": names.namespace},
                "spec": {"schedule": "0 0 1 1 *", "jobTemplate": template},
            }
        )
        last = {"status": {"lastScheduleTime": "2025-06-01T00:00:00Z"}}
        where = {"namespace": names.namespace, "subresource": "status"}
        client.patch("batch/v1", "CronJob", "yearly", last, **where)
    jobs = client.list("batch/v1", "Job", namespace=names.namespace)
    return next((each for each in jobs if each["metadata"].get("ownerReferences")), None)
