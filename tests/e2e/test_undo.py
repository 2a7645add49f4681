"""A pending Job is put back as it was submitted, and stays so, on a real Kueue."""

import pytest
from click.testing import CliRunner

from hack import paper
from hack.waiting import wait_for
from tests.e2e.decisions import OPTION, applied_policy, decision_of, fill, finish_time, queue_of
from tests.e2e.moving import FASTER, RULES, hold, is_refused
from tests.e2e.plane import container_of, job_of, wait_until_complete, workload_of
from webhook.commands.undo import command

POLICY = "kueue-fallback.dev/policy"


@pytest.fixture
def policy(plane, webhook, queues):
    """Under which a Job is moved away from a queue that is stopped, decided or not."""
    found = finish_time(queues, runTime="20s")
    found["spec"]["reconsider"] = {**RULES, "adopt": True}
    with applied_policy(plane.client, found, queues):
        yield found


def undo(plane, queues, name, *words):
    place = ["-n", queues.namespace, "--kubeconfig", str(plane.kubeconfig)]
    return CliRunner().invoke(command, [name, *place, *words])


def pending_in_cpu(plane, queues):
    """Create a light Job while the CPU queue is full and the GPU queue is stopped."""
    client = plane.client
    fill(plane, queues, gpu=0, cpu=6)
    hold(client, queues.gpu_cluster_queue, "Hold")
    wait_for(lambda: is_refused(client, queues, "gpu"), "the GPU queue is known to be stopped")
    job = client.create(paper.light_job("light", queues, faster=FASTER))
    assert queue_of(job) == queues.cpu_queue
    assert paper.GPU not in container_of(job)["resources"]["requests"]
    return job


def test_a_job_sent_to_the_cpu_goes_back_and_stays_there(plane, queues, policy):
    client = plane.client
    job = pending_in_cpu(plane, queues)
    before = wait_for(lambda: workload_of(client, job), "its Workload")

    tried = undo(plane, queues, "light", "--dry-run")
    assert tried.exit_code == 0, tried.output
    assert queue_of(job_of(client, queues.namespace, "light")) == queues.cpu_queue
    result = undo(plane, queues, "light")

    undone = job_of(client, queues.namespace, "light")
    assert result.exit_code == 0, result.output
    assert "Warning: kueue-fallback: undone: " in result.stderr
    assert (queue_of(undone), decision_of(undone)) == (queues.gpu_queue, None)
    # Its variable is read from an annotation, so its updates must go on coming to the webhook.
    assert undone["metadata"]["labels"][OPTION] == "none"
    assert undone["metadata"]["annotations"][POLICY] == "none"
    submitted = container_of(paper.light_job("light", queues, faster=FASTER))
    assert container_of(undone)["resources"] == submitted["resources"]

    hold(client, queues.gpu_cluster_queue, "None")
    done = wait_until_complete(client, queues.namespace, "light")

    after = workload_of(client, done)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["admission"]["clusterQueue"] == queues.gpu_cluster_queue
    assert (queue_of(done), decision_of(done)) == (queues.gpu_queue, None)
    again = undo(plane, queues, "light")
    assert (again.exit_code, "carries no decision" in again.stderr) == (1, True)


def test_a_job_that_started_at_once_is_created_anew_as_it_was_submitted(plane, queues, policy):
    client = plane.client
    fill(plane, queues, gpu=0, cpu=0)
    hold(client, queues.gpu_cluster_queue, "Hold")
    wait_for(lambda: is_refused(client, queues, "gpu"), "the GPU queue is known to be stopped")
    job = client.create(paper.light_job("light", queues, faster=1))
    wait_for(lambda: not job_of(client, queues.namespace, "light")["spec"]["suspend"], "it runs")

    in_place = undo(plane, queues, "light")
    result = undo(plane, queues, "light", "--recreate", "--yes")

    assert queue_of(job) == queues.cpu_queue
    assert in_place.exit_code == 1
    assert f"undo light -n {queues.namespace} --recreate" in in_place.stderr
    assert result.exit_code == 0, result.output
    assert "what it has done until now is lost" in result.stderr
    anew = job_of(client, queues.namespace, "light")
    submitted = paper.light_job("light", queues, faster=1)
    assert anew["metadata"]["uid"] != job["metadata"]["uid"]
    assert queue_of(anew) == queues.gpu_queue
    assert container_of(anew)["resources"] == container_of(submitted)["resources"]
    assert "nodeSelector" not in anew["spec"]["template"]["spec"]
