"""A snapshot with its pending Workloads counted in, and how it would take a new Workload.

Whether each pending Workload reserves quota is predicted by Kueue's own rules, whatever Kueue has
written about it so far (docs/decisions/0003). Preemption and fair sharing are not predicted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

from webhook.kueue import partial_admission, quota
from webhook.kueue.assignment import (
    NEVER,
    Assignment,
    Claimant,
    Level,
    PreemptionMode,
    oracle_by_counts,
    set_aside,
)
from webhook.kueue.explained import (
    NOWHERE,
    ExplainedAssignment,
    as_unplaced,
    explained,
    parts_of,
    refused,
)
from webhook.kueue.fair_rounds import use_of
from webhook.kueue.flavor_plan import flavors_with_topology
from webhook.kueue.placed_assignment import assign_placed, shifted
from webhook.kueue.preemption import (
    ANY,
    Preemptor,
    QuotaHolder,
    candidates_in,
)
from webhook.kueue.preemptor import Possibility, Preemptions
from webhook.kueue.quota import Forest, Taken, UsageTree
from webhook.kueue.start_times import StartTimes
from webhook.kueue.topology_room import OccupiedDomains
from webhook.model.decision import Rejection
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
    Reservation,
    Snapshot,
    StopPolicy,
    Trial,
    namespace_labels,
)
from webhook.model.reasons import Reason

EMPTY = Held()
NO_START_TIMES = StartTimes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """What each ClusterQueue holds once Kueue has tried the arrivals, and when new Jobs start."""

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
    if found.assignment.placed and _are_domains_claimed(occupancy, cluster_queue):
        return as_unplaced(found)
    return found


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
    targets = _PreemptionTargets(occupancy, tree, cluster_queue, preemptor)
    return Claimant(
        tree=tree,
        leaf=leaf,
        queue=cluster_queue,
        oracle=targets.possibility,
        fair_sharing=occupancy.snapshot.kueue.fair_sharing,
        release=occupancy.snapshot.kueue.release,
        victims=targets.victims,
    )


_MODES = {
    Possibility.NO_CANDIDATES: PreemptionMode.NO_CANDIDATES,
    Possibility.PREEMPT: PreemptionMode.PREEMPT,
    Possibility.RECLAIM: PreemptionMode.RECLAIM,
}


class _PreemptionTargets:
    """Whom a Workload would preempt; who holds quota is looked up only if that is asked."""

    def __init__(
        self, occupancy: Occupancy, tree: UsageTree, queue: ClusterQueue, preemptor: Preemptor
    ) -> None:
        self._occupancy, self._tree, self._queue = occupancy, tree, queue
        self._preemptor = preemptor

    def possibility(self, cell: int, amount: int) -> Level:
        """Return what preempting can do for one cell, as Kueue's oracle does."""
        if self._preemptions is None:
            return self._by_counts(cell, amount)
        possible, height = self._preemptions.possibility(self._preemptor, cell, amount)
        return _MODES[possible], height

    def victims(self, taken: Taken) -> int | None:
        """Count those that stop for this quota; None: it is not known who holds it."""
        if self._preemptions is None:
            return None
        available, leaf = self._tree.available, self._preemptor.leaf
        short = [cell for cell, amount in taken if available(leaf, cell) < amount]
        preemptor = replace(self._preemptor, taken=taken)
        return len(self._preemptions.targets(preemptor, short))

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


def _are_known(occupancy: Occupancy, name: str) -> bool:
    """Return whether the snapshot names who holds quota in a ClusterQueue, if only the first."""
    snapshot = occupancy.snapshot
    observed = occupancy.held(name).reserving - len(occupancy.reserved.get(name, ()))
    return not observed or name in snapshot.reserving


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
        and cluster_queue.active
        and local_queue.stop_policy is StopPolicy.NONE
        and cluster_queue.stop_policy is StopPolicy.NONE
        and _namespace_is_selected(occupancy.snapshot, local_queue, cluster_queue)
        and not _is_behind(occupancy.held(cluster_queue.name), cluster_queue)
        and not _is_kept_out(occupancy, assigned, cluster_queue, priority)
    )


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


def _namespace_is_selected(
    snapshot: Snapshot, local_queue: LocalQueue, cluster_queue: ClusterQueue
) -> bool:
    return cluster_queue.namespaces.matches(namespace_labels(snapshot, local_queue.namespace))


def _is_behind(held: Held, cluster_queue: ClusterQueue) -> bool:
    return cluster_queue.queueing is Queueing.STRICT and held.pending > 0


