"""Say how far each ClusterQueue and cohort has borrowed, and order who is served by it.

Mirrors Kueue's fair sharing between ClusterQueues (dominant resource share with weights) and
between the LocalQueues of one (admission fair sharing: what they have used of late). Preemption is
not known here.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/fair_sharing.go
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/queue/afs
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, Protocol, TypeAlias, TypeVar

from webhook.kueue.queue_lines import QueueEntry
from webhook.kueue.quota import Taken, UsageTree
from webhook.model import quantity
from webhook.model.queues import AdmissionFairSharing
from webhook.model.snapshot_parts import KueueSetup

_MILLI = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A node's dominant resource share (Kueue's ``DRS``)."""

    ratio: float
    """What it borrows of its dominant resource, in thousandths of what its parent can lend."""
    weight: float
    borrowed: tuple[int, ...] = ()
    """The cells of which it uses more than its quota."""

    @property
    def rank(self) -> tuple[bool, float]:
        """Sort as Kueue's ``CompareDRS``: the lowest is served first, the highest preempted."""
        # A node of weight 0 that borrows comes after all others; its ratio ranks it among its kind.
        # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/go#L112
        if self.ratio == 0:
            return False, 0.0
        return (False, self.ratio / self.weight) if self.weight else (True, self.ratio)


def share(tree: UsageTree, node: int, added: Taken = ()) -> Share:
    """Return the dominant resource share of a node, with *added* to its own usage."""
    # ``dominantResourceShare``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/go#L149
    weight, parent = tree.weights[node], tree.parents[node]
    if parent < 0:
        return Share(ratio=0.0, weight=weight)
    first, used, subtree = node * tree.width, tree.used, tree.subtree
    more = dict(added)
    borrowed: list[int] = []
    by_resource: dict[str, int] = {}
    for cell in tree.offered[node]:
        over = used[first + cell] + more.get(cell, 0) - subtree[first + cell]
        if over > 0:
            resource = tree.cells[cell][1]
            borrowed.append(cell)
            by_resource[resource] = by_resource.get(resource, 0) + over
    ratio = _dominant_ratio(tree, parent, by_resource) if borrowed else 0.0
    return Share(ratio=ratio, weight=weight, borrowed=tuple(borrowed))


def _dominant_ratio(tree: UsageTree, parent: int, by_resource: Mapping[str, int]) -> float:
    # All flavors of a resource count together (``calculateLendable``).
    lendable = dict.fromkeys(by_resource, 0)
    first = parent * tree.width
    for cell, (_, resource) in enumerate(tree.cells):
        if resource in lendable:
            lendable[resource] += tree.potentials[first + cell]
    # In this order of operations, so that what is a tie for Kueue's floats is one here.
    ratios = (
        over * 1000.0 / lendable[resource]
        for resource, over in by_resource.items()
        if lendable[resource] > 0
    )
    return max(ratios, default=0.0)


class Entry(Protocol):
    """The head of a ClusterQueue, with the flavors that it was assigned."""

    @property
    def leaf(self) -> int: ...
    @property
    def taken(self) -> Taken: ...
    @property
    def priority(self) -> float: ...
    @property
    def queued_at(self) -> float: ...


ShareRank: TypeAlias = "tuple[bool, tuple[bool, float]]"
"""Whether a node would borrow what somebody asks for, and its ``Share.rank`` then."""
EntryT = TypeVar("EntryT", bound=Entry)
_Key: TypeAlias = "tuple[ShareRank, float, float]"
"""A node's share, then the negated priority and the age of whoever asks."""


def shares_with(tree: UsageTree, leaf: int, taken: Taken) -> tuple[ShareRank, ...]:
    """Return the shares on a ClusterQueue's path if it used *taken* more, its own first."""
    cells = {cell for cell, amount in taken if amount > 0}
    tree.charge(leaf, taken)
    shares = [share(tree, node) for node in tree.path(leaf)]
    tree.charge(leaf, taken, -1)
    return tuple((not cells.isdisjoint(found.borrowed), found.rank) for found in shares)


