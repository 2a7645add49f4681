"""An option for one group, on a real API server that authenticates who asks."""

import ssl

import pytest
import yaml

from hack import paper
from hack.api import ApiClient
from hack.install import kubeconfig_of
from hack.waiting import wait_for
from tests.e2e.decisions import (
    applied_policy,
    decision_of,
    fill,
    finish_time,
    options,
    queue_of,
)
from tests.e2e.moving import FASTER
from tests.e2e.plane import job_of
from webhook.model.job import MOVE_TO

RBAC = "rbac.authorization.k8s.io/v1"
MERGE_PATCH = "application/merge-patch+json"


@pytest.fixture
def research(plane, namespace):
    """A namespace whose accounts are a group."""
    name = f"{namespace}-research"
    plane.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    plane.client.delete("v1", "Namespace", name)


@pytest.fixture
def clients(plane, namespace, research):
    """Two accounts that may create and change Jobs: a member of the group, and another one."""
    started = [account(plane, namespace, home) for home in (research, namespace)]
    yield started
    for client in started:
        client.close()


def account(plane, namespace, home):
    role, place = f"from-{home}", {"name": "runner", "namespace": home}
    rule = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "patch"]}
    binding = {
        "roleRef": {"apiGroup": RBAC.partition("/")[0], "kind": "Role", "name": role},
        "subjects": [{"kind": "ServiceAccount", **place}],
    }
    for api_version, kind, metadata, rest in (
        ("v1", "ServiceAccount", place, {}),
        (RBAC, "Role", {"name": role, "namespace": namespace}, {"rules": [rule]}),
        (RBAC, "RoleBinding", {"name": role, "namespace": namespace}, binding),
    ):
        plane.client.create({"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest})
    written = yaml.safe_load(kubeconfig_of(plane, "runner", namespace=home).read_text())
    tls = ssl.create_default_context(cafile=plane.pki.certificate("ca"))
    return ApiClient(plane.api_port, tls=tls, token=written["users"][0]["user"]["token"])


@pytest.fixture
def policy(plane, webhook, queues, research):
    """The CPU option is for the group alone."""
    kept = finish_time(queues, runTime="20s")
    kept["spec"]["reconsider"] = {"after": "1h"}
    kept["spec"]["options"][1]["only"] = {"groups": [f"system:serviceaccounts:{research}"]}
    with applied_policy(plane.client, kept, queues):
        yield kept


def test_an_option_is_for_its_group_at_creation_and_in_moves(plane, queues, policy, clients):
    client, (member, other) = plane.client, clients
    fill(plane, queues, gpu=24)
    theirs, pretending = (light(name, queues) for name in ("theirs", "pretending"))
    pretending["metadata"]["labels"]["group"] = "ml-research"
    pretending["metadata"]["annotations"] = {"kueue-fallback.dev/allow": "gpu,cpu"}
    created = [other.create(job) for job in (theirs, pretending)]
    mine = wait_for(
        lambda: at_cpu(member.create(light("mine", queues), dry_run=True), queues),
        "a member's Job goes to the CPU queue",
    )

    for job in created:
        rejected = options(decision_of(job))["cpu"]["rejected"]
        assert (queue_of(job), rejected.partition(":")[0]) == (queues.gpu_queue, "notForYou")
    assert "rejected" not in options(decision_of(mine))["cpu"]

    move(other, queues, "theirs")
    assert queue_of(job_of(client, queues.namespace, "theirs")) == queues.gpu_queue
    move(member, queues, "theirs")
    assert queue_of(job_of(client, queues.namespace, "theirs")) == queues.cpu_queue


def light(name, queues, **labels):
    job = paper.light_job(name, queues, faster=FASTER)
    job["metadata"]["labels"] |= labels
    return job


def at_cpu(job, queues):
    return job if queue_of(job) == queues.cpu_queue else None


def move(client, queues, name):
    path = client.path("batch/v1", "Job", namespace=queues.namespace, name=name)
    body = {"metadata": {"annotations": {MOVE_TO: "cpu"}}}
    client.send("PATCH", path, body, content_type=MERGE_PATCH)