def _is_kept_out(
    occupancy: Occupancy, assigned: Assignment, cluster_queue: ClusterQueue, priority: int
) -> bool:
    """Return whether it fits only with quota that Kueue sets aside for heads that it tries before.

    A cycle tries the heads that borrow from a lower height first, then those of higher priority,
    then the older ones.
    """
    # ``makeClassicalIterator`` in Kueue:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/scheduler.go#L1094
    tree = _at_its_turn(occupancy, assigned, cluster_queue.name, priority)
    return tree.room(tree.leaves[cluster_queue.name], assigned.taken) < 1


def _at_its_turn(
    occupancy: Occupancy, assigned: Assignment, cluster_queue: str, priority: int
) -> UsageTree:
    """Return a tree with what is set aside for heads that are tried before a new Workload charged.

    *assigned* and *priority* are those of the new Workload.
    """
    tree = charged = occupancy.forest[cluster_queue]
    for name in occupancy.heads:
        head = occupancy.held(name).head
        # At equal height and priority the head is tried first, because it is older.
        if head is None or (head.height, -head.priority) > (assigned.height, -priority):
            continue
        if name in tree.leaves:
            charged = tree.copy() if charged is tree else charged
            charged.charge(tree.leaves[name], tree.taken(head.set_aside))
    return charged


def _somebody_is_unready(occupancy: Occupancy) -> bool:
    return any(held.reserving > held.ready for held in occupancy.holdings.values())


def build(snapshot: Snapshot, placements: Sequence[Arrival] = ()) -> Occupancy:
    """Return the occupancy of a snapshot: its arrivals counted in, then *placements*, in order."""
    occupancy = as_held(idle(snapshot), snapshot.held)
    return with_arrivals(occupancy, (*snapshot.arrivals, *placements))


def idle(snapshot: Snapshot) -> Occupancy:
    """Return an occupancy in which the ClusterQueues hold nothing."""
    forest = quota.plant(snapshot.cluster_queues, snapshot.cohorts)
    return Occupancy(
        snapshot=snapshot,
        forest=forest,
        holdings={},
        preemptible=candidates_in(snapshot),
        start_times=NO_START_TIMES.adopt(snapshot),
    )


def as_held(occupancy: Occupancy, cluster_queues: Collection[str]) -> Occupancy:
    """Reset some ClusterQueues to what the snapshot says they hold, without any arrivals."""
    held, holdings = occupancy.snapshot.held, dict(occupancy.holdings)
    changes: dict[str, Amounts] = {}
    occupied = occupancy.occupied
    heads = {name for name in occupancy.heads if name not in cluster_queues}
    for name in cluster_queues:
        before, after = holdings.pop(name, EMPTY), held.get(name, EMPTY)
        if name in held:
            holdings[name] = after
        if after.head is not None:
            heads.add(name)
        # Only the difference is charged, so that the usage of all other queues is kept.
        changes[name] = _difference(before.usage, after.usage)
        occupied = shifted(occupied, before.placed, -1)
        occupied = shifted(occupied, after.placed, 1)
    forest = occupancy.forest.charged(changes)
    reserved = {
        name: of_queue
        for name, of_queue in occupancy.reserved.items()
        if name not in cluster_queues
    }
    return replace(
        occupancy,
        forest=forest,
        holdings=holdings,
        heads=tuple(heads),
        reserved=reserved,
        occupied=occupied,
    )


