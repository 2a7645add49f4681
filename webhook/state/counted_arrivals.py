"""Counts Workloads that Kueue has queued, or soon will have, into an occupancy, as it serves them.

Whether each of them reserves quota is predicted by the cycles of the event loop, whatever Kueue has
written about it so far (docs/decisions/0001). Whom they preempt is not predicted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import inf

from webhook.kueue import flavor_plan, quota
from webhook.kueue.assignment import (
    Assignment,
    DomainsInUse,
    Oracle,
    assign_placed,
    is_served,
    set_aside,
    shifted,
)
from webhook.kueue.fair_sharing import use_of
from webhook.kueue.flavor_plan import NOWHERE as UNSERVABLE
from webhook.kueue.flavor_plan import flavors_with_topology
from webhook.kueue.preemption import TriedHead, candidates_in
from webhook.kueue.queue_lines import ClusterQueueHeads, PendingGroup
from webhook.kueue.quota import UsageTree
from webhook.kueue.quota_holders import StartedWorkloads
from webhook.kueue.simulation import Simulation, is_open
from webhook.kueue.tree_workloads import TreeDemands
from webhook.model.quantity import Amounts
from webhook.model.queues import (
    Arrival,
    ClusterQueue,
    Guest,
    Head,
    Held,
    LocalQueue,
    PodSetNeeds,
    Queueing,
    QuotaHolder,
    StopPolicy,
    Trial,
)
from webhook.model.snapshot_parts import KueueSetup
from webhook.model.topologies import PlacedPods
from webhook.state.occupancy import (
    EMPTY,
    NO_START_TIMES,
    NOWHERE,
    Occupancy,
    PreemptionTargets,
    at_its_turn,
    beside,
    claimant,
    is_behind,
    is_namespace_selected,
    parts_of,
    reserves_now,
)
from webhook.state.snapshot import Snapshot


def occupancy_of(snapshot: Snapshot, placements: Sequence[Arrival] = ()) -> Occupancy:
    """Return the occupancy of a snapshot: its arrivals counted in, then *placements*, in order."""
    occupancy = with_pending(
        as_held(idle(snapshot), snapshot.workloads.held), snapshot.workloads.arrivals
    )
    return with_arrivals(occupancy, placements)


def idle(snapshot: Snapshot) -> Occupancy:
    """Return an occupancy in which the ClusterQueues hold nothing."""
    forest = quota.plant(snapshot.setup.cluster_queues, snapshot.setup.cohorts)
    return Occupancy(
        snapshot=snapshot,
        forest=forest,
        holdings={},
        preemptible=candidates_in(snapshot.setup),
        start_times=beside(NO_START_TIMES, snapshot),
    )


def as_held(occupancy: Occupancy, cluster_queues: Collection[str]) -> Occupancy:
    """Reset some ClusterQueues to what the snapshot says they hold, without any arrivals."""
    held, holdings = occupancy.snapshot.workloads.held, dict(occupancy.holdings)
    changes: dict[str, Amounts] = {}
    occupied = occupancy.occupied
    heads = {name for name in occupancy.heads if name not in cluster_queues}
    for name in cluster_queues:
        before, after = holdings.pop(name, EMPTY), held.get(name, EMPTY)
        if name in held:
            holdings[name] = after
        if after.head is not None and after.head.set_aside:
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


def with_pending(occupancy: Occupancy, pending: Iterable[Arrival]) -> Occupancy:
    """Count in Workloads that Kueue has queued, in its order, as its cycles serve them."""
    of_trees: defaultdict[int, list[Arrival]] = defaultdict(list)
    for arrival in pending:
        queues = _queues_of(occupancy.snapshot.setup, arrival)
        if queues is not None:
            of_trees[occupancy.forest.places.get(queues[1].name, -1)].append(arrival)
    for index, arrivals in of_trees.items():
        if index < 0:
            occupancy = with_arrivals(occupancy, arrivals)
        else:
            occupancy = _with_cycles(occupancy, occupancy.forest.trees[index], arrivals)
    return occupancy


def _with_cycles(occupancy: Occupancy, tree: UsageTree, arrivals: Sequence[Arrival]) -> Occupancy:
    """Count in the pending Workloads of one tree, in the first step of its event loop."""
    simulation = _stepped(occupancy, tree, arrivals)
    left = [arrival.count for arrival in arrivals]
    for begun in simulation.begun:
        number = int(begun.key)
        left[number] -= begun.count
        charge = _charge_of_one(begun, tree)
        occupancy = _with_reserving(
            occupancy, arrivals[number], begun.cluster_queue, charge, begun.count
        )
        occupancy = _with_placed(occupancy, begun.cluster_queue, begun.placed)
    names = {leaf: name for name, leaf in tree.leaves.items()}
    joined: defaultdict[str, list[Arrival]] = defaultdict(list)
    for arrival, count in zip(arrivals, left, strict=True):
        queues = _queues_of(occupancy.snapshot.setup, arrival)
        if count and queues is not None:
            joined[queues[1].name].append(replace(arrival, count=count))
    for name, of_queue in joined.items():
        occupancy = _with_joined(occupancy, name, of_queue)
    # Under StrictFIFO, and where a search for flavors goes round for ever: Kueue puts one that has
    # flavors left to try right back (``PendingFlavors`` in ``requeueIfNotPresent``).
    for heads in simulation.tried():
        first = Head(priority=-int(heads.entries[0][0]), height=0, set_aside={})
        occupancy = _with_head(occupancy, names[heads.leaf], first)
    for height, order, leaf, aside in simulation.kept:
        head = Head(priority=-int(order), height=height, set_aside=tree.amounts(aside))
        occupancy = _with_head(occupancy, names[leaf], head)
    return occupancy


def _stepped(occupancy: Occupancy, tree: UsageTree, arrivals: Sequence[Arrival]) -> Simulation:
    """Return the event loop of a tree after its first cycles; keys are the places of *arrivals*."""
    snapshot = occupancy.snapshot

    def oracle_of(heads: ClusterQueueHeads) -> Oracle:
        priority, _, entry = heads.entries[0]
        preemptor = TriedHead(
            leaf=heads.leaf,
            taken=(),
            priority=-int(priority),
            queued_at=arrivals[int(entry.waiting.key)].created or inf,
        )
        # Who got quota in a cycle before this one may have to give it back.
        holding = _naming_begun(occupancy, simulation, arrivals)
        return PreemptionTargets(holding, simulation.tree, heads.queue, preemptor).possibility

    simulation = Simulation(
        tree.copy(),
        [snapshot.setup.cluster_queues[name] for name in tree.leaves],
        kueue=snapshot.setup.kueue,
        came_one_by_one=False,
        oracle_of=oracle_of,
        domains=_domains(occupancy, tree),
    )
    if (use := use_of(snapshot.setup, tree)) is not None:
        simulation.order_by_use(use)
    demands = TreeDemands(snapshot.setup)
    for number, arrival in enumerate(arrivals):
        queues = _queues_of(snapshot.setup, arrival)
        if queues is None or not is_namespace_selected(snapshot.cluster, *queues):
            # Kueue does not keep others waiting for one whose namespace is not selected.
            continue
        local_queue, cluster_queue = queues
        simulation.add_waiting(
            PendingGroup(
                cluster_queue=cluster_queue.name,
                demand=demands.of(cluster_queue.name, arrival.needs) or UNSERVABLE,
                seconds=inf,
                priority=arrival.priority,
                count=arrival.count,
                key=str(number),
                local_queue=f"{local_queue.namespace}/{local_queue.name}",
                needs=arrival.needs,
            )
        )
    simulation.step()
    return simulation


def _domains(occupancy: Occupancy, tree: UsageTree) -> DomainsInUse | None:
    """Return the domains in which Workloads of a tree are placed; None: in none."""
    setup = occupancy.snapshot.setup
    members = (setup.cluster_queues[name] for name in tree.leaves)
    if not any(flavors_with_topology(queue, setup) for queue in members):
        return None
    return DomainsInUse(setup, occupancy.occupied)


def _naming_begun(
    occupancy: Occupancy, simulation: Simulation, arrivals: Sequence[Arrival]
) -> Occupancy:
    """Name those that have started in an event loop, whose tree has their usage already."""
    for begun in simulation.begun:
        arrival, charge = arrivals[int(begun.key)], _charge_of_one(begun, simulation.tree)
        occupancy = _with_reserved(occupancy, arrival, begun.cluster_queue, charge, begun.count)
    return occupancy


def _charge_of_one(begun: StartedWorkloads, tree: UsageTree) -> Amounts:
    return {tree.cells[cell]: amount // begun.count for cell, amount in begun.usage}


def _with_head(occupancy: Occupancy, name: str, head: Head) -> Occupancy:
    occupancy = _holding(occupancy, name, replace(occupancy.held(name), head=head))
    heads = dict.fromkeys((*occupancy.heads, name)) if head.set_aside else occupancy.heads
    return replace(occupancy, heads=tuple(heads))


def with_arrivals(occupancy: Occupancy, arrivals: Iterable[Arrival]) -> Occupancy:
    """Count in arrivals one after another; in a long queue most have no room, and cost little."""
    joined: defaultdict[str, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        queues = _queues_of(occupancy.snapshot.setup, arrival)
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


def _queues_of(setup: KueueSetup, arrival: Arrival) -> tuple[LocalQueue, ClusterQueue] | None:
    """Return the queues of an arrival; None: they do not exist, or its LocalQueue is stopped."""
    local_queue = setup.local_queues.get((arrival.namespace, arrival.local_queue))
    # Kueue does not queue the Workloads of a stopped LocalQueue.
    if local_queue is None or local_queue.stop_policy is not StopPolicy.NONE:
        return None
    cluster_queue = setup.cluster_queues.get(local_queue.cluster_queue)
    return None if cluster_queue is None else (local_queue, cluster_queue)


def with_arrival(occupancy: Occupancy, arrival: Arrival) -> Occupancy:
    """Count in Workloads of one shape: each reserves quota if it could at once, or is pending."""
    queues = _queues_of(occupancy.snapshot.setup, arrival)
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
            return _waiting(occupancy, replace(arrival, count=left), assigned, queues)
        tree = at_its_turn(occupancy, assigned, cluster_queue.name, arrival.priority)
        # As long as nothing is borrowed, the first flavor that fits remains the first that fits.
        alike = tree.own_room(tree.leaves[cluster_queue.name], assigned.taken)
        # Each that is placed leaves other domains to the next one.
        count = 1 if assigned.placed else min(left, max(1, alike))
        charge, name = tree.amounts(assigned.taken), cluster_queue.name
        occupancy = _with_reserving(occupancy, arrival, name, charge, count)
        occupancy = _with_placed(occupancy, name, assigned.placed)
        left -= count
    return occupancy


def _with_placed(occupancy: Occupancy, name: str, placed: tuple[PlacedPods, ...]) -> Occupancy:
    """Count in pods that are placed in the domains of Topologies."""
    if not placed:
        return occupancy
    held = occupancy.held(name)
    occupancy = _holding(occupancy, name, replace(held, placed=held.placed + placed))
    return replace(occupancy, occupied=shifted(occupancy.occupied, placed, 1))


def _with_reserving(
    occupancy: Occupancy, arrival: Arrival, name: str, charge: Amounts, count: int
) -> Occupancy:
    """Count in Workloads that reserve quota; *charge* is that of each."""
    usage = {cell: amount * count for cell, amount in charge.items()}
    held = _reserving(occupancy.held(name), arrival, usage, count)
    occupancy = _with_reserved(occupancy, arrival, name, charge, count)
    occupancy = replace(occupancy, forest=occupancy.forest.charged({name: usage}))
    return _holding(occupancy, name, held)


_LATEST = 1 << 53
"""Later than all that was observed, in seconds since 1970: those of the newest go first."""


def _with_reserved(
    occupancy: Occupancy, arrival: Arrival, name: str, charge: Amounts, count: int
) -> Occupancy:
    """Name Workloads that are counted as reserving, if Kueue may preempt them there."""
    if name not in occupancy.preemptible:
        return occupancy
    before = occupancy.reserved.get(name, ())
    added = tuple(
        QuotaHolder(
            key=f"{arrival.namespace}/{arrival.key} {len(before) + number}",
            local_queue=arrival.local_queue_key,
            charge=tuple(charge.items()),
            priority=arrival.priority,
            reserved_at=_LATEST + len(before) + number,
            queued_at=arrival.created or _LATEST,
        )
        for number in range(count)
    )
    return replace(occupancy, reserved={**occupancy.reserved, name: before + added})


def is_kept_waiting(occupancy: Occupancy, arrival: Arrival) -> bool:
    """Return whether Kueue would leave some of an arrival's Workloads pending."""
    queues = _queues_of(occupancy.snapshot.setup, arrival)
    if queues is None:
        return False
    name = queues[1].name
    after = with_arrival(occupancy, arrival)
    return after.held(name).pending > occupancy.held(name).pending


