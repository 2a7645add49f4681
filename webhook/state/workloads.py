"""All Workloads, each counted in its ClusterQueue; an event costs the same whatever their number.

It also collects what others consume: new Workloads, reservations, ended runs, obstacles.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple, TypeAlias, TypeVar

from webhook.api.resources import Key
from webhook.learn.arrival_rates import Arrived, ArrivedWorkloads
from webhook.learn.dispatches import WaitingDispatches
from webhook.learn.run_records import Began, Ended
from webhook.model.forecasts import JobClass
from webhook.model.policy.fallback_policy import Option
from webhook.model.queues import (
    Amounts,
    FlavorResource,
    Guest,
    Held,
    LocalQueue,
    Reservation,
    Stage,
    StopPolicy,
    Trial,
)
from webhook.model.reasons import Obstacle
from webhook.model.topologies import PlacedPods
from webhook.state.obstacles import Obstacles
from webhook.state.seen_workload import SeenWorkload, as_seen
from webhook.state.workload import Workload, arrived
from webhook.state.workload_charges import Charge, Counted

_Group: TypeAlias = tuple[str, str, int, str, str, int, Counted, tuple[Charge, ...]]
_Place: TypeAlias = tuple[bool, int, int, str, Key]
_Key = TypeVar("_Key")
MOST_RESERVATIONS: Final = 512
"""Most Workloads of a ClusterQueue that a snapshot names as those that may be preempted: each costs
a microsecond whenever one of the queue changes, in the process that answers reviews, too."""


class Admitted(NamedTuple):
    """Of the Workloads with quota in a ClusterQueue the part that Kueue has admitted."""

    workloads: int
    usage: Amounts


@dataclass(slots=True)
class _Alike:
    """Workloads of one group.

    The oldest is searched for only after it has left: there are thousands.
    """

    members: dict[Key, Workload] = field(default_factory=dict)
    oldest: Workload | None = None

    def add(self, key: Key, workload: Workload) -> None:
        oldest = self.oldest
        if not self.members or (oldest is not None and _age(workload) < _age(oldest)):
            self.oldest = workload
        self.members[key] = workload

    def remove(self, key: Key) -> None:
        if self.members.pop(key) is self.oldest:
            self.oldest = None

    def first(self) -> Workload:
        if self.oldest is None:
            self.oldest = min(self.members.values(), key=_age)
        return self.oldest


MOST_TRIALS: Final = 1_000


@dataclass(slots=True)
class QueueCounts:
    """Counts of one ClusterQueue: usage, Workloads in backoff, and competing ones by shape.

    Every ``add`` is undone by a ``remove`` with the same values.
    """

    pending: int = 0
    reserving: int = 0
    ready: int = 0
    """Of the reserving."""
    usage: Counter[FlavorResource] = field(default_factory=Counter)
    placed: Counter[PlacedPods] = field(default_factory=Counter)
    admitted: int = 0
    """Of the reserving."""
    admitted_usage: Counter[FlavorResource] = field(default_factory=Counter)
    guests: Counter[Guest] = field(default_factory=Counter)
    priorities: Counter[int] = field(default_factory=Counter)
    """Of the reserving."""
    holding: dict[Key, Workload] = field(default_factory=dict)
    """Workloads with quota reserved."""
    preemptible: list[_Place] = field(default_factory=list)
    """These in the order in which Kueue would preempt them."""
    backing_off: dict[Key, Workload] = field(default_factory=dict)
    """Pending Workloads in backoff."""
    waiting: WaitingDispatches = field(default_factory=WaitingDispatches)
    """Reserving Workloads that wait for AdmissionChecks."""
    competing: dict[_Group, _Alike] = field(default_factory=dict)
    """Pending Workloads that differ in nothing but name and age, together."""

    def add(self, key: Key, workload: Workload) -> None:
        if workload.competes:
            group = _group(workload)
            if (alike := self.competing.get(group)) is None:
                alike = self.competing[group] = _Alike()
            alike.add(key, workload)
        else:
            self._of_stage(workload)[key] = workload
            if workload.stage is Stage.RESERVING:
                insort(self.preemptible, _preemption_place(key, workload))
            self._count(workload, 1)
            if reserved := _held_back_since(workload):
                self.waiting.add(key, reserved)

    def remove(self, key: Key, workload: Workload) -> None:
        if not workload.competes:
            del self._of_stage(workload)[key]
            if workload.stage is Stage.RESERVING:
                del self.preemptible[
                    bisect_left(self.preemptible, _preemption_place(key, workload))
                ]
            self._count(workload, -1)
            self.waiting.remove(key)
            return
        group = _group(workload)
        self.competing[group].remove(key)
        if not self.competing[group].members:
            del self.competing[group]

    def groups(self) -> Iterable[tuple[Workload, tuple[Workload, ...]]]:
        """Return the competing Workloads by shape: the oldest of each, and all in no order."""
        return ((group.first(), tuple(group.members.values())) for group in self.competing.values())

    def _of_stage(self, workload: Workload) -> dict[Key, Workload]:
        return self.backing_off if workload.stage is Stage.PENDING else self.holding

    def is_empty(self) -> bool:
        return not (self.pending or self.reserving or self.competing)

    def in_order(self, limit: int) -> tuple[tuple[Workload, int], ...]:
        """Return at most *limit* shapes in Kueue's order, as their oldest Workload and number.

        Workloads of one shape are taken together at the place of the oldest: while quota is short
        none of them fits, so what is between them in the queue matters only at the margin.
        """
        groups = [(group.first(), len(group.members)) for group in self.competing.values()]
        return tuple(sorted(groups, key=lambda shape: _rank(shape[0]))[:limit])

    def held(self, arrivals: Iterable[tuple[Workload, int]], trying: Collection[str] = ()) -> Held:
        """Return the totals; those of policies in *trying* also by class.

        Competing Workloads that are not among the *arrivals* count as pending.
        """
        guests, waiting = Counter(self.guests), 0
        for group in self.competing.values():
            waiting += len(group.members)
            guests[_guest(group.first())] += len(group.members)
        for workload, count in arrivals:
            waiting -= count
            guests[_guest(workload)] -= count
        return Held(
            pending=self.pending + waiting,
            reserving=self.reserving,
            ready=self.ready,
            usage={cell: amount for cell, amount in self.usage.items() if amount},
            placed=tuple(self.placed.elements()),
            guests={guest: count for guest, count in guests.items() if count and guest[0]},
            trials=self._trials(trying) if trying else {},
            lowest_priority=min(self.priorities, default=None),
        )

    def _trials(self, policies: Collection[str]) -> Mapping[Trial, int]:
        """Count Workloads by class; of very many classes those that are the most."""
        pending = chain.from_iterable(group.members.values() for group in self.competing.values())
        workloads = chain(self.holding.values(), self.backing_off.values(), pending)
        counts = Counter(
            (workload.policy, workload.option, workload.job_class.key)
            for workload in workloads
            if workload.policy in policies and workload.job_class is not None
        )
        return dict(counts.most_common(MOST_TRIALS))

    def reservations(self) -> tuple[Reservation, ...]:
        """Return its Workloads with quota, whom Kueue would preempt first at the front."""
        first = self.preemptible[:MOST_RESERVATIONS]
        return tuple(_reservation(self.holding[place[-1]]) for place in first)

    def of_admitted(self) -> Admitted:
        return Admitted(self.admitted, dict(self.admitted_usage))

    def _count(self, workload: Workload, step: int) -> None:
        if workload.policy:
            _bump(self.guests, _guest(workload), step)
        if workload.stage is Stage.PENDING:
            self.pending += step
            return
        self.reserving += step
        self.ready += step if workload.has_ready_pods else 0
        _bump(self.priorities, workload.priority, step)
        for cell, amount in workload.charge:
            _bump(self.usage, cell, step * amount)
        for pods in workload.placed:
            _bump(self.placed, pods, step)
        if workload.admitted:
            self.admitted += step
            for cell, amount in workload.charge:
                _bump(self.admitted_usage, cell, step * amount)


def _preemption_place(key: Key, workload: Workload) -> _Place:
    """Return its place in the order of Kueue's ``CandidatesOrdering``, within a ClusterQueue."""
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/common/ordering.go#L42
    return (
        not workload.is_evicted,
        workload.priority,
        -workload.reserved_at,
        workload.uid,
        key,
    )


