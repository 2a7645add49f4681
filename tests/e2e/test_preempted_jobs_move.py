"""A gang of high priority takes the GPUs of others, which go where they end sooner."""

import pytest

from hack import paper
from hack.waiting import wait_for
from tests.e2e.decisions import applied_policy, decision_of, finish_time, options, queue_of
from tests.e2e.moving import RULES, moved_to
from tests.e2e.plane import has_condition, wait_until_complete, wait_until_reserved

PRIORITY = "kueue.x-k8s.io/priority-class"
LOW = tuple(f"low-{number}" for number in range(4))
GANG_SECONDS = 8


@pytest.fixture
def urgent(plane, queues):
    """Let the GPU queue preempt who is less important, and return the name of a high priority."""
    client, name = plane.client, f"urgent-{queues.namespace}"
    within = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
    client.patch(paper.KUEUE, "ClusterQueue", queues.gpu_cluster_queue, within)
    metadata = {"name": name}
    client.apply(
        {
            "apiVersion": paper.KUEUE,
            "kind": "WorkloadPriorityClass",
            "metadata": metadata,
            "value": 1000,
        }
    )
    yield name
    client.delete(paper.KUEUE, "WorkloadPriorityClass", name)


@pytest.fixture
def policy(plane, webhook, queues, urgent):
    found = finish_time(queues, runTime="600s")
    found["spec"]["reconsider"] = RULES
    # The gang has one option: the policy only says how long it takes. How long those wait that it
    # preempts is as unsure as that, so a move must gain much.
    long = finish_time(queues, runTime="2h")
    long["metadata"]["name"] = f"gang-{queues.namespace}"
    long["spec"]["match"]["jobSelector"] = {"matchLabels": dict(paper.HEAVY)}
    long["spec"]["options"] = long["spec"]["options"][:1]
    with (
        applied_policy(plane.client, found, queues),
        applied_policy(plane.client, long, queues, until_decided=False),
    ):
        yield found


def preemptible(name, queues):
    """Return a Job that would run on a GPU for longer than the test, and on CPUs for a moment."""
    return paper.gpu_job(name, queues, labels=paper.LIGHT, run={"gpu-run": 600, "cpu-run": 3})


def gang(name, queues, priority):
    """Return a Job of four pods, each with a GPU, that is taken to run for two hours."""
    job = paper.gpu_job(name, queues, labels=paper.HEAVY, run={"gpu-run": GANG_SECONDS})
    job["metadata"]["labels"][PRIORITY] = priority
    job["spec"] |= {"parallelism": 4, "completions": 4}
    return job


def test_the_gang_starts_at_once_and_those_that_it_preempts_are_moved(
    plane, queues, urgent, policy
):
    client = plane.client
    asks = gang("asks", queues, urgent)
    wait_for(lambda: decision_of(client.create(asks, dry_run=True)), f"{urgent} is known")
    low = [client.create(preemptible(name, queues)) for name in LOW]
    for job in low:
        assert queue_of(job) == queues.gpu_queue
        wait_until_reserved(client, job)
    wait_for(lambda: preempts(client, asks) == len(LOW), "all GPUs are known to be taken")

    created = client.create(gang("gang", queues, urgent))

    assert (queue_of(created), decision_of(created)["option"]) == (queues.gpu_queue, "gpu")
    assert "may preempt" in decision_of(created)["reason"]
    wait_until_reserved(client, created)
    moved = [
        wait_for(lambda name=name: moved_to(client, queues, name, "cpu"), f"{name} is moved")
        for name in LOW
    ]
    assert [decision_of(job)["moves"] for job in moved] == [1] * len(LOW)
    # None of them could have ended on its GPU, or got it back before the gang's end.
    for name in (*LOW, "gang"):
        wait_until_complete(client, queues.namespace, name)
    found = {
        workload["metadata"]["ownerReferences"][0]["name"]: (
            workload["status"]["admission"]["clusterQueue"],
            was_preempted(workload),
        )
        for workload in client.list(paper.KUEUE, "Workload", namespace=queues.namespace)
    }
    assert found == {
        "gang": (queues.gpu_cluster_queue, False),
        **dict.fromkeys(LOW, (queues.cpu_cluster_queue, True)),
    }


def preempts(client, job):
    """Return how many Workloads the webhook expects a Job to preempt on GPUs."""
    decision = decision_of(client.create(job, dry_run=True))
    return options(decision)["gpu"].get("preempts", 0) if decision else 0


def was_preempted(workload):
    stats = workload["status"].get("schedulingStats", {}).get("evictions", ())
    reasons = {eviction["reason"] for eviction in stats}
    return "Preempted" in reasons or has_condition(workload, "Preempted")
