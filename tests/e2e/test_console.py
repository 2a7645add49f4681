"""The console on a real Kueue: its numbers are Kueue's, and nobody sees more than they may."""

import contextlib
import http.client
import json
import socket
import ssl
from fractions import Fraction
from functools import partial

import pytest

from hack import paper
from hack.install import PATIENT, Installation
from hack.waiting import wait_for
from tests.e2e.decisions import SLOW, applied_policy, decision_of, fill
from webhook.model import quantity

NAMESPACES = ("console-a", "console-b")
AUDIENCE = "console"
RBAC = "rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module")
def both(own_plane):
    """The paper's queues in each of two namespaces."""
    found = []
    for name in NAMESPACES:
        metadata = {"name": name}
        own_plane.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        found.append(paper.names_with(name, namespace=name))
        own_plane.client.apply_all(paper.queues(found[-1]))
    return found


def ask(port, path):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as client:
        client.request("GET", path)
        response = client.getresponse()
        return response.status, json.loads(response.read())


def served(port):
    """Wait until something listens: whoever decides does not wait for the console."""

    def listens():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 10):
            return True

    wait_for(listens, "the console is served")
    return port


def test_the_quota_api_and_kueues_own_status_agree(own_plane, both):
    names = both[0]
    with (
        Installation(own_plane, replicas=2, chart_values=PATIENT) as installed,
        applied_policy(own_plane.client, paper.policy(names), names),
    ):
        fill(own_plane, names, gpu=14, cpu=2)
        job = own_plane.client.create(paper.light_job("light", names, faster=0.05))
        for replica in installed.replicas:
            served(replica.console)
            for queue in (names.gpu_cluster_queue, names.cpu_cluster_queue):
                wait_for(partial(agrees, own_plane, replica, queue), f"{queue} agrees")
            gpu = f"clusterqueue={names.gpu_cluster_queue}&flavor={names.gpu_flavor}"
            _, found = ask(replica.console, f"/quota?{gpu}&resource=nvidia.com/gpu")
            assert [found[key] for key in ("available", "quota", "reserved", "used")] == [
                0,
                4,
                4,
                4,
            ]
            counted = ask(replica.console, f"/workloads?clusterqueue={names.gpu_cluster_queue}")
            assert (counted[1]["pendingWorkloads"], counted[1]["admittedWorkloads"]) == (10, 4)
            _, line = ask(replica.console, f"/queue?namespace={names.namespace}")
            places = [(each["position"], each["pending"]) for each in line["workloads"]]
            assert sorted(places) == [(position, 10) for position in range(1, 11)]
            # One of the two has decided, and the other reads it on the Job.
            wait_for(partial(shows, replica, decision_of(job)["id"]), "the decision is shown")
            view = ask(replica.console, "/view")[1]
            (policy,) = view["policies"]
            assert (policy["name"], policy["ready"]) == (names.policy, True)
            assert view["leader"]


def agrees(plane, replica, name):
    """Compare a ClusterQueue's status with what the Quota API says; both may lag a moment."""
    status = plane.client.get(paper.KUEUE, "ClusterQueue", name)["status"]
    code, counted = ask(replica.console, f"/workloads?clusterqueue={name}")
    code_of_quotas, quotas = ask(replica.console, f"/quota?clusterqueue={name}")
    if (code, code_of_quotas) != (200, 200):
        return False
    reserved, used = (amounts(status[key]) for key in ("flavorsReservation", "flavorsUsage"))
    cells = {(each["flavor"], each["resource"]): each for each in quotas["quotas"]}
    kinds = ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads")
    return (
        {kind: counted[kind] for kind in kinds} == {kind: status[kind] for kind in kinds}
        and {cell: Fraction(each["reserved"]) for cell, each in cells.items()} == reserved
        and {cell: Fraction(each["used"]) for cell, each in cells.items()} == used
    )


def amounts(flavors):
    return {
        (flavor["name"], resource["name"]): quantity.exact(str(resource["total"]))
        for flavor in flavors
        for resource in flavor["resources"]
    }


def shows(replica, identity):
    _, found = ask(replica.console, "/decisions")
    return identity in [each["id"] for each in found["decisions"]]


class Exposed:
    """A console that speaks TLS and wants to know who asks."""

    def __init__(self, installed):
        self._port = served(installed.replicas[0].console)
        self._tls = ssl.create_default_context(cafile=str(installed.ca_certificate))

    def ask(self, path, token):
        client = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._tls, timeout=30)
        with contextlib.closing(client):
            client.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            response = client.getresponse()
            return response.status, response.read()

    def read(self, path, token):
        status, body = self.ask(path, token)
        return status, json.loads(body)

    def namespaces(self, token, query=""):
        """Decision to its Job's namespace."""
        _, found = self.read(f"/decisions{query}", token)
        return {each["id"]: each["namespace"] for each in found["decisions"]}


