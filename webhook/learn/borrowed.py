"""What a manager has recorded of runs in its worker clusters, for the forecasts of each of them.

MultiKueue deletes what has ended on a worker, but the manager's Workload tells from when to when it
ran, and in which cluster; only on which flavors there it does not tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

from webhook.kueue import multikueue
from webhook.learn.run_records import split_place
from webhook.model.forecasts import ENOUGH_RUNS, Estimates, RunTime
from webhook.model.queues import AdmissionCheck, ClusterQueue, Snapshot

NOTHING_LENT: Final[Mapping[str, RunTime]] = {}


def lent(
    recorded: Estimates,
    names: Iterable[str],
    cluster_queues: Mapping[str, ClusterQueue],
    checks: Mapping[str, AdmissionCheck],
) -> Mapping[str, Mapping[str, RunTime]]:
    """Choose what is known of each class in each cluster of *names*, else in any of them."""
    behind = multikueue.flavors_behind(Snapshot(cluster_queues=cluster_queues, checks=checks))
    found: dict[str, dict[str, RunTime]] = {"": {}, **{name: {} for name in names}}
    for (job_class, place), each in recorded.items():
        flavors, cluster = split_place(place)
        known = found.get(cluster)
        if known is not None and behind.issuperset(flavors.split(",")):
            known[job_class] = _surer(known.get(job_class), each)
    anywhere = found.pop("")
    return {
        name: {**anywhere, **{key: _own(each, anywhere.get(key)) for key, each in known.items()}}
        for name, known in found.items()
    }


def together(
    lent_here: Mapping[str, RunTime], own: Estimates, cluster_queues: Mapping[str, ClusterQueue]
) -> Estimates:
    """Let the manager's records stand for what was not seen in this cluster itself, or seldom."""
    groups = chain.from_iterable(queue.groups for queue in cluster_queues.values())
    flavors = {flavor for group in groups for flavor in group.flavors}
    borrowed = {(name, flavor): each for name, each in lent_here.items() for flavor in flavors}
    return {**borrowed, **{place: _own(each, borrowed.get(place)) for place, each in own.items()}}


def _own(own: RunTime, other: RunTime | None) -> RunTime:
    """Prefer what is nearer, unless it rests on a few runs and the other on more."""
    return own if other is None or own.runs >= ENOUGH_RUNS else _surer(own, other)


def _surer(one: RunTime | None, other: RunTime) -> RunTime:
    return other if one is None or one.runs < other.runs else one
