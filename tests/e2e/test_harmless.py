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
    fill,
    finish_time,
    options,
    probe,
    queue_of,
    wait_until_counted,
)
from tests.e2e.plane import container_of, has_condition, wait_until_reserved, workload_of

ALLOW = {"kueue-fallback.dev/allow": "gpu"}
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
TOPOLOGY = {"kueue.x-k8s.io/podset-required-topology": "kubernetes.io/hostname"}
URGENT = 1000
RULES = {"after": "1s", "minimumGain": {"time": "5s", "percent": 5}, "maxMoves": 2}


def minute(queues, **spec):
    """Return a policy by which a run takes a minute, and twice as long on CPU."""
    found = finish_time(queues, runTime="60s")
    found["spec"]["options"][1]["slowdown"] = 2
    found["spec"] |= spec
    return found


@pytest.fixture
def policy(plane, webhook, queues):
    with applied_policy(plane.client, minute(queues), queues):
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


def test_whoever_need_not_borrow_stays_and_is_started_next(plane, queues, policy):
    client = plane.client
    with other_team.borrowing(client, queues, preemption={}):
        other_team.take_all(client, queues, 12)
        running = other_team.reserving(client, queues)

        job = client.create(paper.light_job("owner", queues, faster=SLOW))
        other_team.end_one(client, queues)
        wait_until_reserved(client, job)

        assert queue_of(job) == queues.gpu_queue
        assert decision_of(job)["option"] == "gpu"
        assert other_team.reserving(client, queues) - running == {"owner"}


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


def test_where_nothing_is_known_of_who_is_ahead_the_job_stays(plane, queues, policy):
    client = plane.client
    courses.set_quotas(client, queues, gpu=1, cpu=6)
    fill(plane, queues, gpu=1, is_known=False)
    wait_for(lambda: not options(probe(client, queues))["gpu"]["fits"], "the quota is seen")

    job = client.create(paper.light_job("light", queues, faster=SLOW))
    client.delete("batch/v1", "Job", "fill-gpu-0", namespace=queues.namespace)
    wait_until_reserved(client, job)

    assert queue_of(job) == queues.gpu_queue
    assert decision_of(job)["option"] == "gpu"
    assert "nothing is known" in decision_of(job)["reason"]


def test_a_moved_job_that_runs_goes_on_when_its_localqueue_is_made_anew(plane, webhook, queues):
    client, cpus = plane.client, {"cpu": "24", "memory": "60Gi"}
    anew = f"cpu-new-{queues.namespace}"
    new = paper.cluster_queue(anew, flavor=queues.cpu_flavor, quota=cpus)
    with (
        applied_policy(client, minute(queues, reconsider=RULES), queues),
        other_team.applied(client, new),
    ):
        client.create_all([waiting(f"light-{number}", queues) for number in range(24)])
        wait_until_counted(client, queues, gpu=24)
        runs = moved(client, queues, "runs", queues.cpu_cluster_queue)
        before = wait_for(lambda: running_pods(client, runs), "its pod runs")

        client.delete(paper.KUEUE, "LocalQueue", queues.cpu_queue, namespace=queues.namespace)
        client.apply(paper.local_queue(queues.cpu_queue, queues.namespace, cluster_queue=anew))
        moved(client, queues, "later", anew)

        workload = workload_of(client, runs)
        assert workload["status"]["admission"]["clusterQueue"] == queues.cpu_cluster_queue
        assert not has_condition(workload, "Evicted")
        assert workload["spec"]["active"]
        assert running_pods(client, runs) == before


def moved(client, queues, name, cluster_queue):
    """Create a Job while CPUs are stopped, release them, and wait until it is moved and runs."""
    hold(client, cluster_queue, "Hold")
    job = paper.light_job(name, queues, faster=SLOW)
    wait_for(lambda: would_take(client, "gpu", job), "the CPU queue is known to be stopped")
    created = client.create(job)
    assert queue_of(created) == queues.gpu_queue
    hold(client, cluster_queue, "None")

    def admitted():
        workload = workload_of(client, created) or {}
        admission = workload.get("status", {}).get("admission") or {}
        return admission.get("clusterQueue") == cluster_queue

    wait_for(admitted, f"{name} is moved to {cluster_queue}")
    return created


def hold(client, cluster_queue, policy):
    """Stop a ClusterQueue, or let it go on."""
    client.patch(paper.KUEUE, "ClusterQueue", cluster_queue, {"spec": {"stopPolicy": policy}})


def running_pods(client, job):
    """List the pods of a Job that run, by what no other pod has."""
    return [
        pod["metadata"]["uid"]
        for pod in client.list("v1", "Pod", namespace=job["metadata"]["namespace"])
        if pod["metadata"]["labels"].get("job-name") == job["metadata"]["name"]
        and pod["status"].get("phase") == "Running"
    ]
