"""Kueue's older API says the same: read through either version, the state is one."""

import dataclasses

import pytest

from hack import paper
from hack.waiting import wait_for
from webhook.api import client as clients
from webhook.state.snapshot_file import fetch_snapshot

KUEUE = "kueue.x-k8s.io/v1beta2"


def _cohort_tree(suffix):
    """A queue that borrows and lends within limits, prefers, checks, preempts and is stopped."""
    quota = {"name": "cpu", "nominalQuota": 8, "borrowingLimit": 2, "lendingLimit": 4}
    group = {
        "coveredResources": ["cpu"],
        "flavors": [{"name": f"plain-{suffix}", "resources": [quota]}],
    }
    queue = {
        "cohortName": f"team-{suffix}",
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": f"team-{suffix}"}},
        "queueingStrategy": "StrictFIFO",
        "resourceGroups": [group],
        "stopPolicy": "Hold",
        "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
        "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "MayStopSearch"},
        "admissionChecksStrategy": {"admissionChecks": [{"name": f"check-{suffix}"}]},
    }
    check = {"controllerName": "example.com/check"}
    flavor = {
        "nodeLabels": {"pool": "plain"},
        "nodeTaints": [{"key": "pool", "value": "plain", "effect": "NoSchedule"}],
    }
    return [
        _object("ResourceFlavor", f"plain-{suffix}", spec=flavor),
        _object("Cohort", f"org-{suffix}", spec={}),
        _object("Cohort", f"team-{suffix}", spec={"parentName": f"org-{suffix}"}),
        _object("AdmissionCheck", f"check-{suffix}", spec=check),
        _object("WorkloadPriorityClass", f"high-{suffix}", value=100, description="first"),
        _object("ClusterQueue", f"tree-{suffix}", spec=queue),
    ]


def _object(kind, name, **rest):
    return {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name}, **rest}


def _read(plane, monkeypatch, version):
    monkeypatch.setattr(clients, "_KUEUE_VERSIONS", (version,))
    found = fetch_snapshot(clients.Client(str(plane.kubeconfig)), now=0.0, unix=0.0)
    return dataclasses.replace(found, as_of=0.0, generation=0)


@pytest.fixture
def tree(plane, namespace):
    items = _cohort_tree(namespace)
    for item in items:
        plane.client.apply(item)
    yield namespace
    plane.client.delete_all(items)


def test_the_state_read_through_v1beta1_is_the_one_of_v1beta2(plane, queues, tree, monkeypatch):
    heavy = [paper.heavy_job(f"heavy-{number}", queues) for number in range(6)]
    plane.client.create_all(heavy)

    def is_settled():
        held = _read(plane, monkeypatch, "v1beta2").workloads.held.get(queues.gpu_cluster_queue)
        return held is not None and held.reserving == 4

    wait_for(is_settled, "four Jobs have quota")
    wait_for(
        lambda: _read(plane, monkeypatch, "v1beta1") == _read(plane, monkeypatch, "v1beta2"),
        "both versions tell the same",
    )
    old = _read(plane, monkeypatch, "v1beta1")

    assert old.setup.cluster_queues[f"tree-{tree}"].cohort == f"team-{tree}"
    assert old.cluster.priority_classes[f"high-{tree}"] == 100
    assert len(old.workloads.arrivals) + old.workloads.held[queues.gpu_cluster_queue].pending >= 1
