"""The console on a real Kueue: its numbers are Kueue's, and nobody sees more than they may."""

import contextlib
import http.client
import json
import ssl
from fractions import Fraction

import pytest

from hack import paper
from hack.waiting import wait_for
from tests.e2e.conftest import AUDIENCE
from tests.e2e.decisions import applied_policy, decision_of, fill
from webhook.model import quantity

RBAC = "rbac.authorization.k8s.io/v1"
KINDS = ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads")


@pytest.fixture
def ask(webhook):
    """Ask the console, which speaks TLS and wants to know who asks; return status and answer."""
    port = webhook.replicas[0].console
    tls = ssl.create_default_context(cafile=str(webhook.ca_certificate))

    def asked(path, token):
        client = http.client.HTTPSConnection("127.0.0.1", port, context=tls)
        with contextlib.closing(client):
            client.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            response = client.getresponse()
            body = response.read()
        is_json = response.headers["Content-Type"].startswith("application/json")
        return response.status, json.loads(body) if is_json else body.decode()

    return asked


@pytest.fixture
def theirs(plane, queues):
    """Another namespace with LocalQueues of the same ClusterQueues, for Jobs of others."""
    name = f"{queues.namespace}-theirs"
    plane.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    queue = paper.local_queue(queues.gpu_queue, name, cluster_queue=queues.gpu_cluster_queue)
    plane.client.create(queue)
    yield name
    plane.client.delete("v1", "Namespace", name)


def test_its_numbers_are_kueues_and_everybody_sees_what_their_rights_show(
    plane, queues, theirs, ask
):
    ours, client = queues.namespace, plane.client
    admin, tenant = (token_of(plane, name, ours) for name in ("admin", "tenant"))
    grant(plane, ours, "tenant", JOBS)
    grant(plane, ours, "admin", JOBS, is_cluster_wide=True)
    grant(plane, ours, "admin", ALL_QUEUES, is_cluster_wide=True)
    with applied_policy(client, paper.policy(queues), queues):
        fill(plane, queues, gpu=14)
        client.create(paper.heavy_job("theirs", paper.Names(namespace=theirs), faster=0.05))
        decided = decision_of(client.create(paper.light_job("light", queues, faster=0.05)))["id"]
        for name in (queues.gpu_cluster_queue, queues.cpu_cluster_queue):
            wait_for(lambda name=name: agrees(plane, ask, admin, name), f"{name} agrees")
        wait_for(lambda: decided in decisions(ask, admin, ours), "the decision is shown")

        quota = f"/quota?clusterqueue={queues.gpu_cluster_queue}"
        api_servers = token_of(plane, "tenant", ours, audience="")
        for token in ("", "made-up", api_servers):
            assert {ask(path, token)[0] for path in (quota, "/decisions", "/view", "/")} == {401}
        assert ask(quota, tenant) == (
            403,
            {"error": f"needs get clusterqueues {queues.gpu_cluster_queue}"},
        )
        assert decided in decisions(ask, tenant, ours)
        assert ask(f"/decisions?namespace={theirs}", tenant)[0] == 403
        assert ask("/", tenant)[0] == 200
        view = ask("/view", tenant)[1]
        assert (view["queues"], view["policies"]) == ([], [])
        wait_for(lambda: waiting(ask, admin) >= {ours, theirs}, "an admin sees all who wait")
        assert waiting(ask, tenant) == {ours}
        assert ask(f"/queue?namespace={theirs}", tenant)[0] == 403


def agrees(plane, ask, token, name):
    """Compare a ClusterQueue's status with what the Quota API says; both may lag a moment."""
    status = plane.client.get(paper.KUEUE, "ClusterQueue", name)["status"]
    code, counted = ask(f"/workloads?clusterqueue={name}", token)
    code_of_quotas, quotas = ask(f"/quota?clusterqueue={name}", token)
    if (code, code_of_quotas) != (200, 200):
        return False
    reserved, used = (amounts(status[key]) for key in ("flavorsReservation", "flavorsUsage"))
    cells = {(each["flavor"], each["resource"]): each for each in quotas["quotas"]}
    return (
        [counted[kind] for kind in KINDS] == [status[kind] for kind in KINDS]
        and {cell: Fraction(each["reserved"]) for cell, each in cells.items()} == reserved
        and {cell: Fraction(each["used"]) for cell, each in cells.items()} == used
    )


def amounts(flavors):
    return {
        (flavor["name"], resource["name"]): quantity.exact(str(resource["total"]))
        for flavor in flavors
        for resource in flavor["resources"]
    }


def decisions(ask, token, namespace):
    status, found = ask(f"/decisions?namespace={namespace}", token)
    return [each["id"] for each in found["decisions"]] if status == 200 else []


def waiting(ask, token):
    """Name the namespaces of those who wait, as far as somebody may know of them."""
    return {each["namespace"] for each in ask("/queue", token)[1]["workloads"]}


JOBS = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list"]}
ALL_QUEUES = {
    "apiGroups": ["kueue.x-k8s.io"],
    "resources": ["clusterqueues"],
    "verbs": ["get", "list"],
}


def token_of(plane, account, namespace, audience=AUDIENCE):
    metadata = {"name": account, "namespace": namespace}
    plane.client.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    path = plane.client.path("v1", "ServiceAccount", namespace=namespace, name=account)
    wanted = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [audience] if audience else None},
    }
    return plane.client.send("POST", f"{path}/token", wanted).json()["status"]["token"]


def grant(plane, namespace, account, rule, *, is_cluster_wide=False):
    prefix = "Cluster" if is_cluster_wide else ""
    metadata = {"name": f"{account}-{namespace}-{rule['resources'][0]}"}
    metadata |= {} if is_cluster_wide else {"namespace": namespace}
    role = {"apiGroup": RBAC.partition("/")[0], "kind": f"{prefix}Role", "name": metadata["name"]}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    plane.client.apply_all(
        [
            {"apiVersion": RBAC, "kind": f"{prefix}Role", "metadata": metadata, "rules": [rule]},
            {
                "apiVersion": RBAC,
                "kind": f"{prefix}RoleBinding",
                "metadata": metadata,
                "roleRef": role,
                "subjects": [subject],
            },
        ]
    )
