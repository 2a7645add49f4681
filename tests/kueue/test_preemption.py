from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tests.builders import cluster_queue, cohort
from webhook.kueue import quota
from webhook.kueue.preemption import Preemptor, QuotaHolder, satisfies_policy
from webhook.kueue.preemptor import Possibility, Preemptions
from webhook.model.queues import (
    LESS_THAN_INITIAL_SHARE,
    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,
    Preemption,
)

OWN = "InClusterQueue"
RECLAIMED = "InCohortReclamation"
WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
FAIR = "InCohortFairSharing"

LOWER = Preemption(within_cluster_queue="LowerPriority")
RECLAIMS = Preemption(reclaim_within_cohort="Any")
BOTH = Preemption(within_cluster_queue="LowerPriority", reclaim_within_cohort="Any")


@dataclass(frozen=True, kw_only=True)
class Runs:
    """A Workload that holds GPUs, or one that wants them."""

    queue: str
    gpus: int
    flavor: str = "default"
    priority: int = 0
    reserved_at: float = 0
    queued_at: float = 0
    is_evicted: bool = False
    local_queue: str = ""


def gpus(name, nominal, *, parent="all", preemption=None, flavor="default", **rest):
    quotas = {flavor: {"gpu": str(nominal)}}
    return cluster_queue(name, quotas, cohort=parent, preemption=preemption or Preemption(), **rest)


def taken(tree, runs):
    return ((tree.indices[runs.flavor, "gpu"], runs.gpus),)


def holders(tree, running):
    return [
        QuotaHolder(
            key=name,
            leaf=tree.leaves[runs.queue],
            taken=taken(tree, runs),
            priority=runs.priority,
            reserved_at=runs.reserved_at,
            queued_at=runs.queued_at,
            is_evicted=runs.is_evicted,
            uid=name,
            local_queue=runs.local_queue,
        )
        for name, runs in running.items()
    ]


def planted(queues, running, cohorts=(), **rest):
    """Return the tree and the preemptions of queues of one cohort tree."""
    named = {queue.name: queue for queue in queues}
    tree = quota.plant(named, {node.name: node for node in cohorts})[queues[0].name]
    found = holders(tree, running)
    for holder in found:
        tree.charge(holder.leaf, holder.taken)
    policies = {leaf: named[name].preemption for name, leaf in tree.leaves.items()}
    return tree, Preemptions(tree, policies, found, **rest)


def preemptor(tree, wants):
    return Preemptor(
        leaf=tree.leaves[wants.queue],
        taken=taken(tree, wants),
        priority=wants.priority,
        queued_at=wants.queued_at,
    )


def victims(wants, queues, running, cohorts=(), **rest):
    tree, preemptions = planted(queues, running, cohorts, **rest)
    targets = preemptions.targets(preemptor(tree, wants), [tree.indices[wants.flavor, "gpu"]])
    return {victim.holder.key: str(victim.reason) for victim in targets}


def test_the_lowest_priority_goes_first_and_of_these_who_reserved_last():
    running = {
        "lowest": Runs(queue="a-cq", gpus=1, priority=-2),
        "early": Runs(queue="a-cq", gpus=1, priority=-1, reserved_at=1),
        "late": Runs(queue="a-cq", gpus=1, priority=-1, reserved_at=2),
        "equal": Runs(queue="a-cq", gpus=1),
    }

    chosen = victims(
        Runs(queue="a-cq", gpus=2), [gpus("a-cq", 4, parent="", preemption=LOWER)], running
    )

    assert chosen == {"lowest": OWN, "late": OWN}


def test_who_is_evicted_already_goes_first():
    running = {
        "lowest": Runs(queue="a-cq", gpus=2, priority=-2),
        "evicted": Runs(queue="a-cq", gpus=2, priority=-1, is_evicted=True),
    }

    chosen = victims(
        Runs(queue="a-cq", gpus=2), [gpus("a-cq", 4, parent="", preemption=LOWER)], running
    )

    assert chosen == {"evicted": OWN}


def test_a_victim_that_turns_out_not_to_be_needed_is_spared():
    running = {
        "small": Runs(queue="a-cq", gpus=1, priority=-2),
        "large": Runs(queue="a-cq", gpus=3, priority=-1),
    }

    chosen = victims(
        Runs(queue="a-cq", gpus=3), [gpus("a-cq", 4, parent="", preemption=LOWER)], running
    )

    assert chosen == {"large": OWN}


