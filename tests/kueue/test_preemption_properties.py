from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.builders import cluster_queue, cohort, snapshot
from tests.worlds import snapshots, trees
from webhook.kueue.assignment import PreemptionMode
from webhook.kueue.preemption import (
    PreemptionReason,
    Preemptions,
    TriedHead,
    satisfies_policy,
)
from webhook.kueue.quota import UsageTree
from webhook.kueue.quota_holders import QuotaHolders, StartedWorkloads
from webhook.model.queues import KueueConfig, Preemption, QuotaHolder

within = st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"])
reclaims = st.sampled_from(["Never", "LowerPriority", "Any", "Any"])
borrows = st.sampled_from(["Never", "LowerPriority"])
policies = st.builds(
    Preemption,
    within_cluster_queue=within,
    reclaim_within_cohort=reclaims,
    borrow_within_cohort=borrows,
    max_priority_threshold=st.none() | st.integers(0, 1),
)
priorities = st.integers(0, 2)
times = st.integers(0, 3)


@dataclass(frozen=True, kw_only=True)
class World:
    tree: UsageTree
    policies: dict[int, Preemption]
    holders: list[QuotaHolder]
    preemptor: TriedHead
    strategies: tuple[str, ...] | None

    def preemptions(self, holders=None):
        running = self.holders if holders is None else holders
        return Preemptions(self.tree, self.policies, running, strategies=self.strategies)

    @property
    def short(self):
        leaf, taken = self.preemptor.leaf, self.preemptor.taken
        return {cell for cell, amount in taken if self.tree.available(leaf, cell) < amount}

    def fits(self, *, borrowing=True):
        tree, leaf = self.tree, self.preemptor.leaf
        return all(
            tree.available(leaf, cell) >= amount
            and (
                borrowing
                or tree.used[leaf * tree.width + cell] + amount
                <= tree.nominal[leaf * tree.width + cell]
            )
            for cell, amount in self.preemptor.taken
        )


@st.composite
def worlds(draw):
    """Worlds in which quota is short for the preemptor; else Kueue does not ask."""
    tree = draw(st.sampled_from([tree for tree in trees(draw(snapshots())) if tree.leaves]))
    weights = [draw(st.sampled_from([0.0, 0.5, 1.0, 2.0])) for _ in tree.weights]
    tree = replace(tree, weights=weights, used=list(tree.used))
    leaves = st.sampled_from(sorted(tree.leaves.values()))
    amounts = st.dictionaries(st.integers(0, tree.width - 1), st.integers(1, 4), min_size=1)
    taken = amounts.map(lambda chosen: tuple(chosen.items()))
    holders = [
        QuotaHolder(
            key=f"team/{index}",
            leaf=draw(leaves),
            taken=draw(taken),
            priority=draw(priorities),
            reserved_at=draw(times),
            queued_at=draw(times),
            is_evicted=draw(st.sampled_from([False, False, True])),
        )
        for index in range(draw(st.integers(0, 8)))
    ]
    for holder in holders:
        tree.charge(holder.leaf, holder.taken)
    world = World(
        tree=tree,
        policies={leaf: draw(policies) for leaf in tree.leaves.values()},
        holders=holders,
        preemptor=draw(
            st.builds(TriedHead, leaf=leaves, taken=taken, priority=priorities, queued_at=times)
        ),
        strategies=draw(st.none() | st.just(())),
    )
    assume(world.short)
    return world


@given(worlds())
def test_targets_make_room_none_is_superfluous_and_the_tree_stays_as_it_was(world):
    tree, before = world.tree, list(world.tree.used)

    targets = world.preemptions().targets(world.preemptor, world.short)

    assert tree.used == before
    for target in targets:
        tree.charge(target.holder.leaf, target.holder.taken, -1)
    assert not targets or world.fits()
    is_within_nominal = world.fits(borrowing=False)
    for target in targets:
        tree.charge(target.holder.leaf, target.holder.taken)
        # A set for which the queue need not borrow may be larger than one for which it must.
        assert not world.fits() or (is_within_nominal and not world.fits(borrowing=False))
        tree.charge(target.holder.leaf, target.holder.taken, -1)


@given(worlds())
def test_nobody_is_preempted_whom_the_policy_protects(world):
    tree, preemptor = world.tree, world.preemptor
    policy = world.policies[preemptor.leaf]

    for target in world.preemptions().targets(preemptor, world.short):
        holder = target.holder
        assert not world.short.isdisjoint(cell for cell, _ in holder.taken)
        if holder.leaf == preemptor.leaf:
            assert target.reason is PreemptionReason.IN_CLUSTER_QUEUE
            assert satisfies_policy(preemptor, holder, policy.within_cluster_queue)
        else:
            assert target.reason is not PreemptionReason.IN_CLUSTER_QUEUE
            assert satisfies_policy(preemptor, holder, policy.reclaim_within_cohort)
            first = holder.leaf * tree.width
            assert any(tree.used[first + cell] > tree.nominal[first + cell] for cell in world.short)


