"""The main job: a light Job meets a long GPU queue, on a real Kueue."""

import json

import pytest

from hack import paper
from hack.waiting import wait_for
from tests.e2e.decisions import (
    DECISION,
    OPTION,
    REASON,
    applied_policy,
    decision_of,
    fill,
    queue_of,
)
from tests.e2e.plane import container_of, job_of, wait_until_complete, wait_until_reserved

SENTENCE = "kueue-fallback: sent to cpu-lq (cpu): starts now; gpu-lq has 10 pending"
WARNINGS = (
    ("kueue-fallback: runs in cpu-lq without nvidia.com/gpu: starts now; gpu-lq has 10 pending"),
    (
        "kueue-fallback: to object: kubectl fallback undo JOB,"
        " or submit with annotation kueue-fallback.dev/policy=none"
    ),
)


@pytest.fixture
def policy(plane, webhook, queues):
    with applied_policy(plane.client, paper.policy(queues), queues):
        yield


def test_a_light_job_behind_ten_pending_runs_on_cpu_to_its_end(plane, queues, policy):
    fill(plane, queues, gpu=14)

    answer = plane.client.create_for_answer(paper.light_job("light", queues, faster=20))
    workload = wait_until_reserved(plane.client, answer.json())
    job = wait_until_complete(plane.client, queues.namespace, "light")

    container = container_of(job)
    template = job["spec"]["template"]
    decision = decision_of(job)
    assert answer.warnings == WARNINGS
    assert queue_of(job) == queues.cpu_queue
    assert container["resources"] == {"requests": {"cpu": "4", "memory": "6Gi"}}
    assert [entry["name"] for entry in container["env"]] == ["RUN_ENV"]
    assert template["metadata"]["annotations"]["kueue-fallback.dev/env.RUN_ENV"] == "cpu"
    assert (job["metadata"]["labels"][OPTION], template["metadata"]["labels"][OPTION]) == (
        "cpu",
        "cpu",
    )
    assert job["metadata"]["annotations"][REASON] == SENTENCE
    assert (decision["policy"], decision["mode"], decision["option"]) == (
        queues.policy,
        "Enforce",
        "cpu",
    )
    assert decision["from"] == {"queue": queues.gpu_queue}
    assert [option["pending"] for option in decision["options"]] == [10, 0]
    assert workload["status"]["admission"]["clusterQueue"] == queues.cpu_cluster_queue


