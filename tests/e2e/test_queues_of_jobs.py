"""Jobs that name no queue: plain kubectl, the default LocalQueue, namespaces that Kueue leaves."""

import pytest

from hack import paper
from hack.waiting import wait_for
from tests.e2e.decisions import POLICY_API, decision_of, queue_of
from tests.e2e.hello_jobs import hello_policy
from tests.e2e.plane import job_of, wait_until_complete


@pytest.fixture
def policy(plane, webhook, queues):
    plane.client.apply(hello_policy(queues))
    hello = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "probe", "namespace": queues.namespace},
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "hello", "image": "busybox"}],
                }
            }
        },
    }
    wait_for(
        lambda: decision_of(plane.client.create(hello, dry_run=True)),
        "the webhook decides by the policy",
    )
    yield
    plane.client.delete(POLICY_API, "FallbackPolicy", queues.policy)


def test_a_plain_kubectl_create_job_is_queued_suspended_admitted_and_completes(
    plane, queues, policy
):
    done = plane.kubectl("create", "job", "hello", "--image=busybox", "-n", queues.namespace)

    created = job_of(plane.client, queues.namespace, "hello")
    complete = wait_until_complete(plane.client, queues.namespace, "hello")
    assert (done.returncode, done.stdout) == (0, "job.batch/hello created\n")
    assert done.stderr.startswith("Warning: kueue-fallback: ")
    assert queue_of(created) == queues.cpu_queue
    assert decision_of(complete)["from"] == {"queue": ""}


def test_the_same_where_a_default_local_queue_exists(plane, queues, policy):
    default = paper.local_queue("default", queues.namespace, cluster_queue=queues.gpu_cluster_queue)
    plane.client.create(default)

    plane.kubectl("create", "job", "hello", "--image=busybox", "-n", queues.namespace)

    complete = wait_until_complete(plane.client, queues.namespace, "hello")
    assert queue_of(complete) == queues.cpu_queue