def test_nobody_is_preempted_where_all_candidates_together_do_not_make_room():
    running = {
        "low": Runs(queue="a-cq", gpus=1, priority=-1),
        "equal": Runs(queue="a-cq", gpus=3),
    }

    chosen = victims(
        Runs(queue="a-cq", gpus=4), [gpus("a-cq", 4, parent="", preemption=LOWER)], running
    )

    assert chosen == {}


def test_only_who_holds_the_flavor_that_is_short_is_preempted():
    quotas = {"spot": {"gpu": "2"}, "default": {"gpu": "2"}}
    queue = cluster_queue("a-cq", quotas, preemption=LOWER)
    running = {
        "spot": Runs(queue="a-cq", gpus=2, flavor="spot", priority=-2),
        "low": Runs(queue="a-cq", gpus=2, priority=-1),
    }

    assert victims(Runs(queue="a-cq", gpus=1), [queue], running) == {"low": OWN}


@pytest.mark.parametrize(
    ("policy", "priority", "queued_at", "allowed"),
    [
        ("Never", -1, 9, False),
        ("LowerPriority", -1, 0, True),
        ("LowerPriority", 0, 9, False),
        ("LowerOrNewerEqualPriority", -1, 0, True),
        ("LowerOrNewerEqualPriority", 0, 9, True),
        ("LowerOrNewerEqualPriority", 0, 5, False),
        ("LowerOrNewerEqualPriority", 0, 1, False),
        ("LowerOrNewerEqualPriority", 1, 9, False),
        ("Any", 1, 0, True),
    ],
)
def test_a_policy_says_who_may_be_preempted(policy, priority, queued_at, allowed):
    runs = Runs(queue="a-cq", gpus=4, priority=priority, queued_at=queued_at)
    wants = Runs(queue="a-cq", gpus=4, queued_at=5)
    queue = gpus("a-cq", 4, parent="", preemption=Preemption(within_cluster_queue=policy))
    tree, preemptions = planted([queue], {"runs": runs})
    asking = preemptor(tree, wants)

    assert satisfies_policy(asking, holders(tree, {"runs": runs})[0], policy) is allowed
    assert bool(preemptions.targets(asking, [0])) is allowed


def test_reclaiming_takes_only_what_others_borrow():
    queues = [gpus("a-cq", 4, preemption=RECLAIMS), gpus("b-cq", 2), gpus("c-cq", 2)]
    running = {
        "b1": Runs(queue="b-cq", gpus=3, priority=5, reserved_at=1),
        "b2": Runs(queue="b-cq", gpus=3, priority=5, reserved_at=2),
        "c": Runs(queue="c-cq", gpus=2),
    }

    assert victims(Runs(queue="a-cq", gpus=3), queues, running) == {"b2": RECLAIMED}
    assert victims(Runs(queue="a-cq", gpus=4), queues, running) == {
        "b1": RECLAIMED,
        "b2": RECLAIMED,
    }


def test_borrowers_go_before_workloads_of_the_same_cluster_queue():
    queues = [gpus("a-cq", 4, preemption=BOTH), gpus("b-cq", 2)]
    running = {
        "own": Runs(queue="a-cq", gpus=2, priority=-5),
        "borrower": Runs(queue="b-cq", gpus=4, priority=5),
    }

    assert victims(Runs(queue="a-cq", gpus=2), queues, running) == {"borrower": RECLAIMED}


def test_a_queue_that_would_borrow_itself_reclaims_nothing():
    queues = [gpus("a-cq", 2, preemption=RECLAIMS), gpus("b-cq", 2)]
    running = {"b": Runs(queue="b-cq", gpus=4, priority=-5)}

    assert victims(Runs(queue="a-cq", gpus=3), queues, running) == {}


@pytest.mark.parametrize(
    ("threshold", "priority", "chosen"),
    [
        (None, -1, {"b": WHILE_BORROWING}),
        (-2, -2, {"b": WHILE_BORROWING}),
        (-2, -1, {}),
        (None, 0, {}),
    ],
)
def test_while_borrowing_it_reclaims_only_from_lower_priorities_up_to_the_threshold(
    threshold, priority, chosen
):
    policy = Preemption(
        reclaim_within_cohort="Any",
        borrow_within_cohort="LowerPriority",
        max_priority_threshold=threshold,
    )
    queues = [gpus("a-cq", 2, preemption=policy), gpus("b-cq", 2)]
    running = {"b": Runs(queue="b-cq", gpus=4, priority=priority)}

    assert victims(Runs(queue="a-cq", gpus=3), queues, running) == chosen


