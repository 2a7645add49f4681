"""Assign ResourceFlavors to a Workload in one ClusterQueue, by quota and by what it may preempt.

Mirrors Kueue's flavor assigner for one scheduling attempt: first by quota, then by the domains of
Topologies in which the pods have room. Where it is not known what the domains have left, quota
alone decides, and that is said. Whether there is anybody to preempt is left to an oracle.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/flavorassigner.go
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, TypeAlias

from webhook.kueue import flavor_plan, topology_placement
from webhook.kueue.quota import Taken, UsageTree
from webhook.kueue.topology_placement import FlavorDomains, Given, OccupiedDomains
from webhook.kueue.topology_requests import asks_for_topology
from webhook.model.fields import FieldError
from webhook.model.queues import (
    ANY,
    MULTIKUEUE,
    NEVER,
    PREEMPTION_OVER_BORROWING,
    ClusterQueue,
    Held,
    KueueRelease,
    PodSetNeeds,
)
from webhook.model.snapshot_parts import KueueSetup
from webhook.model.topologies import PODS, PlacedPods

_DELAYING: Final = frozenset({MULTIKUEUE, "kueue.x-k8s.io/provisioning-request"})
"""Controllers of AdmissionChecks behind which Kueue places pods only later, or elsewhere."""
_OF_OTHERS: Final = ("cpu", "memory", "ephemeral-storage", PODS)
"""What pods that Kueue has not placed, such as those of DaemonSets, take of Nodes as well."""
_LEFT_TO_OTHERS: Final = 10
"""A tenth of that may be theirs."""
NEWEST = KueueRelease()
TRY_NEXT = "TryNextFlavor"


class PreemptionMode(IntEnum):
    """What it takes to get quota for one resource in one flavor, from worst to best."""

    # EXCEEDS and WAITS are both ``noFit`` in Kueue, but only EXCEEDS is final.
    EXCEEDS = 0
    WAITS = 1
    NO_CANDIDATES = 2
    """The preemption policies allow preemption, but there is no Workload to preempt."""
    PREEMPT = 3
    """It takes the preemption of Workloads in the same ClusterQueue."""
    RECLAIM = 4
    """It takes the preemption of Workloads in other ClusterQueues only."""
    FITS = 5


Level: TypeAlias = tuple[PreemptionMode, int]
"""The mode, and the height of the subtree whose quota is used; 0: the ClusterQueue's own."""
Oracle: TypeAlias = Callable[[int, int], Level]
"""From a cell and an amount of it that is not free to NO_CANDIDATES, PREEMPT or RECLAIM, and the
height from which it would borrow after the preemption."""
Choice: TypeAlias = tuple[str, Taken | None]
"""A flavor, and what it would be charged; None: the template cannot be checked against it."""
Parts: TypeAlias = Sequence[Sequence[Choice]]
"""For each resource group of each pod set, the flavors that it may get, in order."""


def _of_unknown_holders(_taken: Taken) -> None:
    return None


def _by_nobody(_assigned: Assignment) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """A Workload's ClusterQueue in its tree, and whom the Workload may preempt."""

    tree: UsageTree
    leaf: int
    queue: ClusterQueue
    oracle: Oracle
    fair_sharing: bool = False
    release: KueueRelease = NEWEST
    victims: Callable[[Taken], int | None] = _of_unknown_holders
    """How many Workloads Kueue would preempt to free all of this quota; 0: no set of them would do;
    None: it is not known who holds quota."""
    is_kept_out: Callable[[Assignment], bool] = _by_nobody
    """Whether quota that heads before it set aside leaves it none, so that it searches on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The flavors and quota that one Workload gets, or would get if there were room."""

    mode: PreemptionMode
    """The worst of all resources, resource groups and pod sets."""
    fits: bool = False
    """Whether that is FITS; kept, because a cycle asks it of each head."""
    taken: Taken = ()
    flavors: tuple[str, ...] = ()
    """One for each part of the Workload; empty for a part that can never have one."""
    height: int = 0
    """Levels of cohorts above the ClusterQueue that it borrows from; 0: it does not borrow."""
    lacking: tuple[int, int] | None = None
    """The cell that decides the mode, and how much is needed of it; None: no quota decides it."""
    placed: tuple[PlacedPods, ...] = ()
    """Where its pods would go in the domains of Topologies."""
    is_placed: bool = False
    """It is known which domains have room for it; False also where no flavor has a Topology."""
    unfinished: tuple[str, ...] = ()
    """For each part the flavor with which the search ended before the last one of its group; empty:
    all were tried. Kueue goes on behind it in the next cycle (``LastTriedFlavorIdx``)."""


