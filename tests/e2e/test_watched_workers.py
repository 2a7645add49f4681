"""A GPU cluster behind MultiKueue whose queues the webhook may look at: two real planes."""

from dataclasses import replace

import pytest

from hack import multikueue, paper
from hack.controlplane import ControlPlane
from hack.install import Installation
from hack.kwok import GPU
from tests.e2e.decisions import SLOW, applied_policy, decision_of, finish_time, options, probe
from tests.e2e.plane import wait_for
from tests.e2e.worker_clusters import (
    arrived,
    cluster_of,
    delete_account,
    is_active,
    let_read,
    reader_secret,
)

pytestmark = pytest.mark.xdist_group("multikueue")

NAMES = paper.Names()
CLUSTER = "gpu-worker"
ANY = {"cpu": "1000", "memory": "4000Gi"}
MANY = "40"
"""GPUs of the manager's quota: nobody waits there."""


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    with ControlPlane(tmp_path_factory.mktemp("worker")) as started:
        started.client.apply_all(multikueue.worker_queues(NAMES))
        yield started


@pytest.fixture(scope="module")
def manager(tmp_path_factory, worker):
    with ControlPlane(tmp_path_factory.mktemp("manager")) as started:
        client = started.client
        client.apply_all(multikueue.worker(CLUSTER, worker.kubeconfig))
        client.apply_all(multikueue.check([CLUSTER]))
        client.apply_all(multikueue.manager_queues(NAMES, gpus=MANY))
        wait_for(lambda: is_active(client, NAMES), "the worker is connected")
        yield started


@pytest.fixture(scope="module")
def installed(manager, worker):
    found = Installation(manager, chart_values=[f"clusters.watchWorkers={{{CLUSTER}}}"])
    with found:
        manager.client.apply(reader_secret(CLUSTER, let_read(worker)))
        yield found


def _seen(manager):
    """Return what the webhook knows of the worker now."""
    decision = probe(manager.client, NAMES)
    return cluster_of(decision, CLUSTER) if decision else {}


def _refusal(manager):
    """Return why the queue behind the worker is refused now; empty: it is not."""
    return options(probe(manager.client, NAMES))["gpu"].get("rejected", "")


@pytest.mark.usefixtures("installed")
def test_what_waits_on_the_worker_decides(manager, worker):
    client = manager.client
    policy = finish_time(NAMES, runTime="20s", minimumGain={"time": "1s", "percent": 1})
    with applied_policy(client, policy, NAMES):
        wait_for(lambda: _seen(manager).get("fits"), "the worker's free GPUs are seen")
        free = decision_of(client.create(paper.light_job("while-free", NAMES, faster=SLOW)))
        wait_for(lambda: arrived(worker, NAMES.namespace, "while-free"), "MultiKueue brings it")

        burst = [paper.heavy_job(f"heavy-{number}", NAMES, faster=SLOW) for number in range(15)]
        client.create_all(burst)
        at_once = probe(client, NAMES)
        wait_for(lambda: _seen(manager).get("pending") == 12, "those that wait there are seen")
        later = client.create(paper.light_job("while-full", NAMES, faster=SLOW))

    assert options(free)["gpu"]["cluster"] == CLUSTER
    assert free["reason"].startswith(f"stays in gpu-lq (gpu on {CLUSTER}): starts now")
    # Not one of them had come to the worker yet.
    assert (at_once["option"], options(at_once)["gpu"]["pending"]) == ("cpu", 12)
    assert decision_of(later)["option"] == "cpu"
    assert options(decision_of(later))["gpu"]["pending"] == 12


@pytest.fixture(autouse=True)
def no_jobs_left(manager):
    yield
    path = manager.client.path("batch/v1", "Job", namespace=NAMES.namespace)
    manager.client.send("DELETE", path, {"propagationPolicy": "Background"})


