"""A snapshot with its pending Workloads folded into its counts, as Kueue would take them now.

In Kueue's order each either gets quota and is charged, or waits. So quota that has just been freed
goes to those who wait for it, and a Workload that Kueue has not looked at yet counts as what it
will be a moment later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from webhook.decide import quota
from webhook.decide.flavors import Assignment, Place, assign
from webhook.decide.quota import Quotas
from webhook.model.decision import Fit
from webhook.model.fields import FieldError
from webhook.model.queues import (
    Amounts,
    Arrival,
    ClusterQueue,
    Cohort,
    Head,
    Held,
    LocalQueue,
    PodSetNeeds,
    Queueing,
    Snapshot,
    StopPolicy,
)

_EMPTY = Held()


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    snapshot: Snapshot
    quotas: Quotas
    holdings: Mapping[str, Held]
    """ClusterQueue to what it holds, arrivals included."""
    heads: tuple[str, ...] = ()
    """ClusterQueues that quota is set aside for."""

    def held(self, cluster_queue: str) -> Held:
        return self.holdings.get(cluster_queue, _EMPTY)


def build(snapshot: Snapshot, placements: Sequence[Arrival] = ()) -> Occupancy:
    """Fold the snapshot's own arrivals, then *placements*, in order."""
    quotas = _BASE.quotas(snapshot)
    heads = tuple(name for name, held in snapshot.held.items() if held.head is not None)
    occupancy = Occupancy(snapshot=snapshot, quotas=quotas, holdings=snapshot.held, heads=heads)
    for arrival in (*snapshot.arrivals, *placements):
        occupancy = with_arrival(occupancy, arrival)
    return occupancy


def with_arrival(occupancy: Occupancy, arrival: Arrival) -> Occupancy:
    """Add one Workload: it reserves quota if Kueue would give it quota at once, else it pends."""
    snapshot = occupancy.snapshot
    local_queue = snapshot.local_queues.get((arrival.namespace, arrival.local_queue))
    if local_queue is None or local_queue.stop_policy is not StopPolicy.NONE:
        return occupancy
    cluster_queue = snapshot.cluster_queues.get(local_queue.cluster_queue)
    if cluster_queue is None:
        return occupancy
    for left in range(arrival.count, 0, -1):
        found = _assignment_of(occupancy, arrival, cluster_queue)
        if not reserves_now(
            occupancy, found, local_queue, cluster_queue, priority=arrival.priority
        ):
            return _waiting(occupancy, arrival, found, cluster_queue, left)
        held = _reserving(occupancy.held(cluster_queue.name), arrival, found)
        quotas = quota.charge(occupancy.quotas, cluster_queue.name, found.usage)
        occupancy = _holding(replace(occupancy, quotas=quotas), cluster_queue, held)
    return occupancy


def _waiting(
    occupancy: Occupancy,
    arrival: Arrival,
    found: Assignment,
    cluster_queue: ClusterQueue,
    count: int,
) -> Occupancy:
    """Add to the pending; the first one under StrictFIFO may have quota set aside for it."""
    before = occupancy.held(cluster_queue.name)
    held = _joined(before, arrival, count)
    if cluster_queue.queueing is Queueing.STRICT and not before.pending and found.set_aside:
        head = Head(priority=arrival.priority, height=found.height, set_aside=found.set_aside)
        held = replace(held, head=head)
        occupancy = replace(occupancy, heads=(*occupancy.heads, cluster_queue.name))
    return _holding(occupancy, cluster_queue, held)


