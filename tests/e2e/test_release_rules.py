"""What differs between releases of Kueue, asked of the one that runs, and of our row of it.

``KUEUE_VERSION=0.18`` asks another one, as `hack.tools` says.
"""

import pytest

from hack import tools
from hack.controlplane import ControlPlane, Options
from hack.paper import KUEUE
from hack.waiting import wait_for
from tests.e2e.plane import has_condition, workload_of
from webhook.api import client as clients
from webhook.jobs import batch
from webhook.kueue.requests import needs
from webhook.model import quantity
from webhook.model.job import QUEUE_LABEL
from webhook.model.kueue_support import release, release_of
from webhook.state import occupancy
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.snapshot_file import fetch_snapshot

NAMESPACE, OTHER = "releases", "example.com/other"
SLOTS, MEMORY = "example.com/slots", "example.com/memory"
GPU, DEVICES = "example.com/gpu", "whole-devices"
DEVICE_CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.example.com"},
    "spec": {"extendedResourceName": GPU},
}
CONFIG = {
    "resources": {
        "quotaCheckStrategy": "IgnoreUndeclared",
        "transformations": [
            {
                "input": SLOTS,
                "strategy": "Retain",
                "multiplyBy": "cpu",
                "outputs": {MEMORY: "1"},
            }
        ],
        "deviceClassMappings": [{"name": DEVICES, "deviceClassNames": ["gpu.example.com"]}],
    }
}
IS_0_18 = release(tools.kueue_version()) == (0, 18)


def item(kind, name, **rest):
    return {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name}, **rest}


def cluster_queue(name, quotas, **spec):
    """A ClusterQueue of these flavors: resource to nominal quota, or to what is said of it."""
    flavors = [
        {
            "name": flavor,
            "resources": [
                {"name": key, **(quota if isinstance(quota, dict) else {"nominalQuota": quota})}
                for key, quota in cells.items()
            ],
        }
        for flavor, cells in quotas.items()
    ]
    covered = list(next(iter(quotas.values())))
    group = {"coveredResources": covered, "flavors": flavors}
    spec = {"namespaceSelector": {}, "resourceGroups": [group], **spec}
    return item("ClusterQueue", name, spec=spec)


def queues():
    """A queue with transformed resources, and one that prefers preemption to borrowing.

    Of the flavor `own` it may borrow nothing, though it is free near by; `lent` is free further up.
    """
    prefers = {
        "preference": "PreemptionOverBorrowing",
        "whenCanBorrow": "TryNextFlavor",
        "whenCanPreempt": "TryNextFlavor",
    }
    own = {"own": {"cpu": {"nominalQuota": "4", "borrowingLimit": "0"}}, "lent": {"cpu": "0"}}
    local = {f"{name}-lq": {"clusterQueue": f"{name}-cq"} for name in ("plain", "prefers")}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        *(item("ResourceFlavor", name, spec={}) for name in ("plain", "own", "lent")),
        item("Cohort", "far", spec={}),
        item("Cohort", "near", spec={"parentName": "far"}),
        DEVICE_CLASS,
        cluster_queue(
            "plain-cq", {"plain": {"cpu": "100", SLOTS: "100", MEMORY: "100", DEVICES: "8"}}
        ),
        cluster_queue(
            "prefers-cq",
            own,
            cohortName="near",
            flavorFungibility=prefers,
            preemption={"withinClusterQueue": "LowerPriority"},
        ),
        cluster_queue("near-cq", {"own": {"cpu": "4"}}, cohortName="near"),
        cluster_queue("far-cq", {"lent": {"cpu": "4"}}, cohortName="far"),
        *(
            {
                **item("LocalQueue", name, spec=spec),
                "metadata": {"name": name, "namespace": NAMESPACE},
            }
            for name, spec in local.items()
        ),
    ]


def job(name, queue, limits, **requests):
    """A Job whose pod no node takes, so that it keeps its quota."""
    resources = {"limits": limits, **requests}
    container = {"name": "main", "image": "job", "resources": resources}
    pod = {"restartPolicy": "Never", "nodeSelector": {"no": "where"}, "containers": [container]}
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {QUEUE_LABEL: queue}}
    spec = {"suspend": True, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    options = Options(kueue_config=CONFIG)
    with ControlPlane(tmp_path_factory.mktemp("releases"), options=options) as started:
        started.client.apply_all(queues())
        wait_for(lambda: are_active(started.client), "the queues are active")
        yield started


def are_active(client):
    found = [each for each in client.list(KUEUE, "ClusterQueue") if has_condition(each, "Active")]
    return len(found) == 4


def predicted(plane, source):
    """Return what the Job would be charged by our model of the running release; None: it waits."""
    found = fetch_snapshot(clients.Client(str(plane.kubeconfig)), now=0.0, unix=0.0)
    assert found.setup.kueue.release == release_of(tools.kueue_version())
    read = batch.read_job(source)
    local_queue = found.setup.local_queues[NAMESPACE, read.queue]
    queue = found.setup.cluster_queues[local_queue.cluster_queue]
    seen = occupancy_of(found)
    assignment = occupancy.assignment(seen, needs(read, found.cluster, found.setup.kueue), queue)
    passes = occupancy.passes_now(seen, assignment, local_queue, queue)
    if not passes or assignment.has_checks(queue):
        return None
    return {resource: amount for (_, resource), amount in assignment.usage.items()}


def served(plane, source):
    """Create the Job, and return what Kueue charges it at once; None: it waits."""
    created = plane.client.create(source)

    def judged():
        workload = workload_of(plane.client, created)
        conditions = (workload or {}).get("status", {}).get("conditions") or ()
        return workload if any(each["type"] == "QuotaReserved" for each in conditions) else None

    workload = wait_for(judged, "Kueue has looked at it")
    if not has_condition(workload, "QuotaReserved"):
        return None
    (assigned,) = workload["status"]["admission"]["podSetAssignments"]
    return {
        resource: quantity.parse(amount, resource=resource)
        for resource, amount in assigned["resourceUsage"].items()
    }


@pytest.mark.parametrize(
    ("source", "in_0_18", "since_0_19"),
    [
        (
            job("multiplies", "plain-lq", {"cpu": "3", SLOTS: "2"}),
            {"cpu": 3000, SLOTS: 6, MEMORY: 6},
            {"cpu": 3000, SLOTS: 2, MEMORY: 6},
        ),
        (
            job("devices", "plain-lq", {"cpu": "1", GPU: "2"}, requests={GPU: "2"}),
            None,
            {"cpu": 1000, DEVICES: 2},
        ),
        (job("limits", "plain-lq", {"cpu": "2", GPU: "2"}), None, {"cpu": 2000}),
        (job("undeclared", "plain-lq", {"cpu": "1", OTHER: "1"}), None, {"cpu": 1000}),
        (job("first", "prefers-lq", {"cpu": "4"}), {"cpu": 4000}, {"cpu": 4000}),
        (job("borrows", "prefers-lq", {"cpu": "4"}), None, {"cpu": 4000}),
    ],
    ids=lambda value: value["metadata"]["name"] if value and "metadata" in value else "",
)
def test_each_release_gives_quota_as_our_row_of_it_says(plane, source, in_0_18, since_0_19):
    """The usage by resource; None: it waits."""
    ours = predicted(plane, source)
    theirs = served(plane, source)

    assert (ours, theirs) == ((in_0_18,) * 2 if IS_0_18 else (since_0_19,) * 2)
