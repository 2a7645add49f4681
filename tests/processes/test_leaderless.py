"""Worker clusters are nominated by the leading controller, and by the server when none leads."""

import pytest
import yaml

from hack import kueue, multikueue, paper
from hack.embedded.plane import EmbeddedPlane
from hack.install import PATIENT, Installation
from hack.waiting import wait_for
from tests.e2e.decisions import metric
from webhook.model.kueue_support import OWN_DISPATCHER

NAMES = paper.names_with("leaderless", namespace="leaderless")
CLUSTERS = ["near", "far"]
SHORTEST = "30"
"""Seconds without a leader."""
MARK = "2026-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A controller, a server, and no Kueue: nobody takes what is nominated away."""
    values = (*PATIENT, "clusters.dispatcher=true", f"settings.dispatcher_timeout={SHORTEST}")
    with EmbeddedPlane(tmp_path_factory.mktemp("leaderless")) as plane:
        client = plane.client
        config = yaml.safe_dump(
            {"kind": "Configuration", "multiKueue": {"dispatcherName": OWN_DISPATCHER}}
        )
        client.patch(
            *("v1", "ConfigMap", kueue.CONFIG_MAP),
            {"data": {kueue.CONFIG_KEY: config}},
            namespace=kueue.NAMESPACE,
        )
        with Installation(plane, chart_values=values) as found:
            client.apply(paper.namespace(NAMES))
            client.apply_all([*multikueue.check(CLUSTERS), *multikueue.manager_queues(NAMES)])
            for name in CLUSTERS:
                add_cluster(client, name)
            yield found


def condition(kind):
    return {
        "type": kind,
        "status": "True",
        "reason": "Played",
        "message": "",
        "lastTransitionTime": MARK,
    }


def add_cluster(client, name):
    source = {"kubeConfig": {"location": name, "locationType": "Secret"}}
    named = {"apiVersion": paper.KUEUE, "kind": "MultiKueueCluster", "metadata": {"name": name}}
    client.create({**named, "spec": {"clusterSource": source}})
    status = {"status": {"conditions": [condition("Active")]}}
    client.patch(paper.KUEUE, "MultiKueueCluster", name, status, subresource="status")


def wait_for_a_cluster(client, name):
    """Create a Workload that has its quota, as Kueue writes it."""
    place = {"name": name, "namespace": NAMES.namespace}
    template = paper.light_job("light", NAMES)["spec"]["template"]
    pod_sets = [{"name": "main", "count": 1, "template": template}]
    spec = {"queueName": NAMES.gpu_queue, "podSets": pod_sets}
    kind = {"apiVersion": paper.KUEUE, "kind": "Workload"}
    client.create({**kind, "metadata": place, "spec": spec})
    usage = {"cpu": "4", "memory": "6Gi"}
    assigned = {
        "name": "main",
        "count": 1,
        "flavors": dict.fromkeys(usage, NAMES.gpu_flavor),
        "resourceUsage": usage,
    }
    status = {
        "admission": {"clusterQueue": NAMES.gpu_cluster_queue, "podSetAssignments": [assigned]},
        "conditions": [condition("QuotaReserved")],
        "admissionChecks": [
            {
                "name": multikueue.CHECK,
                "state": "Pending",
                "message": "",
                "lastTransitionTime": MARK,
            }
        ],
    }
    change = {"status": status}
    client.patch(
        *(paper.KUEUE, "Workload", name, change), namespace=NAMES.namespace, subresource="status"
    )


def nominated(client, name):
    found = client.get(paper.KUEUE, "Workload", name, namespace=NAMES.namespace)
    return found["status"].get("nominatedClusterNames", [])


def test_all_clusters_are_asked_while_no_controller_leads_and_one_when_it_does(installed):
    client, controller = installed.plane.client, installed.controllers[0]
    wait_for_a_cluster(client, "led")
    led = wait_for(lambda: nominated(client, "led"), "the controller chooses")

    installed.plane.kill(controller.name)
    wait_for_a_cluster(client, "leaderless")
    leaderless = wait_for(lambda: nominated(client, "leaderless"), "the server asks all")
    silent_seconds = metric(installed, "kueue_fallback_leaderless_seconds")
    installed.plane.start(controller.name)
    wait_for(lambda: metric(installed, "kueue_fallback_leaderless_seconds") < 1, "one leads")
    wait_for_a_cluster(client, "led-again")
    led_again = wait_for(lambda: nominated(client, "led-again"), "the controller chooses again")

    assert led == led_again == CLUSTERS[:1]
    assert leaderless == CLUSTERS
    assert silent_seconds >= float(SHORTEST)
    log = installed.plane.processes.log(installed.replicas[0].name).read_text()
    assert "no controller has led for 30 s: all worker clusters are nominated" in log
    assert f"Workload {NAMES.namespace}/leaderless: asks near, far: no controller leads" in log
    assert f"/led-again: asks {CLUSTERS[0]}, " not in log