def with_waiting(occupancy: Occupancy, arrival: Arrival) -> Occupancy:
    """Count in Workloads of one shape as pending, because Kueue has tried them and they wait."""
    queues = _queues_of(occupancy.snapshot.setup, arrival)
    if queues is None:
        return occupancy
    assigned = _assigned(occupancy, arrival, queues[1])
    return _waiting(occupancy, arrival, assigned, queues)


def _has_room(occupancy: Occupancy, arrival: Arrival, cluster_queue: ClusterQueue) -> bool:
    """Return False if an arrival cannot fit by quota alone; True means that it may fit.

    This is cheap, and rules out most of a long queue. Flavors are not matched with its pods, and
    each pod set is compared by itself.
    """
    tree = occupancy.forest.tree(cluster_queue.name)
    if tree is None:
        return False
    leaf, indices = tree.leaves[cluster_queue.name], tree.indices
    for pod_set, group in product(arrival.needs, cluster_queue.groups):
        pods = flavor_plan.fewest(pod_set)
        asked = [
            (resource, amount * pods)
            for resource, amount in pod_set.per_pod.items()
            if amount and resource in group.resources
        ]
        for flavor in group.flavors:
            if all(
                tree.available(leaf, indices[flavor, resource])
                >= amount - pod_set.held.get((flavor, resource), 0)
                for resource, amount in asked
            ):
                break
        else:
            return False
    return True


