"""A Job is decided by the real server on its way into the embedded API server."""

from hack import paper
from hack.waiting import wait_for

POLICIES = ("kueue-fallback.dev/v1alpha1", "FallbackPolicy")


def is_ready(item):
    conditions = item.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def test_a_policy_is_judged_and_its_jobs_are_decided(plane, webhook, queues):
    policy = plane.client.apply(paper.policy(queues))
    name = policy["metadata"]["name"]

    wait_for(lambda: is_ready(plane.client.get(*POLICIES, name)), "the policy is judged")
    job = paper.light_job("light", queues)

    def decided():
        answer = plane.client.create_for_answer(job, dry_run=True)
        return answer if "kueue-fallback.dev/decision" in str(answer.json()) else None

    answer = wait_for(decided, "the server knows the policy")
    assert answer.json()["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == queues.gpu_queue
    plane.client.delete(*POLICIES, name)
