"""Measure what forecasts cost: CPU seconds for whole forecasts, milliseconds for lookups.

usage: python -m bench.event_loop [--repeat N]

Nothing but the pure code is run: no control plane is needed.
"""

import argparse
import gc
import pickle
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from webhook.kueue.flavor_plan import demand
from webhook.kueue.forecast import forecast
from webhook.kueue.newcomer import Newcomer
from webhook.kueue.queue_lines import PendingGroup, pending_group
from webhook.kueue.simulation import Running
from webhook.kueue.tree_forecast import TreeForecast, start_of
from webhook.model.forecasts import Basis, RunTime
from webhook.model.pods import EVERYTHING, PodTemplate
from webhook.model.queues import (
    Arrival,
    ClusterQueue,
    Cohort,
    KueueConfig,
    LocalQueue,
    PodSetNeeds,
    Preemption,
    Queueing,
    Quota,
    ResourceFlavor,
    ResourceGroup,
)
from webhook.state.forecast_input import forecast_givens
from webhook.state.snapshot import Snapshot, updated

PENDING: Final = 20_000
PENDING_AT_LOOKUPS: Final = (0, 50, 500, 5_000)
QUEUES: Final = 200
PRIORITIES: Final = (0, 100, 1000)
GPU: Final = "nvidia.com/gpu"
NEEDS: Final = tuple(
    (
        PodSetNeeds(
            name="main",
            count=1,
            per_pod={"cpu": 4000 * n, GPU: n},
            template=PodTemplate(),
        ),
    )
    for n in (1, 2, 4, 8)
)
CLASSES: Final = tuple(f"class-{n}" for n in range(20))
_RANDOM: Final = random.Random(7)  # noqa: S311 - a bench is to be the same each time
RUN_TIMES: Final = {
    name: RunTime(seconds=seconds, low=0.6 * seconds, high=1.6 * seconds, basis=Basis.LEARNED)
    for name in CLASSES
    for seconds in (_RANDOM.uniform(30, 3600),)
}


class World(NamedTuple):
    snapshot: Snapshot
    running: list[Running]
    waiting: list[PendingGroup]


def flat() -> World:
    """One cohort of all queues."""
    return _world(QUEUES, lambda _: "all", {"all": Cohort(name="all")}, gpus=16)


def tree() -> World:
    """Three levels: queues, teams, the whole."""
    teams = {f"team-{n}": Cohort(name=f"team-{n}", parent="all") for n in range(20)}
    cohorts = {**teams, "all": Cohort(name="all")}
    return _world(QUEUES, lambda index: f"team-{index % 20}", cohorts, gpus=16)


def alone() -> World:
    return _world(QUEUES, lambda _: "", {}, gpus=16)


def one() -> World:
    return _world(1, lambda _: "", {}, gpus=256)


def small() -> World:
    """One queue of four GPUs in which everybody waits."""
    return _world(1, lambda _: "", {}, gpus=8)


def strict() -> World:
    return _world(1, lambda _: "", {}, gpus=256, queueing=Queueing.STRICT)


def preempting() -> World:
    """Three levels in which half wait at the lowest of three priorities, and may be preempted."""
    world = tree()
    policy = Preemption(within_cluster_queue="LowerPriority", reclaim_within_cohort="Any")
    queues = {
        name: replace(queue, preemption=policy)
        for name, queue in world.snapshot.setup.cluster_queues.items()
    }
    priorities = {str(priority): priority for priority in PRIORITIES}
    return World(
        updated(world.snapshot, cluster_queues=queues, priority_classes=priorities),
        [replace(each, priority=_priority(), created=1) for each in world.running],
        [replace(each, priority=_priority(), created=2) for each in world.waiting],
    )


def _priority() -> int:
    return _RANDOM.choices(PRIORITIES, (5, 3, 2))[0]


def fair() -> World:
    """One cohort of all queues, shared fairly."""
    world = flat()
    return world._replace(snapshot=updated(world.snapshot, kueue=KueueConfig(fair_sharing=True)))


def limited() -> World:
    """One cohort in which each queue lends half and borrows as much."""
    return _world(QUEUES, lambda _: "all", {"all": Cohort(name="all")}, gpus=16, limit=8)