_NO_FLAVOR = Assignment(mode=PreemptionMode.EXCEEDS, flavors=("",))
_UNREADABLE = Assignment(mode=PreemptionMode.WAITS, flavors=("",))
_WORST: Level = (PreemptionMode.EXCEEDS, 0)


def assign(parts: Parts, claimant: Claimant, *, after: Sequence[str] = ()) -> Assignment:
    """Assign a flavor to each part; each counts what the parts before it would take.

    *after*: for each part the flavor behind which its search begins, as in ``unfinished``.
    """
    usage: dict[int, int] = {}
    flavors: list[str] = []
    unfinished: list[str] = []
    mode, height, lacking, goes_on = PreemptionMode.FITS, 0, None, True
    for number, choices in enumerate(parts):
        left = _behind(after[number], choices) if after else choices
        best = _best_flavor(left, usage, claimant)
        flavors += best.flavors
        # Behind a part without a flavor Kueue tries no others, and keeps nothing of it.
        goes_on = goes_on and best.mode > PreemptionMode.WAITS
        unfinished += best.unfinished if goes_on and best.unfinished else ("",)
        height = max(height, best.height)
        if best.mode < mode:
            mode, lacking = best.mode, best.lacking
        for cell, amount in best.taken:
            usage[cell] = usage.get(cell, 0) + amount
    return Assignment(
        mode=mode,
        fits=mode is PreemptionMode.FITS,
        taken=tuple(usage.items()),
        flavors=tuple(flavors),
        height=height,
        lacking=lacking,
        unfinished=tuple(unfinished),
    )


def search(
    parts: Parts,
    claimant: Claimant,
    is_served: Callable[[Assignment], bool],
    *,
    after: Sequence[str] = (),
) -> Assignment:
    """Assign flavors as ``assign`` does, cycle after cycle until the Workload is served.

    Where that never is, what was assigned first is returned.
    """
    # A Workload that was tried in vain comes again at once while it has untried flavors:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/queue/cluster_queue.go#L679
    first = found = assign(parts, claimant, after=after)
    seen: set[tuple[str, ...]] = set()
    while any(found.unfinished) and not is_served(found):
        if found.unfinished in seen:
            return first
        seen.add(found.unfinished)
        found = assign(parts, claimant, after=found.unfinished)
    return found if found is first or is_served(found) else first


def _behind(name: str, choices: Sequence[Choice]) -> Sequence[Choice]:
    """Return the choices that come after a flavor; all of them where it is not among them."""
    names = [flavor for flavor, _ in choices]
    return choices[names.index(name) + 1 :] if name in names else choices


def _best_flavor(
    choices: Sequence[Choice], usage: Mapping[int, int], claimant: Claimant
) -> Assignment:
    """Try flavors for one part in order, and stop where ``flavorFungibility`` says so."""
    # ``findFlavorForPodSets`` in Kueue.
    best, best_level = _NO_FLAVOR, _WORST
    for choice in choices:
        if choice[1] is None:
            # Kueue ends the whole attempt with an error when it comes to such a flavor.
            return _UNREADABLE
        level, attempt = _try_flavor(choice[0], choice[1], usage, claimant=claimant)
        if not _tries_next(level, claimant.queue):
            is_last = _is_last(choice[0], claimant.queue)
            return attempt if is_last else replace(attempt, unfinished=attempt.flavors)
        if best is _NO_FLAVOR or is_better(
            level, best_level, claimant.queue, release=claimant.release
        ):
            best, best_level = attempt, level
    return best


def _is_last(flavor: str, queue: ClusterQueue) -> bool:
    """Return whether a flavor is the last one of its resource group."""
    return flavor in [group.flavors[-1] for group in queue.groups]


