"""What each ClusterQueue holds with its pending Workloads counted in, and how it would take others.

Kueue's next cycle is asked about one new Workload: its flavors, whether it has room at its turn
behind the heads, whom it would preempt, and whether it starts; the answer is in words that people
read. It must not know how the pending ones were counted in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

from webhook.kueue import flavor_plan
from webhook.kueue.assignment import (
    Assignment,
    Choice,
    Claimant,
    Level,
    PreemptionMode,
    assign_placed,
    oracle_by_counts,
    victims_of,
)
from webhook.kueue.cycle import Kept
from webhook.kueue.fair_sharing import use_of
from webhook.kueue.flavor_plan import Flavor, flavors_with_topology
from webhook.kueue.preemption import Preemptions, TriedHead
from webhook.kueue.quota import Forest, Taken, UsageTree
from webhook.kueue.simulation import is_open
from webhook.kueue.topology_placement import NOTHING_PLACED, OccupiedDomains
from webhook.kueue.tree_forecast import StartTimes
from webhook.model import quantity
from webhook.model.decision import Fit, Rejection
from webhook.model.fields import FieldError
from webhook.model.quantity import Amounts, FlavorResource
from webhook.model.queues import (
    ANY,
    NEVER,
    ClusterQueue,
    Held,
    LocalQueue,
    PodSetNeeds,
    Queueing,
    QuotaHolder,
    StopPolicy,
)
from webhook.model.reasons import Reason
from webhook.model.snapshot_parts import ClusterObjects, KueueSetup
from webhook.state.snapshot import Snapshot

_NOT_LOOKED_AT = "; its topology is not looked at"
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
    reserved: Mapping[str, tuple[QuotaHolder, ...]] = field(default_factory=dict)
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


def beside(start_times: StartTimes, snapshot: Snapshot) -> StartTimes:
    """Return the same placements beside the forecasts of a snapshot."""
    return replace(
        start_times,
        setup=snapshot.setup,
        held=snapshot.workloads.held,
        run_times=snapshot.learned.run_times,
        forecasts=snapshot.forecasts,
    )


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
    found = explained(needs, place, occupancy.snapshot.setup, occupancy.occupied)
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
    preemptor = TriedHead(leaf=leaf, taken=(), priority=priority, queued_at=inf)
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
    setup = occupancy.snapshot.setup
    return any(
        occupancy.held(name).pending > 0
        and bool(flavors_with_topology(queue, setup))
        and (
            any(len(group.flavors) > 1 for group in queue.groups)
            or (queue.queueing is Queueing.STRICT and queue is not cluster_queue)
        )
        for name, queue in setup.cluster_queues.items()
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
    preemptor = TriedHead(leaf=leaf, taken=(), priority=priority, queued_at=queued_at)
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
        fair_sharing=occupancy.snapshot.setup.kueue.fair_sharing,
        release=occupancy.snapshot.setup.kueue.release,
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
        and is_namespace_selected(occupancy.snapshot.cluster, local_queue, cluster_queue)
        and not is_behind(occupancy.held(cluster_queue.name), cluster_queue, priority)
        and _has_room_at_its_turn(occupancy, assigned, cluster_queue, priority)
    )


def _has_room_at_its_turn(
    occupancy: Occupancy, assigned: Assignment, cluster_queue: ClusterQueue, priority: int
) -> bool:
    # What fits lacks nothing where no quota is set aside.
    if not occupancy.heads:
        return True
    tree = at_its_turn(occupancy, assigned, cluster_queue.name, priority)
    return tree.room(tree.leaves[cluster_queue.name], assigned.taken) >= 1


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
    ) and not (occupancy.snapshot.setup.kueue.block_admission and _somebody_is_unready(occupancy))


def is_namespace_selected(
    cluster: ClusterObjects, local_queue: LocalQueue, cluster_queue: ClusterQueue
) -> bool:
    return cluster_queue.namespaces.matches(cluster.labels_of(local_queue.namespace))


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


class PreemptionTargets:
    """Whom a Workload would preempt of those whom a snapshot names; of others, whether it may.

    Who holds quota is looked up only if that is asked.
    """

    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption_oracle.go

    def __init__(
        self, occupancy: Occupancy, tree: UsageTree, queue: ClusterQueue, preemptor: TriedHead
    ) -> None:
        self._occupancy, self._tree, self._queue = occupancy, tree, queue
        self._preemptor = preemptor

    def possibility(self, cell: int, amount: int) -> Level:
        """Return what preempting can do for one cell, as Kueue's oracle does."""
        if self._preemptions is None:
            return self._by_counts(cell, amount)
        return self._preemptions.possibility(self._preemptor, cell, amount)

    def victims(self, taken: Taken) -> int | None:
        """Count those that stop for this quota; None: it is not known who holds it."""
        found = self.targets(taken)
        return None if found is None else len(found)

    def targets(self, taken: Taken) -> Sequence[QuotaHolder] | None:
        """Return those that stop for this quota; None: it is not known who holds it."""
        if self._preemptions is None:
            return None
        victims = self._preemptions.victims(self._preemptor._replace(taken=taken))
        return [victim.holder for victim in victims]

    @cached_property
    def _preemptions(self) -> Preemptions | None:
        """Those who may be preempted; None: of some of them nothing is known but their number."""
        names = self._candidates()
        if not all(_are_known(self._occupancy, name) for name in names):
            return None
        setup, tree = self._occupancy.snapshot.setup, self._tree.copy()
        use, is_fair = use_of(setup, tree), setup.kueue.fair_sharing
        return Preemptions(
            tree,
            {self._preemptor.leaf: self._queue.preemption},
            (holder for name in names for holder in self._holders(name)),
            strategies=setup.kueue.preemption_strategies if is_fair else None,
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
        known = (
            *occupancy.snapshot.workloads.reserving.get(name, ()),
            *occupancy.reserved.get(name, ()),
        )
        for holder in known:
            if is_any or holder.priority <= preemptor.priority:
                yield holder._replace(leaf=leaf, taken=tree.taken(dict(holder.charge)))

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
    return not observed or name in snapshot.workloads.reserving


NOWHERE = Assignment(mode=PreemptionMode.EXCEEDS)
"""That of a Workload that the ClusterQueue can never take, whatever its quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedAssignment:
    """How one ClusterQueue would take a Workload; amounts are as in ``model.quantity``."""

    fit: Fit
    usage: Amounts = field(default_factory=dict)
    """The quota that it would be charged. Empty unless it fits."""
    detail: str = ""
    """The amounts behind ``fit``, for people."""
    rejection: Rejection | None = None
    """Why it can never fit; None: it can."""
    assignment: Assignment = NOWHERE
    preempts: int = 0
    """How many Workloads Kueue would preempt for it, where that is known."""

    def has_checks(self, cluster_queue: ClusterQueue) -> bool:
        """Return whether AdmissionChecks of its flavors come between its quota and admission."""
        return bool(cluster_queue.checks_on(flavor for flavor, _ in self.usage))


def explained(
    needs: Sequence[PodSetNeeds],
    claimant: Claimant,
    setup: KueueSetup,
    occupied: OccupiedDomains = NOTHING_PLACED,
) -> ExplainedAssignment:
    """Assign a flavor to each resource group of each pod set.

    *occupied* is what is in use in the domains of Topologies.

    Raises:
        FieldError: a toleration or an affinity term of a template cannot be read.

    """
    plans = [flavor_plan.plan_flavors(pod_set, claimant.queue, setup) for pod_set in needs]
    for plan in plans:
        if plan.rejection is not None:
            return refused(plan.rejection)
    groups = flavor_plan.parts(needs, plans)
    choices = _choices(groups, claimant.tree)
    assigned = assign_placed(needs, choices, claimant, setup, occupied)
    if assigned.mode is PreemptionMode.EXCEEDS:
        return refused(_rejection(assigned, groups, claimant))
    if assigned.mode is PreemptionMode.FITS:
        usage = claimant.tree.amounts(assigned.taken)
        detail = _taken(usage, setup, is_placed=assigned.is_placed)
        return ExplainedAssignment(fit=Fit.FITS, usage=usage, detail=detail, assignment=assigned)
    if assigned.is_placed:
        detail = f"no domain of flavor {_names(assigned.flavors)} has room"
        return ExplainedAssignment(fit=Fit.WAITS, detail=detail, assignment=assigned)
    detail = _lacking(assigned, groups, claimant)
    # The flavors were chosen resource by resource; the targets must free all of them at once.
    victims = victims_of(assigned, claimant)
    fit = Fit.WAITS if victims == 0 else Fit.MAY_PREEMPT
    return ExplainedAssignment(fit=fit, detail=detail, assignment=assigned, preempts=victims or 0)


def as_waiting(found: ExplainedAssignment) -> ExplainedAssignment:
    """Return an assignment for which nobody is preempted, because another Workload is tried."""
    return replace(found, fit=Fit.WAITS, preempts=0)


def as_unplaced(found: ExplainedAssignment) -> ExplainedAssignment:
    """Return an assignment of which it is not known any more that domains have room for it."""
    if not found.assignment.is_placed:
        return found
    unplaced = replace(found.assignment, is_placed=False)
    return replace(found, assignment=unplaced, detail=f"{found.detail}{_NOT_LOOKED_AT}")


def refused(rejection: Rejection) -> ExplainedAssignment:
    return ExplainedAssignment(fit=Fit.NEVER, detail=rejection.detail, rejection=rejection)


def parts_of(
    needs: Sequence[PodSetNeeds], claimant: Claimant, setup: KueueSetup
) -> Sequence[Sequence[Choice]]:
    """Translate needs into the indices of a tree, without the flavors that can never serve."""
    plans = [flavor_plan.plan_flavors(pod_set, claimant.queue, setup) for pod_set in needs]
    if any(plan.rejection is not None for plan in plans):
        return ((),)
    return _choices(flavor_plan.parts(needs, plans), claimant.tree)


def _choices(groups: Iterable[Iterable[Flavor]], tree: UsageTree) -> Sequence[Sequence[Choice]]:
    return [
        [
            (flavor.name, tree.taken(dict(flavor.usage)) if flavor.unreadable is None else None)
            for flavor in flavors
            if flavor.refusal is None
        ]
        for flavors in groups
    ]


def _rejection(
    assigned: Assignment, groups: Sequence[Sequence[Flavor]], claimant: Claimant
) -> Rejection:
    """Return why none of a group's flavors can ever serve."""
    # A flavor with too little quota came closer than one whose taints or labels do not match.
    if assigned.lacking is None:
        refusals = next(
            [flavor.refusal for flavor in flavors]
            for flavors in groups
            if all(flavor.refusal is not None for flavor in flavors)
        )
        nothing = Rejection(reason=Reason.NO_FLAVOR, detail="it has no flavors")
        return next(iter(refusals), None) or nothing
    at, amount = assigned.lacking
    cell = claimant.tree.cells[at]
    most = quantity.render(claimant.tree.potential(claimant.leaf, at), resource=cell[1])
    detail = f"asks for {_amount(cell, amount)}; ClusterQueue {claimant.queue.name} can never have "
    return Rejection(reason=Reason.EXCEEDS_MAXIMUM, detail=f"{detail}more than {most}")


def _lacking(assigned: Assignment, groups: Sequence[Sequence[Flavor]], claimant: Claimant) -> str:
    """Return how much is needed and how much is free of the resource that decides.

    Raises:
        FieldError: the template cannot be checked against a flavor, and that decides.

    """
    if assigned.lacking is None:
        # Raised only here, as Kueue also does not check flavors that it does not get to.
        faults = (flavor.unreadable for flavors in groups for flavor in flavors)
        fault = next(fault for fault in faults if fault is not None)
        raise FieldError(fault.path, fault.message)
    at, amount = assigned.lacking
    cell = claimant.tree.cells[at]
    free = max(0, claimant.tree.available(claimant.leaf, at))
    return f"needs {_amount(cell, amount)}, {quantity.render(free, resource=cell[1])} free"


def _amount(cell: FlavorResource, amount: int) -> str:
    flavor, resource = cell
    return f"{resource} {quantity.render(amount, resource=resource)} (flavor {flavor})"


def _names(flavors: Iterable[str]) -> str:
    return ", ".join(sorted(set(flavors)))


def _taken(usage: Amounts, setup: KueueSetup, *, is_placed: bool) -> str:
    names = {flavor for flavor, _ in usage}
    text = f"flavor {_names(names)}" if names else "asks for nothing"
    if not is_placed and any(setup.flavors[name].topology for name in names):
        text += _NOT_LOOKED_AT
    return text