def with_arrivals(occupancy: Occupancy, arrivals: Iterable[Arrival]) -> Occupancy:
    """Count in arrivals one after another; in a long queue most have no room, and cost little."""
    joined: defaultdict[str, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        queues = _queues_of(occupancy.snapshot, arrival)
        if queues is None:
            continue
        name = queues[1].name
        if _may_reserve(occupancy, arrival, queues[1]):
            occupancy = _with_joined(occupancy, name, joined.pop(name, ()))
            occupancy = _with_tried(occupancy, arrival, queues)
        else:
            # Under BestEffortFIFO one without room takes no quota and blocks nobody, so it is
            # added to the pending together with others.
            joined[name].append(arrival)
    for name, of_queue in joined.items():
        occupancy = _with_joined(occupancy, name, of_queue)
    return occupancy


def _with_joined(occupancy: Occupancy, name: str, joined: Sequence[Arrival]) -> Occupancy:
    """Add arrivals to the pending Workloads of a ClusterQueue."""
    return _holding(occupancy, name, _joined(occupancy.held(name), joined)) if joined else occupancy


def _queues_of(snapshot: Snapshot, arrival: Arrival) -> tuple[LocalQueue, ClusterQueue] | None:
    """Return the queues of an arrival; None: they do not exist, or its LocalQueue is stopped."""
    local_queue = snapshot.local_queues.get((arrival.namespace, arrival.local_queue))
    # Kueue does not queue the Workloads of a stopped LocalQueue.
    if local_queue is None or local_queue.stop_policy is not StopPolicy.NONE:
        return None
    cluster_queue = snapshot.cluster_queues.get(local_queue.cluster_queue)
    return None if cluster_queue is None else (local_queue, cluster_queue)


def with_arrival(occupancy: Occupancy, arrival: Arrival) -> Occupancy:
    """Count in Workloads of one shape: each reserves quota if it could at once, or is pending."""
    queues = _queues_of(occupancy.snapshot, arrival)
    if queues is None:
        return occupancy
    if not _may_reserve(occupancy, arrival, queues[1]):
        return _with_joined(occupancy, queues[1].name, (arrival,))
    return _with_tried(occupancy, arrival, queues)


def _may_reserve(occupancy: Occupancy, arrival: Arrival, cluster_queue: ClusterQueue) -> bool:
    """Return False if trying an arrival would change nothing: it has no room, and blocks nobody."""
    is_strict = cluster_queue.queueing is Queueing.STRICT
    return is_strict or _has_room(occupancy, arrival, cluster_queue)


def _with_tried(
    occupancy: Occupancy, arrival: Arrival, queues: tuple[LocalQueue, ClusterQueue]
) -> Occupancy:
    local_queue, cluster_queue = queues
    left = arrival.count
    while left > 0:
        assigned = _assigned(occupancy, arrival, cluster_queue)
        if not reserves_now(
            occupancy, assigned, local_queue, cluster_queue, priority=arrival.priority
        ):
            # The others have the same shape, so they cannot reserve quota either.
            return _waiting(occupancy, arrival, assigned, cluster_queue, left)
        tree = _at_its_turn(occupancy, assigned, cluster_queue.name, arrival.priority)
        # As long as nothing is borrowed, the first flavor that fits remains the first that fits.
        alike = tree.own_room(tree.leaves[cluster_queue.name], assigned.taken)
        # Each that is placed leaves other domains to the next one.
        count = 1 if assigned.placed else min(left, max(1, alike))
        usage = {cell: n * count for cell, n in tree.amounts(assigned.taken).items()}
        held = _reserving(occupancy.held(cluster_queue.name), arrival, usage, count)
        forest = occupancy.forest.charged({cluster_queue.name: usage})
        occupancy = _with_reserved(occupancy, arrival, cluster_queue.name, assigned, count)
        held = replace(held, placed=held.placed + assigned.placed)
        occupied = shifted(occupancy.occupied, assigned.placed, 1)
        occupancy = replace(occupancy, forest=forest, occupied=occupied)
        occupancy = _holding(occupancy, cluster_queue.name, held)
        left -= count
    return occupancy


_LATEST = 1 << 53
"""Later than all that was observed, in seconds since 1970: those of the newest go first."""


def _with_reserved(
    occupancy: Occupancy, arrival: Arrival, name: str, assigned: Assignment, count: int
) -> Occupancy:
    """Name Workloads that are counted as reserving, if Kueue may preempt them there."""
    if name not in occupancy.preemptible:
        return occupancy
    before = occupancy.reserved.get(name, ())
    charge = tuple(occupancy.forest[name].amounts(assigned.taken).items())
    added = tuple(
        Reservation(
            key=f"{arrival.namespace}/{arrival.key} {len(before) + number}",
            local_queue=arrival.local_queue,
            charge=charge,
            priority=arrival.priority,
            reserved_at=_LATEST + len(before) + number,
            queued_at=arrival.created or _LATEST,
            is_evicted=False,
            uid="",
        )
        for number in range(count)
    )
    return replace(occupancy, reserved={**occupancy.reserved, name: before + added})


def is_kept_waiting(occupancy: Occupancy, arrival: Arrival) -> bool:
    """Return whether Kueue would leave some of an arrival's Workloads pending."""
    queues = _queues_of(occupancy.snapshot, arrival)
    if queues is None:
        return False
    name = queues[1].name
    after = with_arrival(occupancy, arrival)
    return after.held(name).pending > occupancy.held(name).pending


def with_waiting(occupancy: Occupancy, arrival: Arrival) -> Occupancy:
    """Count in Workloads of one shape as pending, because Kueue has tried them and they wait."""
    queues = _queues_of(occupancy.snapshot, arrival)
    if queues is None:
        return occupancy
    _, cluster_queue = queues
    assigned = _assigned(occupancy, arrival, cluster_queue)
    return _waiting(occupancy, arrival, assigned, cluster_queue, arrival.count)


def _has_room(occupancy: Occupancy, arrival: Arrival, cluster_queue: ClusterQueue) -> bool:
    """Return False if an arrival cannot fit by quota alone; True means that it may fit.

    This is cheap, and rules out most of a long queue. Flavors are not matched with its pods, and
    each pod set is compared by itself.
    """
    tree = occupancy.forest.tree(cluster_queue.name)
    if tree is None:
        return False
    leaf, indices = tree.leaves[cluster_queue.name], tree.indices
    return all(
        any(
            all(
                not n
                or tree.available(leaf, indices[flavor, resource])
                >= n * partial_admission.fewest(pod_set) - pod_set.held.get((flavor, resource), 0)
                for resource, n in pod_set.per_pod.items()
                if resource in group.resources
            )
            for flavor in group.flavors
        )
        for pod_set in arrival.needs
        for group in cluster_queue.groups
    )


def _waiting(
    occupancy: Occupancy,
    arrival: Arrival,
    assigned: Assignment,
    cluster_queue: ClusterQueue,
    count: int,
) -> Occupancy:
    """Add to the pending Workloads; the head of a StrictFIFO queue may get quota set aside."""
    before = occupancy.held(cluster_queue.name)
    held = _joined(before, (replace(arrival, count=count),))
    # Kueue tries a StrictFIFO head in every cycle. One of a BestEffortFIFO queue that does not fit
    # is inadmissible until quota is released, and keeps nothing free until then.
    is_head = cluster_queue.queueing is Queueing.STRICT and not before.pending
    place = claimant(occupancy, cluster_queue, priority=arrival.priority) if is_head else None
    if place is not None and (aside := set_aside(assigned, place)):
        head = Head(
            priority=arrival.priority, height=assigned.height, set_aside=place.tree.amounts(aside)
        )
        held = replace(held, head=head)
        occupancy = replace(occupancy, heads=(*occupancy.heads, cluster_queue.name))
    return _holding(occupancy, cluster_queue.name, held)


def _holding(occupancy: Occupancy, name: str, held: Held) -> Occupancy:
    return replace(occupancy, holdings={**occupancy.holdings, name: held})


def _assigned(occupancy: Occupancy, arrival: Arrival, cluster_queue: ClusterQueue) -> Assignment:
    queued_at = arrival.created or inf
    place = claimant(occupancy, cluster_queue, priority=arrival.priority, queued_at=queued_at)
    if place is None:
        return NOWHERE
    needs, snapshot = arrival.needs, occupancy.snapshot

    def assigned(wanted: Sequence[PodSetNeeds]) -> Assignment:
        parts = parts_of(wanted, place, snapshot)
        return assign_placed(wanted, parts, place, snapshot, occupancy.occupied)

    whole = assigned(needs)
    most = 0 if whole.mode >= PreemptionMode.PREEMPT else partial_admission.most_missing(needs)

    def fitting(missing: int) -> Assignment | None:
        part = assigned(partial_admission.with_missing(needs, missing))
        return part if part.fits else None

    return partial_admission.most_that_fit(most, fitting) or whole


def _joined(held: Held, arrivals: Sequence[Arrival]) -> Held:
    guests, trials = dict(held.guests), held.trials
    for arrival in arrivals:
        trials = _with_trial(trials, arrival, arrival.count)
        # Only Workloads that were decided by a policy count as its guests.
        if arrival.policy:
            guest = arrival.policy, arrival.option, arrival.namespace
            guests[guest] = guests.get(guest, 0) + arrival.count
    pending = held.pending + sum(arrival.count for arrival in arrivals)
    return replace(held, pending=pending, guests=guests, trials=trials)


def _reserving(held: Held, arrival: Arrival, charged: Amounts, count: int) -> Held:
    usage = dict(held.usage)
    for cell, amount in charged.items():
        usage[cell] = usage.get(cell, 0) + amount
    return replace(
        held,
        reserving=held.reserving + count,
        usage=usage,
        guests=_with_guests(held, arrival, count),
        trials=_with_trial(held.trials, arrival, count),
        lowest_priority=_lowest(held, arrival.priority),
    )


def _with_guests(held: Held, arrival: Arrival, count: int) -> Mapping[Guest, int]:
    if not arrival.policy:
        return held.guests
    key = (arrival.policy, arrival.option, arrival.namespace)
    return {**held.guests, key: held.guests.get(key, 0) + count}


def _with_trial(trials: Mapping[Trial, int], arrival: Arrival, count: int) -> Mapping[Trial, int]:
    if not arrival.policy or arrival.job_class is None:
        return trials
    key = (arrival.policy, arrival.option, arrival.job_class.key)
    return {**trials, key: trials.get(key, 0) + count}


def _lowest(held: Held, priority: int) -> int | None:
    # None with reserving Workloads means that their priorities are unknown, and so is the lowest.
    if held.lowest_priority is None:
        return None if held.reserving else priority
    return min(held.lowest_priority, priority)


def _difference(before: Amounts, after: Amounts) -> Amounts:
    changes = {cell: after.get(cell, 0) - before.get(cell, 0) for cell in {**before, **after}}
    return {cell: change for cell, change in changes.items() if change}
