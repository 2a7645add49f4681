"""What admission would know at a moment of a replay: an Occupancy that follows joins, starts, ends.

Whoever is pending after a look does not fit, so the pending are counted and not folded again; only
the heads for which quota is set aside are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from webhook.kueue import folding
from webhook.kueue.occupancy import Occupancy
from webhook.model.queues import Amounts, Arrival, FlavorResource, Guest, Held, Queueing, Snapshot


@dataclass(slots=True)
class _Tally:
    """What one ClusterQueue holds."""

    pending: int = 0
    reserving: int = 0
    usage: Counter[FlavorResource] = field(default_factory=Counter)
    guests: Counter[Guest] = field(default_factory=Counter)
    priorities: Counter[int] = field(default_factory=Counter)
    """Of the reserving."""

    def held(self) -> Held:
        return Held(
            pending=self.pending,
            reserving=self.reserving,
            usage={cell: amount for cell, amount in self.usage.items() if amount},
            guests=dict(+self.guests),
            lowest_priority=min(+self.priorities, default=None),
        )


class Known:
    """Counts of all ClusterQueues, and the Occupancy that they come to."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._view = folding.build(snapshot)
        self._tallies = {name: _Tally() for name in snapshot.cluster_queues}
        self._changed: set[str] = set()
        self._with_heads = frozenset(
            name
            for name, queue in snapshot.cluster_queues.items()
            if queue.queueing is Queueing.STRICT
        )

    @property
    def sets_aside(self) -> bool:
        """Tell whether there are StrictFIFO queues, whose heads may keep others out."""
        return bool(self._with_heads)

    def join(self, cluster_queue: str, arrival: Arrival) -> None:
        """Count a Workload as pending."""
        tally = self._tally(cluster_queue)
        tally.pending += 1
        if arrival.policy:
            tally.guests[arrival.policy, arrival.option, arrival.namespace] += 1

    def leave(self, cluster_queue: str, arrival: Arrival) -> None:
        """Count a pending Workload no more: it is moved."""
        tally = self._tally(cluster_queue)
        tally.pending -= 1
        if arrival.policy:
            tally.guests[arrival.policy, arrival.option, arrival.namespace] -= 1

    def start(self, cluster_queue: str, arrival: Arrival, usage: Amounts) -> None:
        """Let a pending Workload reserve quota."""
        tally = self._tally(cluster_queue)
        tally.pending -= 1
        tally.reserving += 1
        tally.usage.update(usage)
        tally.priorities[arrival.priority] += 1

    def end(self, cluster_queue: str, arrival: Arrival, usage: Amounts) -> None:
        """Let a Workload release its quota and go."""
        tally = self._tally(cluster_queue)
        tally.reserving -= 1
        tally.usage.subtract(usage)
        tally.priorities[arrival.priority] -= 1
        if arrival.policy:
            tally.guests[arrival.policy, arrival.option, arrival.namespace] -= 1

    def at(self, snapshot: Snapshot, heads: Mapping[str, Arrival]) -> Occupancy:
        """Fold what has changed; *snapshot* says the rest.

        *heads*: who waits first in StrictFIFO ClusterQueues that start anybody.
        """
        names = self._changed | self._with_heads
        held = {**self._view.snapshot.held}
        for name in names:
            found = self._tallies[name].held()
            held[name] = replace(found, pending=0) if name in heads else found
        snapshot = replace(snapshot, held=held)
        view = folding.as_held(replace(self._view, snapshot=snapshot), names)
        self._changed.clear()
        for name, head in heads.items():
            pending = self._tallies[name].pending
            # Whose policy's guests they are is counted already.
            alike = replace(head, policy="", option="", count=pending)
            view = folding.with_waiting(view, alike)
        self._view = view
        return view

    def _tally(self, name: str) -> _Tally:
        self._changed.add(name)
        return self._tallies[name]
