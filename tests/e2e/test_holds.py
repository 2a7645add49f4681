"""Jobs that are held for a cheaper hour, on the real Kueue: none is forgotten, whatever dies."""

import contextlib
import time
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from click.testing import CliRunner

from hack import paper
from hack.waiting import wait_for
from tests.e2e.decisions import POLICY_API, applied_policy, decision_of
from tests.e2e.plane import job_of, wait_until_reserved, workload_of
from webhook.__main__ import main
from webhook.model.fields import seconds_since_1970

GATE, HELD = "kueue.x-k8s.io/admission-gated-by", "kueue-fallback.dev/held"
OURS = "kueue-fallback.dev/hold"
NAMES = paper.names_with("holds", namespace="holds")
MANY = 20
SOON = 1.5
"""Minutes until the cheap hour. It begins with a whole minute, so that the last one before it is
over in 30 to 90 s: by then all Jobs are created."""
SHORT = "100s"
"""Longest wait of a held Job: longer than until the cheap hour."""
LATE_SECONDS = 75.0
"""Until another controller leads and has looked at all Jobs, on a busy machine."""


def tariff(minutes, *, until=40):
    """Return a Tariff by which GPUs are cheaper from the first whole minute after so many on."""
    begin = datetime.now(UTC) + timedelta(minutes=minutes)
    end = begin + timedelta(minutes=until)
    cheap = f"{begin:%H:%M}-{end:%H:%M}"
    gpu = {"flavors": [NAMES.gpu_flavor], "resources": {paper.GPU: "3"}}
    cpu = {"flavors": [NAMES.cpu_flavor], "resources": {"cpu": "9"}}
    rates = [gpu, cpu, {**gpu, "hours": cheap, "resources": {paper.GPU: "1"}}]
    metadata = {"name": "holds"}
    return {
        "apiVersion": POLICY_API,
        "kind": "Tariff",
        "metadata": metadata,
        "spec": {"rates": rates},
    }


def policy():
    found = paper.policy(NAMES)
    found["spec"]["options"][1]["slowdown"] = 3.5
    found["spec"]["strategy"] = {"type": "Cost", "cost": {"hold": {"longest": "1h"}}}
    return found


@pytest.fixture(scope="module")
def plane(own_plane, own_webhook):
    client = own_plane.client
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "holds"}})
    client.apply_all(paper.queues(NAMES))
    client.apply(tariff(20))
    with applied_policy(client, policy(), NAMES):
        yield own_plane


def waiting(name, hold):
    job = paper.light_job(name, NAMES, faster=5)
    job["metadata"]["annotations"] = {
        "kueue-fallback.dev/run-time": "10s",
        OURS: hold,
    }
    return job


def is_held(job):
    return job["metadata"]["annotations"].get(GATE) == OURS


def would_be_held(client, hold):
    return is_held(client.create(waiting("probe", hold), dry_run=True))


def priced(client, minutes, hold):
    """Have prices by which a Job would be held for so long at most."""
    client.apply(tariff(minutes))
    wait_for(lambda: would_be_held(client, hold), "a Job would be held")


def test_held_jobs_start_in_time_though_the_leader_dies_and_stay_held_when_applied_again(
    plane, own_webhook
):
    client = plane.client
    own_webhook.add_controller()
    priced(client, SOON, SHORT)
    jobs = client.create_all([waiting(f"held-{number}", SHORT) for number in range(MANY)])
    assert all(is_held(job) and job["metadata"]["labels"][HELD] == "true" for job in jobs)
    again = {**waiting("held-0", SHORT), "apiVersion": "batch/v1", "kind": "Job"}
    applied = plane.kubectl("apply", "-f", "-", given=yaml.safe_dump(again))
    assert applied.returncode == 0, applied.stderr
    workload = wait_for(lambda: workload_of(client, jobs[1]), "its Workload is there")
    assert OURS in workload["metadata"]["annotations"][GATE]
    still = [is_held(job_of(client, "holds", job["metadata"]["name"])) for job in jobs[:2]]
    assert still == [True, True]

    leader = next(
        each.name
        for each in own_webhook.controllers
        if "leads: writes" in plane.processes.log(each.name).read_text()
    )
    plane.kill(leader)
    latest = max(seconds_since_1970(decision_of(job)["hold"]["latest"], "") for job in jobs)
    wait_for(
        lambda: not any(is_held(job_of(client, "holds", job["metadata"]["name"])) for job in jobs),
        "all are released",
        timeout_seconds=latest + LATE_SECONDS - time.time(),
    )
    plane.start(leader)

    wait_until_reserved(client, jobs[0])


def test_an_uninstall_starts_all_that_are_held_and_people_can_too(plane):
    client, kubeconfig = plane.client, str(plane.kubeconfig)
    priced(client, 15, "40m")
    one, *others = [client.create(waiting(f"far-{number}", "40m")) for number in range(4)]
    assert all(map(is_held, (one, *others)))

    released = CliRunner().invoke(
        main, ["release", "far-0", "-n", "holds", "--kubeconfig", kubeconfig]
    )
    kept = is_held(job_of(client, "holds", "far-1"))
    uninstalled = CliRunner().invoke(main, ["unfinished", "--release", "--kubeconfig", kubeconfig])

    assert (released.exit_code, released.stdout) == (0, "Job holds/far-0: released\n")
    assert kept
    assert "Held Jobs released: 3." in uninstalled.stdout
    for job in (one, *others):
        found = job_of(client, "holds", job["metadata"]["name"])
        assert (GATE in found["metadata"]["annotations"], HELD in found["metadata"]["labels"]) == (
            False,
            False,
        )
    wait_until_reserved(client, one)


@contextlib.contextmanager
def gate_off(client):
    """Let Kueue's configuration say that the gate is off; Kueue itself does not read it again."""
    kept = client.get("v1", "ConfigMap", "kueue-manager-config", namespace="kueue-system")
    (key,) = kept["data"]
    changed = yaml.safe_load(kept["data"][key])
    changed["featureGates"] = {**changed.get("featureGates", {}), "AdmissionGatedBy": False}
    path = client.path("v1", "ConfigMap", namespace="kueue-system", name="kueue-manager-config")

    def write(text):
        body = {"data": {key: text}}
        client.send("PATCH", path, body, content_type="application/merge-patch+json")

    write(yaml.safe_dump(changed))
    try:
        yield
    finally:
        write(kept["data"][key])


def test_where_kueues_gate_is_off_nobody_is_held_and_the_policy_says_so(plane):
    client = plane.client
    priced(client, 15, "40m")

    with gate_off(client):
        wait_for(lambda: not would_be_held(client, "40m"), "no Job is held any more")
        said = wait_for(lambda: untested(client), "the policy says why")

    assert "featureGates.AdmissionGatedBy" in said


def untested(client):
    """Return why the policy only observes; beside such a Kueue it decides nothing."""
    found = client.get(POLICY_API, "FallbackPolicy", NAMES.policy)
    conditions = found.get("status", {}).get("conditions", ())
    return next(
        (
            each["message"]
            for each in conditions
            if (each["type"], each["status"]) == ("KueueTested", "False")
        ),
        "",
    )