def _reservation(workload: Workload) -> Reservation:
    return Reservation(
        key=f"{workload.namespace}/{workload.name}",
        local_queue=workload.queue,
        charge=workload.charge,
        priority=workload.priority,
        reserved_at=workload.reserved_at,
        queued_at=workload.queued_at,
        is_evicted=workload.is_evicted,
        uid=workload.uid,
    )


def _bump(counter: Counter[_Key], key: _Key, step: int) -> None:
    counter[key] += step
    if not counter[key]:
        del counter[key]


def _held_back_since(workload: Workload) -> int:
    """Return since when it waits for AdmissionChecks, in seconds since 1970; 0: it does not."""
    began = workload.began
    if began is None or began.admitted or workload.stage is not Stage.RESERVING:
        return 0
    return began.reserved


def _guest(workload: Workload) -> Guest:
    return workload.policy, workload.option, workload.namespace


def _group(workload: Workload) -> _Group:
    # The shape by identity: equal ones are one object, and hashing a pod template is slower.
    return (
        workload.namespace,
        workload.queue,
        workload.priority,
        workload.policy,
        workload.option,
        id(workload.pod_sets),
        workload.counted,
        workload.held,
    )


def _age(workload: Workload) -> tuple[int, str, str]:
    return workload.queued_at, workload.namespace, workload.name


