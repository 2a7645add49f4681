"""What the journal keeps of why a Job was left as it was submitted."""

import json

import pytest

from tests import builders
from tests.properties.workloads import workload_of
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from webhook.decide import match
from webhook.hindsight import entries
from webhook.model.job import DECISION


def left_alone(job):
    return entries.entry(
        entries.read_finished(workload_of(job)), entries.metadata_of(job)
    ).decision.left_alone


def test_why_a_job_was_left_alone_is_kept_as_it_was_decided():
    stale, _ = Server(paper_snapshot(as_of=50.0)).create(light_job())
    taken, _ = Server(paper_snapshot()).create(light_job())
    # What a person wrote may hold the words of another reason.
    quoting, _ = Server(paper_snapshot()).create(
        light_job(annotations={"kueue-fallback.dev/run-time": "ages: stale: of course"})
    )

    assert [left_alone(job) for job in (stale, taken, quoting)] == ["stale", None, "unreadable"]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"leftAlone": "noOption", "options": []}, "noOption"),
        ({"leftAlone": "unreadable"}, "unreadable"),
        ({"leftAlone": "a word of somebody's"}, "stale"),
        ({"options": [{"name": "gpu"}]}, "noOption"),
        ({}, "stale"),
    ],
)
def test_of_a_decision_that_does_not_say_it_what_is_likely_is_kept(given, found):
    job = light_job()
    decision = {"version": 1, "policy": "light-gpu", "mode": "Enforce", "reason": "r", **given}
    job["metadata"]["annotations"] = {DECISION: json.dumps(decision)}

    assert left_alone(job) == found


def test_of_what_a_job_runs_only_what_policies_name_is_kept():
    job = light_job()
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container["command"] = ["run", "--steps", "20", "--mode", "light", "--pin", "1234"]
    container["args"] = ["--secret=s3cret", "--model=s3cret"]
    container["env"] += [{"name": "STEPS", "value": "20"}, {"name": "TOKEN", "value": "77"}]
    named = match.named_by(
        [
            builders.policy(
                match={
                    "args": [
                        {"flag": "--steps", "atMost": 30},
                        {"flag": "--mode", "equals": "light"},
                        {"flag": "--model", "equals": "small"},
                    ],
                },
                jobClassArgs=["--secret"],
                jobClassEnv=["STEPS"],
            )
        ]
    )

    entry = entries.entry(
        entries.read_finished(workload_of(job)), entries.metadata_of(job), named=named
    )

    (kept,) = json.loads(entry.submitted)["template"]["spec"]["containers"]
    assert kept["args"] == ["--steps=20", "--mode=light"]
    assert kept["env"] == [{"name": "STEPS", "value": "20"}]
