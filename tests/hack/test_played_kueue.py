"""A played Kueue and Jobs that run, on an embedded API server; beside a real Kueue in tests/e2e."""

import itertools

import pytest

from hack import paper
from hack.embedded.played_plane import PlayedPlane
from hack.waiting import wait_for

FOR_AN_HOUR = {"gpu-run": 3600.0, "cpu-run": 3600.0}
AT_ONCE = {"gpu-run": 0.001}
WORKLOAD = (paper.KUEUE, "Workload")
numbers = itertools.count(1)


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    with PlayedPlane(tmp_path_factory.mktemp("played")) as plane:
        yield plane


@pytest.fixture
def names(plane):
    """Return the names of queues of their own, with room for four Jobs on GPUs and six without."""
    number = next(numbers)
    names = paper.names_with(f"{number}", namespace=f"team-{number}")
    plane.client.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.namespace}}
    )
    plane.client.create_all(paper.queues(names))
    return names


def create(plane, names, name, run=FOR_AN_HOUR, **labels):
    job = paper.gpu_job(name, names, labels=labels, run=run)
    return plane.client.create(job)


def job_of(plane, names, name):
    return plane.client.get("batch/v1", "Job", name, namespace=names.namespace)


def workload_of(plane, names, name):
    found = plane.client.list(*WORKLOAD, namespace=names.namespace)
    owned = [each for each in found if each["metadata"]["ownerReferences"][0]["name"] == name]
    return owned[0] if owned else None


def cluster_queue_of(plane, names):
    return plane.client.get(paper.KUEUE, "ClusterQueue", names.cpu_cluster_queue)


def holds(item, **conditions):
    """Return whether conditions have this status and, of two texts, this reason."""
    found = {each["type"]: each for each in (item or {}).get("status", {}).get("conditions", ())}
    return all(found.get(name, {}).get("status") == status for name, status in conditions.items())


def wait_until(plane, names, name, **conditions):
    def found():
        workload = workload_of(plane, names, name)
        return workload if holds(workload, **conditions) else None

    return wait_for(found, f"{name} has {conditions}")


def fill(plane, names):
    for number in range(4):
        create(plane, names, f"first-{number}")
    for number in range(4):
        wait_until(plane, names, f"first-{number}", PodsReady="True")


def test_a_job_begins_suspended_gets_quota_runs_on_its_flavor_and_finishes(plane, names):
    created = create(plane, names, "one", run=AT_ONCE)

    workload = wait_until(plane, names, "one", Finished="True")
    passed = [each["type"] for each in workload["status"]["conditions"]]
    # Where a Job ends at once, it may never be seen that its pods are ready.
    assert [each for each in passed if each != "PodsReady"] == [
        "QuotaReserved",
        "Admitted",
        "Finished",
    ]
    assert created["spec"]["suspend"]
    assert workload["metadata"]["labels"] == {"kueue.x-k8s.io/job-uid": created["metadata"]["uid"]}
    assigned = {
        "name": "main",
        "count": 1,
        "flavors": dict.fromkeys(("cpu", "memory", "nvidia.com/gpu"), names.gpu_flavor),
        "resourceUsage": {"cpu": "4", "memory": "6Gi", "nvidia.com/gpu": "1"},
    }
    admission = {"clusterQueue": names.gpu_cluster_queue, "podSetAssignments": [assigned]}
    assert workload["status"]["admission"] == admission
    job = job_of(plane, names, "one")
    assert job["spec"]["template"]["spec"]["nodeSelector"] == {"accelerator": "t4"}
    assert (job["spec"]["suspend"], job["status"]["succeeded"]) == (False, 1)


def test_a_job_without_a_queue_runs_as_it_is(plane, names):
    job = paper.gpu_job("free", names, labels={}, run=AT_ONCE)
    del job["metadata"]["labels"][paper.QUEUE_LABEL]

    created = plane.client.create(job)

    assert not created["spec"]["suspend"]
    wait_for(lambda: holds(job_of(plane, names, "free"), Complete="True"), "it is complete")
    assert workload_of(plane, names, "free") is None


def test_those_that_wait_get_what_is_given_back_by_priority(plane, names):
    for value in (1, 2):
        name = f"{names.namespace}-{value}"
        metadata = {"apiVersion": paper.KUEUE, "metadata": {"name": name}}
        plane.client.create({**metadata, "kind": "WorkloadPriorityClass", "value": value})
    fill(plane, names)
    for value in (1, 2):
        label = {"kueue.x-k8s.io/priority-class": f"{names.namespace}-{value}"}
        create(plane, names, f"urgent-{value}", **label)
        wait_for(lambda value=value: workload_of(plane, names, f"urgent-{value}"), "it is seen")

    plane.client.delete("batch/v1", "Job", "first-0", namespace=names.namespace)

    wait_until(plane, names, "urgent-2", Admitted="True")
    assert workload_of(plane, names, "urgent-2")["spec"]["priority"] == 2
    assert not holds(workload_of(plane, names, "urgent-1"), Admitted="True")
    assert workload_of(plane, names, "first-0") is None


