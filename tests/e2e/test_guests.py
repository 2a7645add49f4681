"""Guests: at most so many Jobs of a policy in an option's queue, under a priority of their own."""

import pytest

from hack import paper
from hack.waiting import wait_for
from tests.e2e.decisions import SLOW, applied_policy, counts, decision_of, fill, queue_of
from tests.e2e.plane import job_of, wait_until_complete, wait_until_reserved

PRIORITY = 7
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"


@pytest.fixture
def guest_class(plane, queues):
    """A WorkloadPriorityClass of this test."""
    name = f"guest-{queues.namespace}"
    plane.client.create(
        {
            "apiVersion": paper.KUEUE,
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": name},
            "value": PRIORITY,
        }
    )
    yield name
    plane.client.delete(paper.KUEUE, "WorkloadPriorityClass", name)


@pytest.fixture
def policy(plane, webhook, queues, guest_class):
    found = paper.policy(queues)
    found["spec"]["options"][1]["guests"] = {"maxJobs": 2, "priorityClass": guest_class}
    # Counting guests alone decides: the paper's own limit would speak first.
    found["spec"]["strategy"]["threshold"][1] = {"option": "cpu"}
    with applied_policy(plane.client, found, queues):
        yield found


def test_the_third_guest_is_refused_until_one_has_left(plane, queues, policy):
    fill(plane, queues, gpu=14)

    jobs = [plane.client.create(paper.light_job("first", queues, faster=20))]
    jobs += [
        plane.client.create(paper.light_job(f"light-{n}", queues, faster=SLOW)) for n in range(2)
    ]
    refused = decision_of(jobs[2])
    wait_until_complete(plane.client, queues.namespace, "first")
    wait_for(
        lambda: (
            (counts(plane.client, queues) or {}).get("cpu") == 0
            and decision_of(plane.client.create(paper.light_job("probe", queues), dry_run=True))[
                "option"
            ]
            == "cpu"
        ),
        "there is room for a guest again",
    )
    fourth = plane.client.create(paper.light_job("fourth", queues, faster=SLOW))

    assert [queue_of(job) for job in (*jobs, fourth)] == [
        queues.cpu_queue,
        queues.cpu_queue,
        queues.gpu_queue,
        queues.cpu_queue,
    ]
    assert refused["options"][1]["rejected"] == (
        f"guestsFull: 2 Jobs of policy {queues.policy} are in ClusterQueue "
        f"{queues.cpu_cluster_queue} as guests (at most 2)"
    )


def test_a_guest_gets_its_priority_class_and_whoever_stays_keeps_its_own(
    plane, queues, policy, guest_class
):
    fill(plane, queues, gpu=14)

    guests = [
        plane.client.create(paper.light_job(f"light-{n}", queues, faster=SLOW)) for n in range(2)
    ]
    stays = plane.client.create(paper.light_job("stays", queues, faster=SLOW))
    workload = wait_until_reserved(plane.client, guests[0])

    assert [job["metadata"]["labels"].get(PRIORITY_LABEL) for job in (*guests, stays)] == [
        guest_class,
        guest_class,
        None,
    ]
    assert workload["spec"]["priority"] == PRIORITY
    assert (
        job_of(plane.client, queues.namespace, "stays")["metadata"]["labels"]
        == stays["metadata"]["labels"]
    )
