"""Which Workloads wait for MultiKueue to find them a cluster, and since when."""

import pytest

from tests.state.objects import RESERVED, condition, workload
from webhook.state.workload import awaiting

READY, PENDING = {"name": "quota", "state": "Ready"}, {"name": "remote", "state": "Pending"}


def waiting(*, checks=(READY, PENDING), conditions=(RESERVED,), **status):
    source = workload(conditions=conditions, admitted_to="gpu-cq")
    source["apiVersion"] = "kueue.x-k8s.io/v1beta2"
    source["status"] |= {"admissionChecks": list(checks), **status}
    return source


def test_a_workload_with_quota_waits_while_one_check_alone_is_pending():
    found = awaiting(waiting())

    assert (found.check, found.nominated, found.nominated_at) == ("remote", (), 0)
    assert (found.workload.name, found.workload.cluster_queue) == ("job-train-1", "gpu-cq")
    assert [(each.name, each.count) for each in found.workload.pod_sets] == [("main", 1)]


def deleted(source):
    source["metadata"]["deletionTimestamp"] = "2026-11-25T06:00:00Z"
    return source


@pytest.mark.parametrize(
    "source",
    [
        waiting(clusterName="near"),
        waiting(checks=()),
        waiting(checks=(READY,)),
        waiting(checks=(PENDING, {"name": "budget", "state": "Pending"})),
        waiting(checks=(READY, {"name": "remote", "state": "Retry"})),
        waiting(conditions=(condition("QuotaReserved", "False"),)),
        waiting(conditions=(RESERVED, condition("Evicted"))),
        waiting(conditions=(RESERVED, condition("Finished"))),
        deleted(waiting()),
    ],
)
def test_others_wait_for_no_cluster(source):
    assert awaiting(source) is None


def test_since_when_clusters_are_nominated_is_when_kueues_manager_applied_last():
    source = waiting(nominatedClusterNames=["near", "far", "near"])
    source["metadata"]["managedFields"] = [
        {
            "manager": "kueue-admission",
            "operation": "Apply",
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "subresource": "status",
            "time": "1970-01-01T00:02:00Z",
            "fieldsV1": {"f:status": {"f:nominatedClusterNames": {}}},
        }
    ]

    found = awaiting(source)

    assert (found.nominated, found.nominated_at) == (("near", "far"), 120)
