"""The project on a control plane: its own rights and certificate, as many replicas as asked."""

import json
import subprocess
import urllib.request
from pathlib import Path

import pytest

from hack import paper, tools
from hack.install import CONTROLLER_ACCOUNT, NAMESPACE, SERVER_ACCOUNT
from hack.processes import end_leftovers
from hack.waiting import wait_for
from tests.e2e.clusters import run


@pytest.mark.parametrize("account", [SERVER_ACCOUNT, CONTROLLER_ACCOUNT])
def test_the_processes_have_the_rights_of_their_service_accounts_alone(plane, webhook, account):
    kubeconfig = plane.state / f"{account}.kubeconfig"

    def ask(*words):
        kubectl = [tools.program("kubectl"), "--kubeconfig", kubeconfig]
        done = subprocess.run([*kubectl, *words], capture_output=True, text=True, check=False)
        return done.stdout

    who = ask("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
    assert who == f"system:serviceaccount:{NAMESPACE}:{account}"
    assert ask("auth", "can-i", "list", "clusterqueues.kueue.x-k8s.io") == "yes\n"
    assert ask("auth", "can-i", "list", "secrets", "-A") == "no\n"
    assert ask("auth", "can-i", "create", "jobs") == "no\n"


@pytest.mark.parametrize("name", ["controller", "webhook-0"])
def test_the_processes_have_the_environment_of_the_pods(plane, webhook, name):
    found = Path(f"/proc/{plane.processes.pid(name)}/environ").read_text(encoding="utf-8")

    assert "MALLOC_ARENA_MAX=1" in found.split("\0")


def test_a_replica_that_was_killed_decides_again_when_started(plane, webhook, queues):
    plane.client.apply(paper.policy(queues))
    wait_for(lambda: _is_decided(plane, queues, "before"), "a Job is decided")

    webhook.kill()
    killed = plane.client.create(paper.light_job("killed", queues))
    webhook.start()

    assert "kueue-fallback.dev/option" not in killed["metadata"]["labels"]
    wait_for(lambda: _is_decided(plane, queues, "after"), "a Job is decided again")
    plane.client.delete("kueue-fallback.dev/v1alpha1", "FallbackPolicy", queues.policy)


def test_make_up_writes_how_to_reach_what_it_started(cluster):
    up = run("up", cluster)
    endpoints = json.loads(cluster.endpoints.read_text())
    with urllib.request.urlopen(f"{endpoints['metrics']}/readyz") as ready:
        status = ready.status
    own, words = (
        subprocess.run(
            [cluster.programs / name, *given], capture_output=True, text=True, check=False
        )
        for name, given in (
            ("kubectl-fallback", ["--version"]),
            ("kubectl_complete-fallback", ["sta"]),
        )
    )

    assert (up.returncode, up.stderr) == (0, "")
    assert sorted(endpoints) == ["console", "metrics", "webhook"]
    assert status == 200
    assert cluster.ca_certificate.read_text().startswith("-----BEGIN CERTIFICATE-----")
    assert own.stdout.startswith("kueue-fallback, version ")
    assert words.stdout.startswith("status\t")
    assert run("down", cluster).returncode == 0
    assert not cluster.folder.exists()
    assert end_leftovers(cluster.state) == 0


def _is_decided(plane, names, name):
    job = plane.client.create(paper.light_job(name, names), dry_run=True)
    return "kueue-fallback.dev/option" in job["metadata"]["labels"]