def test_quota_of_a_nested_cohort_is_reclaimed_though_the_queue_itself_borrows():
    queues = [gpus("a-cq", 0, parent="left", preemption=RECLAIMS), gpus("b-cq", 0, parent="right")]
    cohorts = [
        cohort("left", {"default": {"gpu": "3"}}, parent="all"),
        cohort("right", parent="all"),
    ]
    running = {"b": Runs(queue="b-cq", gpus=2, priority=5)}

    assert victims(Runs(queue="a-cq", gpus=3), queues, running, cohorts) == {"b": RECLAIMED}
    assert victims(Runs(queue="a-cq", gpus=4), queues, running, cohorts) == {}


def test_nothing_is_reclaimed_from_a_cohort_within_its_quota():
    queues = [
        gpus("a-cq", 4, preemption=RECLAIMS),
        gpus("b-cq", 0, parent="right"),
        gpus("c-cq", 2),
    ]
    cohorts = [cohort("right", {"default": {"gpu": "2"}}, parent="all")]
    running = {
        "b": Runs(queue="b-cq", gpus=2, priority=-5),
        "c": Runs(queue="c-cq", gpus=4),
    }

    assert victims(Runs(queue="a-cq", gpus=4), queues, running, cohorts) == {"c": RECLAIMED}


def test_a_borrower_that_is_down_to_its_quota_is_left_alone():
    policy = Preemption(reclaim_within_cohort="Any", borrow_within_cohort="LowerPriority")
    queues = [gpus("a-cq", 2, preemption=policy), gpus("b-cq", 2)]
    running = {name: Runs(queue="b-cq", gpus=2, priority=-1) for name in ("b1", "b2")}

    assert victims(Runs(queue="a-cq", gpus=4), queues, running) == {}


def test_without_leave_to_borrow_it_first_tries_to_stay_within_its_quota():
    queues = [gpus("a-cq", 4, preemption=BOTH), gpus("b-cq", 4)]
    running = {
        "small": Runs(queue="a-cq", gpus=1, priority=-2),
        "large": Runs(queue="a-cq", gpus=2, priority=-1),
        "early": Runs(queue="b-cq", gpus=3, reserved_at=1),
        "late": Runs(queue="b-cq", gpus=2, reserved_at=2),
    }

    # To preempt "large" alone would do, but then its queue would borrow.
    assert victims(Runs(queue="a-cq", gpus=2), queues, running) == {"small": OWN, "late": RECLAIMED}


def test_the_advantage_of_a_subtree_holds_all_the_way_up():
    queues = [
        gpus("a-cq", 0, parent="low", preemption=RECLAIMS),
        gpus("b-cq", 0),
        gpus("d-cq", 0, parent="middle"),
    ]
    cohorts = [
        cohort("low", {"default": {"gpu": "3"}}, parent="middle"),
        cohort("middle", parent="all"),
        cohort("all", {"default": {"gpu": "4"}}),
    ]
    running = {
        "b1": Runs(queue="b-cq", gpus=3, priority=-5),
        "b2": Runs(queue="b-cq", gpus=2),
        "d": Runs(queue="d-cq", gpus=2),
    }

    assert victims(Runs(queue="a-cq", gpus=3), queues, running, cohorts) == {"b1": RECLAIMED}


def test_quota_that_a_queue_does_not_lend_is_not_asked_of_its_cohort():
    queues = [
        gpus("a-cq", 2, parent="low", preemption=RECLAIMS, lending="0"),
        gpus("b-cq", 0),
    ]
    cohorts = [cohort("low", {"default": {"gpu": "2"}}, parent="all")]
    running = {"b": Runs(queue="b-cq", gpus=2)}

    assert victims(Runs(queue="a-cq", gpus=4), queues, running, cohorts) == {"b": RECLAIMED}