class Tournament(Generic[EntryT]):
    """The order in which a cycle serves the heads of a tree, one of each ClusterQueue at a time.

    Between two calls of ``pop``, only usage of the last winner's ClusterQueue may change.
    """

    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/fair_sharing_iterator.go

    def __init__(self, tree: UsageTree, entries: Iterable[EntryT]) -> None:
        self._tree = tree
        self._entries = {entry.leaf: entry for entry in entries}
        self._paths = {leaf: tuple(tree.path(leaf)) for leaf in self._entries}
        self._children: dict[int, set[int]] = {}
        for path in self._paths.values():
            for child, parent in pairwise(path):
                self._children.setdefault(parent, set()).add(child)
        self._keys: dict[int, Mapping[int, _Key]] = {}
        """By leaf, then by node on its path: how the node does there with the leaf's entry."""
        self._winners: dict[int, int | None] = {}
        """Cohort to the leaf whose entry it nominates, as long as that is known."""
        self._last: tuple[int, Sequence[int]] | None = None
        """The last winner's leaf, and the usage below its root when it won."""

    def pop(self) -> EntryT | None:
        """Take out the entry that is served next; None: there is none left."""
        if self._last and self._usage(self._last[0]) != self._last[1]:
            self._forget_shares(self._last[0])
        root = next((path[-1] for path in self._paths.values()), None)
        leaf = None if root is None else self._winner(root)
        if leaf is None:
            return None
        for node in self._paths[leaf]:
            self._winners.pop(node, None)
        self._last = leaf, self._usage(leaf)
        return self._entries.pop(leaf)

    def add(self, entry: EntryT) -> None:
        """Let another entry of the last winner's ClusterQueue compete."""
        self._entries[entry.leaf] = entry
        self._keys.pop(entry.leaf, None)

    def _winner(self, node: int) -> int | None:
        if node not in self._children:
            return node if node in self._entries else None
        if node not in self._winners:
            nominated = self._nominated(node)
            self._winners[node] = min(nominated)[2] if nominated else None
        return self._winners[node]

    def _nominated(self, node: int) -> list[tuple[_Key, int, int]]:
        """Return whom a cohort's children nominate: keys, children, leaves."""
        # Cohorts have lower indices than ClusterQueues and so win ties, as in Kueue.
        return [
            (self._key(leaf, child), child, leaf)
            for child in self._children.get(node, ())
            if (leaf := self._winner(child)) is not None
        ]

    def _key(self, leaf: int, node: int) -> _Key:
        keys = self._keys.get(leaf)
        if keys is None:
            keys = self._keys[leaf] = self._keys_of(self._entries[leaf])
        return keys[node]

    def _keys_of(self, entry: EntryT) -> Mapping[int, _Key]:
        """Rank each node on the entry's path as if the entry had its quota."""
        shares = shares_with(self._tree, entry.leaf, entry.taken)
        return {
            node: (own_share, -entry.priority, entry.queued_at)
            for node, own_share in zip(self._paths[entry.leaf], shares, strict=True)
        }

    def _usage(self, leaf: int) -> Sequence[int]:
        tree = self._tree
        return [
            used
            for node in self._paths[leaf][:-1]
            for used in tree.used[node * tree.width : (node + 1) * tree.width]
        ]

    def _forget_shares(self, winner: int) -> None:
        """Forget what the winner's reservation has changed: shares below its root."""
        changed = set(self._paths[winner][:-1])
        for leaf, path in self._paths.items():
            if not changed.isdisjoint(path):
                self._keys.pop(leaf, None)
                for node in path:
                    self._winners.pop(node, None)


def queue_usage(
    consumed: Mapping[str, float],
    *,
    weight: float,
    resource_weights: Mapping[str, float],
    weightless_last: bool = True,
) -> float:
    """Return the usage by which a LocalQueue is ordered; the lowest is served first.

    *consumed* is by resource, penalties included; like Kueue's, it is in CPUs, bytes and devices.
    *weightless_last* as in ``KueueRelease``.
    """
    # ``CalculateUsage``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/util/admissionfairsharing/admission_fair_sharing.go#L86
    amounts = (resource_weights.get(name, 1.0) * consumed[name] for name in sorted(consumed))
    used = sum(amounts)
    if weight <= 0:
        # Releases that do not put it last divide 0 by 0, and Go sorts NaN before all numbers.
        return math.inf if used or weightless_last else -math.inf
    return used / weight


def decayed(
    consumed: Mapping[str, float], used: Mapping[str, float], *, elapsed: float, half_life: float
) -> Mapping[str, float]:
    """Return what a LocalQueue has consumed, after *elapsed* seconds of using *used*."""
    # Without a half-life Kueue resets it each time (``reconcileConsumedUsage``):
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/core/localqueue_controller.go#L394
    if not half_life:
        return {}
    rate = _rate(elapsed, half_life)
    return {
        name: consumed.get(name, 0) * (1 - rate) + used.get(name, 0) * rate
        for name in {**consumed, **used}
    }


def entry_penalty(
    requests: Mapping[str, float], *, sampling: float, half_life: float
) -> Mapping[str, float]:
    """Return what a LocalQueue is charged when one of its Workloads reserves quota."""
    # ``CalculateEntryPenalty``
    rate = _rate(sampling, half_life)
    return {name: amount * rate for name, amount in requests.items()}


def in_whole_units(amounts: Mapping[str, int]) -> Mapping[str, float]:
    """Convert amounts as in ``model.quantity`` to those in which Kueue counts consumption."""
    return {
        name: amount / _MILLI if name == quantity.CPU else float(amount)
        for name, amount in amounts.items()
    }


def _rate(seconds: float, half_life: float) -> float:
    # ``calculateAlphaRate``
    return 1 - 0.5 ** (seconds / half_life) if half_life else 0.0


