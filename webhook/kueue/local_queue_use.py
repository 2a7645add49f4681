"""What LocalQueues have used of late, by which admission fair sharing serves them.

https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/queue/afs
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from webhook.kueue import fair_sharing
from webhook.kueue.queue_lines import QueueEntry
from webhook.kueue.quota import Taken, UsageTree
from webhook.model.queues import AdmissionFairSharing, Snapshot


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
        charged = fair_sharing.entry_penalty(
            fair_sharing.in_whole_units(self._requests(taken)),
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
        return fair_sharing.decayed(
            self._consumed[name],
            fair_sharing.in_whole_units(self._held[name]),
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
    snapshot: Snapshot, tree: UsageTree, *, unix: float | None = None
) -> LocalQueueUse | None:
    """Return what LocalQueues have used; None: no ClusterQueue of the tree orders them by it.

    *unix* is when the schedule begins, in seconds since 1970; None: it is not known.
    """
    rules, queues = snapshot.kueue.admission_fair_sharing, snapshot.cluster_queues
    if rules is None or not any(queues[name].usage_based for name in tree.leaves):
        return None
    weightless_last = snapshot.kueue.release.weightless_last
    members = {
        f"{namespace}/{name}": (snapshot.consumed.get((namespace, name)), local_queue)
        for (namespace, name), local_queue in snapshot.local_queues.items()
        if local_queue.cluster_queue in tree.leaves
        and queues[local_queue.cluster_queue].usage_based
    }

    def weigh(amounts: Mapping[str, float], name: str) -> float:
        return fair_sharing.queue_usage(
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