def _waiting(
    occupancy: Occupancy,
    arrival: Arrival,
    assigned: Assignment,
    queues: tuple[LocalQueue, ClusterQueue],
) -> Occupancy:
    """Add to the pending Workloads; the head of a StrictFIFO queue may get quota set aside."""
    cluster_queue = queues[1]
    before = occupancy.held(cluster_queue.name)
    occupancy = _holding(occupancy, cluster_queue.name, _joined(before, (arrival,)))
    # Kueue tries a StrictFIFO head in every cycle. One of a BestEffortFIFO queue that does not fit
    # is inadmissible until quota is released, and keeps nothing free until then. So is one whose
    # namespace is not selected: ``requeueIfNotPresent`` in ``cluster_queue.go``.
    if (
        cluster_queue.queueing is not Queueing.STRICT
        or not is_open(cluster_queue)
        or not is_namespace_selected(occupancy.snapshot.cluster, *queues)
        or is_behind(before, cluster_queue, arrival.priority)
    ):
        return occupancy
    place = claimant(occupancy, cluster_queue, priority=arrival.priority)
    aside = {} if place is None else place.tree.amounts(set_aside(assigned, place))
    head = Head(priority=arrival.priority, height=assigned.height, set_aside=aside)
    return _with_head(occupancy, cluster_queue.name, head)