def _rank(workload: Workload) -> tuple[int, int, str, str]:
    return -workload.priority, *_age(workload)


def option_of_workload(
    workload: Workload, cluster_queue: str, options: Sequence[Option]
) -> Workload:
    """Return the Workload with the option of its queue, if its mark names another one.

    *options* are the policy's, *cluster_queue* the one in which it counts. If no option fits, the
    mark is kept.
    """
    there = [option.name for option in options if _is_of(option, workload, cluster_queue)]
    if not there or workload.option in there:
        return workload
    return workload._replace(option=there[0])


def _is_of(option: Option, workload: Workload, cluster_queue: str) -> bool:
    if option.queue:
        return option.queue == workload.queue
    return option.cluster_queue == cluster_queue


_Change: TypeAlias = Callable[[QueueCounts, Key, Workload], None]
_MOST_RELATED: Final = 16
"""Most slices that replace one and the same Workload, or variants of one, that are known as such:
an event of one touches all, and whoever creates Workloads can name any. Kueue makes one slice, and
a variant for each flavor."""
RECENT_SECONDS = 600
"""Workloads older than this (relative to the newest) are in no ledger: placements expire before."""


class StartedRun(NamedTuple):
    """A run in progress, and how it began."""

    job_class: JobClass
    began: Began


