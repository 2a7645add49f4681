from __future__ import annotations

from tests.builders import cluster_queue, cohort, snapshot
from webhook.kueue import quota

CPU = ("default", "cpu")


def plant(*cluster_queues, cohorts=()):
    found = snapshot(*cluster_queues, cohorts=cohorts)
    return quota.plant(found.setup.cluster_queues, found.setup.cohorts)


def charged(forest, name, amount):
    return forest.charged({name: {CPU: amount * 1000}})


def available(forest, name):
    tree = forest.tree(name)
    return tree.available(tree.leaves[name], tree.indices[CPU])


def cpus(amount):
    return {"default": {"cpu": str(amount)}}


def test_a_cohort_below_itself_holds_nothing():
    forest = plant(
        cluster_queue("a", cpus(2), cohort="x"),
        cluster_queue("b", cpus(2), cohort="below"),
        cluster_queue("c", cpus(2), cohort="apart"),
        cohorts=[cohort("x", parent="y"), cohort("y", parent="x"), cohort("below", parent="y")],
    )

    assert [forest.tree(name) is None for name in "abc"] == [True, True, False]
    assert charged(forest, "a", 1) is forest


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

    names = quota.tree_names(found.setup.cluster_queues, found.setup.cohorts)

    assert names == {"a": "cohort top", "b": "cohort top", "c": "queue c", "d": "queue d"}
