"""Jobs that the API server takes, and would not take with a decision on them."""

import copy

import pytest

from tests.flow.moves import asking, pending, reconsidering
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot

LIMIT = 256 << 10
OF_THE_JOB = "metadata.annotations would have more than 240 KiB"
OF_THE_PODS = "spec.template.metadata.annotations would have more than 240 KiB"


def with_variable(size):
    job = light_job()
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "RUN_ENV", "value": "x" * size}]
    return job


def with_annotations(size, *, on_pods=False):
    job = light_job()
    holder = job["spec"]["template"] if on_pods else job
    holder["metadata"]["annotations"] = {"example.com/x": "é" * (size // 2)}
    return job


def with_arguments(size):
    job = light_job()
    job["spec"]["template"]["spec"]["containers"][0]["args"] = ["x" * size]
    return job


@pytest.mark.parametrize(
    ("job", "what"),
    [
        (with_variable(263_000), OF_THE_JOB),
        (with_annotations(261_800), OF_THE_JOB),
        (with_annotations(261_800, on_pods=True), OF_THE_PODS),
        (with_arguments(1 << 20), "the Job has more than 1 MiB"),
    ],
    ids=["variable", "annotations", "annotations of pods", "whole"],
)
def test_a_job_that_would_be_too_large_is_left_as_submitted_and_told(job, what):
    server = Server(paper_snapshot())

    created, warnings = server.create(copy.deepcopy(job))

    decision = server.considered[0].outcome.decision
    assert created == job
    assert warnings == [f"kueue-fallback: left as submitted: {what}"]
    assert (decision.option, str(decision.left_alone)) == (None, "tooLarge")
    assert server.considered[0].outcome.arrival.local_queue == "gpu-lq"


@pytest.mark.parametrize("size", [100_000, 235_000])
def test_a_large_job_that_still_fits_is_decided(size):
    server = Server(paper_snapshot())

    created, _ = server.create(with_annotations(size))

    assert created["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "cpu-lq"
    texts = created["metadata"]["annotations"].items()
    assert sum(len(text.encode()) for pair in texts for text in pair) < LIMIT


def test_a_job_is_not_moved_where_the_move_would_make_it_too_large():
    server = Server(reconsidering(pending=0))
    stored, _ = server.create(light_job())
    stored = pending(stored)
    stored["metadata"]["annotations"]["example.com/x"] = "x" * 245_000

    asked = asking(stored, "cpu")
    answered, warnings = server.update(stored, asked)

    assert answered["spec"] == stored["spec"]
    assert warnings == [f"kueue-fallback: not moved to cpu: {OF_THE_JOB}"]
    assert str(server.considered[-1].outcome.obstacle) == "tooLarge"


def test_a_warning_leads_to_its_reason_where_the_settings_say_so():
    server = Server(reconsidering(pending=0), reasons_url="https://docs.example/reasons.md")
    stored, warned = server.create(light_job())
    running = {**stored, "spec": {**stored["spec"], "suspend": False}}

    _, warnings = server.update(running, asking(running, "cpu"))

    assert not any("reasons.md" in each for each in warned)
    assert warnings[-1] == (
        "kueue-fallback: see https://docs.example/reasons.md#Obstacle.notSuspended"
    )


def test_an_update_is_given_nothing_back_that_would_make_the_job_too_large():
    server = Server(paper_snapshot())
    stored, _ = server.create(light_job())
    applied = light_job(annotations={"example.com/x": "x" * 261_000})

    answered, _ = server.update(stored, applied)

    assert answered == applied
