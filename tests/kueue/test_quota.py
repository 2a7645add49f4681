from __future__ import annotations

from tests.builders import cluster_queue, cohort, snapshot
from webhook.kueue import quota
from webhook.kueue.whole_tree import all_free_below

CPU = ("default", "cpu")


def plant(*cluster_queues, cohorts=()):
    found = snapshot(*cluster_queues, cohorts=cohorts)
    return quota.plant(found.cluster_queues, found.cohorts)


def charged(forest, name, amount):
    return forest.charged({name: {CPU: amount * 1000}})


def available(forest, name):
    tree = forest.tree(name)
    return tree.available(tree.leaves[name], tree.indices[CPU])


def potential(forest, name):
    tree = forest.tree(name)
    return tree.potential(tree.leaves[name], tree.indices[CPU])


def cpus(amount):
    return {"default": {"cpu": str(amount)}}


def test_a_queue_alone_has_its_nominal_quota_less_what_is_used():
    forest = plant(cluster_queue("a", cpus(10)))

    after = charged(forest, "a", 4)

    assert available(after, "a") == 6000
    assert potential(after, "a") == 10_000
    assert available(forest, "a") == 10_000


def test_queues_of_a_cohort_that_nobody_defined_share_what_they_have():
    forest = plant(
        cluster_queue("a", cpus(10), cohort="all"), cluster_queue("b", cpus(5), cohort="all")
    )

    after = charged(forest, "b", 9)

    assert available(after, "a") == 6000
    assert available(after, "b") == 6000
    assert potential(after, "a") == 15_000


def test_a_borrowing_limit_caps_what_comes_from_the_cohort():
    forest = plant(
        cluster_queue("a", cpus(2), cohort="all", borrowing="3"),
        cluster_queue("b", cpus(20), cohort="all"),
    )

    assert potential(forest, "a") == 5000
    assert available(charged(forest, "a", 1), "a") == 4000
    assert available(charged(forest, "a", 4), "a") == 1000


def test_a_lending_limit_keeps_the_rest_at_home():
    forest = plant(
        cluster_queue("a", cpus(10), cohort="all", lending="4"),
        cluster_queue("b", cpus(1), cohort="all"),
    )

    after = charged(forest, "a", 5)

    assert potential(forest, "b") == 5000
    assert available(after, "b") == 5000
    assert available(after, "a") == 6000
    assert available(charged(after, "a", 3), "b") == 3000


def test_a_cohort_has_quota_of_its_own_for_all_below_it():
    forest = plant(
        cluster_queue("a", cpus(1), cohort="left"),
        cluster_queue("b", cpus(1), cohort="right"),
        cohorts=[
            cohort("left", parent="top"),
            cohort("right", cpus(4), parent="top", lending="1"),
            cohort("top", cpus(8)),
        ],
    )

    assert potential(forest, "a") == 10_000
    assert potential(forest, "b") == 14_000
    assert available(charged(forest, "b", 3), "a") == 10_000
    assert available(charged(forest, "b", 7), "a") == 7000


def test_usage_above_the_quota_is_never_available_to_anybody():
    forest = plant(
        cluster_queue("a", cpus(2), cohort="all"), cluster_queue("b", cpus(2), cohort="all")
    )

    after = charged(forest, "a", 9)

    assert available(after, "b") == -5000


def test_a_cohort_below_itself_holds_nothing():
    forest = plant(
        cluster_queue("a", cpus(2), cohort="x"),
        cluster_queue("b", cpus(2), cohort="below"),
        cluster_queue("c", cpus(2), cohort="apart"),
        cohorts=[cohort("x", parent="y"), cohort("y", parent="x"), cohort("below", parent="y")],
    )

    assert [forest.tree(name) is None for name in "abc"] == [True, True, False]
    assert charged(forest, "a", 1) is forest


def test_the_height_says_from_how_far_quota_is_borrowed():
    forest = plant(
        cluster_queue("a", cpus(2), cohort="left"),
        cluster_queue("b", cpus(2), cohort="left"),
        cluster_queue("c", cpus(2), cohort="top"),
        cohorts=[cohort("left", parent="top")],
    )

    tree = forest.tree("a")
    found = [tree.height(tree.leaves["a"], 0, amount * 1000) for amount in (2, 4, 6, 7)]

    assert found == [(0, True), (1, True), (2, False), (2, False)]
    most = [all_free_below(tree, height, tree.used)[tree.leaves["a"]] for height in (0, 1, 2)]
    assert most == [2000, 4000, 6000]


def test_only_another_queue_of_the_same_tree_is_over_its_nominal_quota():
    forest = plant(
        cluster_queue("a", cpus(2), cohort="all"),
        cluster_queue("b", cpus(2), cohort="all"),
        cluster_queue("c", cpus(2)),
    )

    def others_borrow(forest):
        tree = forest.tree("a")
        return tree.others_borrow(tree.leaves["a"], 0)

    assert not others_borrow(charged(forest, "a", 3))
    assert not others_borrow(charged(forest, "c", 3))
    assert others_borrow(charged(forest, "b", 3))


def test_charging_one_tree_shares_the_others():
    forest = plant(cluster_queue("a", cpus(2), cohort="all"), cluster_queue("c", cpus(2)))

    after = charged(forest, "a", 1)

    assert after.tree("c") is forest.tree("c")
    assert after.tree("a").subtree is forest.tree("a").subtree
    assert available(forest, "a") == 2000


def test_a_tree_is_named_by_its_root_cohort_or_by_the_queue_that_shares_with_nobody():
    found = snapshot(
        cluster_queue("a", cpus(2), cohort="left"),
        cluster_queue("b", cpus(2), cohort="top"),
        cluster_queue("c", cpus(2)),
        cluster_queue("d", cpus(2), cohort="x"),
        cohorts=[cohort("left", parent="top"), cohort("x", parent="x")],
    )

    names = quota.tree_names(found.cluster_queues, found.cohorts)

    assert names == {"a": "cohort top", "b": "cohort top", "c": "queue c", "d": "queue d"}
