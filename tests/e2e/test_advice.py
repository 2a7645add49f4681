"""Running Jobs that would cost less elsewhere: told of, and moved at a checkpoint by the recipe."""

import json
import shlex
import urllib.request

import pytest
from click.testing import CliRunner

from hack import paper
from hack.waiting import wait_for
from tests.e2e.decisions import OPTION, POLICY_API, SLOW, applied_policy, decision_of, queue_of
from tests.e2e.moving import hold
from tests.e2e.plane import has_condition, job_of, wait_until_reserved, workload_of
from webhook.__main__ import main

CHECKPOINT, ALLOW = "kueue-fallback.dev/checkpoint", "kueue-fallback.dev/allow"
JOBS = {"by-queue": "cheap", "with-less": "small"}
"""Job to the option that it is advised to go to, beside the one where it runs."""
RATES = {"dear": "10", "cheap": "1"}


@pytest.fixture
def tiers(plane, webhook, namespace):
    """Two queues of CPUs, of which one costs a tenth and is stopped."""
    items = [
        {
            "apiVersion": POLICY_API,
            "kind": "Tariff",
            "metadata": {"name": f"tiers-{namespace}"},
            "spec": {
                "rates": [
                    {"flavors": [f"{tier}-{namespace}"], "resources": {"cpu": rate}}
                    for tier, rate in RATES.items()
                ]
            },
        }
    ]
    for tier in RATES:
        name = f"{tier}-{namespace}"
        items += [
            paper.resource_flavor(name),
            paper.cluster_queue(name, flavor=name, quota={"cpu": "24", "memory": "60Gi"}),
            paper.local_queue(tier, namespace, cluster_queue=name),
        ]
    plane.client.apply_all(items)
    hold(plane.client, f"cheap-{namespace}", "Hold")
    yield
    plane.client.delete_all(items)


@pytest.fixture
def policy(plane, tiers, namespace):
    less = {"resources": {"requests": {"cpu": "2"}}}
    found = {
        "apiVersion": POLICY_API,
        "kind": "FallbackPolicy",
        "metadata": {"name": f"tiers-{namespace}"},
        "spec": {
            "mode": "Enforce",
            "match": {
                "jobSelector": {},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            },
            "options": [
                {"name": "dear", "queue": "dear"},
                {"name": "cheap", "queue": "cheap", "slowdown": 1.5},
                {"name": "small", "queue": "cheap", "slowdown": 2, "adaptation": less},
            ],
            "strategy": {"type": "Cost", "cost": {"runTime": "1h", "timeValue": "0.5"}},
        },
    }
    with applied_policy(plane.client, found, None, until_decided=False):
        yield found["metadata"]["name"]


def resuming(name, namespace, option):
    container = {
        "name": "main",
        "image": "train",
        "resources": {"requests": {"cpu": "4", "memory": "1Gi"}},
    }
    job = paper.job(
        name,
        namespace,
        labels={paper.QUEUE_LABEL: "dear"},
        run={"cpu-run": 40 / SLOW},
        container=container,
    )
    job["metadata"]["annotations"] = {CHECKPOINT: "5m", ALLOW: f"dear,{option}"}
    return job


def test_what_runs_is_advised_and_goes_on_elsewhere_by_the_recipe(
    plane, webhook, policy, namespace
):
    client = plane.client
    sample = resuming("asks", namespace, "cheap")
    wait_for(lambda: is_refused(client.create(sample, dry_run=True)), "the cheap queue is stopped")
    jobs = [client.create(resuming(name, namespace, option)) for name, option in JOBS.items()]
    for job in jobs:
        wait_until_reserved(client, job)
    hold(client, f"cheap-{namespace}", "None")

    found = wait_for(lambda: advised(plane, namespace), "both are advised to leave")
    assert {job["name"]: job["there"]["option"] for job in found} == JOBS
    for name in JOBS:
        wait_for(lambda name=name: told(client, namespace, name), f"an Event tells of {name}")
    saving = wait_for(lambda: metric(webhook, policy), "the metric has what they would save")
    assert saving == pytest.approx(sum(job["saves"] for job in found), rel=0.2)

    for job in found:
        for line in job["recipe"]:
            done = plane.kubectl(*shlex.split(line)[1:])
            assert done.returncode == 0, (line, done.stdout, done.stderr)

    for job in jobs:
        name = job["metadata"]["name"]
        workload = wait_until_reserved(client, job)
        after = job_of(client, namespace, name)
        assert workload["status"]["admission"]["clusterQueue"] == f"cheap-{namespace}"
        assert (queue_of(after), after["metadata"]["labels"][OPTION]) == ("cheap", JOBS[name])
        assert decision_of(after)["moves"] == 1
        wait_for(lambda name=name: runs(client, namespace, name), f"{name} runs again")
    assert advised(plane, namespace) == []


def is_refused(job):
    decision = decision_of(job) or {"options": []}
    refused = {option["name"] for option in decision["options"] if option.get("rejected")}
    return "cheap" in refused


def advised(plane, namespace):
    words = ["advise", "-n", namespace, "-o", "json", "--kubeconfig", str(plane.kubeconfig)]
    answer = CliRunner().invoke(main, words)
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.stdout)["jobs"]


def told(client, namespace, name):
    return any(
        event["reason"] == "Advised" and event["involvedObject"]["name"] == name
        for event in client.list("v1", "Event", namespace=namespace)
    )


def metric(webhook, policy):
    url = f"http://127.0.0.1:{webhook.controller_metrics}/metrics"
    with urllib.request.urlopen(url) as answer:
        lines = answer.read().decode().splitlines()
    start = f'kueue_fallback_advised_saving{{policy="{policy}"}} '
    return next((float(line.removeprefix(start)) for line in lines if line.startswith(start)), 0)


def runs(client, namespace, name):
    job = job_of(client, namespace, name)
    workload = workload_of(client, job)
    return not job["spec"]["suspend"] and has_condition(workload, "Admitted")