@pytest.fixture
def local(manager):
    """GPUs of the manager's own: LocalQueue local-lq, and a policy that prefers it."""
    items = [
        paper.cluster_queue("local-cq", flavor=NAMES.gpu_flavor, quota={**ANY, GPU: "1"}),
        paper.local_queue("local-lq", NAMES.namespace, cluster_queue="local-cq"),
    ]
    manager.client.apply_all(items)
    policy = finish_time(NAMES, runTime="600s")
    policy["spec"]["options"] = [
        {"name": "local", "queue": "local-lq"},
        {"name": "gpu", "queue": NAMES.gpu_queue, "slowdown": 1.1, "startDelay": "5s"},
    ]
    with applied_policy(manager.client, policy, NAMES):
        yield replace(NAMES, gpu_queue="local-lq")
    for item in reversed(items):
        place = item["metadata"].get("namespace", "")
        name = item["metadata"]["name"]
        manager.client.delete(item["apiVersion"], item["kind"], name, namespace=place)


@pytest.mark.usefixtures("installed")
def test_jobs_spill_to_the_worker_while_the_local_queue_is_full(manager, worker, local):
    client = manager.client
    wait_for(lambda: cluster_of(probe(client, NAMES), CLUSTER).get("fits"), "the worker is seen")
    empty = probe(client, local)

    client.create(paper.heavy_job("local-1", local, faster=SLOW))
    client.create(paper.heavy_job("local-2", local, faster=SLOW))
    spilled = client.create(paper.light_job("spilled", local, faster=SLOW))
    wait_for(lambda: arrived(worker, NAMES.namespace, "spilled"), "MultiKueue brings it")
    for name in ("local-1", "local-2"):
        client.delete("batch/v1", "Job", name, namespace=NAMES.namespace)
    wait_for(lambda: probe(client, local)["option"] == "local", "the local queue is free again")

    decision = decision_of(spilled)
    assert (empty["option"], decision["option"]) == ("local", "gpu")
    assert options(decision)["gpu"]["cluster"] == CLUSTER
    assert options(decision)["local"]["pending"] == 1
    assert options(decision)["local"]["finishesIn"] > options(decision)["gpu"]["finishesIn"]


@pytest.mark.usefixtures("installed")
def test_while_a_worker_is_gone_no_job_waits_for_it(manager, worker):
    client = manager.client

    with applied_policy(client, finish_time(NAMES, runTime="20s"), NAMES):
        wait_for(lambda: _seen(manager).get("fits") is not None, "the worker is seen")
        worker.stop("kube-apiserver")
        found = wait_for(
            lambda: _refusal(manager), "the worker is not counted on", timeout_seconds=60
        )
        meanwhile = client.create(paper.light_job("meanwhile", NAMES, faster=SLOW))
        client.create(paper.heavy_job("heavy-meanwhile", NAMES, faster=SLOW))
        worker.start("kube-apiserver")
        wait_for(
            lambda: _seen(manager).get("fits") is not None, "it is seen again", timeout_seconds=120
        )

    assert found.startswith(("noActiveCluster: ", "noClusterFits: "))
    assert f"{CLUSTER} stale" in found or f"{CLUSTER} inactive" in found
    assert decision_of(meanwhile)["option"] == "cpu"


@pytest.mark.usefixtures("installed")
def test_another_kubeconfig_of_a_worker_is_taken_up(manager, worker):
    client = manager.client
    with applied_policy(client, finish_time(NAMES, runTime="20s"), NAMES):
        wait_for(lambda: _seen(manager).get("fits") is not None, "the worker is seen")
        delete_account(worker)
        refused = wait_for(lambda: _seen(manager).get("rejected"), "its token is void")
        client.apply(reader_secret(CLUSTER, let_read(worker)))
        wait_for(lambda: _seen(manager).get("fits") is not None, "the new one is used")

    assert refused.startswith("stale: its queues were last seen ")


@pytest.mark.usefixtures("installed")
def test_a_worker_that_is_removed_and_added_needs_no_restart(manager, worker):
    client = manager.client
    secret, cluster = multikueue.worker(CLUSTER, worker.kubeconfig)
    with applied_policy(client, finish_time(NAMES, runTime="20s"), NAMES):
        wait_for(lambda: _seen(manager).get("fits") is not None, "the worker is seen")
        client.delete(paper.KUEUE, "MultiKueueCluster", CLUSTER)
        gone = wait_for(lambda: _refusal(manager), "its absence is seen")
        client.apply_all([secret, cluster])
        wait_for(lambda: _seen(manager).get("fits") is not None, "it is back", timeout_seconds=60)

    assert gone == (
        f"noActiveCluster: no cluster of ClusterQueue gpu-cq is active: {CLUSTER} not found"
    )
