"""Replays how far ClusterQueues and cohorts have borrowed, by which fair sharing serves them."""

import math
import sys

from tests.kueue_tables.clusters import cells, cluster
from tests.kueue_tables.trees import taken, tree_of
from webhook.kueue.fair_sharing import share


def dominant(case):
    """Replay TestDominantResourceShare."""
    fields = case.fields
    queues = [fields[name] for name in ("clusterQueue", "lendingClusterQueue") if name in fields]
    _, snapshot = cluster([*case.all("objects", "cohorts"), *queues], case)
    target = fields["clusterQueue"]["metadata"]["name"]
    tree = tree_of(snapshot, target, {target: cells(fields.get("usage"))})
    added = taken(tree, cells(fields.get("flvResQ")))
    return (
        {want["Name"]: drs(tree, node_of(tree, snapshot, want), added) for want in fields["want"]},
        {want["Name"]: (want["Borrowing"], want["DrValue"]) for want in fields["want"]},
    )


def node_of(tree, snapshot, want):
    """Return the node of a ClusterQueue, or of a cohort above one."""
    if not want["NodeType"]:
        return tree.leaves[want["Name"]]
    (node,) = {
        above
        for name, leaf in tree.leaves.items()
        for cohort, above in zip(cohorts_of(snapshot, name), list(tree.path(leaf))[1:], strict=True)
        if cohort == want["Name"]
    }
    return node


def cohorts_of(snapshot, cluster_queue):
    cohort = snapshot.setup.cluster_queues[cluster_queue].cohort
    while cohort:
        yield cohort
        cohort = snapshot.setup.cohorts[cohort].parent if cohort in snapshot.setup.cohorts else ""


def drs(tree, node, added):
    """Return whether a node borrows, and its weighted share as Kueue rounds it."""
    of_node = share(tree, node, added)
    if of_node.ratio and not of_node.weight:
        return True, sys.maxsize
    weighted = of_node.ratio / of_node.weight if of_node.ratio else 0.0
    return bool(of_node.borrowed), math.ceil(weighted)
