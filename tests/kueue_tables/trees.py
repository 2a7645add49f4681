"""The quota tree of a ClusterQueue of a case, with its usage."""

from tests import worlds


def tree_of(snapshot, cluster_queue, usage):
    """Return the tree of a ClusterQueue, with the usage of each ClusterQueue."""
    tree = next(tree for tree in worlds.trees(snapshot) if cluster_queue in tree.leaves)
    for name, amounts in usage.items():
        if name in tree.leaves:
            tree.charge(tree.leaves[name], taken(tree, amounts))
    return tree


def taken(tree, amounts):
    return tuple((tree.indices[cell], n) for cell, n in amounts.items() if cell in tree.indices)
