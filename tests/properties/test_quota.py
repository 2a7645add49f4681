from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from webhook.kueue import quota
from webhook.model.queues import ClusterQueue, Cohort, Quota, ResourceGroup

CELL = ("default", "cpu")
LIMIT = st.none() | st.integers(0, 20)
CELLS = st.builds(Quota, nominal=st.integers(0, 20), borrowing_limit=LIMIT, lending_limit=LIMIT)


def groups(cell: Quota) -> tuple[ResourceGroup, ...]:
    return (ResourceGroup(resources=("cpu",), flavors=("default",), quotas={CELL: cell}),)


@st.composite
def trees(draw: Any) -> tuple[dict[str, ClusterQueue], dict[str, Cohort], dict[str, int]]:
    """Cohorts up to four levels deep, some of them only named, and usage of the queues."""
    cohorts: dict[str, Cohort] = {}
    names = [f"c{index}" for index in range(draw(st.integers(1, 5)))]
    for index, name in enumerate(names):
        parent = draw(st.sampled_from(["", "named", *names[:index]]))
        cell = draw(st.none() | CELLS)
        cohorts[name] = Cohort(name=name, parent=parent, groups=groups(cell) if cell else ())
    queues = {
        f"q{index}": ClusterQueue(
            name=f"q{index}", cohort=draw(st.sampled_from(["", *names])), groups=groups(draw(CELLS))
        )
        for index in range(draw(st.integers(1, 6)))
    }
    return queues, cohorts, {name: draw(st.integers(0, 25)) for name in queues}


def charged(queues, cohorts, usage):
    idle = quota.plant(queues, cohorts)
    return idle.charged({name: {CELL: amount} for name, amount in usage.items()})


def available(forest, name):
    tree = forest.tree(name)
    return tree.available(tree.leaves[name], tree.indices[CELL])


def potential(forest, name):
    tree = forest.tree(name)
    return tree.potential(tree.leaves[name], tree.indices[CELL])


class Naive:
    """The same rule, worked out from the top again for each question."""

    def __init__(self, queues, cohorts, usage) -> None:
        self.parent = {name: queue.cohort for name, queue in queues.items()}
        self.cells = {name: queue.groups[0].quotas[CELL] for name, queue in queues.items()}
        self.usage = usage
        for name, cohort in cohorts.items():
            self.parent[name] = cohort.parent
            if cohort.groups:
                self.cells[name] = cohort.groups[0].quotas[CELL]

    def cell(self, name):
        return self.cells.get(name, Quota(nominal=0))

    def children(self, name):
        return [child for child, parent in self.parent.items() if parent == name]

    def subtree(self, name):
        lent = sum(self.subtree(child) - self.local(child) for child in self.children(name))
        return self.cell(name).nominal + lent

    def local(self, name):
        limit = self.cell(name).lending_limit
        return 0 if limit is None else max(0, self.subtree(name) - limit)

    def used(self, name):
        if name in self.usage:
            return self.usage[name]
        return sum(max(0, self.used(child) - self.local(child)) for child in self.children(name))

    def available(self, name):
        parent = self.parent.get(name, "")
        if not parent:
            return self.subtree(name) - self.used(name)
        above, limit = self.available(parent), self.cell(name).borrowing_limit
        if limit is not None:
            kept = self.subtree(name) - self.local(name)
            above = min(above, kept - max(0, self.used(name) - self.local(name)) + limit)
        return max(0, self.local(name) - self.used(name)) + above


@given(trees())
def test_the_tree_agrees_with_a_naive_recomputation(tree):
    forest, naive = charged(*tree), Naive(*tree)

    for name in tree[0]:
        assert available(forest, name) == naive.available(name)


@given(trees())
def test_available_never_exceeds_potential(tree):
    forest = charged(*tree)

    for name in tree[0]:
        assert available(forest, name) <= potential(forest, name)


def test_two_hundred_queues_agree_with_a_naive_recomputation():
    cohorts = {f"c{index}": Cohort(name=f"c{index}", parent="top") for index in range(10)}
    queues = {
        f"q{index}": ClusterQueue(
            name=f"q{index}",
            cohort=f"c{index % 10}",
            groups=groups(Quota(nominal=index % 7, lending_limit=3 if index % 3 else None)),
        )
        for index in range(200)
    }
    usage = {f"q{index}": index % 5 for index in range(200)}
    forest, naive = charged(queues, cohorts, usage), Naive(queues, cohorts, usage)

    found = {name: available(forest, name) for name in list(queues)[::20]}

    assert found == {name: naive.available(name) for name in found}
