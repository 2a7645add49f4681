"""Jobs that go from whole GPUs to MIG slices and back, on a real Kueue and played nodes."""

import copy

import pytest

from hack import kwok, paper
from hack.waiting import wait_for
from tests.e2e.decisions import OPTION, applied_policy, decision_of, options, queue_of
from tests.e2e.moving import hold
from tests.e2e.plane import (
    container_of,
    has_condition,
    job_of,
    wait_until_complete,
)
from webhook.decide.wishes import GPU_MEMORY
from webhook.model.job import MOVE_TO

MERGE_PATCH = "application/merge-patch+json"
POLICY_API = "kueue-fallback.dev/v1alpha1"
PRODUCT, CUT = "nvidia.com/gpu.product", "nvidia.com/mig.config"
A100 = "NVIDIA-A100-SXM4-80GB"
SMALL, MIDDLE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb"
NEEDS = {SMALL: "8Gi", MIDDLE: "16Gi"}
JOBS = {SMALL: 16, MIDDLE: 8}
ROOM = {SMALL: 4, MIDDLE: 2}
"""Of each size so many are free; all others wait."""
WHOLE = 24
SELECTED = {"whole": {PRODUCT: A100}, "mig": {CUT: "all-balanced"}}
TOLERATION = {"key": kwok.GPU, "operator": "Exists", "effect": "NoSchedule"}


@pytest.fixture
def pools(plane, namespace):
    """Nodes with whole GPUs and nodes with slices, with queues of their own."""
    sizes = {"whole": {kwok.GPU: WHOLE}, "mig": ROOM}
    items = []
    for pool, room in sizes.items():
        flavor, quota = f"{pool}-{namespace}", {name: str(count) for name, count in room.items()}
        items += [
            node(flavor, SELECTED[pool], quota),
            paper.resource_flavor(flavor, node_labels=SELECTED[pool]),
            paper.cluster_queue(
                flavor, flavor=flavor, quota={"cpu": "1000", "memory": "4000Gi", **quota}
            ),
            paper.local_queue(f"{pool}-lq", namespace, cluster_queue=flavor),
        ]
    plane.client.apply_all(items)
    yield
    plane.client.delete_all(items)


def node(name, labels, allocatable):
    template = copy.deepcopy(kwok.nodes()[0])
    template["metadata"]["name"] = name
    template["metadata"]["labels"] |= {"kubernetes.io/hostname": name, **labels}
    del template["status"]["allocatable"][kwok.GPU]
    template["status"]["allocatable"] |= allocatable
    template["spec"] = {"taints": [{"key": kwok.GPU, "value": "present", "effect": "NoSchedule"}]}
    return template


@pytest.fixture
def policy(plane, webhook, pools, namespace):
    found = {
        "apiVersion": POLICY_API,
        "kind": "FallbackPolicy",
        "metadata": {"name": f"slices-{namespace}"},
        "spec": {
            "mode": "Enforce",
            "match": {
                "jobSelector": {},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            },
            "options": [
                {"name": "whole", "queue": "whole-lq"},
                *(
                    {
                        "name": name,
                        "queue": "mig-lq",
                        "adaptation": {"accelerator": "Replace", "by": {resource: 1}},
                    }
                    for name, resource in (("small", SMALL), ("middle", MIDDLE))
                ),
            ],
            "strategy": {
                "type": "Threshold",
                "threshold": [
                    {"option": "small", "orPendingBelow": 1000},
                    {"option": "middle", "orPendingBelow": 1000},
                ],
            },
        },
    }
    with applied_policy(plane.client, found, None, until_decided=False):
        yield found


def whole_gpu(name, namespace, need):
    job = paper.gpu_job(
        name,
        paper.Names(namespace=namespace, gpu_queue="whole-lq"),
        labels={},
        run={"gpu-run": 1, "cpu-run": 5},
    )
    job["metadata"]["annotations"] = {GPU_MEMORY: need}
    pod = job["spec"]["template"]["spec"]
    pod["nodeSelector"], pod["tolerations"] = {PRODUCT: A100}, [TOLERATION]
    return job


