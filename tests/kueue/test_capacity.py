"""How many equal Workloads a queue's quota could hold, with what it may borrow."""

import pytest

from tests.builders import cluster_queue, cohort, group, needs, snapshot
from webhook.kueue import quota
from webhook.kueue.capacity import most_workloads

GPU = "nvidia.com/gpu"


def most(asked, *queues, cohorts=()):
    found = snapshot(*queues, cohorts=cohorts)
    forest = quota.plant(found.setup.cluster_queues, found.setup.cohorts)
    return most_workloads(asked, queues[0], forest, found.setup)


def gpus(amount, *, cpus="100"):
    return {GPU: str(amount), "cpu": cpus}


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({"t4": gpus(7)}, 3),
        ({"t4": gpus(7, cpus="8")}, 2),
        ({"t4": gpus(3), "a100": gpus(5)}, 3),
        ({"t4": gpus(1)}, 0),
    ],
    ids=["by GPUs", "by CPUs", "what is left in two flavors holds none", "too little for one"],
)
def test_the_scarcest_resource_says_how_many_fit(given, want):
    replica = [needs({GPU: "2", "cpu": "4"})]

    assert most(replica, cluster_queue(quotas=given)) == want


def test_what_may_be_borrowed_counts_and_no_more():
    lends = cluster_queue("lends", {"t4": gpus(10)}, cohort="all")
    borrows = cluster_queue(quotas={"t4": gpus(4)}, borrowing="2", cohort="all")

    assert most([needs({GPU: "1"})], borrows, lends, cohorts=[cohort("all")]) == 6


def test_a_leader_and_its_workers_share_the_same_quota():
    group_of_four = [needs({GPU: "1"}), needs({GPU: "1"}, count=3)]

    assert most(group_of_four, cluster_queue(quotas={"t4": gpus(10)})) == 2


def test_a_queue_without_quota_for_what_is_asked_holds_none():
    cpus = cluster_queue(groups=[group({"default": {"cpu": "10"}})])

    assert most([needs({GPU: "1"})], cpus) == 0


def test_what_asks_for_nothing_is_not_limited():
    assert most([needs({})], cluster_queue(quotas={"t4": gpus(1)})) is None