def test_behind_nine_pending_it_keeps_its_gpu_and_the_decision_stands_on_it(plane, queues, policy):
    fill(plane, queues, gpu=13)

    job = plane.client.create(paper.light_job("light", queues))

    assert queue_of(job) == queues.gpu_queue
    assert container_of(job)["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert container_of(job)["env"] == [{"name": "RUN_ENV", "value": "gpu"}]
    assert decision_of(job)["option"] == "gpu"
    assert job["metadata"]["labels"][OPTION] == "gpu"


def test_with_three_reserving_on_cpu_it_stays(plane, queues, policy):
    fill(plane, queues, gpu=14, cpu=3)

    job = plane.client.create(paper.light_job("light", queues))

    assert queue_of(job) == queues.gpu_queue
    assert container_of(job)["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert decision_of(job)["option"] == "gpu"


def test_a_heavy_job_passes_byte_for_byte(plane, queues, policy):
    fill(plane, queues, gpu=14)
    plain = paper.heavy_job("heavy", queues)
    opted_out = paper.heavy_job("opted-out", queues)
    opted_out["metadata"]["annotations"] = {"kueue-fallback.dev/policy": "none"}

    job, reference = plane.client.create(plain), plane.client.create(opted_out)

    assert "annotations" not in job["metadata"]
    assert job["metadata"]["labels"] == plain["metadata"]["labels"]
    assert _comparable(job) == _comparable(reference)


def test_a_job_that_allows_only_its_gpu_keeps_it(plane, queues, policy):
    fill(plane, queues, gpu=14)
    light = paper.light_job("light", queues)
    light["metadata"]["annotations"] = {"kueue-fallback.dev/allow": "gpu"}

    job = plane.client.create(light)

    assert queue_of(job) == queues.gpu_queue
    assert [
        option.get("rejected", "").partition(":")[0] for option in decision_of(job)["options"]
    ] == [
        "",
        "notAllowed",
    ]


def test_an_annotation_that_cannot_be_read_gets_a_warning_that_names_it(plane, queues, policy):
    fill(plane, queues, gpu=14)
    light = paper.light_job("light", queues)
    light["metadata"]["annotations"] = {"kueue-fallback.dev/allow": "gpuu"}

    answer = plane.client.create_for_answer(light)

    job = answer.json()
    assert queue_of(job) == queues.gpu_queue
    assert answer.warnings[0].startswith(
        "kueue-fallback: left as submitted: annotation kueue-fallback.dev/allow: no option 'gpuu'"
    )
    assert "option" not in decision_of(job)
    assert DECISION in job["metadata"]["annotations"]


@pytest.mark.parametrize("pending", [9, 10])
def test_warnings_as_errors_passes_for_a_job_that_stays_alone(
    plane, queues, policy, tmp_path, pending
):
    fill(plane, queues, gpu=4 + pending)
    manifest = tmp_path / "light.json"
    manifest.write_text(json.dumps(paper.light_job("light", queues)))

    done = plane.kubectl("create", "--warnings-as-errors", "-f", str(manifest))

    job = job_of(plane.client, queues.namespace, "light")
    assert (done.returncode == 0) == (queue_of(job) == queues.gpu_queue) == (pending == 9)
    assert decision_of(job)["option"] == ("gpu" if pending == 9 else "cpu")


def _comparable(job):
    spec = job["spec"]
    template = spec["template"]
    own = {
        "controller-uid",
        "batch.kubernetes.io/controller-uid",
        "job-name",
        "batch.kubernetes.io/job-name",
    }
    labels = {k: v for k, v in template["metadata"]["labels"].items() if k not in own}
    rest = {k: v for k, v in spec.items() if k not in ("template", "selector")}
    metadata = {**template["metadata"], "labels": labels}
    return {**rest, "template": {**template, "metadata": metadata}}


def steps_policy(names):
    policy = paper.policy(names)
    selector = policy["spec"]["match"]["namespaceSelector"]
    policy["spec"]["match"] = {
        "namespaceSelector": selector,
        "args": [{"flag": "--steps", "atMost": 30}],
    }
    return policy


def with_steps(names, steps, *, labelled, name="steps"):
    """A Job of the published experiment, light up to 30 steps; only a labelled one says so."""
    job = (paper.light_job if steps <= 30 else paper.heavy_job)(name, names, faster=20)
    container_of(job)["args"] = ["--steps", str(steps)]
    if not labelled:
        del job["metadata"]["labels"]["workload-type"]
    return job


def test_without_labels_jobs_are_told_by_their_steps_with_the_same_decisions(
    plane, webhook, queues
):
    def decided(*, labelled):
        """What becomes of Jobs by their steps; nothing is created."""
        jobs = {
            steps: plane.client.create(with_steps(queues, steps, labelled=labelled), dry_run=True)
            for steps in (5, 30, 31, 50)
        }
        return {
            steps: (queue_of(job), (decision_of(job) or {}).get("reason"))
            for steps, job in jobs.items()
        }

    with applied_policy(plane.client, paper.policy(queues), queues):
        fill(plane, queues, gpu=14)
        by_label = decided(labelled=True)
        assert decided(labelled=False) == dict.fromkeys(by_label, (queues.gpu_queue, None))
    with applied_policy(plane.client, steps_policy(queues), queues, until_decided=False):
        wait_for(lambda: decided(labelled=False) == by_label, "the webhook decides by the steps")
        plane.client.create(with_steps(queues, 20, labelled=False, name="light"))
        light = wait_until_complete(plane.client, queues.namespace, "light")

    assert [queue for queue, _ in by_label.values()] == [
        *[queues.cpu_queue] * 2,
        *[queues.gpu_queue] * 2,
    ]
    assert queue_of(light) == queues.cpu_queue
    assert container_of(light)["args"] == ["--steps", "20"]
