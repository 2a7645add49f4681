"""Decided by finish time on a real Kueue: what runs, what waits, and what was learned of runs."""

import pytest

from hack import paper
from hack.waiting import wait_for
from tests.e2e.decisions import (
    applied_policy,
    decision_of,
    fill,
    finish_time,
    options,
    probe,
    queue_of,
)
from tests.e2e.plane import container_of, wait_until_complete

OURS = "kueue-fallback.dev/"
FASTER = 20.0


@pytest.fixture
def policy(plane, webhook, queues):
    with applied_policy(plane.client, finish_time(queues, runTime="20s"), queues):
        yield


def asked(plane, queues, **annotations):
    """Decide a light Job with annotations of ours; nothing is created."""
    job = paper.light_job("asked", queues)
    written = {OURS + name.replace("_", "-"): text for name, text in annotations.items()}
    job["metadata"]["annotations"] = written
    return decision_of(plane.client.create(job, dry_run=True))


def waits_long(plane, queues):
    """Tell once the forecast has seen the queue that `fill` made."""
    decision = probe(plane.client, queues)
    gpu = options(decision)["gpu"]
    return decision if gpu.get("startsIn", 0) > 0 and gpu["pending"] else None


def test_a_free_gpu_is_done_first(plane, queues, policy):
    decision = wait_for(
        lambda: _with(probe(plane.client, queues), "finishesIn"), "finishes are forecast"
    )

    gpu, cpu = options(decision)["gpu"], options(decision)["cpu"]
    assert decision["option"] == "gpu"
    assert decision["reason"].startswith(f"stays in {queues.gpu_queue} (gpu): starts now")
    assert (gpu["startsIn"], gpu["runs"], gpu["finishesIn"]) == (0, 20, 20)
    assert (cpu["startsIn"], cpu["runs"], cpu["finishesIn"]) == (0, 70, 70)
    assert {gpu["runsBy"], cpu["runsBy"]} == {"the policy"}


def _with(decision, key):
    return decision if decision and all(key in each for each in decision["options"]) else None


def test_a_job_that_would_wait_long_runs_where_it_is_done_first(plane, queues, policy):
    fill(plane, queues, gpu=14)
    decision = wait_for(lambda: waits_long(plane, queues), "the forecast knows who waits")

    job = plane.client.create(paper.light_job("moved", queues, faster=FASTER))
    done = wait_until_complete(plane.client, queues.namespace, "moved")

    gpu, cpu = options(decision)["gpu"], options(decision)["cpu"]
    assert decision["option"] == "cpu"
    assert gpu["startsIn"] > 100
    assert gpu["startsBetween"][0] < gpu["startsIn"] < gpu["startsBetween"][1]
    # Four run there, and may have told how long their pods took to be ready.
    before = gpu["startsIn"] + gpu.get("delay", 0)
    assert gpu["finishesIn"] == pytest.approx(before + 20, abs=1)
    assert cpu["finishesIn"] == 70
    assert queue_of(job) == queues.cpu_queue
    assert decision_of(job)["reason"].startswith(
        f"sent to {queues.cpu_queue} (cpu): starts now, done in 1m10s;"
        f" {queues.gpu_queue} would be done in "
    )
    assert paper.GPU not in container_of(done)["resources"]["requests"]


def test_a_start_that_the_policy_finds_too_late_is_refused_with_its_message(plane, webhook, queues):
    limiting = finish_time(queues, runTime="20s")
    limiting["spec"]["options"][0]["maxWait"] = "1s"
    limiting["spec"]["message"] = "Questions? #gpu-help"
    with applied_policy(plane.client, limiting, queues):
        fill(plane, queues, gpu=6)
        wait_for(
            lambda: "rejected" in options(probe(plane.client, queues))["gpu"],
            "the forecast knows who waits",
        )

        answer = plane.client.create_for_answer(paper.light_job("late", queues), dry_run=True)

    decision = decision_of(answer.json())
    assert decision["option"] == "cpu"
    assert options(decision)["gpu"]["rejected"].startswith("startsTooLate: would start in ")
    assert answer.warnings[-1] == "kueue-fallback: Questions? #gpu-help"


def test_what_a_job_says_of_its_time_is_heeded(plane, queues, policy):
    fill(plane, queues, gpu=14)
    wait_for(lambda: waits_long(plane, queues), "the forecast knows who waits")

    patient = asked(plane, queues, max_wait="2h")
    not_slower = asked(plane, queues, max_slowdown="2")
    long = asked(plane, queues, run_time="20h")
    in_time = asked(plane, queues, run_time="1h", deadline="2h")
    unreadable = asked(plane, queues, deadline="tomorrow")

    assert patient["option"] == "gpu"
    assert not_slower["option"] == "gpu"
    assert options(not_slower)["cpu"]["rejected"].startswith("tooSlow: would run 3.5 times as long")
    assert long["option"] == "gpu"
    assert options(long)["gpu"]["runsBy"] == "the Job's annotation run-time"
    assert options(in_time)["cpu"]["rejected"].startswith("missesDeadline: would be done in 3h30m")
    assert "option" not in unreadable
    assert "metadata.annotations[kueue-fallback.dev/deadline]" in unreadable["reason"]
