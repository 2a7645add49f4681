"""The webhook, its observer or the API server is gone for a while: no Job ever waits for them."""

import itertools
import json
import os
import signal
import ssl
import urllib.request
from http import HTTPStatus

import pytest

from hack import meters, paper
from hack.install import Installation
from hack.waiting import wait_for
from tests import reviews
from tests.e2e.certificates import readiness
from tests.e2e.decisions import (
    OPTION,
    decision_of,
    metric,
    probe,
    queue_of,
    wait_until_policy_decides,
)
from tests.e2e.plane import container_of
from tests.e2e.running import processes_of
from tests.stopped import stopped

NAMES = paper.names_with("outages", namespace="default")
SLOW = 0.05
STALE_SECONDS = 15.0
ALWAYS = paper.policy(NAMES)["spec"]
ALWAYS["strategy"]["threshold"] = [{"option": "cpu", "orPendingBelow": 1_000_000}]
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def own_webhook(own_plane):
    """With the chart's own limit to the state's age, and a time-out that is not waited for long."""
    with Installation(own_plane, chart_values=["webhook.timeoutSeconds=5"]) as installed:
        yield installed


@pytest.fixture(scope="module")
def plane(own_plane, own_webhook):
    """A plane where a light Job is sent to CPU, whatever waits."""
    own_plane.client.apply_all(paper.queues(NAMES))
    own_plane.client.apply({**paper.policy(NAMES), "spec": ALWAYS})
    wait_until_policy_decides(own_plane.client, NAMES)
    return own_plane


def light(plane, name, **how):
    return plane.client.create(paper.light_job(name, NAMES, faster=SLOW), **how)


def untouched(job):
    """Tell whether a light Job is as submitted, but for what Kueue's own webhook did."""
    submitted = paper.light_job("any", NAMES, faster=SLOW)
    template, given = job["spec"]["template"], submitted["spec"]["template"]
    container, own = container_of(job), container_of(submitted)
    return (
        job["metadata"]["labels"] == submitted["metadata"]["labels"]
        and "annotations" not in job["metadata"]
        and template["metadata"]["annotations"] == given["metadata"]["annotations"]
        and {key: container[key] for key in own} == own
    )


def is_stale(webhook):
    """Ask it: on a busy machine no answer says nothing of its state."""
    status, text = readiness(webhook.replicas[0])
    return status == HTTPStatus.SERVICE_UNAVAILABLE and text.startswith("stale: ")


def wait_until_decided(plane, what):
    """Wait for a decision onto CPU by a state that has what was written just now."""
    news = f"news {next(_numbers)}"
    plane.client.apply({**paper.policy(NAMES), "spec": {**ALWAYS, "message": news}})
    job = paper.light_job("probe", NAMES)

    def is_decided():
        answer = plane.client.create_for_answer(job, dry_run=True)
        return queue_of(answer.json()) == NAMES.cpu_queue and news in " ".join(answer.warnings)

    wait_for(is_decided, what)


def test_without_the_webhook_jobs_are_admitted_as_submitted(plane, own_webhook):
    own_webhook.kill()
    jobs = [light(plane, f"killed-{number}", dry_run=True) for number in range(5)]
    own_webhook.start()

    assert [untouched(job) for job in jobs] == [True] * 5
    wait_until_decided(plane, "decided again, the webhook started")


def test_a_webhook_that_hangs_costs_its_time_out_and_no_more(plane, own_webhook):
    pids = processes_of(plane, "webhook-0")
    with stopped(*pids):
        job = light(plane, "hung", dry_run=True)

    assert untouched(job)
    wait_until_decided(plane, "decided again, the webhook thawed")


def test_an_observer_that_dies_is_started_again_and_decisions_go_on(plane, own_webhook):
    starts = metric(own_webhook, "kueue_fallback_observer_starts_total")
    observer = observer_of(plane)
    os.kill(observer, signal.SIGKILL)

    # The last state is still there and young enough.
    meanwhile = probe(plane.client, NAMES)
    new = wait_for(lambda: observer_of(plane, other_than=observer), "another observer")
    wait_until_decided(plane, "decided by another observer's state")

    assert meanwhile["option"] == "cpu"
    assert new != observer
    assert metric(own_webhook, "kueue_fallback_observer_starts_total") == starts + 1


def test_a_stale_state_decides_nothing_but_restores_what_was_decided(plane, own_webhook):
    manifest = paper.light_job("early", NAMES, faster=SLOW)
    early = plane.client.apply(manifest)

    with stopped(observer_of(plane)):
        wait_for(lambda: is_stale(own_webhook), "the state is stale")
        late = plane.client.create_for_answer(paper.light_job("late", NAMES, faster=SLOW))
        after = plane.client.apply(manifest)

    decision = decision_of(late.json())
    assert decision_of(early)["option"] == "cpu"
    assert "option" not in decision
    assert decision["reason"].startswith("left as submitted: stale: the queues were last seen ")
    assert decision["stateAge"] > STALE_SECONDS
    assert late.warnings == ()
    assert queue_of(late.json()) == NAMES.gpu_queue
    assert OPTION not in late.json()["metadata"]["labels"]
    assert after["metadata"]["labels"] == early["metadata"]["labels"]
    assert container_of(after) == container_of(early)
    wait_until_decided(plane, "decided again, the state is fresh")


def test_while_the_api_server_is_down_nothing_is_decided_and_soon_after_it_is(plane, own_webhook):
    plane.kill("kube-apiserver")
    wait_for(lambda: is_stale(own_webhook), "the state is stale")
    meanwhile = ask(own_webhook, paper.light_job("meanwhile", NAMES))
    plane.forget_versions()
    plane.start("kube-apiserver")

    wait_until_decided(plane, "decided again, the API server returned")
    assert decision_of(meanwhile)["reason"].startswith("left as submitted: stale: ")
    assert queue_of(meanwhile) == NAMES.gpu_queue
    assert metric(own_webhook, "kueue_fallback_failures_total") == 0


def ask(webhook, job):
    """Ask the webhook as the API server would; returns the Job as admitted."""
    tls = ssl.create_default_context(cafile=str(webhook.ca_certificate))
    body = json.dumps(reviews.review(job, namespace=NAMES.namespace)).encode()
    headers = {"Content-Type": "application/json"}
    called = urllib.request.Request(f"{webhook.endpoints['webhook']}/mutate", body, headers)
    with urllib.request.urlopen(called, context=tls) as answer:
        return reviews.admitted(answer.read(), job)


def observer_of(plane, *, other_than=None):
    """Find the observer's process; None while there is none."""
    for pid in processes_of(plane, "webhook-0"):
        if meters.is_observer(pid) and pid != other_than:
            return pid
    return None


def test_a_clock_that_differs_from_the_api_servers_is_said(plane, own_webhook):
    (replica,) = own_webhook.replicas
    faults = plane.embedded.faults
    faults.clock_seconds = -7200.5
    try:
        said = wait_for(
            lambda: (found := readiness(replica))[1].count("clock") and found,
            "the server has heard of it",
        )
        ahead = metric(own_webhook, "kueue_fallback_clock_ahead_seconds")
    finally:
        faults.clock_seconds = 0.0
    wait_for(lambda: "clock" not in readiness(replica)[1], "the clocks agree again")

    assert said[0] == HTTPStatus.OK
    assert "this machine's clock is 2h ahead of the API server's" in said[1]
    assert 7195 < ahead <= 7202
