"""Whom Kueue would admit now, in which flavors: asked of the simulator that forecasts run on.

The one place where a played Kueue uses it. Nobody is preempted.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from webhook.kueue.queue_lines import PendingGroup
from webhook.kueue.quota import plant
from webhook.kueue.quota_holders import StartedWorkloads
from webhook.kueue.simulation import Running
from webhook.kueue.tree_workloads import (
    TreeWorkloads,
    filled,
    prepare,
)
from webhook.model.quantity import FlavorResource
from webhook.state.forecast_input import forecast_givens, queued, running_in
from webhook.state.snapshot import Snapshot
from webhook.state.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedWorkload:
    """One that gets quota in a scheduling cycle."""

    key: str
    """``namespace/name``"""
    cluster_queue: str
    usage: Mapping[FlavorResource, int]
    """In milli for cpu, in whole units for all else."""


def admitted_now(
    state: State, snapshot: Snapshot, unix: float, uids: Mapping[str, str]
) -> Iterator[AdmittedWorkload]:
    """Yield whom Kueue's next cycles admit, in order.

    *unix* is the snapshot's instant in seconds since 1970. *uids* are those of Workloads, by key:
    Kueue takes those of one second in their order.
    """
    clock = snapshot.as_of - unix
    running: defaultdict[str, list[Running]] = defaultdict(list)
    waiting: defaultdict[str, list[PendingGroup]] = defaultdict(list)
    for name in snapshot.setup.cluster_queues:
        contents = state.contents_of(name)
        running[name] += running_in(name, contents.holding, clock)
        groups = [group for group in contents.waiting if group.competes]
        waiting[name] += queued(groups, clock, lambda one: f"{one.namespace}/{one.name}")
    # How long anybody runs changes nothing about who starts now.
    case = forecast_givens(snapshot, lambda *_: None, snapshot.as_of)
    for tree in plant(snapshot.setup.cluster_queues, snapshot.setup.cohorts).trees:
        pending = [(name, group) for name in tree.leaves for group in waiting[name]]
        pending.sort(key=lambda placed: _age(placed[1], uids))
        holding = [run for name in tree.leaves for run in running[name]]
        cells = {index: cell for cell, index in tree.indices.items()}
        for started in _starts(prepare(case, tree, holding, pending)) if pending else ():
            usage = {cells[index]: amount for index, amount in started.usage}
            yield AdmittedWorkload(
                key=started.key, cluster_queue=started.cluster_queue, usage=usage
            )


def _age(group: PendingGroup, uids: Mapping[str, str]) -> tuple[int, str]:
    return group.created, uids[group.key]


def _starts(workloads: TreeWorkloads) -> Sequence[StartedWorkloads]:
    simulation = filled(workloads)
    simulation.step()
    return simulation.begun
