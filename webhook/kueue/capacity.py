"""How many equal Workloads the quota of a ClusterQueue could hold, if nobody else used it.

It is at most so many: quota in several flavors is added up, whatever the parts of a Workload share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf

from webhook.kueue import flavor_plan
from webhook.kueue.flavor_plan import Flavor
from webhook.kueue.quota import Forest, UsageTree
from webhook.model.queues import ClusterQueue, PodSetNeeds
from webhook.model.snapshot_parts import KueueSetup


def most_workloads(
    asked: Sequence[PodSetNeeds], queue: ClusterQueue, forest: Forest, setup: KueueSetup
) -> int | None:
    """Return how many fit into nominal quota and what may be borrowed; None: nothing limits them.

    Raises:
        FieldError: a toleration or an affinity term of a template cannot be read.

    """
    tree = forest.tree(queue.name)
    plans = [flavor_plan.plan_flavors(pod_set, queue, setup) for pod_set in asked]
    if tree is None or any(plan.rejection is not None for plan in plans):
        return 0
    node = tree.leaves[queue.name]
    parts = [tuple(_usable(flavors)) for flavors in flavor_plan.parts(asked, plans)]
    alone = min((sum(_held(f, tree, node) for f in flavors) for flavors in parts), default=inf)
    most = min(alone, _together(parts, tree, node))
    return None if most == inf else int(most)


def _usable(flavors: Iterable[Flavor]) -> Iterable[Flavor]:
    for flavor in flavors:
        if flavor.unreadable is not None:
            raise flavor.unreadable
        if flavor.refusal is None:
            yield flavor


def _held(flavor: Flavor, tree: UsageTree, node: int) -> float:
    """Return how often one flavor could hold what a part asks for."""
    taken = tree.taken(dict(flavor.usage))
    return min((tree.potential(node, cell) // n for cell, n in taken if n), default=inf)


def _together(parts: Sequence[Sequence[Flavor]], tree: UsageTree, node: int) -> float:
    """Return how often all parts fit, by what they ask for together of each resource."""
    needed, given = Counter[str](), Counter[str]()
    for flavors in parts:
        needed.update({cell[1]: amount for cell, amount in flavors[0].usage} if flavors else {})
    cells = {cell for flavors in parts for flavor in flavors for cell, _ in flavor.usage}
    for cell in cells:
        if cell in tree.indices:
            given[cell[1]] += tree.potential(node, tree.indices[cell])
    limited = (resource for resource in given if needed[resource])
    return min((given[resource] // needed[resource] for resource in limited), default=inf)
