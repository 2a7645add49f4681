"""The commands that people ask with, on a real Kueue: as an admin, and bound to one namespace."""

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
    decision_of,
    fill,
    finish_time,
    limited,
    queue_of,
)
from tests.e2e.moving import RULES, hold, is_refused, moved_to
from tests.e2e.plane import job_of, wait_until_reserved, workload_of
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


@pytest.fixture
def followed(plane, queues):
    """Start `tail` for so many lines and wait for the first; the caller waits for its end."""
    place = ["-n", queues.namespace, "--kubeconfig", str(plane.kubeconfig)]
    started = []

    def follow(count):
        limits = ["--since", "1h", "--count", str(count), "--for", "5m", "-o", "json"]
        words = [sys.executable, "-m", "webhook", "tail", *place, *limits]
        pipe = subprocess.PIPE
        tail = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True)
        started.append(tail)
        # A program that starts late on a busy machine would miss what is to be followed.
        return tail, tail.stdout.readline()

    yield follow
    for tail in started:
        with tail:
            tail.kill()


def test_a_job_is_followed_and_explained_from_its_creation_to_its_undoing(
    plane, queues, policy, ask, followed
):
    client, place = plane.client, ("-n", queues.namespace)
    fill(plane, queues, gpu=24)
    hold(client, queues.cpu_cluster_queue, "Hold")
    wait_for(lambda: is_refused(client, queues, "cpu"), "the CPU queue is known to be stopped")
    client.create(paper.light_job("light", queues, faster=SLOW))
    tail, first = followed(3)
    heavy = client.create(limited(paper.heavy_job("heavy", queues, faster=SLOW)))
    wait_for(lambda: workload_of(client, heavy), "it waits, too")

    stays = json.loads(ask("explain", "light", *place, "-o", "json").output)
    untouched = ask("explain", "job/heavy", *place)
    hold(client, queues.cpu_cluster_queue, "None")
    moved = wait_for(lambda: moved_to(client, queues, "light", "cpu"), "it is moved")
    wait_until_reserved(client, moved)
    after = ask("explain", "light", *place)
    programs = json.loads(ask("explain", "light", *place, "-o", "json").output)

    # What was decided and what would be agree, while nothing has changed but its own Workload.
    assert stays["decided"]["option"] == stays["now"]["decision"]["option"] == "gpu"
    pending = [
        {each["name"]: each.get("pending") for each in found["options"]}["gpu"]
        for found in (stays["decided"], stays["now"]["decision"])
    ]
    assert pending == [20, 21], "the heavy Job has come since"
    assert untouched.exit_code == 0
    assert "It carries no decision" in untouched.output
    assert "Left untouched: no policy matches this Job." in untouched.output
    assert after.exit_code == 0
    assert "Moved once:" in after.output
    assert decision_of(moved)["reason"] in programs["decided"]["reason"]
    assert programs["decided"]["moves"] == 1
    assert programs["now"]["decision"]["option"] == "cpu"
    cpu = programs["now"]["decision"]["options"][1]
    assert (cpu["name"], cpu["startsIn"]) == ("cpu", 0), "its own quota counts as free"
    client.create(paper.light_job("other", queues, faster=SLOW))
    output, errors = tail.communicate(timeout=330)
    lines = [json.loads(line) for line in (first + output).splitlines()]
    assert (tail.returncode, errors) == (0, "")
    assert [(line["name"], line["event"], line["option"]) for line in lines] == [
        ("light", "created", "gpu"),
        ("light", "moved", "cpu"),
        ("other", "created", "cpu"),
    ]


def test_status_shows_the_queues_and_who_leads(plane, webhook, queues, policy, ask):
    fill(plane, queues, gpu=6)

    def is_well():
        result = ask("status", "-o", "json", "--release-namespace", "kueue-fallback")
        return result if result.exit_code == 0 else None

    well = json.loads(wait_for(is_well, "nothing needs attention").output)
    text = ask("status", "-o", "wide").output
    queue = {each["name"]: each for each in well["clusterQueues"]}[queues.gpu_cluster_queue]

    assert well["attention"] == []
    assert (queue["pending"], queue["reserving"], queue["state"]) == (2, 4, "active")
    gpu = next(each for each in queue["quotas"] if each["resource"] == paper.GPU)
    assert (gpu["used"], gpu["quota"]) == ("4", "4")
    assert gpu["nextFreeIn"] is None or gpu["nextFreeIn"] > 0
    (judged,) = (each for each in well["policies"] if each["name"] == policy["metadata"]["name"])
    assert (judged["ready"], judged["options"]) == (True, ["gpu", "cpu"])
    assert well["leader"]["leads"]
    assert well["leader"]["holder"]
    assert well["switch"] == {"off": False, "namespaces": []}
    assert well["certificates"][0]["secondsLeft"] > 0
    assert well["replicas"] == {
        "unknown": "there is no pod of the server in namespace kueue-fallback"
    }
    assert "NEXT FREE" in text


def test_status_needs_attention_when_a_policy_is_not_ready(plane, webhook, queues, ask):
    found = finish_time(queues, runTime="20s")
    found["spec"]["options"][1]["queue"] = "no-such-queue"
    with applied_policy(plane.client, found, queues):
        name = found["metadata"]["name"]
        wait_for(
            lambda: plane.client.get("kueue-fallback.dev/v1alpha1", "FallbackPolicy", name).get(
                "status"
            ),
            "it is judged",
        )

        result = ask("status")

    assert result.exit_code == 1
    assert f"policy {name} is not ready: " in result.output


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
    told = json.loads(ask("status", *place, "-o", "json", kubeconfig=bound).output)
    mine = ask("tail", *place, "--since", "1h", "--count", "1", kubeconfig=bound)
    others = ask("tail", "-A", kubeconfig=bound)
    sample = tmp_path / "policy.yaml"
    sample.write_text(yaml.safe_dump(paper.policy(queues)))
    tried = ask("check", "-f", str(sample), "--sample", str(manifest), kubeconfig=bound)

    assert "Policy " in live.output
    assert 'Not known: clusterqueues.kueue.x-k8s.io is forbidden: User "' in live.output
    assert (filed.exit_code, json.loads(filed.stdout)["option"]) == (0, "gpu")
    assert status.exit_code == 0
    hidden = {"switch", "leader", "certificates", "replicas", "policies", "clusterQueues"}
    hidden |= {"localQueues", "clusters", "congestion"}
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
    names = kubectl("__complete", "fallback", "explain", "-n", queues.namespace, "he")

    assert "It carries no decision" in kubectl(
        "fallback", "explain", "heavy", "-n", queues.namespace
    )
    assert commands.splitlines() == [
        "explain\tShow what was or would be decided for a Job, and why.",
        ":4",
    ]
    assert names.splitlines() == ["heavy", ":4"]
