"""Jobs that are held for a cheaper hour, by Kueue's own gate."""

import contextlib
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from click.testing import CliRunner

from hack import paper
from hack.waiting import wait_for
from tests.e2e.decisions import POLICY_API, applied_policy
from tests.e2e.plane import job_of, wait_until_reserved, workload_of
from webhook.__main__ import main

GATE, HELD = "kueue.x-k8s.io/admission-gated-by", "kueue-fallback.dev/held"
OURS = "kueue-fallback.dev/hold"


@pytest.fixture
def client(plane, webhook, queues):
    """A cluster where GPUs are cheaper in a quarter of an hour, and Jobs may be held so long."""
    begin = datetime.now(UTC) + timedelta(minutes=15)
    cheap = f"{begin:%H:%M}-{begin + timedelta(minutes=40):%H:%M}"
    gpu = {"flavors": [queues.gpu_flavor], "resources": {paper.GPU: "3"}}
    cpu = {"flavors": [queues.cpu_flavor], "resources": {"cpu": "9"}}
    rates = [gpu, cpu, {**gpu, "hours": cheap, "resources": {paper.GPU: "1"}}]
    tariff = {"apiVersion": POLICY_API, "kind": "Tariff", "metadata": {"name": queues.namespace}}
    policy = paper.policy(queues)
    policy["spec"]["options"][1]["slowdown"] = 3.5
    policy["spec"]["strategy"] = {"type": "Cost", "cost": {"hold": {"longest": "1h"}}}
    plane.client.apply({**tariff, "spec": {"rates": rates}})
    with applied_policy(plane.client, policy, queues):
        wait_for(lambda: would_be_held(plane.client, queues), "a Job would be held")
        yield plane.client
    plane.client.delete(POLICY_API, "Tariff", queues.namespace)


def waiting(name, queues):
    job = paper.light_job(name, queues, faster=5)
    job["metadata"]["annotations"] = {"kueue-fallback.dev/run-time": "10s", OURS: "40m"}
    return job


def is_held(job):
    return job["metadata"]["annotations"].get(GATE) == OURS


def would_be_held(client, queues):
    return is_held(client.create(waiting("probe", queues), dry_run=True))


def test_kueue_gives_a_held_job_no_quota_until_it_is_released(plane, client, queues):
    namespace, kubeconfig = queues.namespace, str(plane.kubeconfig)
    one, *others = [client.create(waiting(f"held-{number}", queues)) for number in range(3)]
    assert all(is_held(job) and job["metadata"]["labels"][HELD] == "true" for job in (one, *others))
    again = yaml.safe_dump(waiting("held-0", queues))
    applied = plane.kubectl("apply", "-f", "-", given=again)
    assert applied.returncode == 0, applied.stderr
    assert is_held(job_of(client, namespace, "held-0"))
    gated = wait_for(lambda: workload_of(client, one), "its Workload is there")
    assert OURS in gated["metadata"]["annotations"][GATE]
    # A Job that came later gets quota, and so none of those before it.
    heavy = client.create(paper.heavy_job("heavy", queues, faster=0.05))
    wait_until_reserved(client, heavy)
    assert "admission" not in workload_of(client, one).get("status", {})

    words = ("release", "held-0", "-n", namespace, "--kubeconfig", kubeconfig)
    released = CliRunner().invoke(main, words)
    wait_until_reserved(client, one)
    kept = is_held(job_of(client, namespace, "held-1"))
    uninstalled = CliRunner().invoke(main, ["unfinished", "--release", "--kubeconfig", kubeconfig])

    assert (released.exit_code, released.stdout) == (0, f"Job {namespace}/held-0: released\n")
    assert kept
    assert "Held Jobs released: 2." in uninstalled.stdout
    for job in (one, *others):
        found = job_of(client, namespace, job["metadata"]["name"])["metadata"]
        assert (GATE in found["annotations"], HELD in found["labels"]) == (False, False)
        wait_until_reserved(client, job)


@contextlib.contextmanager
def gate_off(client):
    """Let Kueue's configuration say that the gate is off; Kueue itself does not read it again."""
    place = ("v1", "ConfigMap", "kueue-manager-config")
    kept = client.get(*place, namespace="kueue-system")
    (key,) = kept["data"]
    changed = yaml.safe_load(kept["data"][key])
    changed["featureGates"] = {**changed.get("featureGates", {}), "AdmissionGatedBy": False}
    text = yaml.safe_dump(changed)
    client.patch(*place, {"data": {key: text}}, namespace="kueue-system")
    try:
        yield
    finally:
        client.patch(*place, {"data": kept["data"]}, namespace="kueue-system")


def test_where_kueues_gate_is_off_nobody_is_held_and_the_policy_says_so(client, queues):
    with gate_off(client):
        wait_for(lambda: not would_be_held(client, queues), "no Job is held any more")
        said = wait_for(lambda: untested(client, queues), "the policy says why")
    wait_for(lambda: would_be_held(client, queues), "Jobs are held again")

    assert "featureGates.AdmissionGatedBy" in said


def untested(client, queues):
    """Return why the policy only observes; beside such a Kueue it decides nothing."""
    found = client.get(POLICY_API, "FallbackPolicy", queues.policy)
    conditions = found.get("status", {}).get("conditions", ())
    return next(
        (
            each["message"]
            for each in conditions
            if (each["type"], each["status"]) == ("KueueTested", "False")
        ),
        "",
    )
