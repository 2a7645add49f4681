"""Whom a Workload would preempt of those whom a snapshot names; of others, whether it may.

The review's side of Kueue's preemption oracle: who holds quota is looked up when it is asked for.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption_oracle.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Protocol

from webhook.kueue.assignment import Level, oracle_by_counts
from webhook.kueue.cycle import MODES
from webhook.kueue.local_queue_use import use_of
from webhook.kueue.preemption import Preemptor, QuotaHolder
from webhook.kueue.preemptor import Preemptions
from webhook.kueue.quota import Taken, UsageTree
from webhook.model.queues import ANY, NEVER, ClusterQueue, Held, Reservation, Snapshot


class KnowsHolders(Protocol):
    """What is known of who holds quota; see ``Occupancy``."""

    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def reserved(self) -> Mapping[str, tuple[Reservation, ...]]: ...
    def held(self, cluster_queue: str) -> Held: ...


class PreemptionTargets:
    """Whom a Workload would preempt; who holds quota is looked up only if that is asked."""

    def __init__(
        self, occupancy: KnowsHolders, tree: UsageTree, queue: ClusterQueue, preemptor: Preemptor
    ) -> None:
        self._occupancy, self._tree, self._queue = occupancy, tree, queue
        self._preemptor = preemptor

    def possibility(self, cell: int, amount: int) -> Level:
        """Return what preempting can do for one cell, as Kueue's oracle does."""
        if self._preemptions is None:
            return self._by_counts(cell, amount)
        possible, height = self._preemptions.possibility(self._preemptor, cell, amount)
        return MODES[possible], height

    def victims(self, taken: Taken) -> int | None:
        """Count those that stop for this quota; None: it is not known who holds it."""
        found = self.targets(taken)
        return None if found is None else len(found)

    def targets(self, taken: Taken) -> Sequence[QuotaHolder] | None:
        """Return those that stop for this quota; None: it is not known who holds it."""
        if self._preemptions is None:
            return None
        available, leaf = self._tree.available, self._preemptor.leaf
        short = [cell for cell, amount in taken if available(leaf, cell) < amount]
        preemptor = replace(self._preemptor, taken=taken)
        return [victim.holder for victim in self._preemptions.targets(preemptor, short)]

    @cached_property
    def _preemptions(self) -> Preemptions | None:
        """Those who may be preempted; None: of some of them nothing is known but their number."""
        names = self._candidates()
        if not all(_are_known(self._occupancy, name) for name in names):
            return None
        snapshot, tree = self._occupancy.snapshot, self._tree.copy()
        use, is_fair = use_of(snapshot, tree), snapshot.kueue.fair_sharing
        return Preemptions(
            tree,
            {self._preemptor.leaf: self._queue.preemption},
            (holder for name in names for holder in self._holders(name)),
            strategies=snapshot.kueue.preemption_strategies if is_fair else None,
            queue_usages=use.amounts if use is not None else None,
        )

    def _candidates(self) -> list[str]:
        """Return the ClusterQueues of which Workloads may be preempted."""
        tree, policy = self._tree, self._queue.preemption
        names = [] if policy.within_cluster_queue == NEVER else [self._queue.name]
        if policy.reclaim_within_cohort != NEVER:
            leaves = tree.leaves.items()
            # Kueue reclaims only from those that use more than their quota.
            names += [
                name for name, leaf in leaves if name != self._queue.name and tree.borrows(leaf)
            ]
        return names

    def _holders(self, name: str) -> Iterator[QuotaHolder]:
        occupancy, preemptor, tree = self._occupancy, self._preemptor, self._tree
        policy, leaf = self._queue.preemption, tree.leaves[name]
        is_any = leaf != preemptor.leaf and policy.reclaim_within_cohort == ANY
        known = (*occupancy.snapshot.reserving.get(name, ()), *occupancy.reserved.get(name, ()))
        for reservation in known:
            if is_any or reservation.priority <= preemptor.priority:
                namespace = reservation.key.partition("/")[0]
                yield QuotaHolder(
                    key=reservation.key,
                    leaf=leaf,
                    taken=tree.taken(dict(reservation.charge)),
                    priority=reservation.priority,
                    reserved_at=reservation.reserved_at,
                    queued_at=reservation.queued_at,
                    is_evicted=reservation.is_evicted,
                    uid=reservation.uid,
                    local_queue=f"{namespace}/{reservation.local_queue}",
                )

    def _by_counts(self, cell: int, amount: int) -> Level:
        held = self._occupancy.held(self._queue.name)
        # Where the lowest priority is unknown, preemption cannot be ruled out.
        is_lower = held.lowest_priority is None or held.lowest_priority < self._preemptor.priority
        oracle = oracle_by_counts(
            self._tree,
            self._preemptor.leaf,
            self._queue,
            lower_holds=lambda: held.reserving > 0 and is_lower,
        )
        return oracle(cell, amount)


def _are_known(occupancy: KnowsHolders, name: str) -> bool:
    """Return whether the snapshot names who holds quota in a ClusterQueue, if only the first."""
    snapshot = occupancy.snapshot
    observed = occupancy.held(name).reserving - len(occupancy.reserved.get(name, ()))
    return not observed or name in snapshot.reserving
