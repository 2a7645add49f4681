"""A snapshot with its pending Workloads folded into its counts, and what it says of a newcomer."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from webhook.kueue import quota
from webhook.kueue.assignment import Assignment, FoundQueue, assign
from webhook.kueue.outlook import StartTimes
from webhook.kueue.quota import Quotas
from webhook.model.decision import Fit
from webhook.model.fields import FieldError
from webhook.model.queues import (
    Amounts,
    Arrival,
    ClusterQueue,
    Guest,
    Head,
    Held,
    LocalQueue,
    PodSetNeeds,
    Queueing,
    Snapshot,
    StopPolicy,
    namespace_labels,
)

EMPTY = Held()
NO_OUTLOOK = StartTimes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    snapshot: Snapshot
    quotas: Quotas
    holdings: Mapping[str, Held]
    """ClusterQueue to what it holds, arrivals included."""
    heads: tuple[str, ...] = ()
    """ClusterQueues that quota is set aside for."""
    outlook: StartTimes = NO_OUTLOOK
    clusters: Mapping[str, Occupancy] = field(default_factory=dict)
    """The worker clusters that are watched, as of their own last signs of life."""
    unheard: Mapping[str, float] = field(default_factory=dict)
    """Others that are watched and have told nothing yet, and since when they are."""
    stale: Mapping[str, str] = field(default_factory=dict)
    """Of all these, which are not to be counted on any longer, and why."""

    def held(self, cluster_queue: str) -> Held:
        return self.holdings.get(cluster_queue, EMPTY)


def assignment(
    occupancy: Occupancy,
    needs: Sequence[PodSetNeeds],
    cluster_queue: ClusterQueue,
    *,
    priority: int = 0,
) -> Assignment:
    """Find out how *cluster_queue* would take a Job with these needs.

    Raises:
        FieldError: a toleration or an affinity term of a template cannot be read.

    """
    return assign(
        needs,
        FoundQueue(
            cluster_queue=cluster_queue,
            snapshot=occupancy.snapshot,
            quotas=occupancy.quotas,
            held=occupancy.held(cluster_queue.name),
            priority=priority,
        ),
    )


def reserves_now(
    occupancy: Occupancy,
    found: Assignment,
    local_queue: LocalQueue,
    cluster_queue: ClusterQueue,
    *,
    priority: int = 0,
) -> bool:
    """Tell whether Kueue would reserve quota for it as soon as it sees it.

    Under BestEffortFIFO the older Workloads that are pending were tried and do not fit, so a new
    one that fits overtakes them; under StrictFIFO it waits for them, and so does one of another
    queue that needs what is set aside for them.
    """
    return (
        found.fit is Fit.FITS
        and cluster_queue.active
        and local_queue.stop_policy is StopPolicy.NONE
        and cluster_queue.stop_policy is StopPolicy.NONE
        and _namespace_is_selected(occupancy.snapshot, local_queue, cluster_queue)
        and not _is_behind(occupancy.held(cluster_queue.name), cluster_queue)
        and not _is_kept_out(occupancy, found, cluster_queue, priority)
    )


def starts_now(
    occupancy: Occupancy,
    found: Assignment,
    local_queue: LocalQueue,
    cluster_queue: ClusterQueue,
    *,
    priority: int = 0,
) -> bool:
    """Tell whether it would start at once: reserved, and no check or slow start holds it back."""
    return not cluster_queue.checks and passes_now(
        occupancy, found, local_queue, cluster_queue, priority=priority
    )


def passes_now(
    occupancy: Occupancy,
    found: Assignment,
    local_queue: LocalQueue,
    cluster_queue: ClusterQueue,
    *,
    priority: int = 0,
) -> bool:
    """Tell whether nothing but AdmissionChecks would hold it back.

    With ``waitForPodsReady.blockAdmission`` one Workload whose pods are not ready blocks all
    others; which ones are ready is not known, so any that reserves quota counts as not ready.
    """
    return reserves_now(occupancy, found, local_queue, cluster_queue, priority=priority) and not (
        occupancy.snapshot.kueue.block_admission and _somebody_reserves(occupancy)
    )


def _namespace_is_selected(
    snapshot: Snapshot, local_queue: LocalQueue, cluster_queue: ClusterQueue
) -> bool:
    return cluster_queue.namespaces.matches(namespace_labels(snapshot, local_queue.namespace))


def _is_behind(held: Held, cluster_queue: ClusterQueue) -> bool:
    return cluster_queue.queueing is Queueing.STRICT and held.pending > 0


def _is_kept_out(
    occupancy: Occupancy, found: Assignment, cluster_queue: ClusterQueue, priority: int
) -> bool:
    """Tell whether it fits only with what Kueue sets aside for others that it looks at before.

    Kueue looks first at those that borrow from nearer by, then at higher priorities, then at older
    ones (``makeClassicalIterator`` in its ``scheduler.go``); nobody is younger than a new one.
    """
    quotas = without_set_aside(occupancy, found, priority)
    return quotas is not occupancy.quotas and any(
        quota.available(quotas, cluster_queue.name, cell) < amount
        for cell, amount in found.usage.items()
    )


def without_set_aside(occupancy: Occupancy, found: Assignment, priority: int) -> Quotas:
    """Charge what Kueue sets aside for others that it looks at before."""
    quotas = occupancy.quotas
    for name in occupancy.heads:
        head = occupancy.held(name).head
        if head is not None and (head.height, -head.priority) <= (found.height, -priority):
            quotas = quota.charge(quotas, name, head.set_aside)
    return quotas


def _somebody_reserves(occupancy: Occupancy) -> bool:
    return any(held.reserving for held in occupancy.holdings.values())


_ANY_NUMBER = sys.maxsize


def build(snapshot: Snapshot, placements: Sequence[Arrival] = ()) -> Occupancy:
    """Fold the snapshot's own arrivals, then *placements*, in order."""
    occupancy = as_held(idle(snapshot), snapshot.held)
    return with_arrivals(occupancy, (*snapshot.arrivals, *placements))


