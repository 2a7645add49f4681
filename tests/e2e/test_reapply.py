"""A pipeline applies its manifest again: nothing breaks, and only its changes get through."""

import contextlib
import copy
import json

import pytest
import yaml

from hack import paper
from hack.waiting import WAIT_SECONDS, wait_for
from tests.conftest import FULL
from tests.e2e.decisions import (
    POLICY_API,
    applied_policy,
    decision_of,
    fill,
    metric,
    queue_of,
)
from tests.e2e.plane import container_of, has_condition, job_of, wait_until_complete, workload_of

SWITCH_SECONDS = 5.0 if FULL else WAIT_SECONDS
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
    def write(faster=0.05, **changes):
        job = paper.light_job("light", queues, faster=faster)
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


def test_applied_again_while_pending_running_and_finished_it_stays_as_decided(
    plane, queues, policy, apply, manifest
):
    fill(plane, queues, gpu=14)
    path = manifest(faster=20)

    apply(path)
    created = job_of(plane.client, queues.namespace, "light")
    apply(path)
    apply(path)
    wait_until_complete(plane.client, queues.namespace, "light")
    apply(path)

    job = job_of(plane.client, queues.namespace, "light")
    assert queue_of(job) == queues.cpu_queue
    assert container_of(job)["resources"] == container_of(created)["resources"]
    assert decision_of(job) == decision_of(created)


def test_applied_again_while_it_runs_neither_job_nor_workload_changes(
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
    differences = plane.kubectl("diff", "-f", str(path))

    after = job_of(plane.client, queues.namespace, "light")
    assert essence(after) == essence(before)
    assert workload_of(plane.client, after)["spec"] == workload["spec"]
    assert (differences.returncode, differences.stdout) == (0, "")


@pytest.mark.parametrize("event", ["to Observe", "policy deleted", "switched off"])
def test_whatever_the_policies_say_by_then_it_stays_as_decided(
    plane, webhook, queues, apply, manifest, event
):
    path = manifest()
    with applied_policy(plane.client, paper.policy(queues), queues):
        fill(plane, queues, gpu=14)
        apply(path)
        before = started(plane, queues)
        with after_event(plane, queues, event):
            apply(path)

    after = job_of(plane.client, queues.namespace, "light")
    assert queue_of(before) == queues.cpu_queue
    assert essence(after) == essence(before)


@contextlib.contextmanager
def after_event(plane, queues, event):
    if event == "switched off":
        off = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kueue-fallback-off", "namespace": "kueue-fallback"},
            "data": {"namespaces": queues.namespace},
        }
        plane.client.create(off)
        yield
        plane.client.delete("v1", "ConfigMap", "kueue-fallback-off", namespace="kueue-fallback")
    elif event == "policy deleted":
        plane.client.delete(POLICY_API, "FallbackPolicy", queues.policy)
        yield
        plane.client.apply(paper.policy(queues))
    else:
        plane.client.apply(paper.policy(queues, mode="Observe"))
        yield


def test_another_field_that_changed_gets_through_and_only_that(
    plane, queues, policy, apply, manifest
):
    fill(plane, queues, gpu=14, cpu=2)
    apply(manifest())
    before = started(plane, queues)

    apply(manifest(activeDeadlineSeconds=4000))

    after = job_of(plane.client, queues.namespace, "light")
    metadata, spec = essence(before)
    applied = "kubectl.kubernetes.io/last-applied-configuration"
    changed, kept = essence(after)[0], metadata
    for found in (changed, kept):
        found["annotations"].pop(applied, None)
        found.pop("generation", None)
    assert essence(after)[1] == {**spec, "activeDeadlineSeconds": 4000}
    assert changed == kept


def test_a_copy_under_another_name_is_decided_anew(plane, queues, policy):
    fill(plane, queues, gpu=14)
    first = plane.client.create(paper.light_job("light", queues, faster=0.05))
    source = paper.light_job("copy", queues)
    copied = copy.deepcopy(first)
    copied["metadata"] = {
        "name": "copy",
        "namespace": queues.namespace,
        "labels": first["metadata"]["labels"],
        "annotations": first["metadata"]["annotations"],
    }
    for key in ("selector", "suspend"):
        copied["spec"].pop(key, None)
    for key in list(copied["spec"]["template"]["metadata"]["labels"]):
        if "uid" in key or "job-name" in key:
            del copied["spec"]["template"]["metadata"]["labels"][key]
    copied.pop("status", None)
    for number in range(2):
        plane.client.create(paper.light_job(f"more-{number}", queues, faster=0.05))

    created = plane.client.create(copied)

    # Three reserve on CPU by now, so the copy stays on the GPU, with what the first had lost.
    assert queue_of(first) == queues.cpu_queue
    assert decision_of(created)["option"] == "gpu"
    assert decision_of(created)["id"] != decision_of(first)["id"]
    assert queue_of(created) == queues.gpu_queue
    assert container_of(created)["resources"] == container_of(source)["resources"]
    assert container_of(created)["env"] == [{"name": "RUN_ENV", "value": "gpu"}]


def test_a_server_side_dry_run_shows_the_decision_and_records_nothing(
    plane, webhook, queues, policy
):
    fill(plane, queues, gpu=14)
    placements = metric(webhook, "kueue_fallback_placements_total")

    shown = [
        decision_of(plane.client.create(paper.light_job("dry", queues), dry_run=True))
        for _ in range(5)
    ]

    assert [decision["option"] for decision in shown] == ["cpu"] * 5
    assert metric(webhook, "kueue_fallback_placements_total") == placements
    assert plane.client.find("batch/v1", "Job", "dry", namespace=queues.namespace) is None


def test_observe_and_advise_leave_the_spec_as_submitted(plane, webhook, queues):
    seen = {}
    for mode in ("Observe", "Advise"):
        policy = paper.policy(queues, mode=mode)
        with applied_policy(plane.client, policy, queues, until_decided=mode == "Advise"):
            job = paper.light_job(f"light-{mode.lower()}", queues, faster=0.05)
            answer = plane.client.create_for_answer(job)
            seen[mode] = (json.loads(answer.body), answer.warnings)

    observed, advised = seen["Observe"], seen["Advise"]
    assert observed[1] == ()
    assert "annotations" not in observed[0]["metadata"]
    # It would stay, so there is nothing to warn of.
    assert advised[1] == ()
    assert decision_of(advised[0])["mode"] == "Advise"
    assert "kueue-fallback.dev/option" not in advised[0]["metadata"]["labels"]
    assert container_of(advised[0])["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert not has_condition(advised[0], "Complete")


def test_the_off_switch_stops_new_decisions_until_it_is_removed(plane, webhook, queues, policy):
    with after_event(plane, queues, "switched off"):
        wait_for(
            lambda: (
                decision_of(plane.client.create(paper.light_job("off", queues), dry_run=True))
                is None
            ),
            "no decision while off",
            timeout_seconds=SWITCH_SECONDS,
        )
    wait_for(
        lambda: decision_of(plane.client.create(paper.light_job("on", queues), dry_run=True)),
        "decisions again",
        timeout_seconds=SWITCH_SECONDS,
    )


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