def test_a_job_waits_for_its_priority_class(plane, names):
    urgency = f"late-{names.namespace}"
    create(plane, names, "first", **{"kueue.x-k8s.io/priority-class": urgency})
    create(plane, names, "second")
    wait_for(lambda: workload_of(plane, names, "second"), "the later one has a Workload")
    before = workload_of(plane, names, "first")

    metadata = {"apiVersion": paper.KUEUE, "metadata": {"name": urgency}, "value": 7}
    plane.client.create({**metadata, "kind": "WorkloadPriorityClass"})
    found = wait_for(lambda: workload_of(plane, names, "first"), "its class is known")

    assert before is None
    assert found["spec"]["priority"] == 7


def test_a_pending_job_that_changes_its_queue_is_served_there(plane, names):
    fill(plane, names)
    create(plane, names, "moved")
    wait_for(lambda: workload_of(plane, names, "moved"), "it is seen")
    resources = {"requests": {"cpu": "4", "memory": "6Gi"}}
    container = {**paper.gpu_job("moved", names, labels={}, run={})["spec"]["template"]["spec"]}
    (container,) = container["containers"]
    change = {
        "metadata": {"labels": {paper.QUEUE_LABEL: names.cpu_queue}},
        "spec": {"template": {"spec": {"containers": [{**container, "resources": resources}]}}},
    }

    plane.client.patch("batch/v1", "Job", "moved", change, namespace=names.namespace)

    workload = wait_until(plane, names, "moved", Admitted="True")
    assert workload["spec"]["queueName"] == names.cpu_queue
    assert workload["status"]["admission"]["clusterQueue"] == names.cpu_cluster_queue


def test_a_deactivated_workload_gives_its_quota_back_and_its_job_stops(plane, names):
    fill(plane, names)
    create(plane, names, "next")
    place = {"namespace": names.namespace}
    name = workload_of(plane, names, "first-0")["metadata"]["name"]

    plane.client.patch(*WORKLOAD, name, {"spec": {"active": False}}, **place)

    wait_until(plane, names, "next", Admitted="True")
    stopped = job_of(plane, names, "first-0")
    assert stopped["spec"]["suspend"]
    assert not stopped["spec"]["template"]["spec"].get("nodeSelector")
    assert holds(workload_of(plane, names, "first-0"), Evicted="True", QuotaReserved="False")
    plane.client.patch(*WORKLOAD, name, {"spec": {"active": True}}, **place)
    plane.client.delete("batch/v1", "Job", "next", **place)
    wait_until(plane, names, "first-0", Admitted="True", Evicted="False", PodsReady="True")


def test_queues_say_that_they_are_active_and_what_they_hold(plane, names):
    fill(plane, names)
    create(plane, names, "waits")

    counts = {"pendingWorkloads": 1, "reservingWorkloads": 4, "admittedWorkloads": 4}

    def status(kind, name, **place):
        return plane.client.get(paper.KUEUE, kind, name, **place)["status"]

    def both():
        return (
            status("ClusterQueue", names.gpu_cluster_queue),
            status("LocalQueue", names.gpu_queue, namespace=names.namespace),
        )

    wait_for(lambda: all(counts.items() <= each.items() for each in both()), "queues say so")
    assert all(holds({"status": each}, Active="True") for each in both())


def test_a_queue_without_its_flavor_is_not_active(plane):
    lost = paper.cluster_queue("lost", flavor="nowhere", quota={"cpu": "1"})

    plane.client.create(lost)

    def status():
        return plane.client.get(paper.KUEUE, "ClusterQueue", "lost")

    wait_for(lambda: holds(status(), Active="False"), "it is not active")


def test_jobs_wait_for_a_flavor_that_is_deleted_and_others_go_on(plane, names):
    place = {"namespace": names.namespace}
    for name in ("first", "second", "third"):
        plane.client.create(half_of_the_cpus(name, names))
        wait_for(lambda name=name: workload_of(plane, names, name), "it is seen")
    for name in ("first", "second"):
        wait_until(plane, names, name, PodsReady="True")

    plane.client.delete(paper.KUEUE, "ResourceFlavor", names.cpu_flavor)
    # What is watched of different kinds comes in no order, as with Kueue.
    wait_for(lambda: holds(cluster_queue_of(plane, names), Active="False"), "Kueue has seen it")
    # It keeps its quota, and is to start with it anew.
    plane.client.patch("batch/v1", "Job", "first", {"spec": {"suspend": True}}, **place)
    # Its quota is free.
    plane.client.delete("batch/v1", "Job", "second", **place)
    create(plane, names, "other")
    wait_until(plane, names, "other", PodsReady="True")
    waiting = [workload_of(plane, names, name) for name in ("first", "third")]
    suspended = [job_of(plane, names, name)["spec"]["suspend"] for name in ("first", "third")]
    plane.client.create(paper.resource_flavor(names.cpu_flavor))

    assert [holds(workload, Admitted="True") for workload in waiting] == [True, False]
    assert suspended == [True, True]
    wait_until(plane, names, "third", PodsReady="True")
    wait_for(lambda: not job_of(plane, names, "first")["spec"]["suspend"], "it runs again")


def half_of_the_cpus(name, names):
    container = {"name": "main", "image": "any:1", "resources": {"requests": {"cpu": "12"}}}
    return paper.job(
        name,
        names.namespace,
        labels={paper.QUEUE_LABEL: names.cpu_queue},
        run=FOR_AN_HOUR,
        container=container,
    )
