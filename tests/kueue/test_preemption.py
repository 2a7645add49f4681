from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.builders import cluster_queue, cohort
from webhook.kueue import quota
from webhook.kueue.preemption import Preemptions, TriedHead
from webhook.model.queues import (
    Preemption,
    QuotaHolder,
)

FAIR = "InCohortFairSharing"

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
    return TriedHead(
        leaf=tree.leaves[wants.queue],
        taken=taken(tree, wants),
        priority=wants.priority,
        queued_at=wants.queued_at,
    )


def victims(wants, queues, running, cohorts=(), **rest):
    tree, preemptions = planted(queues, running, cohorts, **rest)
    targets = preemptions.targets(preemptor(tree, wants), [tree.indices[wants.flavor, "gpu"]])
    return {victim.holder.key: str(victim.reason) for victim in targets}


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
