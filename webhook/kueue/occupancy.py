"""What each ClusterQueue holds with its pending Workloads counted in, and how it would take others.

Kueue's next cycle is asked about one new Workload: its flavors, whether it has room at its turn
behind the heads, and whether it starts. It must not know how the pending ones were counted in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from webhook.kueue.assignment import Assignment, Claimant
from webhook.kueue.cycle import Kept
from webhook.kueue.explained import (
    ExplainedAssignment,
    as_unplaced,
    as_waiting,
    explained,
    refused,
)
from webhook.kueue.flavor_plan import flavors_with_topology
from webhook.kueue.preemption import Preemptor
from webhook.kueue.preemption_targets import PreemptionTargets
from webhook.kueue.quota import Forest, UsageTree
from webhook.kueue.simulation import is_open
from webhook.kueue.topology_placement import OccupiedDomains
from webhook.kueue.tree_forecast import StartTimes
from webhook.model.decision import Fit, Rejection
from webhook.model.queues import (
    ClusterQueue,
    Held,
    LocalQueue,
    PodSetNeeds,
    Queueing,
    Reservation,
    Snapshot,
    StopPolicy,
    namespace_labels,
)
from webhook.model.reasons import Reason

EMPTY = Held()
NO_START_TIMES = StartTimes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """What each ClusterQueue holds once Kueue has tried what pends, and when new Jobs start."""

    snapshot: Snapshot
    forest: Forest
    """The quota of all ClusterQueues, with what *holdings* use of it."""
    holdings: Mapping[str, Held]
    """ClusterQueue to its Workloads and usage, arrivals included."""
    heads: tuple[str, ...] = ()
    """ClusterQueues for whose head quota is set aside."""
    reserved: Mapping[str, tuple[Reservation, ...]] = field(default_factory=dict)
    """ClusterQueue to the arrivals that are counted as reserving quota there, where Kueue may
    preempt them."""
    occupied: OccupiedDomains = field(default_factory=dict)
    """What is in use in the domains of Topologies, by the Workloads of all ClusterQueues."""
    preemptible: frozenset[str] = frozenset()
    """ClusterQueues from which Kueue may preempt."""
    start_times: StartTimes = NO_START_TIMES
    """The start times that are forecast, placements included."""
    clusters: Mapping[str, Occupancy] = field(default_factory=dict)
    """Watched worker cluster to its own occupancy, as last observed."""
    unheard: Mapping[str, float] = field(default_factory=dict)
    """Worker cluster that is watched but not observed yet, to when the watch began, in seconds on
    the clock of ``Snapshot.as_of``."""
    stale: Mapping[str, str] = field(default_factory=dict)
    """Worker cluster whose state is too old to be used, to the reason in words."""

    def held(self, cluster_queue: str) -> Held:
        return self.holdings.get(cluster_queue, EMPTY)


def assignment(
    occupancy: Occupancy,
    needs: Sequence[PodSetNeeds],
    cluster_queue: ClusterQueue,
    *,
    priority: int = 0,
) -> ExplainedAssignment:
    """Return how *cluster_queue* would take a Job with these needs.

    Raises:
        FieldError: a toleration or an affinity term of a template cannot be read.

    """
    place = claimant(occupancy, cluster_queue, priority=priority)
    if place is None:
        # Kueue leaves it out of its cycles.
        detail = f"the cohorts of ClusterQueue {cluster_queue.name} form a cycle"
        return refused(Rejection(reason=Reason.INACTIVE, detail=detail))
    found = explained(needs, place, occupancy.snapshot, occupancy.occupied)
    held = occupancy.held(cluster_queue.name)
    if found.fit is Fit.MAY_PREEMPT and (
        is_behind(held, cluster_queue, priority) or place.is_kept_out(found.assignment)
    ):
        return as_waiting(found)
    if found.assignment.placed and _are_domains_claimed(occupancy, cluster_queue):
        return as_unplaced(found)
    return found


def _is_kept_from_preempting(
    occupancy: Occupancy, assigned: Assignment, cluster_queue: ClusterQueue, priority: int
) -> bool:
    """Return whether quota set aside for heads leaves no room even where its victims have gone."""
    # ``fits`` in Kueue, for a Workload with preemption targets:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/scheduler.go#L755
    tree = occupancy.forest[cluster_queue.name]
    charged = at_its_turn(occupancy, assigned, cluster_queue.name, priority)
    if charged is tree:
        return False
    leaf = tree.leaves[cluster_queue.name]
    preemptor = Preemptor(leaf=leaf, taken=(), priority=priority, queued_at=inf)
    victims = PreemptionTargets(occupancy, tree, cluster_queue, preemptor).targets(assigned.taken)
    for victim in victims or ():
        charged.charge(victim.leaf, victim.taken, -1)
    return victims is not None and charged.room(leaf, assigned.taken) < 1


def _are_domains_claimed(occupancy: Occupancy, cluster_queue: ClusterQueue) -> bool:
    """Return whether somebody who waits for domains may come before a new Workload again and again.

    Kueue tries the head of a StrictFIFO queue in each cycle, and keeps domains for it as if all
    others were preempted. So it does for who finds no domain in one of several flavors: that one is
    tried in the next flavor at once, and then in the first again, before those who came later.
    """
    # ``updateAssignmentForTAS``, and ``LastAssignment.PendingFlavors``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/scheduler.go#L925
    snapshot = occupancy.snapshot
    return any(
        occupancy.held(name).pending > 0
        and bool(flavors_with_topology(queue, snapshot))
        and (
            any(len(group.flavors) > 1 for group in queue.groups)
            or (queue.queueing is Queueing.STRICT and queue is not cluster_queue)
        )
        for name, queue in snapshot.cluster_queues.items()
    )


def claimant(
    occupancy: Occupancy,
    cluster_queue: ClusterQueue,
    *,
    priority: int,
    queued_at: float = inf,
) -> Claimant | None:
    """Return a Workload's place; None: its ClusterQueue is under a cycle of cohorts.

    *queued_at*: the time by which its queue orders it, in seconds since 1970; inf: it is new.
    """
    tree = occupancy.forest.tree(cluster_queue.name)
    if tree is None:
        return None
    leaf = tree.leaves[cluster_queue.name]
    preemptor = Preemptor(leaf=leaf, taken=(), priority=priority, queued_at=queued_at)
    targets = PreemptionTargets(occupancy, tree, cluster_queue, preemptor)

    def is_kept_out(assigned: Assignment) -> bool:
        if not occupancy.heads:
            return False
        if assigned.fits:
            return not _has_room_at_its_turn(occupancy, assigned, cluster_queue, priority)
        return _is_kept_from_preempting(occupancy, assigned, cluster_queue, priority)

    return Claimant(
        tree=tree,
        leaf=leaf,
        queue=cluster_queue,
        oracle=targets.possibility,
        fair_sharing=occupancy.snapshot.kueue.fair_sharing,
        release=occupancy.snapshot.kueue.release,
        victims=targets.victims,
        is_kept_out=is_kept_out,
    )


def reserves_now(
    occupancy: Occupancy,
    assigned: Assignment,
    local_queue: LocalQueue,
    cluster_queue: ClusterQueue,
    *,
    priority: int = 0,
) -> bool:
    """Return whether Kueue would reserve quota for a new Workload in its next cycle.

    Under BestEffortFIFO the older pending Workloads have been tried and do not fit, so a new one
    that fits overtakes them. Under StrictFIFO it waits behind them, and a Workload of another
    ClusterQueue also waits if it needs the quota that is set aside for their head.
    """
    return (
        assigned.fits
        and is_open(cluster_queue)
        and local_queue.stop_policy is StopPolicy.NONE
        and is_namespace_selected(occupancy.snapshot, local_queue, cluster_queue)
        and not is_behind(occupancy.held(cluster_queue.name), cluster_queue, priority)
        and _has_room_at_its_turn(occupancy, assigned, cluster_queue, priority)
    )


def _has_room_at_its_turn(
    occupancy: Occupancy, assigned: Assignment, cluster_queue: ClusterQueue, priority: int
) -> bool:
    tree = at_its_turn(occupancy, assigned, cluster_queue.name, priority)
    return tree.room(tree.leaves[cluster_queue.name], assigned.taken) >= 1


def starts_now(
    occupancy: Occupancy,
    assigned: ExplainedAssignment,
    local_queue: LocalQueue,
    cluster_queue: ClusterQueue,
    *,
    priority: int = 0,
) -> bool:
    """Return whether Kueue would admit a new Workload in its next cycle, with no check to pass."""
    # Kueue admits a Workload only when it has quota and all AdmissionChecks of its flavors are
    # Ready.
    return not cluster_queue.checks_on(flavor for flavor, _ in assigned.usage) and passes_now(
        occupancy, assigned, local_queue, cluster_queue, priority=priority
    )


def passes_now(
    occupancy: Occupancy,
    assigned: ExplainedAssignment,
    local_queue: LocalQueue,
    cluster_queue: ClusterQueue,
    *,
    priority: int = 0,
) -> bool:
    """Return whether only AdmissionChecks could keep a new Workload from being admitted next.

    With ``waitForPodsReady.blockAdmission``, one admitted Workload without ready pods blocks all
    others. One that is predicted to get its quota now has no ready pods yet.
    """
    # ``PodsReadyForAllAdmittedWorkloads`` in Kueue:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/cache.go#L241
    return reserves_now(
        occupancy, assigned.assignment, local_queue, cluster_queue, priority=priority
    ) and not (occupancy.snapshot.kueue.block_admission and _somebody_is_unready(occupancy))


def is_namespace_selected(
    snapshot: Snapshot, local_queue: LocalQueue, cluster_queue: ClusterQueue
) -> bool:
    return cluster_queue.namespaces.matches(namespace_labels(snapshot, local_queue.namespace))


def is_behind(held: Held, cluster_queue: ClusterQueue, priority: int) -> bool:
    """Return whether a new Workload waits behind the head of its queue."""
    if not held.pending:
        return False
    if held.head is None:
        return cluster_queue.queueing is Queueing.STRICT
    # Of one priority, the new one is the younger.
    return held.head.priority >= priority


def at_its_turn(
    occupancy: Occupancy, assigned: Assignment, cluster_queue: str, priority: int
) -> UsageTree:
    """Return a tree with what is set aside for heads that are served before a new Workload charged.

    *assigned* and *priority* are those of the new Workload. A cycle serves the heads that borrow
    from a lower height first, then those of higher priority, then the older ones.
    """
    # ``makeClassicalIterator`` in Kueue:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/scheduler.go#L1094
    tree = occupancy.forest[cluster_queue]
    turn = assigned.height, -priority
    kept = _kept(occupancy, tree, cluster_queue)
    before = [(leaf, aside) for height, order, leaf, aside in kept if (height, order) <= turn]
    if not before:
        return tree
    charged = tree.copy()
    for leaf, aside in before:
        charged.charge(leaf, aside)
    return charged


def _kept(occupancy: Occupancy, tree: UsageTree, cluster_queue: str) -> Iterator[Kept]:
    """Yield what is set aside for the heads of the other ClusterQueues of a tree.

    Of its own ClusterQueue a Workload is the head, or waits behind it.
    """
    for name in occupancy.heads:
        head = occupancy.held(name).head
        if head is not None and name in tree.leaves and name != cluster_queue:
            yield head.height, -head.priority, tree.leaves[name], tree.taken(head.set_aside)


def _somebody_is_unready(occupancy: Occupancy) -> bool:
    return any(held.reserving > held.ready for held in occupancy.holdings.values())
