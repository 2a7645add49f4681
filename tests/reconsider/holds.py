"""Held Jobs, a queue that they wait for, and prices by which a later hour is cheaper."""

from tests.builders import cluster_queue, snapshot
from webhook.model.costs.prices import Prices, curve
from webhook.model.holds import Hold
from webhook.model.policy.fallback_policy import read_policy
from webhook.reconsider.hold_plan import SLOT_SECONDS, HeldJob

HOUR = 3600.0
NOW = 500_000 * SLOT_SECONDS
GPU = ("t4", "nvidia.com/gpu")
DEAR, CHEAP = 3.0, 1.0


def prices(begin=2.0, end=6.0):
    """Return prices that are lower from *begin* to *end*, in hours from now."""
    steps = {NOW - HOUR: DEAR, NOW + begin * HOUR: CHEAP, NOW + end * HOUR: DEAR}
    return Prices(rates={GPU: curve(steps, NOW + 200 * HOUR)})


def holding(**hold):
    spec = {
        "match": {"jobSelector": {}},
        "mode": "Enforce",
        "options": [{"name": "gpu", "queue": "gpu-lq"}, {"name": "cpu", "queue": "cpu-lq"}],
        "strategy": {"type": "Cost", "cost": {"hold": hold} if hold is not None else {}},
    }
    return read_policy({"metadata": {"name": "p"}, "spec": spec})


def world(gpus=100, *, of_prices=None, policies=None, **rest):
    return snapshot(
        cluster_queue(quotas={"t4": {"nvidia.com/gpu": str(gpus), "cpu": "100"}}),
        local_queues={"gpu-lq": "gpu-cq"},
        policies=(holding(),) if policies is None else policies,
        prices={"": prices() if of_prices is None else of_prices},
        **rest,
    )


def held(name="a", *, until=2.0, latest=8.0, gpus=1, hours=1.0, **rest):
    hold = Hold(
        until=NOW + until * HOUR,
        latest=NOW + latest * HOUR,
        saves=2.0,
        of=3.0,
        seconds=hours * HOUR,
        usage={GPU: gpus},
        job_class="c",
    )
    given = {"namespace": "team", "version": "1", "queue": "gpu-lq", "policy": "p", "option": "gpu"}
    given["others"] = ""
    return HeldJob(**{**given, "name": name, "hold": hold, **rest})
