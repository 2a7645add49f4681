"""Builders of Topologies, and of Nodes in blocks and racks."""

from webhook.model.queues import ResourceFlavor
from webhook.model.topologies import HOSTNAME, Topology, TopologyNode
from webhook.state.snapshot import updated

GPU = "nvidia.com/gpu"
BLOCK, RACK = "example.com/block", "example.com/rack"
LEVELS = (BLOCK, RACK, HOSTNAME)


def node(block, rack, name, *, gpus=8, taints=(), **more):
    return TopologyNode(
        labels={BLOCK: block, RACK: rack, HOSTNAME: name},
        taints=taints,
        allocatable={GPU: gpus, "cpu": 96_000, "memory": 1 << 40, "pods": 110, **more},
    )


def racks(number, nodes, *, gpus=8, per_block=2):
    """Return Nodes: *number* racks of *nodes* each, *per_block* racks a block."""
    return tuple(
        node(f"b{rack // per_block}", f"r{rack}", f"n{rack}-{index}", gpus=gpus)
        for rack in range(number)
        for index in range(nodes)
    )


def topology(nodes=(), *, name="racks", levels=LEVELS):
    return Topology(name=name, levels=levels, nodes=tuple(nodes))


def with_topology(snapshot, nodes, *, flavor="gpu", levels=LEVELS):
    """Return a snapshot in which a flavor has a Topology with these Nodes."""
    return updated(
        snapshot,
        flavors={**snapshot.setup.flavors, flavor: ResourceFlavor(name=flavor, topology="racks")},
        topologies={"racks": topology(nodes, levels=levels)},
    )