def test_the_heaviest_local_queue_is_preempted_first_where_usage_counts():
    running = {
        "light": Runs(queue="a-cq", gpus=2, priority=-2, local_queue="team/light"),
        "heavy": Runs(queue="a-cq", gpus=2, priority=-1, local_queue="team/heavy"),
    }
    queues = [gpus("a-cq", 4, parent="", preemption=LOWER)]
    usages = {"team/light": 1.0, "team/heavy": 7.0}

    assert victims(Runs(queue="a-cq", gpus=2), queues, running) == {"light": OWN}
    assert victims(Runs(queue="a-cq", gpus=2), queues, running, queue_usages=usages) == {
        "heavy": OWN
    }


@pytest.mark.parametrize("strategies", [None, ()])
@pytest.mark.parametrize("drawn", ["light", "heavy"])
def test_any_victim_can_be_drawn_where_usage_and_priority_go_round(drawn, strategies):
    # By usage heavy comes before light, by priority light before other, and other before heavy.
    running = {
        "light": Runs(queue="b-cq", gpus=2, priority=1, local_queue="team/light"),
        "heavy": Runs(queue="b-cq", gpus=2, priority=3, local_queue="team/heavy"),
        "other": Runs(queue="c-cq", gpus=1, priority=2),
    }
    queues = [
        gpus("a-cq", 5, preemption=RECLAIMS),
        gpus("b-cq", 0),
        gpus("c-cq", 0),
    ]
    usages = {"team/light": 1.0, "team/heavy": 7.0}
    tree, preemptions = planted(queues, running, queue_usages=usages, strategies=strategies)
    wants = preemptor(tree, Runs(queue="a-cq", gpus=2)), {0}

    preemptions.draw({drawn})
    assert [each.holder.key for each in preemptions.targets(*wants)] == [drawn]

    preemptions.remove(next(each for each in holders(tree, running) if each.key == "other"))
    assert [each.holder.key for each in preemptions.targets(*wants)] == ["heavy"]


def three_queues(weights=(1.0, 1.0, 1.0), nominal=(0, 0, 0), pool="8"):
    """Queues a, b and c that share a pool; a may reclaim."""
    queues = [
        gpus(f"{name}-cq", own, preemption=BOTH, fair_weight=weight)
        for name, own, weight in zip("abc", nominal, weights, strict=True)
    ]
    return queues, [cohort("all", {"default": {"gpu": pool}})]


def units(queue, count):
    return {f"{queue}{index}": Runs(queue=f"{queue}-cq", gpus=1) for index in range(count)}


def test_fair_sharing_takes_from_the_largest_share_until_shares_are_even():
    queues, cohorts = three_queues()
    running = units("a", 1) | units("b", 5) | units("c", 2)

    chosen = victims(Runs(queue="a-cq", gpus=2), queues, running, cohorts, strategies=())

    assert chosen == {"b0": FAIR, "b1": FAIR}


def test_fair_sharing_takes_nothing_from_those_whose_share_is_smaller():
    queues, cohorts = three_queues()
    running = units("a", 3) | units("b", 3) | units("c", 2)

    assert victims(Runs(queue="a-cq", gpus=1), queues, running, cohorts, strategies=()) == {}


def test_weights_divide_shares():
    queues, cohorts = three_queues(weights=(3.0, 1.0, 1.0))
    running = units("a", 3) | units("b", 3) | units("c", 2)

    chosen = victims(Runs(queue="a-cq", gpus=1), queues, running, cohorts, strategies=())

    assert chosen == {"b0": FAIR}


def test_a_queue_of_weight_0_loses_what_it_borrows_to_every_other():
    queues, cohorts = three_queues(weights=(1.0, 0.0, 1.0))
    running = units("a", 6) | units("b", 1) | units("c", 1)

    chosen = victims(Runs(queue="a-cq", gpus=1), queues, running, cohorts, strategies=())

    assert chosen == {"b0": FAIR}


@pytest.mark.parametrize(
    ("strategies", "chosen"),
    [
        ((LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,), {}),
        ((LESS_THAN_INITIAL_SHARE,), {"b": FAIR}),
        ((), {"b": FAIR}),
    ],
)
def test_a_strategy_says_which_shares_allow_a_preemption(strategies, chosen):
    queues, cohorts = three_queues()
    running = {"b": Runs(queue="b-cq", gpus=8)}

    found = victims(Runs(queue="a-cq", gpus=4), queues, running, cohorts, strategies=strategies)

    assert found == chosen