class LocalQueueUse:
    """What LocalQueues have used of late, by which they are ordered; others have used nothing.

    Kueue settles it when a Workload is admitted, and at intervals.
    """

    def __init__(
        self,
        tree: UsageTree,
        rules: AdmissionFairSharing,
        consumed: Mapping[str, Mapping[str, float]],
        weigh: Callable[[Mapping[str, float], str], float],
        settled: Mapping[str, float] | None = None,
        cluster_queues: Mapping[str, str] | None = None,
    ) -> None:
        """Begin with what LocalQueues (``namespace/name``) have *consumed*, by resource.

        *weigh* is how Kueue weighs it. *settled* is when, in seconds since the beginning; 0
        where nothing is said. *cluster_queues* are theirs, where newcomers are told apart.
        """
        self.cluster_queues = cluster_queues or {}
        self.amounts = {name: weigh(amounts, name) for name, amounts in consumed.items()}
        """LocalQueue to its use, as Kueue weighs it: the least is served first."""
        self.now = 0.0
        """In seconds since the beginning."""
        self._tree, self._rules, self._weigh = tree, rules, weigh
        self._consumed = dict(consumed)
        self._settled = {name: (settled or {}).get(name, 0.0) for name in consumed}
        self._held: dict[str, Counter[str]] = {name: Counter() for name in consumed}

    def of(self, entry: QueueEntry) -> float:
        return self.amounts.get(entry.waiting.local_queue, 0.0)

    def hold(self, name: str, taken: Taken, sign: int) -> None:
        """Note that Workloads of a LocalQueue get quota, or give it back."""
        if name in self._held:
            for resource, amount in self._requests(taken).items():
                self._held[name][resource] += sign * amount

    def admit(self, entry: QueueEntry, taken: Taken, count: int) -> None:
        """Note that one of its Workloads gets quota."""
        name, rules = entry.waiting.local_queue, self._rules
        if name not in self.amounts:
            return
        for _ in range(count):
            self.hold(name, taken, 1)
        charged = entry_penalty(
            in_whole_units(self._requests(taken)),
            sampling=rules.sampling_seconds,
            half_life=rules.half_life_seconds,
        )
        consumed = dict(self._decayed(name, self.now - self._settled[name]))
        for resource, amount in charged.items():
            consumed[resource] = consumed.get(resource, 0.0) + count * amount
        self._settle(name, consumed, self.now)

    def advance(self, now: float) -> None:
        """Let time pass, and settle what is due by then."""
        self.now = now
        interval = self._rules.sampling_seconds
        for name, at in self._settled.items():
            if interval > 0 and now - at >= interval:
                elapsed = (now - at) // interval * interval
                self._settle(name, self._decayed(name, elapsed), at + elapsed)

    def _decayed(self, name: str, elapsed: float) -> Mapping[str, float]:
        return decayed(
            self._consumed[name],
            in_whole_units(self._held[name]),
            elapsed=max(0.0, elapsed),
            half_life=self._rules.half_life_seconds,
        )

    def _settle(self, name: str, consumed: Mapping[str, float], at: float) -> None:
        self._consumed[name], self._settled[name] = consumed, at
        self.amounts[name] = self._weigh(consumed, name)

    def _requests(self, taken: Taken) -> Mapping[str, int]:
        requests: Counter[str] = Counter()
        for cell, amount in taken:
            requests[self._tree.cells[cell][1]] += amount
        return requests


def use_of(
    setup: KueueSetup, tree: UsageTree, *, unix: float | None = None
) -> LocalQueueUse | None:
    """Return what LocalQueues have used; None: no ClusterQueue of the tree orders them by it.

    *unix* is when the schedule begins, in seconds since 1970; None: it is not known.
    """
    rules, queues = setup.kueue.admission_fair_sharing, setup.cluster_queues
    if rules is None or not any(queues[name].usage_based for name in tree.leaves):
        return None
    weightless_last = setup.kueue.release.weightless_last
    members = {
        f"{namespace}/{name}": (setup.consumed.get((namespace, name)), local_queue)
        for (namespace, name), local_queue in setup.local_queues.items()
        if local_queue.cluster_queue in tree.leaves
        and queues[local_queue.cluster_queue].usage_based
    }

    def weigh(amounts: Mapping[str, float], name: str) -> float:
        return queue_usage(
            amounts,
            weight=members[name][1].fair_weight,
            resource_weights=rules.resource_weights,
            weightless_last=weightless_last,
        )

    return LocalQueueUse(
        tree,
        rules,
        {name: consumed.amounts if consumed else {} for name, (consumed, _) in members.items()},
        weigh,
        settled={
            name: min(0.0, consumed.updated - unix)
            for name, (consumed, _) in members.items()
            if unix is not None and consumed is not None and consumed.updated
        },
        cluster_queues={
            name: local_queue.cluster_queue for name, (_, local_queue) in members.items()
        },
    )
