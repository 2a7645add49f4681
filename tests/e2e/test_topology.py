"""Gangs that are sent to racks: what the option asks, what Kueue does, and what was foreseen."""

import pytest

from hack import paper
from hack.kwok import GPU
from hack.waiting import wait_for
from tests.e2e.decisions import applied_policy, decision_of, options
from tests.e2e.plane import has_condition, workload_of
from webhook.state.workload_pods import read_placed

POLICY_API = "kueue-fallback.dev/v1alpha1"
RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
PREFIX = "kueue.x-k8s.io/podset-"
REQUIRED, PREFERRED = f"{PREFIX}required-topology", f"{PREFIX}preferred-topology"
NODES = (("r0", 0), ("r0", 1), ("r1", 0), ("r1", 1))
POOL = "example.com/pool"


def node(namespace, rack, index):
    name = f"{namespace}-{rack}-{index}"
    offered = {"cpu": "96", "memory": "1Ti", "pods": "110", GPU: "8"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {HOST: name, RACK: rack, POOL: namespace},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": [{"key": POOL, "value": namespace, "effect": "NoSchedule"}]},
        "status": {"allocatable": offered, "capacity": offered},
    }


@pytest.fixture
def racks(plane, namespace):
    """Two racks of two Nodes with eight GPUs each, and a queue for them."""
    levels = [{"nodeLabel": RACK}, {"nodeLabel": HOST}]
    flavor = paper.resource_flavor(namespace, node_labels={POOL: namespace})
    flavor["spec"] |= {
        "topologyName": namespace,
        "tolerations": [{"key": POOL, "operator": "Exists"}],
    }
    items = [
        *(node(namespace, *place) for place in NODES),
        {
            "apiVersion": paper.KUEUE,
            "kind": "Topology",
            "metadata": {"name": namespace},
            "spec": {"levels": levels},
        },
        flavor,
        paper.cluster_queue(
            namespace, flavor=namespace, quota={"cpu": "1000", "memory": "4000Gi", GPU: "1000"}
        ),
        paper.local_queue("racks-lq", namespace, cluster_queue=namespace),
    ]
    plane.client.apply_all(items)
    yield
    plane.client.delete_all(items)


@pytest.fixture
def policy(plane, webhook, racks, namespace):
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    asked = {"topology": {"mode": "Auto", "level": RACK}}
    found = {
        "apiVersion": POLICY_API,
        "kind": "FallbackPolicy",
        "metadata": {"name": f"racks-{namespace}"},
        "spec": {
            "mode": "Enforce",
            "match": {"jobSelector": {}, "namespaceSelector": selector},
            "options": [{"name": "rack", "queue": "racks-lq", "adaptation": asked}],
            "strategy": {"type": "FinishTime", "finishTime": {"runTime": "1h"}},
        },
    }
    with applied_policy(plane.client, found, None, until_decided=False):
        yield


def gang(name, namespace, pods):
    asked = {"cpu": "1", "memory": "1Gi", GPU: "8"}
    container = {
        "name": "main",
        "image": "train",
        "resources": {"requests": asked, "limits": {GPU: "8"}},
    }
    job = paper.job(
        name,
        namespace,
        labels={paper.QUEUE_LABEL: "racks-lq"},
        run={"gpu-run": 3600},
        container=container,
    )
    job["spec"] |= {"parallelism": pods, "completions": pods}
    return job


def asked_of(job):
    annotations = job["spec"]["template"]["metadata"]["annotations"]
    return {name: text for name, text in annotations.items() if name.startswith(PREFIX)}


def rack_of(domain):
    return domain[0].split("-")[-2]


def submitted(client, name, namespace, pods):
    """Create a gang; return it, its option as decided, and in which racks Kueue has placed it."""
    job = client.create(gang(name, namespace, pods))
    wait_for(lambda: verdict(workload_of(client, job)), f"Kueue has judged {name}")
    workload = workload_of(client, job)
    placed = read_placed(workload["spec"], workload["status"].get("admission", {}))
    return job, options(decision_of(job))["rack"], {rack_of(pods.domain) for pods in placed}


def verdict(workload):
    conditions = (workload or {}).get("status", {}).get("conditions", ())
    return any(condition["type"] == "QuotaReserved" for condition in conditions)


def test_gangs_get_a_rack_each_and_the_next_one_waits_as_foreseen(plane, policy, namespace):
    client = plane.client
    probe = gang("probe", namespace, 2)

    def asked():
        return decision_of(client.create(probe, dry_run=True))

    wait_for(
        lambda: (found := asked()) and "startUnknown" not in options(found)["rack"],
        lambda: f"the webhook knows the racks: {asked()}",
    )

    first, then, at_first = submitted(client, "first", namespace, 2)
    second, _, secondly = submitted(client, "second", namespace, 2)
    wait_for(
        lambda: options(decision_of(client.create(probe, dry_run=True)))["rack"].get("startsIn"),
        "the webhook counts both",
    )
    third, waiting, nowhere = submitted(client, "third", namespace, 2)

    assert asked_of(first) == asked_of(second) == {REQUIRED: RACK}
    assert sorted([*at_first, *secondly]) == ["r0", "r1"]
    assert then["startsIn"] == 0
    assert (nowhere, has_condition(workload_of(client, third), "QuotaReserved")) == (set(), False)
    assert 0 < waiting["startsIn"] <= 3700
    assert "topology" in waiting["uncertain"]
    assert asked_of(client.create(gang("wide", namespace, 3), dry_run=True)) == {PREFERRED: RACK}
    assert asked_of(client.create(gang("one", namespace, 1), dry_run=True)) == {PREFERRED: HOST}