def test_quota_of_its_own_is_reclaimed_without_comparing_shares():
    queues, cohorts = three_queues(nominal=(4, 0, 0), pool="4", weights=(1.0, 9.0, 1.0))
    running = units("b", 8)

    chosen = victims(Runs(queue="a-cq", gpus=4), queues, running, cohorts, strategies=())

    assert chosen == dict.fromkeys(["b0", "b1", "b2", "b3"], RECLAIMED)


def test_under_fair_sharing_a_queue_also_preempts_its_own():
    queues, cohorts = three_queues()
    running = {"low": Runs(queue="a-cq", gpus=8, priority=-1)}

    chosen = victims(Runs(queue="a-cq", gpus=2), queues, running, cohorts, strategies=())

    assert chosen == {"low": OWN}


def test_a_cohort_whose_share_has_shrunk_by_the_second_strategy_preempts_others_by_it():
    queues = [
        gpus("a-cq", 3, parent="team", preemption=BOTH),
        gpus("b-cq", 0, parent="team"),
        gpus("c-cq", 1),
        gpus("idle-cq", 3),
    ]
    cohorts = [cohort("team", parent="all"), cohort("all")]
    # The share of b is the greatest only until b0 has gone, so that is a case for the second
    # strategy. Only then the team borrows less than c.
    running = {
        "b0": Runs(queue="b-cq", gpus=3),
        "c0": Runs(queue="c-cq", gpus=2),
        "c1": Runs(queue="c-cq", gpus=2),
    }

    chosen = victims(Runs(queue="a-cq", gpus=5), queues, running, cohorts, strategies=())

    assert chosen == {"b0": FAIR, "c0": FAIR}


def test_what_was_found_is_asked_again_when_others_hold_quota():
    queues, cohorts = three_queues()
    running = units("a", 1) | units("b", 5) | units("c", 2)
    tree, preemptions = planted(queues, running, cohorts=cohorts, strategies=())
    wants = preemptor(tree, Runs(queue="a-cq", gpus=2)), {0}
    first = preemptions.targets(*wants)

    preemptions.remove(first[0].holder)
    preemptions.add(replace(first[0].holder, priority=1000))

    assert [each.holder.key for each in preemptions.targets(*wants)] == ["b1", "b2"]


def test_of_equal_shares_a_cohort_loses_before_a_cluster_queue():
    queues = [
        gpus("a-cq", 0, preemption=BOTH),
        gpus("b-cq", 0),
        gpus("c-cq", 0, parent="right"),
    ]
    cohorts = [cohort("right", parent="all"), cohort("all", {"default": {"gpu": "8"}})]
    running = units("b", 4) | units("c", 4)

    chosen = victims(Runs(queue="a-cq", gpus=1), queues, running, cohorts, strategies=())

    assert chosen == {"c0": FAIR}


@pytest.mark.parametrize(
    ("running", "amount", "answer"),
    [
        ({"own": Runs(queue="a-cq", gpus=4)}, 2, (Possibility.NO_CANDIDATES, 1)),
        ({"own": Runs(queue="a-cq", gpus=4, priority=-1)}, 2, (Possibility.PREEMPT, 0)),
        ({"b": Runs(queue="b-cq", gpus=6)}, 4, (Possibility.RECLAIM, 0)),
        (
            {
                "own": Runs(queue="a-cq", gpus=3, priority=-1),
                "b": Runs(queue="b-cq", gpus=3, priority=-1),
            },
            4,
            (Possibility.PREEMPT, 0),
        ),
    ],
)
def test_the_oracle_says_for_one_flavor_what_preempting_can_do(running, amount, answer):
    tree, preemptions = planted([gpus("a-cq", 4, preemption=BOTH), gpus("b-cq", 2)], running)
    before = list(tree.used)

    asking = preemptor(tree, Runs(queue="a-cq", gpus=9))

    assert preemptions.possibility(asking, 0, amount) == answer
    assert tree.used == before


def test_who_has_ended_is_preempted_no_more():
    queue = gpus("a-cq", 4, parent="", preemption=LOWER)
    running = {"low": Runs(queue="a-cq", gpus=4, priority=-1)}
    tree, preemptions = planted([queue], running)
    asking = preemptor(tree, Runs(queue="a-cq", gpus=4))
    holder = preemptions.targets(asking, [0])[0].holder

    preemptions.remove(holder)
    assert preemptions.targets(asking, [0]) == ()

    preemptions.add(holder)
    assert [victim.holder for victim in preemptions.targets(asking, [0])] == [holder]
