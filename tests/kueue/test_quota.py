from __future__ import annotations

from tests.builders import cluster_queue, cohort, snapshot
from webhook.kueue import quota

CPU = ("default", "cpu")


def plant(*cluster_queues, cohorts=()):
    found = snapshot(*cluster_queues, cohorts=cohorts)
    return quota.plant(found.cluster_queues, found.cohorts)


def cpus(amount):
    return {"default": {"cpu": str(amount)}}


def used(amount):
    return {CPU: amount * 1000}


def test_a_queue_alone_has_its_nominal_quota_less_what_is_used():
    quotas = plant(cluster_queue("a", cpus(10)))

    charged = quota.charge(quotas, "a", used(4))

    assert quota.available(charged, "a", CPU) == 6000
    assert quota.potential(charged, "a", CPU) == 10_000
    assert quota.available(quotas, "a", CPU) == 10_000


def test_queues_of_a_cohort_that_nobody_defined_share_what_they_have():
    quotas = plant(
        cluster_queue("a", cpus(10), cohort="all"), cluster_queue("b", cpus(5), cohort="all")
    )

    charged = quota.charge(quotas, "b", used(9))

    assert quota.available(charged, "a", CPU) == 6000
    assert quota.available(charged, "b", CPU) == 6000
    assert quota.potential(charged, "a", CPU) == 15_000


def test_a_borrowing_limit_caps_what_comes_from_the_cohort():
    quotas = plant(
        cluster_queue("a", cpus(2), cohort="all", borrowing="3"),
        cluster_queue("b", cpus(20), cohort="all"),
    )

    assert quota.potential(quotas, "a", CPU) == 5000
    assert quota.available(quota.charge(quotas, "a", used(1)), "a", CPU) == 4000
    assert quota.available(quota.charge(quotas, "a", used(4)), "a", CPU) == 1000


def test_a_lending_limit_keeps_the_rest_at_home():
    quotas = plant(
        cluster_queue("a", cpus(10), cohort="all", lending="4"),
        cluster_queue("b", cpus(1), cohort="all"),
    )

    charged = quota.charge(quotas, "a", used(5))

    assert quota.potential(quotas, "b", CPU) == 5000
    assert quota.available(charged, "b", CPU) == 5000
    assert quota.available(charged, "a", CPU) == 6000
    assert quota.available(quota.charge(charged, "a", used(3)), "b", CPU) == 3000


def test_a_cohort_has_quota_of_its_own_for_all_below_it():
    quotas = plant(
        cluster_queue("a", cpus(1), cohort="left"),
        cluster_queue("b", cpus(1), cohort="right"),
        cohorts=[
            cohort("left", parent="top"),
            cohort("right", cpus(4), parent="top", lending="1"),
            cohort("top", cpus(8)),
        ],
    )

    assert quota.potential(quotas, "a", CPU) == 10_000
    assert quota.potential(quotas, "b", CPU) == 14_000
    assert quota.available(quota.charge(quotas, "b", used(3)), "a", CPU) == 10_000
    assert quota.available(quota.charge(quotas, "b", used(7)), "a", CPU) == 7000


def test_usage_above_the_quota_is_never_available_to_anybody():
    quotas = plant(
        cluster_queue("a", cpus(2), cohort="all"), cluster_queue("b", cpus(2), cohort="all")
    )

    charged = quota.charge(quotas, "a", used(9))

    assert quota.available(charged, "b", CPU) == 0


def test_a_cohort_below_itself_holds_nothing():
    quotas = plant(
        cluster_queue("a", cpus(2), cohort="x"),
        cluster_queue("b", cpus(2), cohort="below"),
        cluster_queue("c", cpus(2), cohort="apart"),
        cohorts=[cohort("x", parent="y"), cohort("y", parent="x"), cohort("below", parent="y")],
    )

    assert [quotas.holds(name) for name in "abc"] == [False, False, True]
    assert quota.available(quotas, "a", CPU) == 0
    assert quota.potential(quotas, "b", CPU) == 0
    assert quota.charge(quotas, "a", used(1)) is quotas


def test_the_height_says_from_how_far_quota_is_borrowed():
    quotas = plant(
        cluster_queue("a", cpus(2), cohort="left"),
        cluster_queue("b", cpus(2), cohort="left"),
        cluster_queue("c", cpus(2), cohort="top"),
        cohorts=[cohort("left", parent="top")],
    )

    found = [quota.borrowing_height(quotas, "a", CPU, amount * 1000) for amount in (2, 4, 6, 7)]

    assert found == [(0, True), (1, True), (2, False), (2, False)]


def test_only_another_queue_of_the_same_tree_is_over_its_nominal_quota():
    quotas = plant(
        cluster_queue("a", cpus(2), cohort="all"),
        cluster_queue("b", cpus(2), cohort="all"),
        cluster_queue("c", cpus(2)),
    )

    assert not quota.over_nominal(quota.charge(quotas, "a", used(3)), "a", CPU)
    assert not quota.over_nominal(quota.charge(quotas, "c", used(3)), "a", CPU)
    assert quota.over_nominal(quota.charge(quotas, "b", used(3)), "a", CPU)
