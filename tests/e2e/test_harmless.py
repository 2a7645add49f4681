"""Where Kueue serves a Job well as it was submitted, it stays: the real Kueue is the judge."""

import pytest

from hack import paper
from hack.kwok import ACCELERATOR_LABEL
from hack.waiting import wait_for
from tests.e2e import courses, other_team
from tests.e2e.decisions import (
    SLOW,
    applied_policy,
    decision_of,
    finish_time,
    queue_of,
    wait_until_counted,
)
from tests.e2e.plane import container_of, wait_until_reserved, workload_of

ALLOW = {"kueue-fallback.dev/allow": "gpu"}
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
TOPOLOGY = {"kueue.x-k8s.io/podset-required-topology": "kubernetes.io/hostname"}
URGENT = 1000


@pytest.fixture
def policy(plane, webhook, queues):
    """By which a run takes a minute, and twice as long on CPU."""
    found = finish_time(queues, runTime="60s")
    found["spec"]["options"][1]["slowdown"] = 2
    with applied_policy(plane.client, found, queues):
        yield


def label(job, name):
    job["metadata"]["labels"][PRIORITY_LABEL] = name


def name_in_pods(job, name):
    job["spec"]["template"]["spec"]["priorityClassName"] = name


def say_nothing(job, name):
    """The cluster's default counts."""


def class_of_workloads(name):
    kind, metadata = "WorkloadPriorityClass", {"name": name}
    return {"apiVersion": paper.KUEUE, "kind": kind, "metadata": metadata, "value": URGENT}


def class_of_pods(name, *, is_default=False):
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": URGENT,
        "globalDefault": is_default,
    }


def default_class(name):
    return class_of_pods(name, is_default=True)


@pytest.mark.parametrize(
    ("say", "class_named"),
    [
        pytest.param(label, class_of_workloads, id="by its label"),
        pytest.param(name_in_pods, class_of_pods, id="by its pods"),
        pytest.param(say_nothing, default_class, id="by default"),
    ],
)
def test_an_urgent_job_stays_and_is_started_next(plane, queues, policy, say, class_named):
    client, name = plane.client, f"urgent-{queues.namespace}"
    client.create_all([waiting(f"light-{number}", queues) for number in range(12)])
    wait_until_counted(client, queues, gpu=12)
    wait_for(lambda: would_take(client, "cpu", paper.light_job("probe", queues)), "others leave")
    running = other_team.reserving(client, queues)
    urgent = paper.light_job("urgent", queues, faster=SLOW)
    say(urgent, name)

    with other_team.applied(client, class_named(name)):
        wait_for(lambda: would_take(client, "gpu", urgent), "its class is known, so it stays")
        job = client.create(urgent)
        # Kueue makes no Workload of a Job whose class is gone.
        wait_for(lambda: workload_of(client, job), "its Workload")
    other_team.end_one(client, queues)
    workload = wait_until_reserved(client, job)

    assert queue_of(job) == queues.gpu_queue
    assert container_of(job)["resources"]["limits"] == {paper.GPU: "1"}
    assert workload["spec"]["priority"] == URGENT
    assert other_team.reserving(client, queues) - running == {"urgent"}


def waiting(name, queues):
    """Return a Job that the policy decides, that keeps its GPU, and does not end."""
    job = paper.light_job(name, queues, faster=SLOW)
    job["metadata"]["annotations"] = dict(ALLOW)
    return job


def would_take(client, option, job):
    """Tell whether a Job would get an option; nothing is created."""
    decision = decision_of(client.create(job, dry_run=True))
    return decision is not None and decision.get("option") == option


def test_the_owner_of_lent_quota_stays_and_gets_it_back_at_once(plane, queues, policy):
    client, reclaim = plane.client, {"reclaimWithinCohort": "Any"}
    with other_team.borrowing(client, queues, preemption=reclaim, run_time="1h"):
        other_team.take_all(client, queues, 4)

        job = client.create(paper.light_job("owner", queues, faster=SLOW))
        wait_until_reserved(client, job)

        assert queue_of(job) == queues.gpu_queue
        assert decision_of(job)["option"] == "gpu"
        assert preemptions(client, queues) == ["InCohortReclamation"]


def preemptions(client, queues):
    """List why Workloads were preempted."""
    return [
        condition["reason"]
        for workload in courses.workloads(client, queues.namespace).values()
        for condition in workload["status"]["conditions"]
        if (condition["type"], condition["status"]) == ("Preempted", "True")
    ]


def test_a_gang_with_a_required_topology_keeps_its_gpus_and_is_admitted(plane, queues, policy):
    client, name = plane.client, f"nodes-{queues.namespace}"
    topology = {
        "apiVersion": paper.KUEUE,
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]},
    }
    flavor = paper.resource_flavor(name, node_labels={ACCELERATOR_LABEL: "t4"})
    flavor["spec"]["topologyName"] = name
    quota = {"cpu": "1000", "memory": "4000Gi", paper.GPU: "4"}
    gang = paper.light_job("gang", queues, faster=SLOW)
    gang["spec"] |= {"parallelism": 2, "completions": 2}
    gang["spec"]["template"]["metadata"]["annotations"] |= TOPOLOGY

    with other_team.applied(client, topology, flavor):
        client.apply(paper.cluster_queue(queues.gpu_cluster_queue, flavor=name, quota=quota))
        probe = {**gang, "metadata": {**gang["metadata"], "name": "probe"}}
        wait_for(
            lambda: decision_of(client.create(probe, dry_run=True)).get("option") == "gpu",
            "the queue is seen to have a topology",
        )
        job = client.create(gang)
        workload = wait_until_reserved(client, job)

    assert queue_of(job) == queues.gpu_queue
    assert container_of(job)["resources"]["limits"] == {paper.GPU: "1"}
    assert decision_of(job)["option"] == "gpu"
    (assigned,) = workload["status"]["admission"]["podSetAssignments"]
    assert (assigned["count"], len(assigned["topologyAssignment"]["slices"])) == (2, 1)
