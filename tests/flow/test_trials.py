"""A burst of Jobs whose runs elsewhere are a guess: one is tried, the others wait for it."""

from __future__ import annotations

from tests.builders import cluster_queue, foreseen, policy, snapshot
from webhook.decide.applicant import Moment
from webhook.flow import create
from webhook.jobs import BY_NAME
from webhook.model.costs.devices import Device
from webhook.model.costs.prices import Prices, curve
from webhook.state import counted_arrivals
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.snapshot import updated

GPU = "nvidia.com/gpu"
FAST = Device(name="fast", bandwidth=2000.0, compute={"bf16": 300.0})
SLOW = Device(name="slow", bandwidth=1000.0, compute={"bf16": 150.0})


def world():
    """Return two queues of GPUs; those of the second are half as fast and far cheaper."""
    flat = {
        cell: curve({0.0: rate}, 1e9) for cell, rate in ((("fast", GPU), 9.0), (("slow", GPU), 1.0))
    }
    strategy = {"type": "Cost", "cost": {"runTime": "1h", "timeValue": "1"}}
    options = [{"name": name, "queue": f"{name}-lq"} for name in ("fast", "slow")]
    queues = [
        cluster_queue(f"{name}-cq", {name: {"cpu": "64", GPU: "8"}}) for name in ("fast", "slow")
    ]
    known = snapshot(*queues, policies=(policy(*options, name="tiers", strategy=strategy),))
    prices = Prices(rates=flat, devices={"fast": FAST, "slow": SLOW})
    return occupancy_of(updated(foreseen(known), prices={"": prices}))


def manifest(name, image="train"):
    resources = {"requests": {"cpu": "1", GPU: "1"}, "limits": {GPU: "1"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "team",
            "labels": {"kueue.x-k8s.io/queue-name": "fast-lq"},
        },
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": image, "resources": resources}],
                }
            }
        },
    }


def decided(view, number, **job_of):
    """Decide one Job, and return the view with its placement beside the option."""
    moment = Moment(now=0.0, unix=1e6, time="1970-01-12T13:46:40Z", uid=f"{number}" * 12)
    source = manifest(f"job-{number}", **job_of)
    outcome = create.consider(source, BY_NAME["Job"], view, moment, create.Rules())
    return counted_arrivals.with_arrival(view, outcome.arrival), outcome.decision


def test_of_a_burst_one_is_tried_and_the_others_go_where_runs_are_known():
    view, options = world(), []

    for number in range(1, 4):
        view, decision = decided(view, number)
        options.append(decision.option)

    assert options == ["slow", "fast", "fast"]
    assert str(decision.options[1].rejection) == (
        "onTrial: its run is a guess by the devices' speed, and 1 of its class are there already"
        " (at most 1 on trial)"
    )


def test_another_class_is_tried_beside_it():
    view, _ = decided(world(), 1)

    _, decision = decided(view, 2, image="another")

    assert decision.option == "slow"
