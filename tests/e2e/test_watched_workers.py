"""A GPU cluster behind MultiKueue whose queues the webhook may look at: two real planes.

For how long the worker's API server is gone depends on FULL.
"""

import time
from dataclasses import replace

import pytest

from hack import multikueue, paper
from hack.install import WAITED_FOR, Installation
from hack.kwok import GPU
from hack.waiting import wait_for
from tests.conftest import FULL
from tests.e2e.decisions import (
    SLOW,
    applied_policy,
    decision_of,
    finish_time,
    limited,
    options,
    probe,
)
from tests.e2e.plane import wait_until_complete
from tests.e2e.worker_clusters import (
    CLUSTER,
    arrived,
    as_worker,
    assert_nothing_was_held_up,
    cluster_of,
    delete_account,
    let_read,
    manager_plane,
    processes_of_the_project,
    reader_secret,
    submitting,
    times_watched_anew,
)

NAMES = paper.Names()
OUTAGE_SECONDS = 60.0 if FULL else 20.0
"""Longer than what is known of a worker counts."""
ANY = {"cpu": "1000", "memory": "4000Gi"}
MANY = "40"
"""GPUs of the manager's quota: nobody waits there."""


@pytest.fixture(scope="module")
def worker(own_plane):
    return as_worker(own_plane, NAMES)


@pytest.fixture(scope="module")
def manager(tmp_path_factory, worker):
    with manager_plane(tmp_path_factory.mktemp("manager"), NAMES, worker, gpus=MANY) as started:
        yield started


@pytest.fixture(scope="module")
def installed(manager, worker):
    values = [*WAITED_FOR, f"clusters.watchWorkers={{{CLUSTER}}}"]
    found = Installation(manager, chart_values=values)
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

        burst = [
            limited(paper.heavy_job(f"heavy-{number}", NAMES, faster=SLOW)) for number in range(15)
        ]
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

    client.create(limited(paper.heavy_job("local-1", local, faster=SLOW)))
    client.create(limited(paper.heavy_job("local-2", local, faster=SLOW)))
    spilled = client.create(paper.light_job("spilled", local, faster=10))
    wait_for(lambda: arrived(worker, NAMES.namespace, "spilled"), "MultiKueue brings it")
    wait_until_complete(client, NAMES.namespace, "spilled")
    for name in ("local-1", "local-2"):
        client.delete("batch/v1", "Job", name, namespace=NAMES.namespace)
    wait_for(lambda: probe(client, local)["option"] == "local", "the local queue is free again")
    back = client.create(paper.light_job("back", local, faster=10))
    wait_until_complete(client, NAMES.namespace, "back")

    decision = decision_of(spilled)
    here, there = options(decision)["local"], options(decision)["gpu"]
    assert (empty["option"], decision["option"]) == ("local", "gpu")
    assert (here["pending"], there["pending"], there["cluster"]) == (1, 0, CLUSTER)
    assert here["finishesIn"] > there["finishesIn"] >= there["runs"]
    assert decision["reason"].startswith(f"sent to gpu-lq (gpu on {CLUSTER}): starts ")
    assert decision_of(back)["option"] == "local"
    assert arrived(worker, NAMES.namespace, "back") is None


def test_while_a_worker_is_gone_no_job_waits_for_it(manager, worker, installed):
    client, processes = manager.client, processes_of_the_project(manager)
    with (
        applied_policy(client, finish_time(NAMES, runTime="20s"), NAMES),
        submitting(client, NAMES, "meanwhile") as created,
    ):
        wait_for(lambda: _seen(manager).get("fits") is not None, "the worker is seen")
        since = time.monotonic()
        worker.stop("kube-apiserver")
        found = wait_for(lambda: _refusal(manager), "the worker is not counted on")
        refused = len(created)
        wait_for(
            lambda: len(created) > refused + 3 and time.monotonic() - since > OUTAGE_SECONDS,
            "Jobs come all the while",
        )
        returning = len(created)
        worker.start("kube-apiserver")
        _wait_until_seen_again(manager)
        client.create(paper.light_job("after", NAMES, faster=10))

    assert found.startswith(("noActiveCluster: ", "noClusterFits: "))
    assert f"{CLUSTER} stale" in found or f"{CLUSTER} inactive" in found
    gone = [decision_of(job) for job in created[refused + 1 : returning]]
    assert {decision["option"] for decision in gone} == {"cpu"}
    assert all(CLUSTER in options(decision)["gpu"]["rejected"] for decision in gone)
    # Kueue keeps what it got before it noticed, and may not send it to the worker again.
    assert_nothing_was_held_up(installed, NAMES, created[refused:returning])
    assert all(decision_of(job) for job in created)
    wait_until_complete(client, NAMES.namespace, "after")
    assert processes_of_the_project(manager) == processes


def test_another_kubeconfig_of_a_worker_is_taken_up(manager, worker, installed):
    client, processes = manager.client, processes_of_the_project(manager)
    with (
        applied_policy(client, finish_time(NAMES, runTime="20s"), NAMES),
        submitting(client, NAMES, "rotated") as created,
    ):
        wait_for(lambda: _seen(manager).get("fits") is not None, "the worker is seen")
        times = times_watched_anew(manager)
        client.apply(reader_secret(CLUSTER, let_read(worker)))
        wait_for(lambda: times_watched_anew(manager) > times, "a token beside the other is used")
        rotated = len(created)
        wait_for(lambda: len(created) > rotated + 3, "Jobs come all the while")
        beside = [decision_of(job) for job in created]
        delete_account(worker)
        refused = wait_for(lambda: _seen(manager).get("rejected"), "its token is void")
        client.apply(reader_secret(CLUSTER, let_read(worker)))
        wait_for(lambda: _seen(manager).get("fits") is not None, "the new one is used")

    assert [cluster_of(each, CLUSTER).get("rejected") for each in beside] == [None] * len(beside)
    assert refused.startswith("stale: its queues were last seen ")
    assert_nothing_was_held_up(installed, NAMES, created)
    assert processes_of_the_project(manager) == processes


def test_a_worker_that_is_removed_and_added_needs_no_restart(manager, worker, installed):
    client, processes = manager.client, processes_of_the_project(manager)
    secret, cluster = multikueue.worker(CLUSTER, worker.kubeconfig)
    with (
        applied_policy(client, finish_time(NAMES, runTime="20s"), NAMES),
        submitting(client, NAMES, "removed") as created,
    ):
        wait_for(lambda: _seen(manager).get("fits") is not None, "the worker is seen")
        client.delete(paper.KUEUE, "MultiKueueCluster", CLUSTER)
        wait_for(lambda: _refusal(manager), "its absence is seen")
        absent = len(created)
        wait_for(lambda: len(created) > absent + 3, "Jobs come all the while")
        returning = len(created)
        client.apply_all([secret, cluster])
        _wait_until_seen_again(manager)

    gone = [decision_of(job) for job in created[absent + 1 : returning]]
    assert {decision["option"] for decision in gone} == {"cpu"}
    assert {options(decision)["gpu"]["rejected"] for decision in gone} == {
        f"noActiveCluster: no cluster of ClusterQueue gpu-cq is active: {CLUSTER} not found"
    }
    assert_nothing_was_held_up(installed, NAMES, created)
    assert processes_of_the_project(manager) == processes


def _wait_until_seen_again(manager):
    wait_for(
        lambda: _seen(manager).get("fits") is not None,
        "the worker is seen again",
    )
