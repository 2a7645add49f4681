"""Counts what one ClusterQueue holds, one Workload at a time: usage, backoff, and who competes.

From Workloads to the ``Held``, ``QuotaHolder`` and ``Arrival`` of snapshots, in the orders in which
Kueue admits and preempts. It must not know why a Workload counts in this ClusterQueue and no other.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, TypeAlias, TypeVar

from webhook.api.resources import Key
from webhook.kueue.requests import is_refused, min_count, on_node, per_pod
from webhook.learn.dispatches import WaitingDispatches
from webhook.model.faults import attempted
from webhook.model.job import PodSet
from webhook.model.quantity import FlavorResource
from webhook.model.queues import (
    Arrival,
    Guest,
    Held,
    KueueConfig,
    LimitRangeItem,
    PodSetNeeds,
    QuotaHolder,
    Stage,
    Trial,
)
from webhook.model.topologies import PlacedPods
from webhook.state.workload import Workload, key_of_placement
from webhook.state.workload_pods import Charge, KueueCounts

_Group: TypeAlias = tuple[str, str, int, str, str, int, KueueCounts, tuple[Charge, ...]]
_Place: TypeAlias = tuple[bool, int, int, str, Key]
_Needs: TypeAlias = tuple[PodSetNeeds, ...]
_Key = TypeVar("_Key")
MOST_HOLDERS: Final = 512
"""Most Workloads of a ClusterQueue that a snapshot names as those that may be preempted: each costs
a microsecond whenever one of the queue changes, in the process that answers reviews, too."""
MOST_TRIALS: Final = 1_000
_SHAPES_KEPT: Final = 4096


@dataclass(slots=True)
class HeldCounts:
    """What a ``Held`` is made of; a step of -1 takes away what one of 1 has counted."""

    pending: int = 0
    reserving: int = 0
    ready: int = 0
    """Of the reserving."""
    usage: Counter[FlavorResource] = field(default_factory=Counter)
    placed: Counter[PlacedPods] = field(default_factory=Counter)
    guests: Counter[Guest] = field(default_factory=Counter)
    trials: Counter[Trial] = field(default_factory=Counter)
    priorities: Counter[int] = field(default_factory=Counter)
    """Of the reserving."""

    def count_reserving(
        self, priority: int, charge: Iterable[tuple[FlavorResource, int]], step: int
    ) -> None:
        """Count a Workload that holds quota."""
        self.reserving += step
        _bump(self.priorities, priority, step)
        for cell, amount in charge:
            _bump(self.usage, cell, step * amount)

    def held(self) -> Held:
        return Held(
            pending=self.pending,
            reserving=self.reserving,
            ready=self.ready,
            usage=dict(self.usage),
            placed=tuple(self.placed.elements()),
            guests={guest: count for guest, count in self.guests.items() if count and guest[0]},
            trials={trial: count for trial, count in self.trials.items() if count},
            lowest_priority=min(self.priorities, default=None),
        )


@dataclass(slots=True)
class QueueCounts:
    """Counts of one ClusterQueue: usage, Workloads in backoff, and competing ones by shape.

    Every ``add`` is undone by a ``remove`` with the same values.
    """

    totals: HeldCounts = field(default_factory=HeldCounts)
    """Without those that compete, and without trials."""
    admitted: HeldCounts = field(default_factory=HeldCounts)
    """Of the reserving, in numbers and usage alone."""
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
        return not (self.totals.pending or self.totals.reserving or self.competing)

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
        guests, pending = Counter(self.totals.guests), self.totals.pending
        for group in self.competing.values():
            pending += len(group.members)
            guests[_guest(group.first())] += len(group.members)
        for workload, count in arrivals:
            pending -= count
            guests[_guest(workload)] -= count
        trials = self._trials(trying) if trying else Counter[Trial]()
        return replace(self.totals, pending=pending, guests=guests, trials=trials).held()

    def _trials(self, policies: Collection[str]) -> Counter[Trial]:
        """Count Workloads by class; of very many classes those that are the most."""
        pending = chain.from_iterable(group.members.values() for group in self.competing.values())
        workloads = chain(self.holding.values(), self.backing_off.values(), pending)
        counts = Counter(
            (workload.policy, workload.option, workload.job_class.key)
            for workload in workloads
            if workload.policy in policies and workload.job_class is not None
        )
        return Counter(dict(counts.most_common(MOST_TRIALS)))

    def holders(self) -> tuple[QuotaHolder, ...]:
        """Return its Workloads with quota, whom Kueue would preempt first at the front."""
        first = self.preemptible[:MOST_HOLDERS]
        return tuple(_holder(self.holding[place[-1]]) for place in first)

    def _count(self, workload: Workload, step: int) -> None:
        totals = self.totals
        if workload.policy:
            _bump(totals.guests, _guest(workload), step)
        if workload.stage is Stage.PENDING:
            totals.pending += step
            return
        totals.count_reserving(workload.priority, workload.charge, step)
        totals.ready += step if workload.has_ready_pods else 0
        for pods in workload.placed:
            _bump(totals.placed, pods, step)
        if workload.admitted:
            self.admitted.count_reserving(workload.priority, workload.charge, step)


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


def _preemption_place(key: Key, workload: Workload) -> _Place:
    """Return its place by ``QuotaHolder.order``, within a ClusterQueue, with less kept for it."""
    return (
        not workload.is_evicted,
        workload.priority,
        -workload.reserved_at,
        workload.uid,
        key,
    )


def _holder(workload: Workload) -> QuotaHolder:
    return QuotaHolder(
        key=f"{workload.namespace}/{workload.name}",
        local_queue=f"{workload.namespace}/{workload.queue}",
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
    run = workload.run
    if run is None or run.admitted or workload.stage is not Stage.RESERVING:
        return 0
    return run.reserved


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


@dataclass(frozen=True, slots=True)
class QueueContents:
    holding: tuple[Workload, ...] = ()
    """Those with quota reserved."""
    waiting: tuple[Group, ...] = ()
    arrived: tuple[Workload, ...] = ()
    """Those that got quota, the newest of them whether they are still there or not."""


@dataclass(frozen=True, slots=True)
class Group:
    """Pending Workloads that differ in nothing but name, class and age."""

    arrival: Arrival
    """The oldest of them."""
    members: tuple[Workload, ...]
    """In no order."""
    competes: bool = True
    """False: they are in backoff after an eviction."""


class PendingArrivals:
    """Turns pending Workloads into Arrivals: what their pods need of quota and of Nodes.

    Needs are computed once for a shape and namespace, whatever else is pending there.
    """

    def __init__(self) -> None:
        self._limit_ranges: Mapping[str, tuple[LimitRangeItem, ...]] = {}
        self._overheads: Mapping[str, Mapping[str, str]] = {}
        self._kueue = KueueConfig()
        # The pod sets are kept with their id, so that it stays theirs.
        self._needs: dict[tuple[str, int], tuple[tuple[PodSet, ...], _Needs | None]] = {}
        # Likewise the needs that were worked out.
        self._adjusted: dict[
            tuple[int, KueueCounts, tuple[Charge, ...]], tuple[_Needs, _Needs]
        ] = {}

    def adopt(
        self,
        limit_ranges: Mapping[str, tuple[LimitRangeItem, ...]],
        overheads: Mapping[str, Mapping[str, str]],
        kueue: KueueConfig,
    ) -> None:
        """Compute needs by these from now on."""
        known = self._limit_ranges, self._overheads, self._kueue
        if all(a is b for a, b in zip(known, (limit_ranges, overheads, kueue), strict=True)):
            return
        self._limit_ranges, self._overheads, self._kueue = limit_ranges, overheads, kueue
        self._needs.clear()
        self._adjusted.clear()

    def of(self, workload: Workload, count: int = 1) -> Arrival | None:
        """Return the Workload as an Arrival of *count* alike.

        None: its needs cannot be read, so it can only be counted as pending.
        """
        needs = self._needs_of(workload)
        if needs is None:
            return None
        if workload.counted or workload.held:
            needs = self._adjust(needs, workload)
        return Arrival(
            key=key_of_placement(workload) or f"workload:{workload.namespace}/{workload.name}",
            namespace=workload.namespace,
            local_queue=workload.queue,
            needs=needs,
            priority=workload.priority,
            policy=workload.policy,
            option=workload.option,
            count=count,
            created=workload.queued_at,
        )

    def _needs_of(self, workload: Workload) -> _Needs | None:
        place = workload.namespace, id(workload.pod_sets)
        if place not in self._needs:
            if len(self._needs) >= _SHAPES_KEPT:
                self._needs.clear()
            needs = self._work_out(workload.namespace, workload.pod_sets)
            self._needs[place] = workload.pod_sets, needs
        return self._needs[place][1]

    def _adjust(self, needs: _Needs, workload: Workload) -> _Needs:
        """Return what Kueue has counted, and what the slice holds that the Workload replaces.

        The same needs where that is what was worked out here.
        """
        place = id(needs), workload.counted, workload.held
        if place not in self._adjusted:
            if len(self._adjusted) >= _SHAPES_KEPT:
                self._adjusted.clear()
            per_pods = [dict(amounts) for amounts in workload.counted]
            per_pods = per_pods or [dict(need.per_pod) for need in needs]
            held = [dict(charge) for charge in workload.held] or [{}] * len(needs)
            alike = [(need.per_pod, need.held) for need in needs] == list(
                zip(per_pods, held, strict=True)
            )
            adjusted = (
                needs
                if alike
                else tuple(
                    replace(need, per_pod=per_pod, on_node=need.of_node, held=of_slice, known={})
                    for need, per_pod, of_slice in zip(needs, per_pods, held, strict=True)
                )
            )
            self._adjusted[place] = needs, adjusted
        return self._adjusted[place][1]

    def _work_out(self, namespace: str, pod_sets: tuple[PodSet, ...]) -> _Needs | None:
        return attempted(
            lambda: tuple(self._needs_of_pod_set(namespace, pod_set) for pod_set in pod_sets)
        )[0]

    def _needs_of_pod_set(self, namespace: str, pod_set: PodSet) -> PodSetNeeds:
        return PodSetNeeds(
            name=pod_set.name,
            count=pod_set.count,
            per_pod=per_pod(
                pod_set.template,
                limit_ranges=self._limit_ranges.get(namespace, ()),
                overheads=self._overheads,
                kueue=self._kueue,
            ),
            template=pod_set.template,
            min_count=min_count(pod_set, self._kueue),
            group=pod_set.group,
            on_node=on_node(
                pod_set.template,
                self._limit_ranges.get(namespace, ()),
                self._overheads,
                self._kueue,
            ),
            is_refused=is_refused(pod_set.template, self._limit_ranges.get(namespace, ())),
        )