class Workloads:
    def __init__(self) -> None:
        self.counts_of: dict[str, QueueCounts] = {}
        """ClusterQueue to its counts."""
        self.dirty: set[str] = set()
        """ClusterQueues whose counts have changed; the reader clears it."""
        self._records: dict[Key, Workload] = {}
        self._local_queues: dict[Key, LocalQueue] = {}
        self._options: dict[str, Sequence[Option]] = {}
        """Policy to its options."""
        self._by_eviction = True
        self._by_queue: defaultdict[Key, dict[Key, None]] = defaultdict(dict)
        """LocalQueue to its pending Workloads, which it assigns to a ClusterQueue; a set of them
        would take twice as much memory."""
        self._replaced: Counter[Key] = Counter()
        """Slices whose replacement holds quota: only the replacement's charge counts."""
        self._growing: defaultdict[Key, set[Key]] = defaultdict(set)
        """Slice to the pending ones that are to replace it."""
        self._variants: defaultdict[Key, set[Key]] = defaultdict(set)
        """Parent to its variants, of which one counts."""
        self._differences: dict[Key, Workload] = {}
        """Pending slices that are counted by what they ask for beyond those they replace, as they
        were counted."""
        self._seen: list[tuple[int, SeenWorkload]] = []
        self._reserved: list[SeenWorkload] = []
        self._ended: list[Ended] = []
        self._begun: list[StartedRun] = []
        self._arrived = ArrivedWorkloads()
        self.newest = 0
        """Seconds since 1970 of the last creation, admission or end."""
        self._obstacles = Obstacles()

    def all(self) -> Iterable[Workload]:
        return self._records.values()

    def put(self, key: Key, workload: Workload | None) -> None:
        """Apply a Workload as it is now; None: it was deleted."""
        before = self._records.get(key)
        if before == workload:
            return
        touched = self._touched(key, before, workload)
        for touched_key in touched:
            self._count(touched_key, QueueCounts.remove)
        self._store(key, before, workload)
        for touched_key in touched:
            self._count(touched_key, QueueCounts.add)

    def _touched(
        self, key: Key, before: Workload | None, after: Workload | None
    ) -> Collection[Key]:
        """Return the Workloads whose count a change may change: that one, and those related."""
        # Most are related to none, and there are tens of thousands at each start.
        if key not in self._growing and _is_alone(before) and _is_alone(after):
            return (key,)
        touched = {key, *_taken_over(before), *_taken_over(after), *self._growing.get(key, ())}
        touched.update(*(self._siblings(version) for version in (before, after)))
        return touched

    def replace(self, workloads: Mapping[Key, Workload]) -> None:
        for key in [key for key in self._records if key not in workloads]:
            self.put(key, None)
        for key, workload in workloads.items():
            self.put(key, workload)

    def put_local_queue(self, key: Key, local_queue: LocalQueue | None) -> None:
        """Recount a LocalQueue's pending Workloads: it was created, deleted, stopped or resumed."""
        if self._local_queues.get(key) == local_queue:
            return
        waiting = tuple(self._by_queue.get(key, ()))
        for pending_key in waiting:
            self._count(pending_key, QueueCounts.remove)
        if local_queue is None:
            self._local_queues.pop(key, None)
        else:
            self._local_queues[key] = local_queue
        for pending_key in waiting:
            self._count(pending_key, QueueCounts.add)

    def order_by_eviction(self, *, by_eviction: bool) -> None:
        """Queue Workloads that were not ready in time by their eviction, or by their creation."""
        if by_eviction == self._by_eviction:
            return
        touched = [key for key, workload in self._records.items() if workload.was_unready]
        for key in touched:
            self._count(key, QueueCounts.remove)
        self._by_eviction = by_eviction
        for key in touched:
            self._count(key, QueueCounts.add)

    def put_options(self, policy: str, options: Sequence[Option]) -> None:
        """Recount Workloads of a policy that its new options assign to another option."""
        before = self._options.get(policy, ())
        if before == options:
            return
        touched = []
        for key, workload in self._records.items():
            if workload.policy != policy:
                continue
            place = self._place(key, workload)
            if place and option_of_workload(workload, place, before) != option_of_workload(
                workload, place, options
            ):
                touched.append(key)
        for key in touched:
            self._count(key, QueueCounts.remove)
        self._options[policy] = options
        for key in touched:
            self._count(key, QueueCounts.add)

    def arrived(self, cluster_queue: str) -> tuple[Arrived, ...]:
        """Return the newest Workloads that got quota in a ClusterQueue, the oldest first."""
        return self._arrived.of(cluster_queue)

    def obstacles(self) -> Mapping[Key, Obstacle]:
        """Return the obstacle of each Job that has one; the same object until that changes."""
        return self._obstacles.current(self.newest)

    def take_seen(self) -> tuple[SeenWorkload, ...]:
        """Return the Workloads that appeared since the last call."""
        oldest = self.newest - RECENT_SECONDS
        taken = tuple(seen for created, seen in self._seen if created >= oldest)
        self._seen.clear()
        return taken

    def take_reserved(self) -> tuple[SeenWorkload, ...]:
        """Return those that got quota since the last call and have AdmissionChecks to pass."""
        taken = tuple(self._reserved)
        self._reserved.clear()
        return taken

    def take_ended(self) -> tuple[Ended, ...]:
        """Return the runs that ended since the last call."""
        taken = tuple(self._ended)
        self._ended.clear()
        return taken

    def take_begun(self) -> tuple[StartedRun, ...]:
        """Return the runs whose start has become known since the last call."""
        taken = tuple(self._begun)
        self._begun.clear()
        return taken

    def _store(self, key: Key, before: Workload | None, after: Workload | None) -> None:
        if before is not None:
            self._index(key, before, -1)
        self._obstacles.put(key, before, after, self.newest)
        if after is None:
            self._records.pop(key, None)
            return
        self._records[key] = after
        self._index(key, after, 1)
        ended = after.ended.run.finished if after.ended is not None else 0
        self.newest = max(self.newest, after.created, after.admitted, ended)
        is_new = before is None or before.created != after.created
        if is_new and (seen := as_seen(after)):
            self._seen.append((after.created, seen))
        if _has_come(before, after):
            self._arrived.note(after.cluster_queue, arrived(after))
        if _has_reserved(before, after) and (seen := as_seen(after)):
            self._reserved.append(seen)
        if after.ended is not None and (before is None or before.ended != after.ended):
            self._ended.append(after.ended)
        elif after.ended is None and (before is None or before.began != after.began):
            self._begun += _begun(after)

    def _index(self, key: Key, workload: Workload, step: int) -> None:
        if workload.stage is Stage.PENDING:
            queue = (workload.namespace, workload.queue)
            if step > 0:
                self._by_queue[queue][key] = None
            else:
                self._by_queue[queue].pop(key, None)
                if not self._by_queue[queue]:
                    del self._by_queue[queue]
            if workload.replaces:
                _enter(self._growing, _replaced(workload), key, step)
        if workload.parent:
            _enter(self._variants, (workload.namespace, workload.parent), key, step)
        for replaced in _taken_over(workload):
            self._replaced[replaced] += step
            if not self._replaced[replaced]:
                del self._replaced[replaced]

    def _siblings(self, workload: Workload | None) -> Collection[Key]:
        """Return the variants of a variant's parent; of any other none."""
        if workload is None or not workload.parent:
            return ()
        return self._variants.get((workload.namespace, workload.parent), ())

    def _is_spare(self, key: Key, workload: Workload) -> bool:
        """Return whether another variant counts for a pending one: Kueue admits one of them."""
        siblings = self._siblings(workload)
        if key not in siblings:
            return False
        found = [(sibling, self._records[sibling]) for sibling in siblings]
        if any(variant.stage is Stage.RESERVING for _, variant in found):
            return True
        pending = ((v.competes, other) for other, v in found if v.stage is Stage.PENDING)
        return min(pending, key=lambda variant: (not variant[0], variant[1]))[1] != key

    def _difference(self, key: Key, workload: Workload, cluster_queue: str) -> Workload:
        """Return a pending slice with what the one holds that it replaces."""
        # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/flavorassigner.go#L264
        old = self._records.get(_replaced(workload)) if workload.replaces else None
        if old is None or key not in self._growing.get(_replaced(workload), ()):
            return workload
        same = old.cluster_queue == cluster_queue and len(old.held) == len(workload.pod_sets)
        if old.stage is not Stage.RESERVING or not same:
            return workload
        return workload._replace(held=old.held)

    def _count(self, key: Key, change: _Change) -> None:
        workload = self._records.get(key)
        if workload is None:
            return
        cluster_queue = self._place(key, workload)
        if not cluster_queue:
            return
        if options := self._options.get(workload.policy):
            workload = option_of_workload(workload, cluster_queue, options)
        if workload.was_unready and not self._by_eviction:
            workload = workload._replace(evicted_at=0)
        if change is QueueCounts.remove:
            workload = self._differences.pop(key, workload)
        elif (slice_ := self._difference(key, workload, cluster_queue)) is not workload:
            self._differences[key] = workload = slice_
        if (counts := self.counts_of.get(cluster_queue)) is None:
            counts = self.counts_of[cluster_queue] = QueueCounts()
        change(counts, key, workload)
        self.dirty.add(cluster_queue)

    def _place(self, key: Key, workload: Workload) -> str:
        """Return the ClusterQueue that it counts in; empty: in none."""
        if workload.stage is Stage.RESERVING:
            return "" if key in self._replaced else workload.cluster_queue
        if workload.stage is Stage.NEITHER or (workload.parent and self._is_spare(key, workload)):
            return ""
        local_queue = self._local_queues.get((workload.namespace, workload.queue))
        if local_queue is None or local_queue.stop_policy is not StopPolicy.NONE:
            return ""
        return local_queue.cluster_queue