@given(worlds(), st.data())
def test_the_index_of_holders_forgets_whom_it_is_told_to_forget(world, data):
    preemptions = world.preemptions()
    left = list(world.holders)
    for holder in data.draw(st.permutations(world.holders)):
        if data.draw(st.booleans()):
            preemptions.remove(holder)
            left.remove(holder)

    asked = world.preemptor, world.short
    assert preemptions.targets(*asked) == world.preemptions(left).targets(*asked)


@pytest.mark.agreement
@given(worlds())
def test_the_oracle_agrees_with_the_targets_for_one_cell(world):
    preemptions, preemptor, tree = world.preemptions(), world.preemptor, world.tree
    cell, amount = preemptor.taken[0]
    alone = TriedHead(
        leaf=preemptor.leaf,
        taken=((cell, amount),),
        priority=preemptor.priority,
        queued_at=preemptor.queued_at,
    )

    possibility, height = preemptions.possibility(preemptor, cell, amount)

    leaves = {target.holder.leaf for target in preemptions.targets(alone, [cell])}
    assert (possibility is PreemptionMode.NO_CANDIDATES) == (not leaves)
    assert (possibility is PreemptionMode.PREEMPT) == (preemptor.leaf in leaves)
    assert height <= max(tree.heights)


@st.composite
def shared_worlds(draw):
    """Five ClusterQueues in one tree of two teams, which use what the others leave unused."""
    quotas = {"default": {"gpu": "4", "memory": "4"}}
    limits = {"borrowing": draw(st.sampled_from([None, None, None, "3"]))}
    queues = [
        cluster_queue(f"{index}-cq", quotas, cohort=team, **limits)
        for index, team in enumerate(["x", "x", "x", "y", "y"])
    ]
    teams = [cohort("x", parent="all"), cohort("y", parent="all"), cohort("all")]
    (tree,) = trees(snapshot(*queues, cohorts=teams))
    # Most rules are alike, or few searches would be.
    reclaiming = st.sampled_from(["LowerPriority", "LowerOrNewerEqualPriority", "Any"])
    alike, other = (
        replace(draw(policies), reclaim_within_cohort=draw(reclaiming)) for _ in range(2)
    )
    rules = st.sampled_from([alike, alike, other])
    amounts = st.sampled_from([((0, 1),), ((0, 2),), ((0, 1), (1, 1)), ((1, 2),)])
    first, *_, third, fourth, fifth = sorted(tree.leaves.values())
    leaves = st.sampled_from([third, fourth, fourth, fifth, fifth, first])
    holders = []
    # What is free is less than a quota, so that whoever is within its own may reclaim it.
    while tree.available(0, 0) > 2:
        number = len(holders)
        holder = QuotaHolder(
            key=f"team/{number}",
            leaf=draw(leaves),
            taken=draw(amounts),
            priority=draw(priorities),
            reserved_at=draw(times),
            queued_at=draw(times),
            is_evicted=draw(st.sampled_from([False] * 19 + [True])),
        )
        tree.charge(holder.leaf, holder.taken)
        holders.append(holder)
    return World(
        tree=tree,
        policies={leaf: draw(rules) for leaf in tree.leaves.values()},
        holders=holders,
        preemptor=TriedHead(leaf=first, taken=(), priority=0, queued_at=0),
        strategies=None,
    )


def queues_of(world):
    return {
        leaf: cluster_queue(f"{leaf}-cq", preemption=policy)
        for leaf, policy in world.policies.items()
    }


def held_in(world, *, is_fair=False):
    """The holders of a world as the event loop has them."""
    bounded = QuotaHolders(world.tree, queues_of(world), KueueConfig(fair_sharing=is_fair))
    for each in world.holders:
        bounded.hold(
            StartedWorkloads(
                key=each.key,
                cluster_queue="",
                leaf=each.leaf,
                usage=each.taken,
                count=1,
                variance=0.0,
            ),
            priority=each.priority,
            order=each.queued_at,
            reserved_at=each.reserved_at,
            uid=each.uid,
        )
    return bounded


@pytest.mark.agreement
@given(st.one_of(worlds(), shared_worlds()), st.data())
def test_the_event_loop_preempts_for_a_head_whom_the_search_finds(world, data):
    tree = world.tree
    wanted = max(1, tree.available(0, 0) + data.draw(st.integers(1, 3)))
    asked = data.draw(
        st.builds(
            TriedHead,
            leaf=st.sampled_from(sorted(tree.leaves.values())),
            taken=st.just(((0, wanted),)) | st.just(world.preemptor.taken or ((0, 1),)),
            priority=priorities,
            queued_at=times,
        )
    )
    holders = [each._replace(uid=each.key, is_evicted=False) for each in world.holders]
    world = replace(world, preemptor=asked, holders=holders)
    assume(world.short)
    is_fair = world.strategies is not None
    held = held_in(replace(world, holders=holders), is_fair=is_fair)

    found = [
        [(victim.holder.uid, victim.reason) for victim in holding.targets(asked, world.short)]
        for holding in (held.preemptions, world.preemptions())
    ]

    assert found[0] == found[1]
