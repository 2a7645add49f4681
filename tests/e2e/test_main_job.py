"""The main job: a light Job meets a long GPU queue, on a real Kueue."""

import json

import pytest

from hack import paper
from hack.waiting import wait_for
from tests.e2e.decisions import (
    OPTION,
    POLICY_API,
    REASON,
    applied_policy,
    decision_of,
    fill,
    finish_time,
    options,
    probe,
    queue_of,
)
from tests.e2e.hello_jobs import hello_policy
from tests.e2e.plane import (
    container_of,
    job_of,
    wait_until_complete,
    wait_until_reserved,
)

SENTENCE = "kueue-fallback: sent to cpu-lq (cpu): starts now; gpu-lq has 10 pending"
WARNING = "kueue-fallback: runs in cpu-lq without nvidia.com/gpu: starts now; gpu-lq has 10 pending"


def warnings(namespace):
    return (
        WARNING,
        f"kueue-fallback: to object: kubectl fallback undo light -n {namespace} --recreate",
        "kueue-fallback: or delete it and submit with annotation kueue-fallback.dev/policy=none",
    )


BY_KUBERNETES = {
    "controller-uid",
    "batch.kubernetes.io/controller-uid",
    "job-name",
    "batch.kubernetes.io/job-name",
}


@pytest.fixture
def policy(plane, webhook, queues):
    with applied_policy(plane.client, paper.policy(queues), queues):
        yield


def test_a_light_job_behind_ten_pending_runs_on_cpu_to_its_end_and_heavy_ones_are_left_alone(
    plane, queues, policy, tmp_path
):
    client = plane.client
    fill(plane, queues, gpu=14)
    heavy, opted_out = (paper.heavy_job(name, queues) for name in ("heavy", "opted-out"))
    opted_out["metadata"]["annotations"] = {"kueue-fallback.dev/policy": "none"}

    answer = client.create_for_answer(paper.light_job("light", queues, faster=20))
    workload = wait_until_reserved(client, answer.json())
    job = wait_until_complete(client, queues.namespace, "light")
    untouched, reference = client.create(heavy), client.create(opted_out)
    manifest = tmp_path / "light.json"
    manifest.write_text(json.dumps(paper.light_job("strict", queues)))
    strict = plane.kubectl("create", "--warnings-as-errors", "-f", str(manifest))

    container, template, decision = container_of(job), job["spec"]["template"], decision_of(job)
    assert answer.warnings == warnings(queues.namespace)
    assert queue_of(job) == queues.cpu_queue
    assert container["resources"] == {"requests": {"cpu": "4", "memory": "6Gi"}}
    assert [entry["name"] for entry in container["env"]] == ["RUN_ENV"]
    assert template["metadata"]["annotations"]["kueue-fallback.dev/env.RUN_ENV"] == "cpu"
    labels = job["metadata"]["labels"], template["metadata"]["labels"]
    assert [each[OPTION] for each in labels] == ["cpu", "cpu"]
    assert job["metadata"]["annotations"][REASON] == SENTENCE
    assert (decision["policy"], decision["mode"], decision["option"]) == (
        queues.policy,
        "Enforce",
        "cpu",
    )
    assert decision["from"] == {"queue": queues.gpu_queue}
    assert [option["pending"] for option in decision["options"]] == [10, 0]
    assert workload["status"]["admission"]["clusterQueue"] == queues.cpu_cluster_queue
    assert "annotations" not in untouched["metadata"]
    assert untouched["metadata"]["labels"] == heavy["metadata"]["labels"]
    assert submitted(untouched) == submitted(reference)
    # kubectl fails for the warning, after the Job was created.
    assert strict.returncode == 1
    assert queue_of(job_of(client, queues.namespace, "strict")) == queues.cpu_queue


def submitted(job):
    """Return a Job's spec without what Kubernetes writes of its name and UID."""
    template = job["spec"]["template"]
    labels = {k: v for k, v in template["metadata"]["labels"].items() if k not in BY_KUBERNETES}
    rest = {k: v for k, v in job["spec"].items() if k not in ("template", "selector")}
    return {**rest, "pods": {**template, "metadata": {**template["metadata"], "labels": labels}}}


def test_a_job_that_would_wait_long_runs_where_it_is_done_first(plane, webhook, queues):
    with applied_policy(plane.client, finish_time(queues, runTime="20s"), queues):
        fill(plane, queues, gpu=14)
        wait_for(
            lambda: options(probe(plane.client, queues))["gpu"].get("startsIn", 0) > 100,
            "the forecast knows who waits",
        )
        job = plane.client.create(paper.light_job("moved", queues, faster=20))
        workload = wait_until_reserved(plane.client, job)

    gpu, cpu = options(decision_of(job))["gpu"], options(decision_of(job))["cpu"]
    assert gpu["startsBetween"][0] < gpu["startsIn"] < gpu["startsBetween"][1]
    assert cpu["finishesIn"] == 70 < gpu["finishesIn"]
    assert workload["status"]["admission"]["clusterQueue"] == queues.cpu_cluster_queue


def test_a_job_that_a_decision_would_make_too_large_is_created_as_submitted(plane, queues, policy):
    """Of the API server's limits to annotations and to whole objects."""
    fill(plane, queues, gpu=14)
    variable, annotated = (paper.light_job(name, queues) for name in ("variable", "annotated"))
    container_of(variable)["env"] = [{"name": "RUN_ENV", "value": "x" * 263_000}]
    annotated["metadata"]["annotations"] = {"example.com/x": "x" * 261_800}

    created = [plane.client.create(job) for job in (variable, annotated)]

    assert [(decision_of(job), queue_of(job)) for job in created] == [(None, queues.gpu_queue)] * 2


@pytest.fixture
def hello(plane, webhook, queues):
    """A policy for Jobs without any queue, and how kubectl creates one."""
    plane.client.apply(hello_policy(queues))
    create = ("create", "job", "hello", "--image=busybox", "-n", queues.namespace)
    wait_for(lambda: plane.kubectl(*create, "--dry-run=server").stderr, "the webhook decides")
    yield create
    plane.client.delete(POLICY_API, "FallbackPolicy", queues.policy)


def test_a_plain_kubectl_create_job_is_queued_though_there_is_a_default_local_queue(
    plane, queues, hello
):
    default = paper.local_queue("default", queues.namespace, cluster_queue=queues.gpu_cluster_queue)
    plane.client.create(default)

    done = plane.kubectl(*hello)

    complete = wait_until_complete(plane.client, queues.namespace, "hello")
    assert (done.returncode, done.stdout) == (0, "job.batch/hello created\n")
    assert done.stderr.startswith("Warning: kueue-fallback: ")
    assert queue_of(complete) == queues.cpu_queue
    assert decision_of(complete)["from"] == {"queue": ""}
