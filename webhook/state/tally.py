"""What one ClusterQueue holds, kept up to date one Workload at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar

from webhook.api.resources import Key
from webhook.learn.dispatches import Waiting
from webhook.model.queues import Amounts, FlavorResource, Guest, Held, Stage
from webhook.state.workload import Workload

_Group: TypeAlias = tuple[str, str, int, str, str, int]
_Key = TypeVar("_Key")


class Admitted(NamedTuple):
    """Of what holds quota in a ClusterQueue the part that Kueue has let start."""

    workloads: int
    usage: Amounts


@dataclass(slots=True)
class _Alike:
    """Workloads of one group; the oldest is looked for only after it has left, as of thousands."""

    members: dict[Key, Workload] = field(default_factory=dict)
    oldest: Workload | None = None

    def add(self, key: Key, workload: Workload) -> None:
        if self.oldest is not None or not self.members:
            self.oldest = min(self.oldest or workload, workload, key=_age)
        self.members[key] = workload

    def remove(self, key: Key) -> None:
        if self.members.pop(key) is self.oldest:
            self.oldest = None

    def first(self) -> Workload:
        if self.oldest is None:
            self.oldest = min(self.members.values(), key=_age)
        return self.oldest


@dataclass(slots=True)
class Tally:
    """Counts of what holds quota or stands back, and those that compete for quota by shape.

    Every ``add`` is undone by a ``remove`` with the same values.
    """

    pending: int = 0
    reserving: int = 0
    usage: Counter[FlavorResource] = field(default_factory=Counter)
    admitted: int = 0
    """Of the reserving."""
    admitted_usage: Counter[FlavorResource] = field(default_factory=Counter)
    guests: Counter[Guest] = field(default_factory=Counter)
    priorities: Counter[int] = field(default_factory=Counter)
    """Of the reserving."""
    holding: dict[Key, Workload] = field(default_factory=dict)
    """Those that have quota reserved."""
    backing_off: dict[Key, Workload] = field(default_factory=dict)
    """Pending ones that stand back for a while."""
    waiting: Waiting = field(default_factory=Waiting)
    """Of the reserving those that AdmissionChecks hold back."""
    competing: dict[_Group, _Alike] = field(default_factory=dict)
    """Pending Workloads that differ in nothing but name and age, together."""

    def add(self, key: Key, workload: Workload) -> None:
        if workload.competes:
            self.competing.setdefault(_group(workload), _Alike()).add(key, workload)
        else:
            self._of_stage(workload)[key] = workload
            self._count(workload, 1)
            if reserved := _held_back_since(workload):
                self.waiting.add(key, reserved)

    def remove(self, key: Key, workload: Workload) -> None:
        if not workload.competes:
            del self._of_stage(workload)[key]
            self._count(workload, -1)
            self.waiting.remove(key)
            return
        group = _group(workload)
        self.competing[group].remove(key)
        if not self.competing[group].members:
            del self.competing[group]

    def groups(self) -> Iterable[tuple[Workload, tuple[Workload, ...]]]:
        """List the competing by shape: each shape's oldest, and all of them in no order."""
        return ((group.first(), tuple(group.members.values())) for group in self.competing.values())

    def _of_stage(self, workload: Workload) -> dict[Key, Workload]:
        return self.backing_off if workload.stage is Stage.PENDING else self.holding

    def is_empty(self) -> bool:
        return not (self.pending or self.reserving or self.competing)

    def in_order(self, limit: int) -> tuple[tuple[Workload, int], ...]:
        """List shapes in Kueue's order, each as its oldest Workload and their number.

        Workloads of one shape are taken together at the place of the oldest: while quota is
        short none of them fits, so what stands between them matters only at the margin.
        """
        groups = [(group.first(), len(group.members)) for group in self.competing.values()]
        return tuple(sorted(groups, key=lambda found: _rank(found[0]))[:limit])

    def held(self, arrivals: Iterable[tuple[Workload, int]]) -> Held:
        """Sum up; competing Workloads that are not among the *arrivals* are simply pending."""
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
            usage={cell: amount for cell, amount in self.usage.items() if amount},
            guests={guest: count for guest, count in guests.items() if count and guest[0]},
            lowest_priority=min(self.priorities, default=None),
        )

    def of_admitted(self) -> Admitted:
        return Admitted(self.admitted, dict(self.admitted_usage))

    def _count(self, workload: Workload, step: int) -> None:
        if workload.policy:
            _bump(self.guests, _guest(workload), step)
        if workload.stage is Stage.PENDING:
            self.pending += step
            return
        self.reserving += step
        _bump(self.priorities, workload.priority, step)
        for cell, amount in workload.charge:
            _bump(self.usage, cell, step * amount)
        if workload.admitted:
            self.admitted += step
            for cell, amount in workload.charge:
                _bump(self.admitted_usage, cell, step * amount)


def _bump(counter: Counter[_Key], key: _Key, step: int) -> None:
    counter[key] += step
    if not counter[key]:
        del counter[key]


def _held_back_since(workload: Workload) -> int:
    """Tell since when it waits for AdmissionChecks, in seconds since 1970; 0: it does not."""
    began = workload.began
    if began is None or began.admitted or workload.stage is not Stage.RESERVING:
        return 0
    return began.reserved


def _guest(workload: Workload) -> Guest:
    return workload.policy, workload.option, workload.namespace


def _group(workload: Workload) -> _Group:
    # The shape by identity: equal ones are one object, and hashing a pod template costs more.
    return (
        workload.namespace,
        workload.queue,
        workload.priority,
        workload.policy,
        workload.option,
        id(workload.pod_sets),
    )


def _age(workload: Workload) -> tuple[int, str, str]:
    return workload.created, workload.namespace, workload.name


def _rank(workload: Workload) -> tuple[int, int, str, str]:
    return -workload.priority, *_age(workload)
