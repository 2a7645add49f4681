"""Decisions made before there were signatures, and after, through an upgrade and back."""

import contextlib
import io
import itertools
import math
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from hack import paper
from hack.install import NAMESPACE, PATIENT, ROOT, Installation
from hack.waiting import wait_for
from tests.e2e.decisions import DECISION, applied_policy, decision_of, fill, finish_time, queue_of
from tests.e2e.moving import FASTER, hold, is_refused
from tests.e2e.plane import job_of
from webhook.api.resources import SIGNING_KEYS
from webhook.model.signatures import is_own_record
from webhook.state.signing_keys import OVERLAP_SECONDS, RENEW_SECONDS, read_keys, renewed, to_secret

UNSIGNED = "094dee9cc074699187c5b95afbbcde0c053fb795"
"""The last version that signed nothing."""
MERGE = "application/merge-patch+json"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def former(tmp_path_factory):
    """The last version that signed nothing, from this repository's history."""
    folder = tmp_path_factory.mktemp("former")
    packed = subprocess.run(
        ["git", "-C", str(ROOT), "archive", UNSIGNED, "webhook", "certs", "helm"],
        capture_output=True,
        check=False,
    )
    if packed.returncode:
        pytest.skip("the history of this checkout does not reach back to the former version")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def names(own_plane):
    found = paper.names_with("signed", namespace="signed")
    metadata = {"name": found.namespace}
    own_plane.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    own_plane.client.apply_all(paper.queues(found))
    return found


@contextlib.contextmanager
def installed(plane, names, checkout=ROOT):
    """Install this version or another, with a policy that is in force."""
    policy = finish_time(names, runTime="20s")
    policy["spec"]["reconsider"] = {"after": "10m"}
    installation = Installation(plane, chart_values=PATIENT)
    installation.checkout = checkout
    with installation, applied_policy(plane.client, policy, names):
        yield


def sent_to_cpu(plane, names, *jobs):
    """Create light Jobs that wait in the full CPU queue, and their manifests."""
    client = plane.client
    hold(client, names.gpu_cluster_queue, "Hold")
    wait_for(lambda: is_refused(client, names, "gpu"), "the GPU queue is known to be stopped")
    for name in jobs:
        job = client.create(paper.light_job(name, names, faster=FASTER))
        assert queue_of(job) == names.cpu_queue
    hold(client, names.gpu_cluster_queue, "None")
    wait_for(lambda: not is_refused(client, names, "gpu"), "the GPU queue is known to go on")


def asked(plane, names, name, wish):
    """Ask by an annotation for a move or an undo; return the Job then."""
    path = plane.client.path("batch/v1", "Job", namespace=names.namespace, name=name)
    body = {"metadata": {"annotations": {"kueue-fallback.dev/move-to": wish}}}
    plane.client.send("PATCH", path, body, content_type=MERGE)
    return job_of(plane.client, names.namespace, name)


def go_on(plane, names, kept, moved, undone):
    """Apply one again, move another, and undo a third."""
    before = job_of(plane.client, names.namespace, kept)
    plane.client.apply(paper.light_job(kept, names, faster=FASTER))
    again = job_of(plane.client, names.namespace, kept)
    assert again["spec"]["template"]["spec"] == before["spec"]["template"]["spec"]
    assert queue_of(again) == names.cpu_queue

    there = asked(plane, names, moved, "gpu")
    assert (queue_of(there), decision_of(there)["moves"]) == (names.gpu_queue, 1)

    back = asked(plane, names, undone, "none")
    assert (queue_of(back), decision_of(back)) == (names.gpu_queue, None)


def test_old_jobs_go_on_through_an_upgrade_and_new_ones_through_the_way_back(
    own_plane, names, former
):
    client = own_plane.client
    with installed(own_plane, names, checkout=former):
        fill(own_plane, names, gpu=4, cpu=6)
        sent_to_cpu(own_plane, names, "old-1", "old-2", "old-3")
    with installed(own_plane, names):
        wait_for(
            lambda: "signature" in decision_of(probed(client, names)),
            "decisions are signed",
        )
        assert "signature" not in decision_of(job_of(client, names.namespace, "old-1"))
        go_on(own_plane, names, "old-1", "old-2", "old-3")
        sent_to_cpu(own_plane, names, "new-1", "new-2", "new-3")
        assert "signature" in decision_of(job_of(client, names.namespace, "new-1"))
    with installed(own_plane, names, checkout=former):
        go_on(own_plane, names, "new-1", "new-2", "new-3")


def test_a_key_is_renewed_under_load_and_no_decision_is_lost(own_plane, names):
    client, submitted = own_plane.client, []
    with installed(own_plane, names), ThreadPoolExecutor(max_workers=1) as pool:
        keys = wait_for(lambda: keys_of(client), "the keys are made")
        wait_for(
            lambda: "signature" in decision_of(probed(client, names)),
            "decisions are signed",
        )
        sent_to_cpu(own_plane, names, "first-1", "first-2", "first-3")
        jobs = [paper.light_job(f"load-{number}", names, faster=FASTER) for number in range(120)]
        load = pool.submit(lambda: submitted.extend(client.create_all(jobs, at_once=4)))
        # As the controller does it in the course of a quarter, and two minutes.
        due = keys.keys[-1].made + RENEW_SECONDS
        for unix in (due, due + OVERLAP_SECONDS):
            keys = renewed(keys, unix)
            write_keys(client, keys)
        load.result()
        assert keys.signing == keys.keys[-1].id != keys.keys[0].id
        wait_for(
            lambda: is_signed_by(keys, probed(client, names)),
            "the new key signs",
        )

        assert all(is_own(keys, job) for job in submitted)
        assert len(submitted) == len(jobs)
        go_on(own_plane, names, "first-1", "first-2", "first-3")


def keys_of(client):
    secret = client.find("v1", "Secret", SIGNING_KEYS, namespace=NAMESPACE)
    return secret and read_keys(secret)


def write_keys(client, keys):
    path = client.path("v1", "Secret", namespace=NAMESPACE, name=SIGNING_KEYS)
    client.send("PATCH", path, {"data": to_secret(keys)}, content_type=MERGE)


def is_own(keys, job):
    text = job["metadata"]["annotations"][DECISION]
    return is_own_record(text, job["metadata"]["namespace"], keys, created=math.inf)


def is_signed_by(keys, job):
    return is_own(replace(keys, keys=(keys.current,)), job)


def probed(client, names):
    """Create a Job, as dry runs are not signed, and delete it again."""
    job = client.create(paper.light_job(f"probe-{next(_numbers)}", names))
    metadata = job["metadata"]
    client.delete("batch/v1", "Job", metadata["name"], namespace=metadata["namespace"])
    return job
