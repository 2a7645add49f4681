"""Jobs are created so that they can be undone and moved, and given back exactly."""

import copy

import pytest

from tests.flow.moves import reconsidering, undone_job
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot

ENV = "kueue-fallback.dev/env.RUN_ENV"
READ = {
    "name": "RUN_ENV",
    "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{ENV}']"}},
}


def env_of(job):
    return job["spec"]["template"]["spec"]["containers"][0]["env"]


@pytest.mark.parametrize(("pending", "option"), [(0, "gpu"), (10, "cpu")])
def test_what_differs_between_options_is_read_from_an_annotation(pending, option):
    job, _ = Server(reconsidering(pending=pending)).create(light_job())

    assert env_of(job) == [READ]
    assert job["spec"]["template"]["metadata"]["annotations"][ENV] == option
    assert undone_job(job) == light_job()


def test_without_reconsidering_what_the_option_changes_is_read_from_an_annotation():
    job, _ = Server(paper_snapshot()).create(light_job())

    assert env_of(job) == [READ]
    assert job["spec"]["template"]["metadata"]["annotations"][ENV] == "cpu"
    assert undone_job(job) == light_job()


def test_without_reconsidering_a_job_that_stays_keeps_its_environment():
    job, _ = Server(paper_snapshot(pending=0)).create(light_job())

    assert env_of(job) == env_of(light_job())


@pytest.mark.parametrize("merges", [False, True], ids=["replaced", "merged"])
@pytest.mark.parametrize("pending", [0, 10])
def test_a_manifest_applied_again_changes_nothing(pending, merges):
    server = Server(reconsidering(pending=pending))
    stored, _ = server.create(light_job())
    again = light_job(annotations=copy.deepcopy(stored["metadata"]["annotations"]))
    if merges:
        env_of(again)[0] |= READ

    assert server.update(stored, again) == (stored, [])
