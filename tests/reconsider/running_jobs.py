"""Running Jobs that can go on from a checkpoint, in two queues of which one is cheaper."""

from dataclasses import replace

from tests.builders import policy
from tests.reconsider.queued_jobs import NOW, lane, pending, time
from tests.state.objects import cluster_queue, condition, named, reserving
from webhook.api import resources as kinds
from webhook.decide.wishes import CHECKPOINT
from webhook.model.costs.prices import Prices, curve
from webhook.model.reasons import Obstacle
from webhook.reconsider import advice
from webhook.reconsider.choose import by_job
from webhook.reconsider.offers import ReconsiderInput
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.forecast_input import with_forecasts
from webhook.state.snapshot import updated
from webhook.state.state import State

HOUR = 3600
RATES = {"gpu": 10.0, "cpu": 1.0}
"""Of four cores for an hour, by option."""
OPTIONS = (
    {"name": "gpu", "queue": "gpu-lq"},
    {"name": "cpu", "queue": "cpu-lq", "slowdown": 2},
)


def by_cost(*options, mode="Enforce", percent=10, **cost):
    rules = {"runTime": "4h", "timeValue": "0.5", "minimumSaving": {"percent": percent}, **cost}
    strategy = {"type": "Cost", "cost": rules}
    return policy(*(options or OPTIONS), mode=mode, strategy=strategy)


def running(number=0, *, option="gpu", hours=1.0, **rest):
    admitted = {**condition("Admitted"), "lastTransitionTime": time(hours * HOUR)}
    also = (admitted, *rest.pop("also", ()))
    return reserving(
        f"wl-{number}",
        job=f"job-{number}",
        to=f"{option}-cq",
        queue=f"{option}-lq",
        guest=("light-gpu", option),
        also=also,
        cpu="4",
        **rest,
    )


def resuming(number=0, *, option="gpu", annotations=None, **rest):
    rest = {"age": 2 * HOUR, "obstacle": Obstacle.NOT_SUSPENDED, **rest}
    found = pending(number, option=option, **rest)
    said = {CHECKPOINT: "10m"} if annotations is None else annotations
    return replace(found, job=replace(found.job, annotations=said))


def queue(name):
    found = cluster_queue(f"{name}-cq", cpu="8")
    found["spec"]["resourceGroups"][0]["flavors"][0]["name"] = name
    return found


def prices(rates):
    forever = NOW + 10_000 * HOUR
    return {
        "": Prices(
            rates={
                (name, "cpu"): curve({NOW - 10_000 * HOUR: rate / 4}, forever)
                for name, rate in rates.items()
            }
        )
    }


def advised(jobs, workloads, *, policies=None, rates=RATES, others=()):
    state = State()
    state.replace(kinds.CLUSTER_QUEUES, [queue("gpu"), queue("cpu")])
    state.replace(kinds.LOCAL_QUEUES, [lane("gpu"), lane("cpu")])
    state.replace(kinds.FLAVORS, [named("ResourceFlavor", name, spec={}) for name in RATES])
    placed = [on_flavor(each) for each in (*workloads, *others)]
    state.replace(kinds.WORKLOADS, placed)
    snapshot = updated(
        state.snapshot(0.0, NOW),
        policies=policies or (by_cost(),),
        prices=prices(rates),
        generation=1,
    )
    snapshot = replace(snapshot, forecasts=with_forecasts(state, snapshot, NOW).forecasts)
    world = ReconsiderInput(
        snapshot=snapshot,
        contents={},
        workloads=by_job(state.workloads()),
        now=0.0,
        unix=NOW,
    )
    return advice.advise(jobs, world, occupancy_of(snapshot, ()))


def on_flavor(source):
    for assignment in source["status"].get("admission", {}).get("podSetAssignments", ()):
        name = source["status"]["admission"]["clusterQueue"].removesuffix("-cq")
        assignment["flavors"] = {"cpu": name}
    return source