def test_24_jobs_run_with_what_their_queue_is_for(plane, policy, namespace):
    client = plane.client
    sample = whole_gpu("asks", namespace, "8Gi")
    wait_for(lambda: option_of(client.create(sample, dry_run=True)) == "small", "it is decided")
    submitted = {
        f"{number}-of-{size}": whole_gpu(f"{number}-of-{size}", namespace, NEEDS[resource])
        for size, resource in (("small", SMALL), ("middle", MIDDLE))
        for number in range(JOBS[resource])
    }
    created = client.create_all(submitted.values())

    for job in created:
        resource = resource_of(job["metadata"]["name"])
        assert (queue_of(job), devices(job)) == ("mig-lq", {resource: "1"})
        assert "nodeSelector" not in job["spec"]["template"]["spec"]
    large = client.create(whole_gpu("large", namespace, "60Gi"), dry_run=True)
    refused = {
        name: str(each.get("rejected", "")).partition(":")[0]
        for name, each in options(decision_of(large)).items()
    }
    assert (queue_of(large), refused) == (
        "whole-lq",
        {"whole": "", "small": "memoryTooSmall", "middle": "memoryTooSmall"},
    )

    waiting = wait_for(lambda: pending(client, namespace), "all but those with a slice wait")
    hold(client, f"mig-{namespace}", "Hold")
    undone, applied, *others = waiting
    patch(client, namespace, undone, {"metadata": {"annotations": {MOVE_TO: "none"}}})
    back = job_of(client, namespace, undone)
    assert (queue_of(back), devices(back)) == ("whole-lq", {kwok.GPU: "1"})
    assert back["spec"]["template"]["spec"]["nodeSelector"] == {PRODUCT: A100}
    patch(client, namespace, applied, {"spec": submitted[applied]["spec"]})
    assert devices(job_of(client, namespace, applied)) == {resource_of(applied): "1"}
    for name in others:
        patch(client, namespace, name, {"metadata": {"annotations": {MOVE_TO: "whole"}}})
        moved = job_of(client, namespace, name)
        assert (option_of(moved), devices(moved)) == ("whole", {kwok.GPU: "1"})

    hold(client, f"mig-{namespace}", "None")
    for name in submitted:
        wait_until_complete(client, namespace, name)
    pods = client.list("v1", "Pod", namespace=namespace)
    ran = {
        pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]: (
            pod["spec"]["nodeName"],
            requested(pod["spec"]),
        )
        for pod in pods
    }
    gone = {undone, *others}
    assert ran == {
        name: (
            (f"whole-{namespace}", {kwok.GPU: "1"})
            if name in gone
            else (f"mig-{namespace}", {resource_of(name): "1"})
        )
        for name in submitted
    }
    assert len(others) > sum(ROOM.values())


def resource_of(name):
    return SMALL if name.endswith("small") else MIDDLE


def option_of(job):
    return job["metadata"]["labels"].get(OPTION)


def devices(job):
    return requested({"containers": [container_of(job)]})


def requested(spec):
    (container,) = spec["containers"]
    assert {k: v for k, v in container["resources"]["requests"].items() if "/" in k} == container[
        "resources"
    ]["limits"]
    return container["resources"]["limits"]


def patch(client, namespace, name, body):
    path = client.path("batch/v1", "Job", namespace=namespace, name=name)
    client.send("PATCH", path, body, content_type=MERGE_PATCH)


def pending(client, namespace):
    """Return the names of the Jobs without quota, once Kueue has given out all that there is."""
    workloads = client.list(paper.KUEUE, "Workload", namespace=namespace)
    reserved = {
        workload["metadata"]["ownerReferences"][0]["name"]: has_condition(workload, "QuotaReserved")
        for workload in workloads
    }
    if len(workloads) < sum(JOBS.values()) or sum(reserved.values()) < sum(ROOM.values()):
        return None
    return [name for name, has in reserved.items() if not has]
