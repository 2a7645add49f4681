"""The Workloads of one cohort tree that hold quota in a simulation, and whom Kueue would preempt.

Where some policy of the tree lets Workloads preempt, each is told apart; else equal ones that start
together stay one. Nothing here knows of cycles, nor of time but as numbers to compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from webhook.kueue.preemption import (
    Candidate,
    PreemptionReason,
    Preemptions,
)
from webhook.kueue.queue_lines import QueueEntry
from webhook.kueue.quota import Taken, UsageTree
from webhook.model.queues import ClusterQueue, KueueConfig, QuotaHolder
from webhook.model.topologies import PlacedPods

_LAST = 1 << 53
"""Keys count down from here: of several that got quota at one time, the last is preempted first."""


# Not frozen, as a forecast makes one for each start, and that takes three times as long.
@dataclass(slots=True, kw_only=True, eq=False)
class StartedWorkloads:
    """Equal Workloads that got quota together, on the same flavors, and give it back together."""

    leaf: int
    usage: Taken
    """Of all of them together."""
    count: int
    variance: float
    """Of the run time of each one, in seconds squared."""
    at: float = -inf
    """When they started, in seconds since the beginning of the simulation; -inf: before it, and
    then their flavors are not known."""
    key: str
    cluster_queue: str
    flavors: tuple[str, ...] = ()
    """One for each part of the demand."""
    finish: float = inf
    """When they finish, or are expected to, in seconds since the beginning of the simulation."""
    spread: float = 0.0
    """Standard deviation of *at*, in seconds."""
    placed: tuple[PlacedPods, ...] = ()
    """Where their pods are in the domains of Topologies."""
    entry: QueueEntry | None = None
    """As what they waited, and wait again once they are preempted; None: it is not known."""
    local_queue: str = ""
    holder: QuotaHolder | None = None
    """As who they may be preempted, if they may."""
    preempted_at: float = inf
    """When their preemption was issued, in seconds since the beginning of the simulation; inf: it
    was not, and then the next two are not known."""
    preempted_for: PreemptionReason | None = None
    preempted_by: str = ""
    """The key of the Workload that preempts them."""

    @property
    def is_evicted(self) -> bool:
        """Whether they were preempted, and stop or have stopped."""
        return self.preempted_at < inf


class QuotaHolders:
    """Who holds quota in one tree in which some may preempt, each by itself."""

    def __init__(
        self, tree: UsageTree, queues: Mapping[int, ClusterQueue], kueue: KueueConfig
    ) -> None:
        """*queues* are those of the tree, by their node."""
        self.preemptions = Preemptions(
            tree,
            {leaf: queue.preemption for leaf, queue in queues.items()},
            strategies=kueue.preemption_strategies if kueue.fair_sharing else None,
        )
        """Whom of them a Workload would preempt."""
        self._groups: dict[str, StartedWorkloads] = {}
        """The group of each holder, by the holder's key."""
        self._serial = 0

    def hold(
        self,
        group: StartedWorkloads,
        *,
        priority: float,
        order: float,
        reserved_at: float,
        uid: str,
    ) -> None:
        """Note that a Workload holds quota; the caller charges the tree.

        *order* is its place by age among those that wait: the least is the oldest. It got its quota
        at *reserved_at*, in seconds since the beginning of the simulation. Kueue draws between
        equals by *uid*; empty: it is not known, and the last to start comes first.
        """
        self._serial += 1
        key = f"{_LAST - self._serial}"
        group.holder = QuotaHolder(
            key=key,
            leaf=group.leaf,
            taken=group.usage,
            priority=priority,
            reserved_at=reserved_at,
            queued_at=order,
            uid=uid or key,
            local_queue=group.local_queue,
        )
        self._groups[key] = group
        self.preemptions.add(group.holder)

    def release(self, group: StartedWorkloads) -> None:
        """Note that a Workload no longer holds quota; the caller releases it in the tree."""
        if group.holder is not None:
            self.preemptions.remove(group.holder)
            del self._groups[group.holder.key]
            group.holder = None

    def evict(self, victims: Iterable[Candidate]) -> list[StartedWorkloads]:
        """Let victims be evicted, and return those that are not already.

        They hold their quota until ``release``.
        """
        leaving = []
        for victim in victims:
            holder = victim.holder
            if holder.is_evicted:
                continue
            group = self._groups[holder.key]
            group.preempted_for = victim.reason
            self.preemptions.remove(holder)
            group.holder = holder._replace(is_evicted=True)
            self.preemptions.add(group.holder)
            leaving.append(group)
        return leaving