def idle(snapshot: Snapshot) -> Occupancy:
    """Begin with queues that hold nothing."""
    quotas = quota.plant(snapshot.cluster_queues, snapshot.cohorts)
    return Occupancy(
        snapshot=snapshot, quotas=quotas, holdings={}, outlook=NO_OUTLOOK.adopt(snapshot)
    )


def as_held(occupancy: Occupancy, cluster_queues: Collection[str]) -> Occupancy:
    """Put some queues back to what the snapshot says that they hold."""
    held, holdings, quotas = occupancy.snapshot.held, dict(occupancy.holdings), occupancy.quotas
    heads = {name for name in occupancy.heads if name not in cluster_queues}
    for name in cluster_queues:
        before, after = holdings.pop(name, EMPTY), held.get(name, EMPTY)
        if name in held:
            holdings[name] = after
        if after.head is not None:
            heads.add(name)
        quotas = quota.charge(quotas, name, _difference(before.usage, after.usage))
    return replace(occupancy, quotas=quotas, holdings=holdings, heads=tuple(heads))


def with_arrivals(occupancy: Occupancy, arrivals: Iterable[Arrival]) -> Occupancy:
    """Add them one after another; those without room, as most in a long queue, at little cost."""
    joined: defaultdict[str, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        found = _queues_of(occupancy.snapshot, arrival)
        if found is None:
            continue
        name = found[1].name
        if found[1].queueing is Queueing.STRICT or _has_room(occupancy.quotas, arrival, found[1]):
            occupancy = with_arrival(_with_joined(occupancy, name, joined.pop(name, ())), arrival)
        else:
            joined[name].append(arrival)
    for name, of_queue in joined.items():
        occupancy = _with_joined(occupancy, name, of_queue)
    return occupancy


def _with_joined(occupancy: Occupancy, name: str, joined: Sequence[Arrival]) -> Occupancy:
    """Let Workloads pend in a ClusterQueue."""
    return _holding(occupancy, name, _joined(occupancy.held(name), joined)) if joined else occupancy


def _queues_of(snapshot: Snapshot, arrival: Arrival) -> tuple[LocalQueue, ClusterQueue] | None:
    """Find where Workloads want quota; None: nowhere."""
    local_queue = snapshot.local_queues.get((arrival.namespace, arrival.local_queue))
    if local_queue is None or local_queue.stop_policy is not StopPolicy.NONE:
        return None
    cluster_queue = snapshot.cluster_queues.get(local_queue.cluster_queue)
    return None if cluster_queue is None else (local_queue, cluster_queue)


def with_arrival(occupancy: Occupancy, arrival: Arrival) -> Occupancy:
    """Add Workloads of one shape: each reserves quota if Kueue would give it at once, or pends."""
    queues = _queues_of(occupancy.snapshot, arrival)
    if queues is None:
        return occupancy
    local_queue, cluster_queue = queues
    left = arrival.count
    if cluster_queue.queueing is not Queueing.STRICT and not _has_room(
        occupancy.quotas, arrival, cluster_queue
    ):
        return _with_joined(occupancy, cluster_queue.name, (arrival,))
    while left > 0:
        found = _assignment_of(occupancy, arrival, cluster_queue)
        if not reserves_now(
            occupancy, found, local_queue, cluster_queue, priority=arrival.priority
        ):
            return _waiting(occupancy, arrival, found, cluster_queue, left)
        count = min(left, _alike(occupancy, found, cluster_queue, arrival.priority))
        usage = {cell: amount * count for cell, amount in found.usage.items()}
        held = _reserving(occupancy.held(cluster_queue.name), arrival, usage, count)
        quotas = quota.charge(occupancy.quotas, cluster_queue.name, usage)
        occupancy = _holding(replace(occupancy, quotas=quotas), cluster_queue.name, held)
        left -= count
    return occupancy


def is_kept_waiting(occupancy: Occupancy, arrival: Arrival) -> bool:
    """Tell whether Kueue would let it pend."""
    queues = _queues_of(occupancy.snapshot, arrival)
    if queues is None:
        return False
    name = queues[1].name
    after = with_arrival(occupancy, arrival)
    return after.held(name).pending > occupancy.held(name).pending


def with_waiting(occupancy: Occupancy, arrival: Arrival) -> Occupancy:
    """Add Workloads of one shape that Kueue has looked at and lets wait, whatever is free."""
    queues = _queues_of(occupancy.snapshot, arrival)
    if queues is None:
        return occupancy
    _, cluster_queue = queues
    found = _assignment_of(occupancy, arrival, cluster_queue)
    return _waiting(occupancy, arrival, found, cluster_queue, arrival.count)


def _has_room(quotas: Quotas, arrival: Arrival, cluster_queue: ClusterQueue) -> bool:
    """Tell whether it might fit, which most of a long queue do not; only quotas are looked at."""
    return all(
        any(
            all(
                quota.available(quotas, cluster_queue.name, (flavor, each)) >= n * pod_set.count
                for each, n in pod_set.per_pod.items()
                if each in group.resources
            )
            for flavor in group.flavors
        )
        for pod_set in arrival.needs
        for group in cluster_queue.groups
    )


def _alike(
    occupancy: Occupancy, found: Assignment, cluster_queue: ClusterQueue, priority: int
) -> int:
    """Count the Workloads of one shape that get the very same flavors, one after another.

    As long as nothing is borrowed, the first flavor that fits stays the first that fits.
    """
    quotas = without_set_aside(occupancy, found, priority)
    rooms = (
        quota.own_room(quotas, cluster_queue.name, cell) // amount
        for cell, amount in found.usage.items()
        if amount
    )
    return max(1, min(rooms, default=_ANY_NUMBER))


def _waiting(
    occupancy: Occupancy,
    arrival: Arrival,
    found: Assignment,
    cluster_queue: ClusterQueue,
    count: int,
) -> Occupancy:
    """Add to the pending; the first one under StrictFIFO may have quota set aside for it."""
    before = occupancy.held(cluster_queue.name)
    held = _joined(before, (replace(arrival, count=count),))
    if cluster_queue.queueing is Queueing.STRICT and not before.pending and found.set_aside:
        head = Head(priority=arrival.priority, height=found.height, set_aside=found.set_aside)
        held = replace(held, head=head)
        occupancy = replace(occupancy, heads=(*occupancy.heads, cluster_queue.name))
    return _holding(occupancy, cluster_queue.name, held)


def _holding(occupancy: Occupancy, name: str, held: Held) -> Occupancy:
    return replace(occupancy, holdings={**occupancy.holdings, name: held})


def _assignment_of(
    occupancy: Occupancy, arrival: Arrival, cluster_queue: ClusterQueue
) -> Assignment:
    try:
        return assignment(occupancy, arrival.needs, cluster_queue, priority=arrival.priority)
    except FieldError as error:
        # Kueue cannot judge it either: it stays pending.
        return Assignment(fit=Fit.WAITS, detail=str(error))


def _joined(held: Held, arrivals: Sequence[Arrival]) -> Held:
    guests = dict(held.guests)
    for arrival in arrivals:
        if arrival.policy:
            guest = arrival.policy, arrival.option, arrival.namespace
            guests[guest] = guests.get(guest, 0) + arrival.count
    pending = held.pending + sum(arrival.count for arrival in arrivals)
    return replace(held, pending=pending, guests=guests)


def _reserving(held: Held, arrival: Arrival, charged: Amounts, count: int) -> Held:
    usage = dict(held.usage)
    for cell, amount in charged.items():
        usage[cell] = usage.get(cell, 0) + amount
    return replace(
        held,
        reserving=held.reserving + count,
        usage=usage,
        guests=_with_guests(held, arrival, count),
        lowest_priority=_lowest(held, arrival.priority),
    )


def _with_guests(held: Held, arrival: Arrival, count: int) -> Mapping[Guest, int]:
    if not arrival.policy:
        return held.guests
    key = (arrival.policy, arrival.option, arrival.namespace)
    return {**held.guests, key: held.guests.get(key, 0) + count}


def _lowest(held: Held, priority: int) -> int | None:
    if held.lowest_priority is None:
        return None if held.reserving else priority
    return min(held.lowest_priority, priority)


def _difference(before: Amounts, after: Amounts) -> Amounts:
    changes = {cell: after.get(cell, 0) - before.get(cell, 0) for cell in {**before, **after}}
    return {cell: change for cell, change in changes.items() if change}
