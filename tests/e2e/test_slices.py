"""Jobs that go from whole GPUs to MIG slices and back, on a real Kueue and played nodes."""

import contextlib
import copy

import pytest
import yaml
from click.testing import CliRunner

from hack import kwok, paper
from hack.waiting import wait_for
from tests.e2e.decisions import OPTION, applied_policy, decision_of, limited, options, queue_of
from tests.e2e.moving import RULES, hold
from tests.e2e.plane import (
    container_of,
    has_condition,
    job_of,
    wait_until_complete,
    wait_until_reserved,
)
from webhook.__main__ import main
from webhook.decide.wishes import GPU_MEMORY
from webhook.model.job import MOVE_TO

MERGE_PATCH = "application/merge-patch+json"
POLICY_API = "kueue-fallback.dev/v1alpha1"
PRODUCT, CUT = "nvidia.com/gpu.product", "nvidia.com/mig.config"
A100 = "NVIDIA-A100-SXM4-80GB"
SMALL, MIDDLE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb"
NEEDS = {SMALL: "8Gi", MIDDLE: "16Gi"}
JOBS = {SMALL: 40, MIDDLE: 20}
ROOM = {SMALL: 12, MIDDLE: 6}
"""Of each size so many are free; all others wait."""
WHOLE = 60
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
    for item in reversed(items):
        plane.client.delete(
            item["apiVersion"],
            item["kind"],
            item["metadata"]["name"],
            namespace=item["metadata"].get("namespace", ""),
        )


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


def test_60_jobs_run_with_what_their_queue_is_for(plane, policy, namespace):
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


def filling(name, namespace, queue, resource):
    """Return a Job of as many pods as there is room for, which does not end during the test."""
    count = {SMALL: ROOM[SMALL], kwok.GPU: WHOLE}[resource]
    job = whole_gpu(name, namespace, "8Gi")
    container = container_of(job)
    container["resources"] = {"requests": {resource: "1"}, "limits": {resource: "1"}}
    job["metadata"]["labels"][paper.QUEUE_LABEL] = f"{queue}-lq"
    job["metadata"]["annotations"] = {"kueue-fallback.dev/policy": "none"}
    job["spec"] |= {"parallelism": count, "completions": count}
    template = job["spec"]["template"]
    template["metadata"]["annotations"] = {
        "sim.example.com/gpu-run": "2000s",
        "sim.example.com/cpu-run": "2000s",
    }
    template["spec"]["nodeSelector"] = SELECTED[queue]
    return limited(job)


@pytest.fixture
def reconsidering(plane, policy):
    strategy = {"type": "FinishTime", "finishTime": {"runTime": "20s"}}
    spec = {"strategy": {**strategy, "threshold": None}, "reconsider": RULES}
    options = [policy["spec"]["options"][0], {**policy["spec"]["options"][1], "slowdown": 1}]
    plane.client.patch(
        POLICY_API,
        "FallbackPolicy",
        policy["metadata"]["name"],
        {"spec": {**spec, "options": options}},
    )


def test_the_controller_moves_jobs_into_slices_and_others_back(plane, reconsidering, namespace):
    client = plane.client
    whole = client.create(filling("whole", namespace, "whole", kwok.GPU))
    slices = client.create(filling("slices", namespace, "mig", SMALL))
    for job in (whole, slices):
        wait_until_reserved(client, job)
    with stopped(client, namespace, "mig"):
        client.create(whole_gpu("into", namespace, "8Gi"))
    delete(client, slices)
    into = wait_for(lambda: moved_of(client, namespace, "into"), "it is moved to the slices")
    assert (queue_of(into), devices(into)) == ("mig-lq", {SMALL: "1"})
    wait_until_complete(client, namespace, "into")

    wait_until_reserved(client, client.create(filling("more", namespace, "mig", SMALL)))
    with stopped(client, namespace, "whole"):
        client.create(whole_gpu("back", namespace, "8Gi"))
    delete(client, whole)
    back = wait_for(lambda: moved_of(client, namespace, "back"), "it is moved to a whole GPU")
    assert (queue_of(back), devices(back)) == ("whole-lq", {kwok.GPU: "1"})
    wait_until_complete(client, namespace, "back")


@contextlib.contextmanager
def stopped(client, namespace, pool):
    """Stop a queue until the webhook knows that it is, and that the other one is full."""
    refused, other = {"mig": ("small", "whole"), "whole": ("whole", "small")}[pool]
    asks = whole_gpu("asks", namespace, "8Gi")

    def is_known():
        decision = decision_of(client.create(asks, dry_run=True))
        found = options(decision) if decision else {}
        is_full = not found.get(other, {}).get("fits", True)
        return is_full and "rejected" in found[refused]

    hold(client, f"{pool}-{namespace}", "Hold")
    wait_for(is_known, f"{pool} is known to be stopped, and {other} to be full")
    yield
    hold(client, f"{pool}-{namespace}", "None")


def delete(client, job):
    client.send("DELETE", client.path_of(job), {"propagationPolicy": "Background"})


def moved_of(client, namespace, name):
    job = job_of(client, namespace, name)
    return job if decision_of(job).get("moves") else None


def test_a_sample_is_tried_with_slices_too(plane, policy, namespace, tmp_path):
    files = {"policy": policy, "job": whole_gpu("asks", namespace, "8Gi")}
    for name, item in files.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(item))
    words = ["-f", str(tmp_path / "policy.yaml"), "--sample", str(tmp_path / "job.yaml")]

    checked = CliRunner().invoke(
        main, ["check", *words, "-n", namespace, "--kubeconfig", str(plane.kubeconfig)]
    )

    assert (checked.exit_code, checked.output.count(": accepted")) == (0, 3), checked.output


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


def test_a_slice_in_which_three_run_out_of_memory_is_refused_to_their_class(
    plane, policy, namespace
):
    """As CUDA says it: the pods fail, and nothing but that is known of why."""
    client = plane.client
    sample = too_large("asks", namespace)
    wait_for(lambda: option_of(client.create(sample, dry_run=True)) == "small", "it is decided")
    names = [f"fails-{number}" for number in range(3)]
    for name in names:
        assert option_of(client.create(too_large(name, namespace))) == "small"
    wait_for(
        lambda: all(has_condition(job_of(client, namespace, name), "Failed") for name in names),
        "all three fail in their slices",
    )

    def refused():
        decision = decision_of(client.create(too_large("probe", namespace), dry_run=True))
        return options(decision)["small"].get("rejected")

    why = wait_for(refused, "the slice is refused to the class")

    assert why == (
        "keepsFailing: Jobs of its class failed 3 times under option small and never succeeded"
    )
    assert option_of(client.create(too_large("next", namespace))) == "middle"
    assert option_of(client.create(whole_gpu("another", namespace, "8Gi"))) == "small"


def too_large(name, namespace):
    """Return a Job that says it needs less than it does: its pods fail where no whole GPU is."""
    job = whole_gpu(name, namespace, "8Gi")
    container_of(job)["image"] = "needs-more"
    job["spec"]["backoffLimit"] = 0
    job["spec"]["template"]["metadata"]["annotations"][kwok.CPU_FAILS] = "true"
    return job
