"""Decided by cost on a real Kueue: Tariffs, what is scarce, and what a Job says."""

import json

import pytest

from hack import paper
from hack.install import NAMESPACE
from tests.e2e.decisions import (
    POLICY_API,
    SLOW,
    applied_policy,
    decision_of,
    finish_time,
    limited,
    options,
    probe,
)
from tests.e2e.plane import wait_for

PRICES = "kueue-fallback-prices"
BUDGET = "kueue-fallback.dev/budget"


@pytest.fixture
def tariff(plane, queues):
    name = f"prices-{queues.namespace}"
    rates = [
        {"flavors": [queues.gpu_flavor], "resources": {paper.GPU: "2"}},
        {"flavors": [queues.cpu_flavor], "resources": {"cpu": "0.05"}},
    ]
    plane.client.apply(
        {
            "apiVersion": POLICY_API,
            "kind": "Tariff",
            "metadata": {"name": name},
            "spec": {"rates": rates},
        }
    )
    yield
    plane.client.delete(POLICY_API, "Tariff", name)


@pytest.fixture
def waiting(plane, webhook, queues):
    """Four Jobs run on all GPUs, and four wait, before anybody asks what is scarce."""
    jobs = [paper.heavy_job(f"fill-{number}", queues, faster=SLOW) for number in range(8)]
    plane.client.create_all([limited(job) for job in jobs])
    wait_for(lambda: pending(plane, queues) == 4, "Kueue has judged all of them")


def pending(plane, queues):
    queue = plane.client.get(paper.KUEUE, "ClusterQueue", queues.gpu_cluster_queue)
    return queue.get("status", {}).get("pendingWorkloads", 0)


@pytest.fixture
def policy(plane, webhook, queues, tariff, waiting):
    found = finish_time(queues)
    cost = {"runTime": "1h", "timeValue": "0.1", "congestion": {"wait": "10s"}}
    found["spec"]["strategy"] = {"type": "Cost", "cost": cost}
    with applied_policy(plane.client, found, queues):
        yield


def costs(decision):
    return {name: option.get("cost", {}) for name, option in options(decision).items()}


def test_the_cheaper_option_is_taken_and_what_is_waited_for_becomes_dearer(
    plane, webhook, queues, policy
):
    decision = wait_for(lambda: with_money(probe(plane.client, queues)), "prices are known")

    assert decision["option"] == "cpu"
    assert costs(decision)["cpu"]["money"] < costs(decision)["gpu"]["money"]
    assert decision["reason"].startswith(f"sent to {queues.cpu_queue} (cpu): starts now; ")
    assert all("total" in cost for cost in costs(decision).values())
    job = paper.light_job("asked", queues)
    job["metadata"]["annotations"] = {BUDGET: "ten"}
    asked = decision_of(plane.client.create(job, dry_run=True))
    assert (asked["leftAlone"], "option" in asked) == ("unreadable", False)

    scarce = wait_for(lambda: published(plane, queues), "the controller publishes what is scarce")
    assert scarce["price"] > 0
    found = wait_for(lambda: charged(plane, queues), "decisions charge it")
    assert found["congestion"] > 0


def with_money(decision):
    found = costs(decision) if decision else {}
    return decision if found and all("money" in cost for cost in found.values()) else None


def published(plane, queues):
    """Return the price of the GPUs, as the controller has published it; None: it has not."""
    found = plane.client.find("v1", "ConfigMap", PRICES, namespace=NAMESPACE)
    prices = json.loads(found["data"]["prices.json"])["prices"] if found else []
    place = queues.gpu_flavor, paper.GPU
    return next(
        (
            price
            for price in prices
            if (price["flavor"], price["resource"]) == place and price["price"] > 0
        ),
        None,
    )


def charged(plane, queues):
    cost = costs(probe(plane.client, queues))["gpu"]
    return cost if cost.get("congestion") else None
