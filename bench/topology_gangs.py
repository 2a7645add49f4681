"""Compare what gangs gain by asking for a rack: turnaround with no topology, Required and Auto.

usage: python -m bench.topology_gangs [--gangs N] [--seeds N]

Nothing but the pure code is run: Kueue's placing and our decisions, on a clock of its own. A gang
that is spread over racks of V100 takes twice as long, on P100 half as long again, and a P100 takes
1.29 times as long: what Gavel measured in geometric means of its models, consolidated against
unconsolidated (stanford-futuredata/gavel, `scheduler/simulation_throughputs.json`).
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean
from typing import Any, Final

from webhook.decide import match, options, strategies
from webhook.decide.applicant import Applicant, Moment
from webhook.kueue.flavor_plan import demand
from webhook.kueue.forecast import forecast
from webhook.kueue.queue_lines import PendingGroup, pending_group
from webhook.kueue.quota import UsageTree, plant
from webhook.kueue.quota_holders import StartedWorkloads
from webhook.kueue.requests import needs
from webhook.kueue.simulation import Running, Simulation
from webhook.kueue.topology_placement import SPREAD, level_of
from webhook.kueue.tree_workloads import domains_of
from webhook.model.forecasts import Basis, RunTime
from webhook.model.job import Job, PodSet, PodSets
from webhook.model.pods import EVERYTHING, Container, PodTemplate, Resources
from webhook.model.policy.fallback_policy import FallbackPolicy, read_policy
from webhook.model.queues import (
    Arrival,
    ClusterQueue,
    Held,
    LocalQueue,
    Quota,
    ResourceFlavor,
    ResourceGroup,
)
from webhook.model.topologies import HOSTNAME, PlacedPods, Topology, TopologyNode
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.forecast_input import forecast_givens
from webhook.state.snapshot import Snapshot, updated

GPU: Final = "nvidia.com/gpu"
RACK: Final = "example.com/rack"
RACKS, NODES, GPUS = 4, 8, 8
OLD_GPUS: Final = 128
SPREAD_FACTOR: Final = 2.0
OLD_FACTOR: Final = 1.29 * 1.5
MEDIAN_SECONDS: Final = 1800.0
LOADS: Final = (0.5, 0.7, 0.9)
REQUIRED: Final = "kueue.x-k8s.io/podset-required-topology"
ARMS: Final[Mapping[str, Sequence[Mapping[str, Any]]]] = {
    "none": [{"name": "any", "queue": "v100-lq"}],
    "all Required": [
        {
            "name": "rack",
            "queue": "v100-lq",
            "adaptation": {"topology": {"mode": "Required", "level": RACK}},
        }
    ],
    "Auto": [
        {
            "name": "rack",
            "queue": "v100-lq",
            "adaptation": {"topology": {"mode": "Auto", "level": RACK}},
        },
        {"name": "old", "queue": "p100-lq", "adaptation": {"topology": {"mode": "Remove"}}},
    ],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    number: int
    at: float
    pods: int
    seconds: float
    """In one rack of V100."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A gang where its decision sent it."""

    gang: Gang
    job: Job
    queue: str
    """The ClusterQueue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    gang: Gang
    at: float
    end: float
    queue: str
    usage: Mapping[tuple[str, str], int]
    placed: tuple[PlacedPods, ...]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.topology_gangs", description=__doc__)
    parser.add_argument("--gangs", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    print(f"{'load':>5} " + " ".join(f"{name:>14}" for name in ARMS))
    for load in LOADS:
        means = [
            fmean(played(options, drawn(seed, given.gangs, load)) for seed in range(given.seeds))
            for options in ARMS.values()
        ]
        print(f"{load:5.1f} " + " ".join(f"{mean / 60:10.1f} min" for mean in means), flush=True)


def drawn(seed: int, number: int, load: float) -> list[Gang]:
    """Draw gangs that keep so much of the V100 busy where each runs in one rack."""
    rng = random.Random(seed)  # noqa: S311 - a bench is to be the same each time
    mean_seconds = MEDIAN_SECONDS * 1.28  # of a lognormal with sigma 0.7
    mean_pods = 5.0
    apart = mean_pods * mean_seconds / (RACKS * NODES * load)
    at, gangs = 0.0, []
    for index in range(number):
        at += rng.expovariate(1 / apart)
        seconds = MEDIAN_SECONDS * rng.lognormvariate(0, 0.7)
        gangs.append(Gang(number=index, at=at, pods=rng.randint(2, NODES), seconds=seconds))
    return gangs


def played(options: Sequence[Mapping[str, Any]], gangs: Sequence[Gang]) -> float:
    """Return the mean turnaround of all gangs, in seconds."""
    return fmean(ended.end - ended.gang.at for ended in _World(options).play(gangs))


class _World:
    """Both queues, each with a simulation that knows the true run times."""

    def __init__(self, options: Sequence[Mapping[str, Any]]) -> None:
        self._options = options
        self._simulations = [
            _simulation(tree) for tree in plant(BARE.setup.cluster_queues, {}).trees
        ]
        self._waiting: dict[str, Sent] = {}
        self._running: dict[str, Started] = {}

    def play(self, gangs: Sequence[Gang]) -> Iterator[Started]:
        """Yield the gangs as they end."""
        for gang in gangs:
            yield from self._advance(gang.at)
            self._join(self._decided(gang))
        yield from self._advance(inf)

    def _advance(self, until: float) -> Iterator[Started]:
        for simulation in self._simulations:
            while simulation.next_event() < until:
                simulation.step()
                for begun in simulation.begun:
                    running = self._begin(begun, simulation.tree)
                    simulation.end(begun.key, running.end)
                simulation.begun.clear()
                yield from (self._running.pop(ended.key) for ended in simulation.ended)
                simulation.ended.clear()

    def _begin(self, begun: StartedWorkloads, tree: UsageTree) -> Started:
        sent = self._waiting.pop(begun.key)
        level = level_of(begun.placed, begun.flavors, BARE.setup)
        self._running[begun.key] = running = Started(
            gang=sent.gang,
            at=begun.at,
            end=begun.at + sent.gang.seconds * _factor(sent.queue, level),
            queue=sent.queue,
            usage=tree.amounts(begun.usage),
            placed=begun.placed,
        )
        return running

    def _join(self, sent: Sent) -> None:
        self._waiting[str(sent.gang.number)] = sent
        asked = needs(sent.job, BARE.cluster, BARE.setup.kueue)
        queue = BARE.setup.cluster_queues[sent.queue]
        waiting = PendingGroup(
            cluster_queue=sent.queue,
            demand=demand(asked, queue, BARE.setup),
            # Until it starts, and shows how it is placed.
            seconds=inf,
            at=sent.gang.at,
            key=str(sent.gang.number),
            needs=asked,
        )
        for simulation in self._simulations:
            simulation.add_waiting(waiting)

    def _decided(self, gang: Gang) -> Sent:
        job, policy = _job(gang), _policy(self._options)
        snapshot = self._snapshot(gang, policy)
        moment = Moment(now=gang.at, unix=gang.at, time="", uid=str(gang.number))
        applicant = Applicant(
            job=job,
            policy=policy,
            occupancy=occupancy_of(snapshot),
            submitted="v100-lq",
            moment=moment,
        )
        found = options.assess(applicant)
        choice = strategies.choose(applicant, found)
        taken = found[choice.index or 0]
        return Sent(gang=gang, job=taken.job or job, queue=taken.cluster_queue)

    def _snapshot(self, gang: Gang, policy: FallbackPolicy) -> Snapshot:
        snapshot = updated(
            BARE,
            as_of=gang.at,
            held={
                name: _held([one for one in self._running.values() if one.queue == name])
                for name in QUEUES
            },
        )
        key = match.class_of(_job(gang), policy, snapshot).key
        arrivals = {
            name: tuple(
                _arrival(sent, snapshot) for sent in self._waiting.values() if sent.queue == name
            )
            for name in QUEUES
        }
        known = {
            (key, f"v100#{RACK}"): _run(gang.seconds),
            (key, f"v100#{SPREAD}"): _run(gang.seconds * SPREAD_FACTOR),
            (key, "p100"): _run(gang.seconds * OLD_FACTOR),
        }
        snapshot = updated(snapshot, competing=arrivals, run_times=known)
        return replace(snapshot, forecasts=self._forecasts(snapshot, gang.at))

    def _forecasts(self, snapshot: Snapshot, now: float) -> Mapping[str, Any]:
        def run_time_of(job_class: str, _: str) -> RunTime | None:
            if (running := self._running.get(job_class)) is not None:
                return _run(running.end - running.at)
            sent = self._waiting.get(job_class)
            return _run(sent.gang.seconds * _factor(sent.queue, RACK)) if sent else None

        running = [
            Running(
                cluster_queue=one.queue,
                usage=one.usage,
                job_class=key,
                started_at=one.at,
                placed=one.placed,
            )
            for key, one in self._running.items()
        ]
        queued = [
            pending_group(arrival, job_class=arrival.key) for arrival in snapshot.workloads.arrivals
        ]
        return forecast(forecast_givens(snapshot, run_time_of, now), running, queued)


def _simulation(tree: UsageTree) -> Simulation:
    return Simulation(
        tree,
        BARE.setup.cluster_queues.values(),
        kueue=BARE.setup.kueue,
        domains=domains_of(forecast_givens(BARE, lambda *_: None, 0.0), tree),
    )


def _factor(queue: str, level: str) -> float:
    if queue == "p100-cq":
        return OLD_FACTOR
    return SPREAD_FACTOR if level == SPREAD else 1.0


def _run(seconds: float) -> RunTime:
    return RunTime(
        seconds=seconds, low=0.9 * seconds, high=1.1 * seconds, basis=Basis.LEARNED, runs=10
    )


def _held(running: Sequence[Started]) -> Held:
    usage: dict[tuple[str, str], int] = {}
    for one in running:
        for cell, amount in one.usage.items():
            usage[cell] = usage.get(cell, 0) + amount
    placed = tuple(pods for one in running for pods in one.placed)
    return Held(reserving=len(running), ready=len(running), usage=usage, placed=placed)


def _arrival(sent: Sent, snapshot: Snapshot) -> Arrival:
    return Arrival(
        key=str(sent.gang.number),
        namespace="team",
        local_queue=sent.queue.replace("-cq", "-lq"),
        needs=needs(sent.job, snapshot.cluster, snapshot.setup.kueue),
        created=int(sent.gang.at),
    )


def _job(gang: Gang) -> Job:
    amounts = {"cpu": "8", GPU: str(GPUS)}
    container = Container(
        name="main", image="train", resources=Resources(requests=amounts, limits={GPU: str(GPUS)})
    )
    pods = PodSet(name="main", count=gang.pods, template=PodTemplate(containers=(container,)))
    return Job(
        namespace="team",
        name=f"gang-{gang.number}",
        labels={"kueue.x-k8s.io/queue-name": "v100-lq"},
        pod_sets=PodSets((pods,)),
    )


def _policy(options: Sequence[Mapping[str, Any]]) -> FallbackPolicy:
    spec = {"match": {"jobSelector": {}}, "options": list(options)}
    return read_policy({"metadata": {"name": "gangs"}, "spec": spec})


def _queue(name: str, flavor: str, gpus: int) -> ClusterQueue:
    quotas = {(flavor, GPU): Quota(nominal=gpus), (flavor, "cpu"): Quota(nominal=10**7)}
    group = ResourceGroup(resources=("cpu", GPU), flavors=(flavor,), quotas=quotas)
    return ClusterQueue(name=name, groups=(group,), namespaces=EVERYTHING)


def _node(rack: int, index: int) -> TopologyNode:
    name = f"r{rack}-{index}"
    return TopologyNode(
        labels={RACK: f"r{rack}", HOSTNAME: name},
        allocatable={GPU: GPUS, "cpu": 96_000, "memory": 1 << 40, "pods": 110},
    )


QUEUES: Final = ("v100-cq", "p100-cq")
BARE: Final = updated(
    Snapshot(),
    cluster_queues={
        "v100-cq": _queue("v100-cq", "v100", RACKS * NODES * GPUS),
        "p100-cq": _queue("p100-cq", "p100", OLD_GPUS),
    },
    local_queues={
        ("team", f"{name}-lq"): LocalQueue(
            namespace="team", name=f"{name}-lq", cluster_queue=f"{name}-cq"
        )
        for name in ("v100", "p100")
    },
    flavors={
        "v100": ResourceFlavor(name="v100", topology="racks"),
        "p100": ResourceFlavor(name="p100"),
    },
    topologies={
        "racks": Topology(
            name="racks",
            levels=(RACK, HOSTNAME),
            nodes=tuple(_node(rack, index) for rack in range(RACKS) for index in range(NODES)),
        )
    },
    generation=1,
)


if __name__ == "__main__":
    main()
