"""Jobs made to cost much, to be refused because of us, or to steer others and never come to be."""

import re
import urllib.request

import pytest

from hack import paper
from hack.api import ApiError
from hack.waiting import wait_for
from tests.e2e.decisions import applied_policy, decision_of, probe

PHANTOMS = 16


@pytest.fixture
def policy(queues):
    """Whoever fits goes to the CPU queue, of which six Jobs have room."""
    found = paper.policy(queues)
    found["spec"]["options"].reverse()
    del found["spec"]["strategy"]
    return found


def light(names, name, **changes):
    job = paper.light_job(name, names)
    job["spec"]["template"]["spec"]["containers"][0] |= changes
    return job


def test_long_arguments_keep_nobody_waiting(plane, webhook, queues, policy):
    with applied_policy(plane.client, policy, queues):
        nasty = plane.client.create(light(queues, "nasty", args=["a-" * 128_000]))
        other = plane.client.create(light(queues, "other"))

    assert [decision_of(job)["option"] for job in (nasty, other)] == ["cpu", "cpu"]


def test_a_job_that_a_decision_would_make_too_large_is_created_as_submitted(
    plane, webhook, queues, policy
):
    variable = light(queues, "variable", env=[{"name": "RUN_ENV", "value": "x" * 263_000}])
    annotated = light(queues, "annotated")
    annotated["metadata"]["annotations"] = {"example.com/x": "x" * 261_800}

    with applied_policy(plane.client, policy, queues):
        created = [plane.client.create(job) for job in (variable, annotated)]

    assert [decision_of(job) for job in created] == [None, None]
    assert [job["metadata"]["labels"][paper.QUEUE_LABEL] for job in created] == [
        queues.gpu_queue,
        queues.gpu_queue,
    ]


def test_jobs_that_are_refused_after_us_are_forgotten_within_seconds(
    plane, webhook, queues, policy
):
    with applied_policy(plane.client, policy, queues):
        before = never_seen(webhook)
        for number in range(PHANTOMS):
            refused = light(queues, f"phantom-{number}")
            refused["spec"]["template"]["spec"]["restartPolicy"] = "Always"
            with pytest.raises(ApiError, match="restartPolicy"):
                plane.client.create(refused)
        wait_for(
            # Who asks lets the webhook look at what it waits for.
            lambda: probe(plane.client, queues) and never_seen(webhook) >= before + PHANTOMS,
            "the webhook forgets what never came",
        )
        after = probe(plane.client, queues)

    assert after["option"] == "cpu"


def never_seen(webhook):
    with urllib.request.urlopen(f"{webhook.endpoints['metrics']}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found = re.search(
        r'^kueue_fallback_placements_expired_total{reason="unseen"} (\S+)', text, re.MULTILINE
    )
    return float(found[1])