def _try_flavor(
    flavor: str, taken: Taken, usage: Mapping[int, int], *, claimant: Claimant
) -> tuple[Level, Assignment]:
    """Check every resource of a flavor against quota; the worst outcome is the flavor's.

    Return the level of the resource with the worst one, by which flavors are compared, and what
    one part would be assigned: it may borrow of one resource while another has the worst level.
    """
    worst: Level = (PreemptionMode.FITS, 0)
    mode, height, lacking = PreemptionMode.FITS, 0, None
    for cell, amount in taken:
        needed = amount + usage.get(cell, 0)
        level = _level(cell, needed, claimant)
        height = max(height, level[1])
        mode = min(mode, level[0])
        if not is_better(level, worst, claimant.queue, release=claimant.release):
            worst = level
        if level[0] is not PreemptionMode.FITS and (lacking is None or worst is level):
            lacking = cell, needed
        if level[0] is PreemptionMode.EXCEEDS:
            break
    if worst[0] is PreemptionMode.FITS and mode is not PreemptionMode.FITS:
        # With PreemptionOverBorrowing a resource that borrows hides one that needs preemption:
        # Kueue takes the flavor as fitting, preempts nobody, and cannot admit the Workload.
        mode = PreemptionMode.WAITS
    return worst, Assignment(
        mode=mode,
        fits=mode is PreemptionMode.FITS,
        taken=taken,
        flavors=(flavor,),
        height=height,
        lacking=lacking,
    )


def _level(cell: int, amount: int, claimant: Claimant) -> Level:
    """Return what it takes to get *amount* of one resource of one flavor."""
    # The order is that of ``fitsResourceQuota`` in Kueue: the maximum, what is free, preemption.
    tree, leaf = claimant.tree, claimant.leaf
    if amount > tree.potential(leaf, cell):
        return PreemptionMode.EXCEEDS, 0
    height, reclaims = tree.height(leaf, cell, amount)
    # Where more is used than there is quota, nothing is available, which is enough for nothing.
    if amount <= max(0, tree.available(leaf, cell)):
        return PreemptionMode.FITS, height
    if _may_claim(cell, amount, claimant, reclaims=reclaims):
        return claimant.oracle(cell, amount)
    return PreemptionMode.WAITS, height


def _may_claim(cell: int, amount: int, claimant: Claimant, *, reclaims: bool) -> bool:
    """Return whether the policies let a Workload preempt for the quota that it lacks.

    *reclaims*: it is covered by the quota of a cohort that may reclaim it.
    """
    tree, preemption = claimant.tree, claimant.queue.preemption
    if reclaims or tree.nominal[claimant.leaf * tree.width + cell] >= amount:
        return True
    # ``canPreemptWhileBorrowing``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/flavorassigner.go
    by_shares = claimant.fair_sharing and preemption.reclaim_within_cohort != NEVER
    return by_shares or preemption.borrow_within_cohort != NEVER


def _tries_next(level: Level, queue: ClusterQueue) -> bool:
    """Return whether Kueue also tries the next flavor of the group (``flavorFungibility``)."""
    # ``shouldTryNextFlavor`` in Kueue.
    mode, borrowed_from = level
    if mode <= PreemptionMode.NO_CANDIDATES:
        return True
    if mode is not PreemptionMode.FITS and queue.when_can_preempt == TRY_NEXT:
        return True
    return borrowed_from > 0 and queue.when_can_borrow == TRY_NEXT


def is_better(
    left: Level, right: Level, queue: ClusterQueue, *, release: KueueRelease = NEWEST
) -> bool:
    """Return whether a ClusterQueue prefers *left*: its mode, or with equal modes its height.

    With the preference PreemptionOverBorrowing the height comes first, but a mode in which a
    Workload could not be admitted is always worse than the others: noFit in every release.
    """
    # ``isPreferred`` in Kueue.
    if queue.preference == PREEMPTION_OVER_BORROWING and left[1] != right[1]:
        worst = PreemptionMode.NO_CANDIDATES if release.no_candidates_last else PreemptionMode.WAITS
        if min(left[0], right[0]) > worst:
            return left[1] < right[1]
    return left[0] > right[0] or (left[0] == right[0] and left[1] < right[1])


def asks_for_victims(mode: PreemptionMode) -> bool:
    """Return whether Kueue looks for Workloads to preempt for all of an assignment at once.

    It does so even where one cell alone has no candidates: they may be found for another one.
    """
    # ``flavorAssignmentMode`` in Kueue, and what ``getInitialAssignments`` does with it:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/flavorassigner.go#L604
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/scheduler.go#L880
    return PreemptionMode.WAITS < mode < PreemptionMode.FITS


def victims_of(assigned: Assignment, claimant: Claimant) -> int | None:
    """Count those whom Kueue would preempt for an assignment.

    None: it would preempt somebody, but it is not known who holds quota.
    """
    if not asks_for_victims(assigned.mode):
        return 0
    found = claimant.victims(assigned.taken)
    return 0 if found is None and assigned.mode is PreemptionMode.NO_CANDIDATES else found


