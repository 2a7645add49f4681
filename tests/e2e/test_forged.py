"""What a tenant who may only create Jobs cannot make the webhook do or believe."""

import copy
import json

import pytest

from hack import paper
from hack.waiting import wait_for
from tests.e2e.decisions import (
    DECISION,
    applied_policy,
    decision_of,
    finish_time,
    limited,
    options,
    probe,
)
from tests.e2e.plane import container_of, wait_until_complete

OPTED_OUT = {"kueue-fallback.dev/policy": "none"}
CLASS = "kueue-fallback.dev/class"
ADMISSION = "admissionregistration.k8s.io/v1"


@pytest.fixture
def neighbour(plane, queues):
    """Another namespace with LocalQueues of the same ClusterQueues."""
    name = f"{queues.namespace}-neighbour"
    plane.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for queue, target in (
        (queues.gpu_queue, queues.gpu_cluster_queue),
        (queues.cpu_queue, queues.cpu_cluster_queue),
    ):
        plane.client.create(paper.local_queue(queue, name, cluster_queue=target))
    yield name
    plane.client.delete("v1", "Namespace", name)


@pytest.fixture
def enforced(plane, queues):
    """Another admission, called before ours, by which Jobs of the namespace are confined."""
    name = f"confine-{queues.namespace}"
    rules = [{"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"]}]
    expression = (
        '[JSONPatch{op: "add", path: "/spec/template/spec/nodeSelector", value: {"type": "kwok"}}]'
    )
    policy = {
        "apiVersion": ADMISSION,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "resourceRules": [{**rules[0], "operations": ["CREATE"]}],
                "namespaceSelector": {
                    "matchLabels": {"kubernetes.io/metadata.name": queues.namespace}
                },
            },
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        },
    }
    binding = {
        "apiVersion": ADMISSION,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name},
    }
    plane.client.create(policy)
    plane.client.create(binding)

    def is_in_force():
        job = plane.client.create(paper.heavy_job("confined", queues), dry_run=True)
        return job["spec"]["template"]["spec"].get("nodeSelector") == {"type": "kwok"}

    wait_for(is_in_force, "Jobs are confined")
    yield
    plane.client.delete(ADMISSION, binding["kind"], name)
    plane.client.delete(ADMISSION, policy["kind"], name)


def test_a_forged_decision_takes_nothing_back_that_another_admission_set(
    plane, webhook, queues, enforced
):
    with applied_policy(plane.client, finish_time(queues, runTime="20s"), queues):
        job = paper.light_job("forged", queues)
        own = decision_of(plane.client.create(job, dry_run=True))
        container = container_of(job)["name"]
        original = {
            "/spec/template/spec/nodeSelector/type": None,
            f"/spec/template/spec/containers/{container}/image": "evil",
        }
        written = json.dumps({**own, "original": original}, separators=(",", ":"))
        job["metadata"]["annotations"] = {DECISION: written}

        created = plane.client.create(job, dry_run=True)

    assert created["spec"]["template"]["spec"]["nodeSelector"] == {"type": "kwok"}
    assert container_of(created)["image"] == container_of(paper.light_job("x", queues))["image"]


def marked(job, namespace, *, policy="", job_class="", option="cpu"):
    """Write the marks of a decision on a Job that has opted out."""
    job = copy.deepcopy(job)
    job["metadata"]["namespace"] = namespace
    job["metadata"].setdefault("annotations", {}).update(OPTED_OUT)
    template = job["spec"]["template"].setdefault("metadata", {})
    template.setdefault("labels", {})["kueue-fallback.dev/option"] = option
    template.setdefault("annotations", {}).update(
        {
            "kueue-fallback.dev/decided-by": policy,
            "kueue-fallback.dev/decision-id": "1a-2b",
            CLASS: job_class,
        }
    )
    return job


def test_marks_of_a_neighbour_set_no_run_times_and_take_no_guests_places(
    plane, webhook, queues, neighbour
):
    policy = finish_time(queues, runTime="60s")
    policy["spec"]["options"][1]["guests"] = {"maxJobs": 3}
    both = {
        "key": "kubernetes.io/metadata.name",
        "operator": "In",
        "values": [queues.namespace, neighbour],
    }
    policy["spec"]["match"]["namespaceSelector"] = {"matchExpressions": [both]}
    light = paper.light_job("light", queues, faster=100.0)
    with applied_policy(plane.client, policy, queues):
        created = plane.client.create(light, dry_run=True)
        template = created["spec"]["template"]["metadata"]["annotations"]
        before = options(decision_of(created))["gpu"]
        forge = {"policy": queues.policy, "job_class": template[CLASS]}
        for number in range(6):
            job = paper.light_job(f"forged-{number}", queues, faster=100.0)
            stored = plane.client.create(marked(job, neighbour, option="gpu", **forge))
            assert CLASS not in stored["spec"]["template"]["metadata"].get("annotations", {})
        for number in range(6):
            wait_until_complete(plane.client, neighbour, f"forged-{number}")
        neighbours = {**light, "metadata": {**light["metadata"], "namespace": neighbour}}
        wait_for(
            lambda: (
                "learned"
                in options(decision_of(plane.client.create(neighbours, dry_run=True)))["gpu"].get(
                    "runsBy", ""
                )
            ),
            "the neighbour's own runs are learned",
        )

        after = options(probe(plane.client, queues))["gpu"]

        assert (after["runs"], after["runsBy"]) == (before["runs"], before["runsBy"])
        assert after["runsBy"] == "the policy"

        slow = [paper.light_job(f"guest-{number}", queues, faster=0.05) for number in range(3)]
        for job in slow:
            job["metadata"]["labels"][paper.QUEUE_LABEL] = queues.cpu_queue
            container_of(job)["resources"] = {"requests": {"cpu": "1"}}
            plane.client.create(marked(limited(job), neighbour, **forge))
        for number in range(6):
            plane.client.create(limited(paper.heavy_job(f"heavy-{number}", queues, faster=0.05)))
        sent = wait_for(
            lambda: (found := probe(plane.client, queues)) and found["option"] == "cpu" and found,
            "a light Job would be sent to the CPUs",
        )
        assert "rejected" not in options(sent)["cpu"]