def _holding(occupancy: Occupancy, cluster_queue: ClusterQueue, held: Held) -> Occupancy:
    return replace(occupancy, holdings={**occupancy.holdings, cluster_queue.name: held})


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
        Place(
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
    """Tell whether it would start at once: reserved, and no check or slow start holds it back.

    With ``waitForPodsReady.blockAdmission`` one Workload whose pods are not ready blocks all
    others; which ones are ready is not known, so any that reserves quota counts as not ready.
    """
    return (
        reserves_now(occupancy, found, local_queue, cluster_queue, priority=priority)
        and not cluster_queue.checks
        and not (occupancy.snapshot.kueue.block_admission and _somebody_reserves(occupancy))
    )


def namespace_labels(snapshot: Snapshot, namespace: str) -> Mapping[str, str]:
    """Find a Namespace's labels; the one that the API server puts on each is always there."""
    return snapshot.namespaces.get(namespace, {"kubernetes.io/metadata.name": namespace})


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
    quotas = occupancy.quotas
    for name in occupancy.heads:
        head = occupancy.held(name).head
        if head is not None and (head.height, -head.priority) <= (found.height, -priority):
            quotas = quota.charge(quotas, name, head.set_aside)
    return quotas is not occupancy.quotas and any(
        quota.available(quotas, cluster_queue.name, cell) < amount
        for cell, amount in found.usage.items()
    )


def _somebody_reserves(occupancy: Occupancy) -> bool:
    return any(held.reserving for held in occupancy.holdings.values())


def _assignment_of(
    occupancy: Occupancy, arrival: Arrival, cluster_queue: ClusterQueue
) -> Assignment:
    try:
        return assignment(occupancy, arrival.needs, cluster_queue, priority=arrival.priority)
    except FieldError as error:
        # Kueue cannot judge it either: it stays pending.
        return Assignment(fit=Fit.WAITS, detail=str(error))


def _joined(held: Held, arrival: Arrival, count: int) -> Held:
    return replace(held, pending=held.pending + count, guests=_with_guests(held, arrival, count))


def _reserving(held: Held, arrival: Arrival, found: Assignment) -> Held:
    usage = dict(held.usage)
    for cell, amount in found.usage.items():
        usage[cell] = usage.get(cell, 0) + amount
    return replace(
        held,
        reserving=held.reserving + 1,
        usage=usage,
        guests=_with_guests(held, arrival, 1),
        lowest_priority=_lowest(held, arrival.priority),
    )


def _with_guests(held: Held, arrival: Arrival, count: int) -> Mapping[tuple[str, str], int]:
    if not arrival.policy:
        return held.guests
    key = (arrival.policy, arrival.option)
    return {**held.guests, key: held.guests.get(key, 0) + count}


def _lowest(held: Held, priority: int) -> int | None:
    if held.lowest_priority is None:
        return None if held.reserving else priority
    return min(held.lowest_priority, priority)


class _Base:
    """Keep the last snapshot's trees and usage, and charge only what differs in the next one.

    Snapshots follow one another many times a second and share most of what they hold. The three
    values are replaced in one assignment, so that threads never see them mixed.
    """

    def __init__(self) -> None:
        topology: tuple[Mapping[str, ClusterQueue], Mapping[str, Cohort]] = ({}, {})
        usages: Mapping[str, Amounts] = {}
        self._last = (topology, usages, quota.plant({}, {}))

    def quotas(self, snapshot: Snapshot) -> Quotas:
        topology, usages, quotas = self._last
        if topology[0] is not snapshot.cluster_queues or topology[1] is not snapshot.cohorts:
            topology = (snapshot.cluster_queues, snapshot.cohorts)
            usages, quotas = {}, quota.plant(*topology)
        for name in {**usages, **snapshot.held}:
            before = usages.get(name, {})
            after = snapshot.held[name].usage if name in snapshot.held else {}
            if after is not before and after != before:
                quotas = quota.charge(quotas, name, _difference(before, after))
        found = {name: held.usage for name, held in snapshot.held.items()}
        self._last = (topology, found, quotas)
        return quotas


_BASE = _Base()


def _difference(before: Amounts, after: Amounts) -> Amounts:
    changes = {cell: after.get(cell, 0) - before.get(cell, 0) for cell in {**before, **after}}
    return {cell: change for cell, change in changes.items() if change}