def _is_alone(workload: Workload | None) -> bool:
    return workload is None or not (workload.replaces or workload.parent)


def _taken_over(workload: Workload | None) -> Iterable[Key]:
    if workload is None or not workload.replaces or workload.stage is not Stage.RESERVING:
        return ()
    return (_replaced(workload),)


def _enter(index: defaultdict[Key, set[Key]], of: Key, key: Key, step: int) -> None:
    """Add a Workload to those of another one of its namespace, or with a step of -1 remove it."""
    entered = index[of]
    if step < 0:
        entered.discard(key)
    elif len(entered) < _MOST_RELATED and of[0] == key[0]:
        entered.add(key)
    if not entered:
        del index[of]


def _replaced(workload: Workload) -> Key:
    """Return the slice that a Workload replaces."""
    namespace, _, name = workload.replaces.rpartition("/")
    return namespace or workload.namespace, name


def _begun(workload: Workload) -> Iterable[StartedRun]:
    began, job_class = workload.began, workload.job_class
    if began is not None and began.admitted and job_class is not None:
        yield StartedRun(job_class, began)


def _has_come(before: Workload | None, after: Workload) -> bool:
    """Return whether a Workload has got its first quota, or is seen for the first time after it."""
    # One that was evicted waits again, but comes no second time; nor does one that grows.
    has_had = before is not None and (before.charge or before.is_evicted)
    return bool(after.charge) and not has_had and not after.replaces


def _has_reserved(before: Workload | None, after: Workload) -> bool:
    """Return whether it has just got quota and still has AdmissionChecks to pass."""
    held = before is not None and before.stage is Stage.RESERVING
    checked = after.began is not None and after.began.reserved > 0
    return checked and after.stage is Stage.RESERVING and not held
