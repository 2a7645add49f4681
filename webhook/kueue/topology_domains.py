"""The domains of a ResourceFlavor's Topology, as a tree with the Nodes' capacity at its leaves.

Mirrors Kueue's ``topologyTree``. What is in use is not known here, nor who would fit.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/tas_topology_tree.go
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from webhook.model.fields import EMPTY
from webhook.model.queues import ResourceFlavor, Snapshot
from webhook.model.topologies import HOSTNAME, Domain, Topology, TopologyNode


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainTree:
    """Domains by number: leaves first, each parent behind its children."""

    levels: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    """Of each domain those of the levels down to its own."""
    children: tuple[tuple[int, ...], ...]
    by_level: tuple[tuple[int, ...], ...]
    """The domains of each level, from the highest down."""
    capacity: tuple[Mapping[str, int], ...]
    """Of each leaf what its Nodes offer."""
    nodes: tuple[TopologyNode, ...]
    """Of each leaf its Node; empty where the lowest level is not the Node's name."""
    leaves: Mapping[Domain, int]
    """By the names that Workloads' assignments have."""

    @property
    def is_by_node(self) -> bool:
        """Return whether the lowest level is a single Node."""
        return self.levels[-1] == HOSTNAME

    def domain_at(self, leaf: int, level: int) -> tuple[str, ...]:
        """Return the values that name the domain of a *level* in which a leaf is."""
        return self.values[leaf][: level + 1]


def tree_of(flavor: ResourceFlavor, snapshot: Snapshot) -> DomainTree | None:
    """Return the domains of a flavor, kept beside its Topology.

    None: its Topology is not known, or it has no Nodes, or Nodes are not watched.
    """
    topology = snapshot.topologies.get(flavor.topology)
    if topology is None or not topology.nodes:
        return None
    key = tuple(sorted(flavor.node_labels.items()))
    if key not in topology.known:
        topology.known[key] = _built(topology, flavor.node_labels)
    return cast("DomainTree | None", topology.known[key])


def _built(topology: Topology, node_labels: Mapping[str, str]) -> DomainTree | None:
    by_node = topology.levels[-1] == HOSTNAME
    found: dict[tuple[str, ...], list[TopologyNode]] = {}
    for node in topology.nodes:
        if all(node.labels.get(key) == text for key, text in node_labels.items()):
            name = tuple(node.labels[level] for level in topology.levels)
            found.setdefault(name, []).append(node)
    if not found:
        return None
    names = sorted(found)
    values = list(names)
    children: list[tuple[int, ...]] = [()] * len(names)
    by_level = [tuple(range(len(names)))]
    for depth in range(len(topology.levels) - 1, 0, -1):
        by_level.append(_parents(by_level[-1], depth, values, children))
    return DomainTree(
        levels=topology.levels,
        values=tuple(values),
        children=tuple(children),
        by_level=tuple(reversed(by_level)),
        capacity=tuple(_sum(node.allocatable for node in found[name]) for name in names),
        nodes=tuple(found[name][0] for name in names) if by_node else (),
        leaves={name[-1:] if by_node else name: leaf for leaf, name in enumerate(names)},
    )


def _parents(
    domains: Sequence[int],
    depth: int,
    values: list[tuple[str, ...]],
    children: list[tuple[int, ...]],
) -> tuple[int, ...]:
    """Add the domains of the level above some, named by *depth* values; return their numbers."""
    within: dict[tuple[str, ...], list[int]] = {}
    for domain in domains:
        within.setdefault(values[domain][:depth], []).append(domain)
    first = len(values)
    values.extend(within)
    children.extend(tuple(each) for each in within.values())
    return tuple(range(first, len(values)))


def _sum(amounts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    several = list(amounts)
    if len(several) == 1:
        return several[0]
    total: dict[str, int] = {}
    for each in several:
        for resource, amount in each.items():
            total[resource] = total.get(resource, 0) + amount
    return total or EMPTY
