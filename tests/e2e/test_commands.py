"""Commands that lean on what the API server and kubectl do: dry runs, RBAC, plugins."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from hack import paper, tools
from hack.install import kubeconfig_of
from hack.waiting import wait_for
from tests.e2e.decisions import (
    SLOW,
    applied_policy,
    finish_time,
    queue_of,
)
from tests.e2e.moving import RULES
from tests.e2e.plane import job_of
from webhook.__main__ import main

RBAC = "rbac.authorization.k8s.io/v1"
ACCOUNT = "scientist"


@pytest.fixture
def policy(plane, webhook, queues):
    found = finish_time(queues, runTime="20s")
    found["spec"]["reconsider"] = RULES
    with applied_policy(plane.client, found, queues):
        yield found


@pytest.fixture
def ask(plane, queues):
    """Ask as the admin, or with another kubeconfig."""

    def asked(*words, kubeconfig=plane.kubeconfig):
        result = CliRunner().invoke(main, [*words, "--kubeconfig", str(kubeconfig)])
        fault = result.exception
        assert fault is None or isinstance(fault, SystemExit), result.output
        return result

    return asked


@pytest.fixture
def bound(plane, queues):
    """A kubeconfig of one who may only work with Jobs in one namespace."""
    client, namespace = plane.client, queues.namespace
    client.create(_object("v1", "ServiceAccount", namespace, ACCOUNT))
    role = _object(RBAC, "Role", namespace, ACCOUNT)
    jobs = {"apiGroups": ["batch"], "resources": ["jobs"]}
    role["rules"] = [{**jobs, "verbs": ["create", "get", "list", "watch"]}]
    client.create(role)
    binding = _object(RBAC, "RoleBinding", namespace, ACCOUNT)
    binding["roleRef"] = {"apiGroup": RBAC.partition("/")[0], "kind": "Role", "name": ACCOUNT}
    account = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    binding["subjects"] = [account]
    client.create(binding)
    return kubeconfig_of(plane, ACCOUNT, namespace=namespace)


def _object(api_version, kind, namespace, name):
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def test_a_sample_is_tried_in_every_option(plane, webhook, queues, ask, tmp_path):
    policy, job = tmp_path / "policy.yaml", tmp_path / "job.yaml"
    policy.write_text(yaml.safe_dump(paper.policy(queues)))
    job.write_text(yaml.safe_dump(paper.light_job("sample", queues)))
    words = ("check", "-f", str(policy), "--sample", str(job))

    fine = ask(*words)
    limits = _object("v1", "LimitRange", queues.namespace, "small")
    limits["spec"] = {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}
    plane.client.create(limits)
    refused = wait_for(
        lambda: result if (result := ask(*words)).exit_code else None, "the LimitRange is known"
    )

    assert (fine.exit_code, fine.output.count(": accepted\n")) == (0, 2)
    assert refused.exit_code == 1
    assert refused.output.count(": refused: its pods: ") == 2
    assert "must be less than or equal to cpu limit of 1" in refused.output
    assert plane.client.list("batch/v1", "Job", namespace=queues.namespace) == []


def test_who_is_bound_to_a_namespace_sees_what_rbac_gives(
    plane, queues, policy, ask, bound, tmp_path
):
    client, place = plane.client, ("-n", queues.namespace)
    job = paper.light_job("light", queues, faster=SLOW)
    client.create(job)
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump(job))

    def explained():
        found = ask("explain", "light", *place, kubeconfig=bound)
        return found if found.exit_code == 0 else None

    live = wait_for(explained, "the Role counts")
    filed = ask("explain", "-f", str(manifest), "-o", "json", kubeconfig=bound)
    status = ask("status", *place, kubeconfig=bound)
    waits = ask("queue", *place, kubeconfig=bound)
    told = json.loads(ask("status", *place, "-o", "json", kubeconfig=bound).output)
    mine = ask("tail", *place, "--since", "1h", "--count", "1", kubeconfig=bound)
    others = ask("tail", "-A", kubeconfig=bound)
    sample = tmp_path / "policy.yaml"
    sample.write_text(yaml.safe_dump(paper.policy(queues)))
    tried = ask("check", "-f", str(sample), "--sample", str(manifest), kubeconfig=bound)

    assert "Policy " in live.output
    assert "Not known: you may not list what a decision needs" in live.output
    assert (filed.exit_code, json.loads(filed.stdout)["option"]) == (0, "gpu")
    assert status.exit_code == 0
    assert (waits.exit_code, "You may not list ClusterQueues" in waits.stderr) == (0, True)
    hidden = {"switch", "leader", "certificates", "replicas", "policies", "clusterQueues"}
    hidden |= {"localQueues", "clusters", "congestion", "fragmentation", "deployments"}
    assert {name for name, part in told.items() if list(part) == ["forbidden"]} == hidden
    assert told["kueue"]["kubernetes"].startswith("v1.")
    assert (mine.exit_code, "light" in mine.output) == (0, True)
    assert (others.exit_code, "cannot list resource" in others.stderr) == (1, True)
    assert tried.exit_code == 0
    assert tried.output.count("its pods were not tried: ") == 2
    assert queue_of(job_of(client, queues.namespace, "light")) == queues.gpu_queue


def test_kubectl_finds_the_commands_and_completes_them(plane, webhook, queues):
    plane.client.create(paper.heavy_job("heavy", queues, faster=SLOW))
    programs = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    environment["KUBECONFIG"] = str(plane.kubeconfig)

    def kubectl(*words):
        return subprocess.run(
            ["kubectl", *words],
            executable=tools.program("kubectl"),
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    commands = kubectl("__complete", "fallback", "exp")

    assert "It carries no decision" in kubectl(
        "fallback", "explain", "heavy", "-n", queues.namespace
    )
    assert commands.splitlines() == [
        "explain\tShow what was or would be decided for a Job, and why.",
        ":4",
    ]
