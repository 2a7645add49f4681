"""What one ClusterQueue holds, kept up to date one Workload at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import TypeAlias, TypeVar

from webhook.cluster.reduce import Key
from webhook.cluster.workload import Workload
from webhook.model.queues import FlavorResource, Held, Stage

_Shape: TypeAlias = tuple[str, int, int]
_Key = TypeVar("_Key")


@dataclass(slots=True)
class Tally:
    """Counts of judged Workloads, and those that Kueue has not judged yet as they are.

    Every ``add`` is undone by a ``remove`` with the same values.
    """

    pending: int = 0
    reserving: int = 0
    usage: Counter[FlavorResource] = field(default_factory=Counter)
    guests: Counter[tuple[str, str]] = field(default_factory=Counter)
    priorities: Counter[int] = field(default_factory=Counter)
    """Of the reserving."""
    refused: Counter[_Shape] = field(default_factory=Counter)
    """Shapes of Workloads that Kueue has judged and left pending."""
    unjudged: dict[Key, Workload] = field(default_factory=dict)

    def add(self, key: Key, workload: Workload) -> None:
        if workload.stage is Stage.PENDING and not workload.judged:
            self.unjudged[key] = workload
        else:
            self._count(workload, 1)

    def remove(self, key: Key, workload: Workload) -> None:
        if workload.stage is Stage.PENDING and not workload.judged:
            del self.unjudged[key]
        else:
            self._count(workload, -1)

    def is_empty(self) -> bool:
        return not (self.pending or self.reserving or self.unjudged)

    def first_unjudged(self, limit: int, *, strict: bool) -> tuple[Workload, ...]:
        """List those that Kueue may give quota at its next look, oldest first.

        Not among them: any that stands behind a pending head, any like one that Kueue has just
        refused (it does not look at equal ones again), and those too far down the queue.
        """
        if strict and self.pending:
            return ()
        fresh = (w for w in self.unjudged.values() if not self.refused.get(_shape(w)))
        return tuple(nsmallest(limit, fresh, key=_age))

    def held(self, arrivals: tuple[Workload, ...]) -> Held:
        """Sum up; unjudged Workloads that are not among the *arrivals* are simply pending."""
        guests = Counter(self.guests)
        guests.update(_guest(w) for w in self.unjudged.values() if w.policy)
        guests.subtract(_guest(w) for w in arrivals if w.policy)
        waiting = len(self.unjudged) - len(arrivals)
        return Held(
            pending=self.pending + waiting,
            reserving=self.reserving,
            usage={cell: amount for cell, amount in self.usage.items() if amount},
            guests={guest: count for guest, count in guests.items() if count},
            lowest_priority=min(self.priorities, default=None),
        )

    def _count(self, workload: Workload, step: int) -> None:
        if workload.policy:
            _bump(self.guests, _guest(workload), step)
        if workload.stage is Stage.PENDING:
            self.pending += step
            _bump(self.refused, _shape(workload), step)
            return
        self.reserving += step
        _bump(self.priorities, workload.priority, step)
        for cell, amount in workload.charge:
            _bump(self.usage, cell, step * amount)


def _bump(counter: Counter[_Key], key: _Key, step: int) -> None:
    counter[key] += step
    if not counter[key]:
        del counter[key]


def _guest(workload: Workload) -> tuple[str, str]:
    return workload.policy, workload.option


def _shape(workload: Workload) -> _Shape:
    # By identity: equal shapes are one object, and hashing a pod template costs more than this.
    return workload.namespace, workload.priority, id(workload.pod_sets)


def _age(workload: Workload) -> tuple[int, str, str]:
    return workload.created, workload.namespace, workload.name
