"""A pipeline applies its manifest again: nothing breaks, and only its changes get through."""

import copy

import pytest
import yaml

from hack import paper
from hack.waiting import wait_for
from tests.e2e.decisions import (
    applied_policy,
    decision_of,
    fill,
    queue_of,
)
from tests.e2e.plane import job_of, workload_of

APPLY = {
    "client side": ("apply", "-f"),
    "server side": ("apply", "--server-side", "-f"),
}


@pytest.fixture
def policy(plane, webhook, queues):
    with applied_policy(plane.client, paper.policy(queues), queues):
        yield


@pytest.fixture(params=APPLY, ids=lambda way: way.replace(" ", "-"))
def apply(request, plane):
    """Apply a manifest with kubectl; returns what it said."""

    def run(path):
        done = plane.kubectl(*APPLY[request.param], str(path))
        assert done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture
def manifest(tmp_path, queues):
    def write(**changes):
        job = paper.light_job("light", queues, faster=0.05)
        job["spec"].update(changes)
        path = tmp_path / "light.yaml"
        path.write_text(yaml.safe_dump(job))
        return path

    return write


def essence(job):
    """Return the part of an object that its submitter or we wrote."""
    metadata = copy.deepcopy(job["metadata"])
    for name in ("managedFields", "resourceVersion"):
        metadata.pop(name, None)
    return metadata, job["spec"]


def started(plane, queues):
    """Wait until Kueue has started the Job and written all it writes into it."""

    def active():
        job = job_of(plane.client, queues.namespace, "light")
        return job if not job["spec"]["suspend"] and job["status"].get("ready") else None

    return wait_for(active, "the Job runs")


def test_applied_again_while_it_runs_nothing_changes_but_what_the_manifest_has_changed(
    plane, queues, policy, apply, manifest
):
    fill(plane, queues, gpu=14, cpu=2)
    path = manifest()
    apply(path)
    job = job_of(plane.client, queues.namespace, "light")
    assert queue_of(job) == queues.cpu_queue
    before = started(plane, queues)
    workload = workload_of(plane.client, before)

    apply(path)
    wait_for(
        lambda: plane.kubectl("diff", "-f", str(path)).returncode == 0,
        lambda: f"nothing differs: {plane.kubectl('diff', '-f', str(path))}",
    )

    after = job_of(plane.client, queues.namespace, "light")
    assert essence(after) == essence(before)
    assert workload_of(plane.client, after)["spec"] == workload["spec"]

    apply(manifest(activeDeadlineSeconds=4000))

    (changed, new_spec), (kept, spec) = map(
        essence, (job_of(plane.client, queues.namespace, "light"), before)
    )
    for found in (changed, kept):
        found["annotations"].pop("kubectl.kubernetes.io/last-applied-configuration", None)
        found.pop("generation", None)
    assert new_spec == {**spec, "activeDeadlineSeconds": 4000}
    assert changed == kept


@pytest.mark.parametrize(
    ("first", "more"),
    [
        (("apply",), {".resources.limits"}),
        (("apply", "--server-side", "--field-manager", "flux"), set()),
    ],
    ids=["client-side", "another-manager"],
)
def test_a_second_manager_conflicts_until_it_forces_and_then_the_decision_stays(
    plane, queues, policy, manifest, first, more
):
    fill(plane, queues, gpu=14, cpu=2)
    path = manifest()
    assert plane.kubectl(*first, "-f", str(path)).returncode == 0
    before = started(plane, queues)
    assert queue_of(before) == queues.cpu_queue

    second = ("apply", "--server-side", "-f", str(path))
    refused = plane.kubectl(*second)
    between = job_of(plane.client, queues.namespace, "light")
    forced = plane.kubectl(*second, "--force-conflicts")

    after = job_of(plane.client, queues.namespace, "light")
    assert (refused.returncode, "Apply failed with" in refused.stderr) == (1, True)
    lines = [line[2:] for line in refused.stderr.splitlines() if line.startswith("- .")]
    container = '.spec.template.spec.containers[name="main"]'
    assert {line.removeprefix(container) for line in lines} - more == {
        ".metadata.labels.kueue.x-k8s.io/queue-name",
        '.env[name="RUN_ENV"].value',
        ".resources.limits.nvidia.com/gpu",
        ".resources.requests.nvidia.com/gpu",
    }
    assert essence(between) == essence(before)
    assert forced.returncode == 0, forced.stderr
    assert (after["spec"], decision_of(after)) == (before["spec"], decision_of(before))
    assert queue_of(after) == queues.cpu_queue
    again = plane.kubectl(*second)
    assert again.returncode == 0, again.stderr