def _world(
    queues: int,
    cohort_of: Callable[[int], str],
    cohorts: Mapping[str, Cohort],
    *,
    gpus: int,
    queueing: Queueing = Queueing.BEST_EFFORT,
    limit: int | None = None,
) -> World:
    names = [f"cq-{index}" for index in range(queues)]
    snapshot = updated(
        Snapshot(),
        cluster_queues={
            name: _queue(name, cohort_of(index), gpus, queueing, limit)
            for index, name in enumerate(names)
        },
        local_queues={
            ("team", name): LocalQueue(namespace="team", name=name, cluster_queue=name)
            for name in names
        },
        cohorts=cohorts,
        flavors={"t4": ResourceFlavor(name="t4")},
    )
    running = [
        Running(
            cluster_queue=name,
            usage={("t4", "cpu"): 4000, ("t4", GPU): 1},
            job_class=_RANDOM.choice(CLASSES),
            started_at=-_RANDOM.uniform(0, 600),
        )
        for name in names
        for _ in range(gpus)
    ]
    return World(snapshot, running, [_queued(_RANDOM.choice(names)) for _ in range(PENDING)])


def _queue(
    name: str, cohort: str, gpus: int, queueing: Queueing, limit: int | None
) -> ClusterQueue:
    amounts = {"cpu": 4000 * gpus, GPU: gpus}
    quotas = {
        ("t4", resource): Quota(
            nominal=amount,
            borrowing_limit=None if limit is None else limit * amount // gpus,
            lending_limit=None if limit is None else limit * amount // gpus,
        )
        for resource, amount in amounts.items()
    }
    group = ResourceGroup(resources=("cpu", GPU), flavors=("t4",), quotas=quotas)
    return ClusterQueue(
        name=name, cohort=cohort, groups=(group,), namespaces=EVERYTHING, queueing=queueing
    )


def _queued(name: str) -> PendingGroup:
    needs = _RANDOM.choices(NEEDS, (8, 4, 2, 1))[0]
    arrival = Arrival(key="", namespace="team", local_queue=name, needs=needs)
    return pending_group(arrival, job_class=_RANDOM.choice(CLASSES))


WORLDS: Final = {
    "200 queues alone": alone,
    "one queue, 256 GPUs": one,
    "one queue, 8 GPUs": small,
    "one StrictFIFO queue": strict,
    "a flat cohort of 200": flat,
    "three levels of 200": tree,
    "a cohort with limits": limited,
    "three levels, preempting": preempting,
    "a fair cohort of 200": fair,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    # As the observer does after its first sync.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    for name in WORLDS:
        found = measure(name, repeat)
        print(
            f"{name:26} {found['forecast']:6.2f} s CPU, {found['lookup']:6.2f} ms a lookup, "
            f"{found['megabytes']:5.1f} MB to send"
        )
    for pending in PENDING_AT_LOOKUPS:
        world = small()
        lookup = _lookup(_timed(world._replace(waiting=world.waiting[:pending]))[1], world, repeat)
        print(f"{pending:6} pending in one queue: {lookup:6.2f} ms a lookup")


def measure(name: str, repeat: int = 3) -> Mapping[str, float]:
    """Return the CPU seconds of a forecast, the milliseconds of a lookup, and its size."""
    world = WORLDS[name]()
    _, forecasts = _timed(world)
    # Those of one tree share their forecast, as in what the observer sends.
    sent = pickle.dumps(list({id(each): each for each in forecasts.values()}.values()), -1)
    return {
        "forecast": _best(world, repeat),
        "lookup": _lookup(forecasts, world, repeat),
        "megabytes": len(sent) / 1e6,
    }


def _lookup(forecasts: Mapping[str, TreeForecast], world: World, repeat: int) -> float:
    """Return the milliseconds of one lookup, in the forecast with the most cycles."""
    name, forecast = max(forecasts.items(), key=lambda item: len(item[1].log.times))
    queue = world.snapshot.setup.cluster_queues[name]
    setup = world.snapshot.setup
    asked = Newcomer(queue=queue, demand=demand(NEEDS[2], queue, setup), setup=setup)
    number = 10 * repeat
    begin = time.process_time()
    for _ in range(number):
        start_of(forecast, asked)
    return (time.process_time() - begin) / number * 1e3


def _best(world: World, repeat: int) -> float:
    return min(_timed(world)[0] for _ in range(repeat))


def _timed(world: World) -> tuple[float, Mapping[str, TreeForecast]]:
    begin = time.process_time()
    found = forecast(
        forecast_givens(world.snapshot, lambda name, _: RUN_TIMES.get(name), 0.0),
        world.running,
        world.waiting,
    )
    return time.process_time() - begin, found


if __name__ == "__main__":
    main()
