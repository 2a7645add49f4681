"""Jobs of a policy that reconsiders: created so that they can be moved, and given back exactly."""

import copy

import pytest

from tests.moves import reconsidering, undone
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
    assert undone(job) == light_job()


def test_without_reconsidering_it_stays_literal_and_devices_are_hidden():
    job, _ = Server(paper_snapshot()).create(light_job())

    hidden = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    assert env_of(job) == [{"name": "RUN_ENV", "value": "cpu"}, hidden]


@pytest.mark.parametrize("merges", [False, True], ids=["replaced", "merged"])
@pytest.mark.parametrize("pending", [0, 10])
def test_a_manifest_applied_again_changes_nothing(pending, merges):
    server = Server(reconsidering(pending=pending))
    stored, _ = server.create(light_job())
    again = light_job(annotations=copy.deepcopy(stored["metadata"]["annotations"]))
    if merges:
        env_of(again)[0] |= READ

    assert server.update(stored, again) == (stored, [])
