"""What Jobs have cost, on the real control plane: in the decision, in metrics and in the report."""

import contextlib
import json
import urllib.request

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from hack import paper
from hack.waiting import wait_for
from tests.e2e import courses
from tests.e2e.decisions import POLICY_API, applied_policy, decision_of, finish_time, options
from webhook.__main__ import main

TARIFF = {"apiVersion": POLICY_API, "kind": "Tariff", "metadata": {"name": "showback"}}
FASTER = 10.0


@contextlib.contextmanager
def tariff(client, queues):
    """Have prices of both flavors, and wait until the controller tells that they are in use."""
    gpu = {"flavors": [queues.gpu_flavor], "resources": {paper.GPU: "3600", "cpu": "0"}}
    cpu = {"flavors": [queues.cpu_flavor], "resources": {"cpu": "360"}}
    client.apply({**TARIFF, "spec": {"rates": [gpu, cpu], "carbon": [{"intensity": "400"}]}})

    def ready():
        status = client.get(POLICY_API, "Tariff", "showback").get("status", {})
        conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
        return conditions.get("Ready") == "True" and status["now"]

    try:
        yield wait_for(ready, "the Tariff is ready")
    finally:
        client.delete(POLICY_API, "Tariff", "showback")


@pytest.fixture
def policy(plane, queues):
    found = finish_time(queues, runTime="2s")
    with applied_policy(plane.client, found, queues):
        yield found["metadata"]["name"]


def spent(webhook, policy):
    """Read what the controller has counted for a policy, by kind."""
    url = f"http://127.0.0.1:{webhook.controller_metrics}/metrics"
    with urllib.request.urlopen(url, timeout=60) as answer:
        text = answer.read().decode()
    return {
        sample.labels["kind"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "kueue_fallback_cost_total" and sample.labels["policy"] == policy
    }


def test_money_and_carbon_of_a_job_are_told_before_it_runs_and_after(
    plane, webhook, queues, policy
):
    client = plane.client
    with tariff(client, queues) as now:
        job = client.create(paper.light_job("priced", queues, faster=FASTER))
        courses.wait_until_all_complete(client, queues, ["priced"])
        counted = wait_for(lambda: spent(webhook, policy), "it is counted")
        told = CliRunner().invoke(
            main,
            [
                *("report", "-n", queues.namespace, "--policy", policy, "-o", "json"),
                *("--kubeconfig", str(plane.kubeconfig)),
            ],
        )

    expected = options(decision_of(job))
    assert now["currency"] == "USD"
    # About two seconds of a GPU at one a second.
    assert 0.5 < expected["gpu"]["cost"]["money"] < 20
    # Its flavor's label names a T4, of which the table has the power.
    assert expected["cpu"]["cost"]["carbonGrams"] > 0
    assert expected["gpu"]["cost"]["carbonGrams"] > 0
    assert counted.keys() == {"money", "kwh", "grams"}
    assert 0.5 < counted["money"] < 60
    assert told.exit_code == 0, told.output
    document = json.loads(told.stdout)
    (row,) = document["rows"]
    assert (document["currency"], row["cost"]["knownOf"]) == (
        "USD",
        {"money": 1, "kWh": 1, "carbonGrams": 1},
    )
    assert row["cost"]["money"] == pytest.approx(counted["money"], rel=1e-4)
