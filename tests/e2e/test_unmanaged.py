"""Jobs that are not Kueue's: outside the namespaces it manages, or owned by what it manages."""

import json

import pytest
import yaml

from hack import paper
from hack.controlplane import ControlPlane, Options
from hack.install import PATIENT, Installation
from hack.waiting import wait_for
from tests.e2e.decisions import POLICY_API, applied_policy, decision_of, fill, queue_of
from tests.e2e.hello_jobs import hello_policy
from tests.e2e.plane import job_of, wait_until_complete, wait_until_reserved

BY_JOB_CONTROLLER = {
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "controller-uid",
    "job-name",
}
LABEL = "batch-of-its-own"
SELECTOR = {
    "matchExpressions": [
        {"key": LABEL, "operator": "DoesNotExist"},
        {
            "key": "kubernetes.io/metadata.name",
            "operator": "NotIn",
            "values": ["kube-system", "kueue-system"],
        },
    ]
}


@pytest.fixture(scope="module")
def narrow_plane(tmp_path_factory):
    """A plane whose Kueue leaves labelled namespaces alone."""
    options = Options(kueue_config={"managedJobsNamespaceSelector": SELECTOR})
    with (
        ControlPlane(tmp_path_factory.mktemp("narrow"), options=options) as started,
        Installation(started, chart_values=PATIENT),
    ):
        yield started


@pytest.fixture(scope="module")
def places(narrow_plane):
    """The paper's queues in a namespace that Kueue manages, and in one that it does not."""
    found = {}
    for name, labels in (("managed", {}), ("unmanaged", {LABEL: "yes"})):
        metadata = {"name": name, "labels": labels}
        narrow_plane.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        found[name] = paper.names_with(name, namespace=name)
        narrow_plane.client.apply_all(paper.queues(found[name]))
    return found


def test_a_job_where_kueue_manages_nothing_is_untouched_and_runs(narrow_plane, places):
    unmanaged, managed = places["unmanaged"], places["managed"]
    for names in (unmanaged, managed):
        narrow_plane.client.apply(hello_policy(names))
    create = ("create", "job", "hello", "--image=busybox", "-n")
    wait_for(
        lambda: narrow_plane.kubectl(*create, "managed", "--dry-run=server").stderr,
        "the webhook decides in the managed namespace",
    )

    done = narrow_plane.kubectl(*create, "unmanaged")

    complete = wait_until_complete(narrow_plane.client, "unmanaged", "hello")
    assert (done.returncode, done.stdout, done.stderr) == (0, "job.batch/hello created\n", "")
    assert set(complete["metadata"]["labels"]) == BY_JOB_CONTROLLER
    assert set(complete["spec"]["template"]["metadata"]["labels"]) == BY_JOB_CONTROLLER
    assert "annotations" not in complete["metadata"]
    assert "annotations" not in complete["spec"]["template"]["metadata"]
    for names in (unmanaged, managed):
        narrow_plane.client.delete(POLICY_API, "FallbackPolicy", names.policy)


@pytest.fixture
def policy(narrow_plane, places):
    names = places["managed"]
    with applied_policy(narrow_plane.client, paper.policy(names), names):
        if decision_of_probe(narrow_plane, names)["option"] == "gpu":
            fill(narrow_plane, names, gpu=14)
        yield names


def decision_of_probe(plane, names):
    return decision_of(plane.client.create(paper.light_job("probe", names), dry_run=True))


def test_a_job_of_a_cron_job_is_decided(narrow_plane, policy):
    client = narrow_plane.client
    light = paper.light_job("light", policy, faster=20)
    template = {"metadata": {"labels": light["metadata"]["labels"]}, "spec": light["spec"]}
    cron_job = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "yearly", "namespace": policy.namespace},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": template},
    }
    client.create(cron_job)

    # One New Year's Day has been missed since: the controller makes that Job now.
    last = {"status": {"lastScheduleTime": "2025-06-01T00:00:00Z"}}
    where = {"namespace": policy.namespace, "subresource": "status"}
    client.patch("batch/v1", "CronJob", "yearly", last, **where)
    job = wait_for(lambda: made_by(client, policy, "CronJob"), "the CronJob's Job")

    assert job["metadata"]["ownerReferences"][0]["controller"] is True
    assert (decision_of(job)["option"], queue_of(job)) == ("cpu", policy.cpu_queue)
    wait_until_complete(client, policy.namespace, job["metadata"]["name"])
    client.delete("batch/v1", "CronJob", "yearly", namespace=policy.namespace)


def made_by(client, names, kind):
    jobs = client.list("batch/v1", "Job", namespace=names.namespace)
    owned = [
        job
        for job in jobs
        if any(owner["kind"] == kind for owner in job["metadata"].get("ownerReferences", ()))
    ]
    return owned[0] if owned else None


JOB_SETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "jobsets.jobset.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in"},
    },
    "spec": {
        "group": "jobset.x-k8s.io",
        "names": {"kind": "JobSet", "plural": "jobsets", "singular": "jobset"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha2",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


@pytest.fixture
def job_set(narrow_plane, places):
    """A JobSet as far as Kueue looks at one: the object that owns Jobs."""
    names = places["managed"]
    narrow_plane.install([JOB_SETS], namespace=names.namespace)
    labels = {paper.QUEUE_LABEL: names.gpu_queue}
    metadata = {"name": "training", "namespace": names.namespace, "labels": labels}
    kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    return narrow_plane.client.create({**kind, "metadata": metadata})


def test_a_job_that_a_job_set_owns_is_untouched(narrow_plane, policy, job_set):
    owner = {
        "apiVersion": job_set["apiVersion"],
        "kind": job_set["kind"],
        "name": job_set["metadata"]["name"],
        "uid": job_set["metadata"]["uid"],
        "controller": True,
    }
    light = paper.light_job("owned", policy)
    light["metadata"]["ownerReferences"] = [owner]

    answer = narrow_plane.client.create_for_answer(light, dry_run=True)

    job = answer.json()
    assert answer.warnings == ()
    assert job["metadata"]["labels"] == light["metadata"]["labels"]
    assert "annotations" not in job["metadata"]
    containers = job["spec"]["template"]["spec"]["containers"]
    assert (
        containers[0]["resources"]
        == light["spec"]["template"]["spec"]["containers"][0]["resources"]
    )


def test_a_generated_name_is_decided_and_found_again_in_its_workload(narrow_plane, policy):
    light = paper.light_job("x", policy, faster=20)
    light["metadata"] = {**light["metadata"], "generateName": "light-"}
    del light["metadata"]["name"]

    done = narrow_plane.kubectl("create", "-f", "-", "-o", "json", given=yaml.safe_dump(light))

    job = json.loads(done.stdout)
    name = job["metadata"]["name"]
    workload = wait_until_reserved(narrow_plane.client, job)
    marks = workload["spec"]["podSets"][0]["template"]["metadata"]["annotations"]
    assert done.returncode == 0
    assert name.startswith("light-")
    assert queue_of(job) == policy.cpu_queue
    assert marks["kueue-fallback.dev/decision-id"] == decision_of(job)["id"]
    wait_until_complete(narrow_plane.client, policy.namespace, name)
    complete = job_of(narrow_plane.client, policy.namespace, name)
    assert decision_of(complete) == decision_of(job)