def has_its_turn(assigned: Assignment, claimant: Claimant) -> bool:
    """Return whether its search for flavors ends with this cycle."""
    return is_served(assigned, claimant) and not claimant.is_kept_out(assigned)


def is_served(assigned: Assignment, claimant: Claimant) -> bool:
    """Return whether a Workload fits as assigned, or Kueue would preempt for it."""
    return assigned.fits or victims_of(assigned, claimant) != 0


def set_aside(assigned: Assignment, claimant: Claimant) -> Taken:
    """Return the quota that Kueue keeps free for a Workload that could fit only by preemption.

    Empty where the ClusterQueue can always reclaim its quota (``CanAlwaysReclaim``): then nobody
    needs to be kept from it.
    """
    # ``quotaResourcesToReserve`` in Kueue, for a Workload that it has assigned the mode Preempt:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/scheduler.go#L780
    if (
        not asks_for_victims(assigned.mode)
        or claimant.queue.preemption.reclaim_within_cohort == ANY
    ):
        return ()
    kept: list[tuple[int, int]] = []
    for cell, amount in assigned.taken:
        ceiling = claimant.tree.ceiling(claimant.leaf, cell, borrows=assigned.height > 0)
        kept.append((cell, amount if ceiling is None else min(amount, ceiling)))
    return tuple((cell, amount) for cell, amount in kept if amount > 0)


def oracle_by_counts(
    tree: UsageTree, leaf: int, queue: ClusterQueue, *, lower_holds: Callable[[], bool]
) -> Oracle:
    """Return an oracle that only says where preemption is possible, because holders are not known.

    *lower_holds* returns whether a Workload of lower priority holds quota in the ClusterQueue; it
    is called only where its answer matters.
    """
    # Kueue simulates the preemption (``SimulatePreemption``); see ``kueue.preemption``.
    preemption = queue.preemption

    def possibility(cell: int, amount: int) -> Level:
        height, _ = tree.height(leaf, cell, amount)
        if preemption.within_cluster_queue != NEVER and lower_holds():
            return PreemptionMode.PREEMPT, height
        if preemption.reclaim_within_cohort != NEVER and tree.others_borrow(leaf, cell):
            return PreemptionMode.RECLAIM, height
        return PreemptionMode.NO_CANDIDATES, height

    return possibility


def assign_placed(
    needs: Sequence[PodSetNeeds],
    parts: Parts,
    claimant: Claimant,
    setup: KueueSetup,
    occupied: OccupiedDomains,
) -> Assignment:
    """Assign flavors as ``assign`` does, of those in whose domains the pods have room.

    Raises:
        FieldError: a toleration or an affinity term of a template cannot be read.

    """
    first = assigned = search(parts, claimant, lambda one: has_its_turn(one, claimant))
    if not setup.topologies:
        return first
    while assigned.fits:
        wanted = _wanted(needs, assigned, claimant.queue, setup)
        placed = None if wanted is None else _placed(wanted, occupied)
        if placed is None or placed.has_room:
            is_placed = placed is not None and placed.is_sure
            return replace(assigned, placed=placed.pods if placed else (), is_placed=is_placed)
        if not any(assigned.unfinished):
            break
        # Kueue goes on with the next flavor in its next cycle.
        assigned = assign(parts, claimant, after=assigned.unfinished)
    if not first.fits or assigned.mode in (PreemptionMode.PREEMPT, PreemptionMode.RECLAIM):
        return assigned
    return replace(first, mode=PreemptionMode.NO_CANDIDATES, fits=False, is_placed=True)


class DomainsInUse:
    """What is in use in the domains of Topologies, as Workloads come and go."""

    def __init__(self, setup: KueueSetup, occupied: OccupiedDomains) -> None:
        self.occupied = occupied
        self._setup = setup

    def assigned(
        self, needs: Sequence[PodSetNeeds], parts: Parts, claimant: Claimant
    ) -> Assignment:
        """As ``assign_placed``; who cannot be read is not placed, and does not fit."""
        try:
            return assign_placed(needs, parts, claimant, self._setup, self.occupied)
        except FieldError:
            return Assignment(mode=PreemptionMode.WAITS)

    def shift(self, pods: Sequence[PlacedPods], step: int) -> None:
        """Let pods come (1) or go (-1)."""
        self.occupied = shifted(self.occupied, pods, step)


def held_elsewhere(held_by: Mapping[str, Held], queues: Container[str]) -> OccupiedDomains:
    """Return what the Workloads of other ClusterQueues than these hold in domains."""
    occupied: OccupiedDomains = {}
    for name, held in held_by.items():
        if name not in queues:
            occupied = shifted(occupied, held.placed, 1)
    return occupied


