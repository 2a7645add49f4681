"""Replays the arithmetic of quota trees: what is available."""

from tests.kueue_tables.clusters import cells, cluster
from tests.kueue_tables.trees import tree_of


def available(case):
    """Replay TestAvailable."""
    _, snapshot = cluster(case.all("objects", "cohorts", "clusterQueues"), case)
    usage = {name: cells(of) for name, of in case.fields.get("usage", {}).items()}
    wants = case.fields.get("wantAvailable", {}), case.fields.get("wantPotentiallyAvailable", {})
    ours = [{}, {}]
    for name in wants[0]:
        tree = tree_of(snapshot, name, usage)
        for ask, of, want in zip((tree.available, tree.potential), ours, wants, strict=True):
            of[name] = {
                cell: max(0, ask(tree.leaves[name], tree.indices[cell]))
                for cell in cells(want[name])
            }
    return ours, [{name: cells(of) for name, of in want.items()} for want in wants]