def _holding(occupancy: Occupancy, name: str, held: Held) -> Occupancy:
    return replace(occupancy, holdings={**occupancy.holdings, name: held})


def _assigned(occupancy: Occupancy, arrival: Arrival, cluster_queue: ClusterQueue) -> Assignment:
    queued_at = arrival.created or inf
    place = claimant(occupancy, cluster_queue, priority=arrival.priority, queued_at=queued_at)
    if place is None:
        return NOWHERE
    needs, setup = arrival.needs, occupancy.snapshot.setup

    def assigned(wanted: Sequence[PodSetNeeds]) -> Assignment:
        parts = parts_of(wanted, place, setup)
        return assign_placed(wanted, parts, place, setup, occupancy.occupied)

    def served(wanted: Sequence[PodSetNeeds]) -> Assignment | None:
        found = assigned(wanted)
        return found if is_served(found, place) else None

    # ``getInitialAssignments`` in Kueue's ``simulationr.go``.
    most = flavor_plan.most_missing(needs)
    if not most:
        return assigned(needs)

    def fitting(missing: int) -> Assignment | None:
        return served(flavor_plan.with_missing(needs, missing))

    return served(needs) or flavor_plan.most_that_fit(most, fitting) or assigned(needs)


def _joined(held: Held, arrivals: Sequence[Arrival]) -> Held:
    pending, guests, trials = held.pending, dict(held.guests), held.trials
    for arrival in arrivals:
        pending += arrival.count
        trials = _with_trial(trials, arrival, arrival.count)
        # Only Workloads that were decided by a policy count as its guests.
        if arrival.policy:
            guest = arrival.policy, arrival.option, arrival.namespace
            guests[guest] = guests.get(guest, 0) + arrival.count
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