def test_on_the_pods_address_everybody_sees_what_their_rights_show(own_plane, both):
    first, second = both
    create = own_plane.client.create
    exposed = [*PATIENT, "console.expose=true", f"console.audience={AUDIENCE}"]
    with (
        Installation(own_plane, chart_values=exposed) as installed,
        applied_policy(own_plane.client, paper.policy(first), first),
        applied_policy(own_plane.client, paper.policy(second), second),
    ):
        console = Exposed(installed)
        waits = [
            paper.heavy_job(f"wait-{number}", names, faster=SLOW)
            for names in both
            for number in range(6)
        ]
        own_plane.client.create_all(waits)
        mine, theirs = (
            decision_of(create(paper.light_job("seen", names, faster=0.05)))["id"] for names in both
        )
        tenant = token_of(own_plane, "tenant", first.namespace)
        admin = token_of(own_plane, "admin", first.namespace)
        grant_jobs(own_plane, "tenant", first.namespace)
        grant_all(own_plane, "admin", first.namespace)
        queue = f"/quota?clusterqueue={first.gpu_cluster_queue}"
        wait_for(lambda: {mine, theirs} <= console.namespaces(admin).keys(), "admins see all")

        # Nobody, and a token that is meant for the API server alone.
        for token in ("", "made-up", token_of(own_plane, "tenant", first.namespace, audience="")):
            for path in (queue, "/decisions", "/view", "/"):
                assert console.ask(path, token)[0] == 401
        assert console.ask(queue, admin)[0] == 200
        assert console.read(queue, tenant) == (
            403,
            {"error": f"needs get clusterqueues {first.gpu_cluster_queue}"},
        )
        assert set(console.namespaces(tenant).values()) == {first.namespace}
        assert mine in console.namespaces(tenant, f"?namespace={first.namespace}")
        assert console.ask(f"/decisions?namespace={second.namespace}", tenant)[0] == 403
        _, view = console.read("/view", tenant)
        assert (view["queues"], view["policies"]) == ([], [])
        assert {each["namespace"] for each in view["decisions"]} == {first.namespace}
        assert console.ask("/", tenant)[0] == 200
        check_line(own_plane, console, both, tenant=tenant, admin=admin)
        check_job(console, both, mine, tenant=tenant, admin=admin)


def check_line(plane, console, both, *, tenant, admin):
    """Who waits is told to those who may list Jobs there, whatever else others may do."""
    first, second = both

    def seen(token, query=""):
        status, answer = console.read(f"/queue{query}", token)
        return status, {each["namespace"] for each in answer.get("workloads", ())}

    wait_for(lambda: seen(admin) == (200, set(NAMESPACES)), "admins see who waits")
    assert seen(tenant) == (200, {first.namespace})
    assert seen(tenant, f"?namespace={first.namespace}") == (200, {first.namespace})
    assert seen(tenant, f"?namespace={second.namespace}") == (403, set())
    for verb in ("get", "watch", "create", "update", "patch", "delete", "deletecollection"):
        account = f"only-{verb}"
        token = token_of(plane, account, first.namespace)
        grant_jobs(plane, account, first.namespace, verb)
        assert seen(token) == (200, set())
        assert seen(token, f"?namespace={first.namespace}") == (403, set())


def check_job(console, both, identity, *, tenant, admin):
    """A Job's page has its Workload's course, and is for those who may list Jobs there."""
    first, second = both

    def page(namespace, token):
        _, found = console.read("/decisions", admin)
        job = next(each["job"] for each in found["decisions"] if each["id"] == identity)
        return console.ask(f"/job?namespace={namespace}&job={job}", token)

    wait_for(lambda: b">Quota</b>" in page(first.namespace, tenant)[1], "its Workload is found")
    assert page(first.namespace, tenant)[0] == 200
    assert page(second.namespace, tenant)[0] == 403


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


def grant_jobs(plane, account, namespace, verb="list"):
    metadata = {"name": account, "namespace": namespace}
    rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": [verb]}]
    plane.client.apply({"apiVersion": RBAC, "kind": "Role", "metadata": metadata, "rules": rules})
    bind(plane, "RoleBinding", metadata, account, namespace, "Role")


def grant_all(plane, account, namespace):
    metadata = {"name": f"{account}-{namespace}"}
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list"]},
        {
            "apiGroups": ["kueue.x-k8s.io"],
            "resources": ["clusterqueues"],
            "resourceNames": [paper.names_with(NAMESPACES[0], namespace="").gpu_cluster_queue],
            "verbs": ["get"],
        },
    ]
    role = {"apiVersion": RBAC, "kind": "ClusterRole", "metadata": metadata, "rules": rules}
    plane.client.apply(role)
    bind(plane, "ClusterRoleBinding", metadata, account, namespace, "ClusterRole")


def bind(plane, kind, metadata, account, namespace, role):
    plane.client.apply(
        {
            "apiVersion": RBAC,
            "kind": kind,
            "metadata": metadata,
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": role,
                "name": metadata["name"],
            },
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        }
    )