def _wanted(
    needs: Sequence[PodSetNeeds], assigned: Assignment, queue: ClusterQueue, setup: KueueSetup
) -> Mapping[str, tuple[FlavorDomains, list[PodSetNeeds]]] | None:
    """Return the pod sets to place by flavor; None: that, or where they have room, is not known."""
    with_topology = flavor_plan.flavors_with_topology(queue, setup)
    if not with_topology or _is_delayed(assigned, queue, setup):
        return None
    found: dict[str, tuple[FlavorDomains, list[PodSetNeeds]]] = {}
    for need, flavors in _flavors(needs, assigned, queue, setup):
        names = with_topology & flavors
        if not (names or asks_for_topology(need.template)) or not need.count:
            continue
        domains = topology_placement.domains_of(next(iter(names), ""), setup)
        if domains is None or len(names) > 1:
            return None
        found.setdefault(domains.flavor.name, (domains, []))[1].append(need)
    return found


def _flavors(
    needs: Sequence[PodSetNeeds], assigned: Assignment, queue: ClusterQueue, setup: KueueSetup
) -> Iterator[tuple[PodSetNeeds, frozenset[str]]]:
    """Yield each pod set with the flavors of its resource groups."""
    plans = [flavor_plan.plan_flavors(need, queue, setup) for need in needs]
    of_pod_set: list[set[str]] = [set() for _ in needs]
    owners = flavor_plan.owners(needs, plans)
    for flavor, numbers in zip(assigned.flavors, owners, strict=True):
        for number in numbers:
            of_pod_set[number].add(flavor)
    return ((need, frozenset(of_pod_set[number])) for number, need in enumerate(needs))


def _is_delayed(assigned: Assignment, queue: ClusterQueue, setup: KueueSetup) -> bool:
    checks = (setup.checks.get(name) for name in queue.checks_on(assigned.flavors))
    return any(check is not None and check.controller in _DELAYING for check in checks)


class _Placed:
    """Where pods would go, and whether that holds with other pods on the Nodes."""

    def __init__(self) -> None:
        self.pods: tuple[PlacedPods, ...] = ()
        self.has_room, self.is_sure = True, True


def _placed(
    wanted: Mapping[str, tuple[FlavorDomains, list[PodSetNeeds]]], occupied: OccupiedDomains
) -> _Placed:
    """Place pods flavor by flavor, as flavors may have Nodes in common."""
    result = _Placed()
    for name in sorted(wanted):
        domains, needs = wanted[name]
        free = topology_placement.free_of(domains, shifted(occupied, result.pods, 1))
        found = topology_placement.placed(needs, domains, free)
        if found is None:
            result.has_room = False
            return result
        result.is_sure &= _fits_beside_others(needs, domains, free)
        result.pods += tuple(pods_of(needs, domains, found))
    return result


def _fits_beside_others(
    needs: Sequence[PodSetNeeds], domains: FlavorDomains, free: Sequence[Mapping[str, int]]
) -> bool:
    left = [
        topology_placement.minus(
            of_leaf,
            {name: capacity.get(name, 0) // _LEFT_TO_OTHERS for name in _OF_OTHERS},
        )
        for of_leaf, capacity in zip(free, domains.tree.capacity, strict=True)
    ]
    return topology_placement.placed(needs, domains, left) is not None


def pods_of(
    needs: Sequence[PodSetNeeds],
    domains: FlavorDomains,
    found: Sequence[Given],
) -> Iterator[PlacedPods]:
    """Yield the pods of each domain, where pod sets are placed so."""
    names = {leaf: domain for domain, leaf in domains.tree.leaves.items()}
    flavor = "" if domains.tree.is_by_node else domains.flavor.name
    for need, given in zip(needs, found, strict=True):
        for leaf, count in given:
            amounts = tuple(topology_placement.of_pods(need, count).items())
            yield PlacedPods(flavor=flavor, domain=names[leaf], amounts=amounts)


def shifted(occupied: OccupiedDomains, pods: Sequence[PlacedPods], step: int) -> OccupiedDomains:
    """Return what is in use with *step* times some pods more."""
    if not pods:
        return occupied
    changed = dict(occupied)
    for flavor, domain, amounts in pods:
        used = dict(changed.get((flavor, domain), {}))
        for name, amount in amounts:
            used[name] = used.get(name, 0) + step * amount
        changed[flavor, domain] = used
    return changed
