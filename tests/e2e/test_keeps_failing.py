"""An image that cannot run on CPUs: after three failures no more of its class is sent there."""

import pytest

from hack import kwok, paper
from hack.waiting import wait_for
from tests.e2e.decisions import SLOW, applied_policy, decision_of, fill, queue_of
from tests.e2e.plane import has_condition, job_of, wait_until_complete

JOB_CLASS = "kueue-fallback.dev/class"


@pytest.fixture
def policy(plane, webhook, queues):
    found = paper.policy(queues)
    with applied_policy(plane.client, found, queues):
        yield found


def cuda_only(name, queues, *, faster=20.0):
    """A Job of an image of its own, whose pods fail where they have no GPU."""
    job = paper.light_job(name, queues, faster=faster)
    template = job["spec"]["template"]
    template["spec"]["containers"][0]["image"] = "cuda-only"
    template["metadata"]["annotations"][kwok.CPU_FAILS] = "true"
    return job


def test_after_three_failures_no_more_of_its_class_is_sent_there(plane, queues, policy):
    client, namespace = plane.client, queues.namespace
    client.create(cuda_only("succeeds", queues))
    wait_until_complete(client, namespace, "succeeds")
    fill(plane, queues, gpu=14)

    sent = [client.create(cuda_only(f"fails-{number}", queues)) for number in range(3)]
    names = [job["metadata"]["name"] for job in sent]
    wait_for(
        lambda: all(has_condition(job_of(client, namespace, name), "Failed") for name in names),
        "all three fail",
    )

    def refused():
        decision = decision_of(client.create(cuda_only("probe", queues), dry_run=True))
        return decision["options"][1].get("rejected")

    why = wait_for(refused, "the option is refused to the class")
    stays = client.create(cuda_only("stays", queues, faster=SLOW))
    another = client.create(paper.light_job("another", queues, faster=SLOW))

    marks = [job["spec"]["template"]["metadata"]["annotations"][JOB_CLASS] for job in sent]
    assert len(set(marks)) == 1
    assert [queue_of(job) for job in (*sent, stays, another)] == [
        *[queues.cpu_queue] * 3,
        queues.gpu_queue,
        queues.cpu_queue,
    ]
    assert why == (
        "keepsFailing: Jobs of its class failed 3 times under option cpu and never succeeded; "
        "they do elsewhere"
    )
    event = wait_for(lambda: _event(client, queues.policy), "an Event on the policy")
    assert event["type"] == "Warning"
    assert event["message"].startswith(
        f"option cpu is refused to Jobs of class {marks[0].split()[0]} (cuda-only) until "
    )
    wait_for(lambda: _recorded(client, marks[0].split()[0]), "the runs are on record")


def _event(client, policy):
    found = client.list("v1", "Event", namespace="default")
    ours = [
        each
        for each in found
        if each["reason"] == "KeepsFailing" and each["involvedObject"]["name"] == policy
    ]
    return ours[0] if ours else None


def _recorded(client, key):
    found = client.list("v1", "ConfigMap", namespace="kueue-fallback")
    return any(key in each.get("data", {}).get("classes", "") for each in found)
