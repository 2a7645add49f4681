"""A snapshot with its pending Workloads folded into its counts, and what it says of a newcomer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from webhook.kueue import quota
from webhook.kueue.assignment import Assignment, Place, assign
from webhook.kueue.outlook import Outlook
from webhook.kueue.quota import Quotas
from webhook.model.decision import Fit
from webhook.model.queues import (
    ClusterQueue,
    Held,
    LocalQueue,
    PodSetNeeds,
    Queueing,
    Snapshot,
    StopPolicy,
)

EMPTY = Held()
NO_OUTLOOK = Outlook()


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    snapshot: Snapshot
    quotas: Quotas
    holdings: Mapping[str, Held]
    """ClusterQueue to what it holds, arrivals included."""
    heads: tuple[str, ...] = ()
    """ClusterQueues that quota is set aside for."""
    outlook: Outlook = NO_OUTLOOK
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
