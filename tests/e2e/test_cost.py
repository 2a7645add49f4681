"""Decided by cost on a real Kueue: Tariffs, what is scarce, and what a Job says."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from hack import paper
from hack.install import NAMESPACE
from hack.waiting import wait_for
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


@pytest.fixture
def interrupted(plane, queues, tariff):
    """Have a Tariff say that Jobs on GPUs are interrupted, though seldom; decide by cost."""
    name = f"prices-{queues.namespace}"
    change = {"spec": {"interruptions": "0.01"}}
    plane.client.patch(POLICY_API, "Tariff", name, change)
    found = finish_time(queues)
    found["spec"]["strategy"] = {"type": "Cost", "cost": {"runTime": "1h"}}
    with applied_policy(plane.client, found, queues):
        yield


def test_where_kueue_had_to_evict_again_and_again_no_job_is_sent_without_a_checkpoint(
    plane, webhook, queues, interrupted
):
    client = plane.client
    before = wait_for(lambda: with_money(probe(client, queues)), "prices are known")

    ended_run(client, queues, hours=30, evictions=250)

    after = wait_for(lambda: refused(client, queues), "what was seen of runs counts")
    assert "rejected" not in options(before)["gpu"]
    # Those 250 in 30 hours, and the Tariff's as one in a hundred.
    assert "with 1.93077 interruptions an hour it would run" in after


def refused(client, queues):
    decision = probe(client, queues)
    because = options(decision)["gpu"].get("rejected", "") if decision else ""
    return because if because.startswith("wouldBeInterrupted") else None


def ended_run(client, queues, *, hours, evictions):
    """Leave a Workload that has run on a GPU for so long and ended, as Kueue would have written it.

    It names no LocalQueue that there is, so that Kueue itself never gives it quota.
    """
    ended = datetime.now(UTC).replace(microsecond=0)
    begun = ended - timedelta(hours=hours)
    requests = {"cpu": "4", "memory": "6Gi", paper.GPU: "1"}
    container = {"name": "main", "image": "ended", "resources": {"requests": requests}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    client.apply(
        {
            "apiVersion": paper.KUEUE,
            "kind": "Workload",
            "metadata": {"name": "ended", "namespace": queues.namespace},
            "spec": {
                "queueName": "of-long-ago",
                "podSets": [{"name": "main", "count": 1, "template": template}],
            },
        }
    )
    place = {"namespace": queues.namespace}
    wait_for(
        lambda: client.get(paper.KUEUE, "Workload", "ended", **place).get("status"),
        "Kueue has judged it",
    )
    assigned = {
        "name": "main",
        "count": 1,
        "flavors": dict.fromkeys(requests, queues.gpu_flavor),
        "resourceUsage": requests,
    }
    status = {
        "admission": {
            "clusterQueue": queues.gpu_cluster_queue,
            "podSetAssignments": [assigned],
        },
        "conditions": [
            condition("QuotaReserved", "QuotaReserved", begun),
            condition("Admitted", "Admitted", begun),
            condition("Finished", "Succeeded", ended),
        ],
        "schedulingStats": {
            "evictions": [{"reason": "NodeFailures", "underlyingCause": "", "count": evictions}]
        },
    }
    client.patch(
        paper.KUEUE, "Workload", "ended", {"status": status}, subresource="status", **place
    )


def condition(kind, reason, at):
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": "",
        "lastTransitionTime": f"{at:%Y-%m-%dT%H:%M:%SZ}",
    }
