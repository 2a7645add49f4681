"""What is known of Topologies and Nodes, and which domains Workloads occupy: frozen values.

Amounts are as in ``model.quantity``. Who fits where is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from webhook.model import fields, quantity
from webhook.model.fields import child
from webhook.model.pods import Taint, read_taint

HOSTNAME: Final = "kubernetes.io/hostname"
PODS: Final = "pods"
"""The resource by which Nodes say how many pods they take."""

Domain: TypeAlias = tuple[str, ...]
"""The values of a Topology's levels, from the highest down; of a Node where that is the lowest
level, its hostname alone: as Kueue names them in ``topologyAssignment``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyNode:
    """A Node that is ready and takes pods."""

    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    allocatable: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The levels of a Topology, and the Nodes that have all of them."""

    name: str
    levels: tuple[str, ...]
    """Node labels, from the highest level down."""
    nodes: tuple[TopologyNode, ...] = ()
    """Empty: there are none, or Nodes are not watched."""
    known: dict[tuple[tuple[str, str], ...], object] = field(
        default_factory=dict, compare=False, repr=False
    )
    """What has been worked out of it for the labels of a ResourceFlavor."""


class PlacedPods(NamedTuple):
    """Pods that a Workload has in one domain."""

    flavor: str
    domain: Domain
    amounts: tuple[tuple[str, int], ...]
    """What they ask for together, their number among it (``PODS``)."""


def read_topology(source: Mapping[str, Any]) -> Topology:
    """Read a Topology's levels.

    Raises:
        FieldError: it cannot be read.

    """
    spec = fields.mapping(source, "spec", "")
    return Topology(
        name=fields.text(fields.mapping(source, "metadata", ""), "name", "metadata"),
        levels=tuple(
            fields.text(level, "nodeLabel", here)
            for level, here in fields.objects(spec, "levels", "spec")
        ),
    )


def read_node(source: Mapping[str, Any], labels: Mapping[str, str]) -> TopologyNode | None:
    """Read a Node; None: it is not ready, or takes no pods.

    Raises:
        FieldError: it cannot be read.

    """
    # ``nodesCache.sync``:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/tas_nodes_cache.go#L57
    spec, status = (fields.mapping(source, key, "") for key in ("spec", "status"))
    conditions = fields.objects(status, "conditions", "status")
    is_ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c, _ in conditions)
    if spec.get("unschedulable") or not is_ready:
        return None
    here = child("status", "allocatable")
    return TopologyNode(
        labels=labels,
        taints=tuple(read_taint(taint, at) for taint, at in fields.objects(spec, "taints", "spec")),
        allocatable={
            resource: quantity.parse(str(amount), resource=resource, path=child(here, resource))
            for resource, amount in fields.mapping(status, "allocatable", "status").items()
        },
    )
