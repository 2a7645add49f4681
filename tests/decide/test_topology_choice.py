"""What Auto asks for, and which options a Topology rules out."""

import pytest

from tests import builders
from tests.builders import cluster_queue, container, job, template
from tests.topologies import BLOCK, GPU, LEVELS, RACK, racks, with_topology
from webhook.decide import options
from webhook.model.pods import Taint
from webhook.model.queues import ResourceFlavor
from webhook.model.topologies import HOSTNAME
from webhook.state.snapshot import updated

PREFIX = "kueue.x-k8s.io/podset-"
REQUIRED, PREFERRED = f"{PREFIX}required-topology", f"{PREFIX}preferred-topology"
NODES = racks(4, 4)
QUOTAS = {GPU: "512", "cpu": "9000"}


def assessed(count, topology, *, nodes=NODES, levels=LEVELS, quotas=None, asks=None, tainted=""):
    """Assess an option for *count* pods of 8 GPUs each, in a queue with a Topology of racks."""
    queue = cluster_queue("gpu-cq", {"gpu": QUOTAS} if quotas is None else quotas)
    snapshot = with_topology(builders.snapshot(queue), nodes, levels=levels)
    taint = Taint(key="spot", effect="NoSchedule")
    closed = {tainted: ResourceFlavor(name=tainted, taints=(taint,))} if tainted else {}
    snapshot = updated(snapshot, flavors={**snapshot.setup.flavors, **closed})
    adaptation = {"topology": topology} if topology else {}
    pods = template(container(requests={"cpu": "1"}, limits={GPU: "8"}), annotations=asks or {})
    (found,) = options.fitted(
        builders.applicant(
            builders.policy({"name": "o", "queue": "gpu-lq", "adaptation": adaptation}),
            snapshot,
            of=job(pods=pods, count=count),
        )
    )
    return found


def asked(*args, **rest):
    found = assessed(*args, **rest)
    assert found.rejection is None
    return dict(found.job.pod_sets[0].template.annotations)


def refused(*args, **rest):
    rejection = assessed(*args, **rest).rejection
    return rejection and (str(rejection.reason), rejection.detail)


AUTO = {"mode": "Auto", "level": RACK}


@pytest.mark.parametrize(
    ("count", "nodes", "want"),
    [
        (4, NODES, {REQUIRED: RACK}),
        (5, NODES, {PREFERRED: RACK}),
        (1, NODES, {PREFERRED: HOSTNAME}),
        (4, (), {PREFERRED: RACK}),
    ],
)
def test_auto_demands_a_domain_where_one_is_large_enough(count, nodes, want):
    assert asked(count, AUTO, nodes=nodes) == want


def test_auto_asks_for_the_lowest_level_there_is_and_for_nothing_without_a_topology():
    assert asked(1, AUTO, levels=(BLOCK, RACK)) == {PREFERRED: RACK}
    assert asked(4, AUTO, quotas={"plain": QUOTAS}, asks={REQUIRED: RACK}) == {}


def test_a_level_that_the_topology_lacks_refuses_the_option():
    level = {"mode": "Required", "level": "nvidia.com/gpu.clique"}
    detail = "Topology racks of flavor gpu has no level nvidia.com/gpu.clique"

    assert refused(4, level) == ("topologyLevelMissing", detail)
    assert refused(4, level, quotas={"plain": QUOTAS}) == (
        "topologyLevelMissing",
        "flavor plain has no topology",
    )


def test_a_gang_that_no_domain_could_ever_hold_is_refused():
    detail = f"no domain of {RACK} in flavor gpu could ever hold 5 pods"

    assert refused(5, {"mode": "Required", "level": RACK}) == ("exceedsDomain", detail)
    assert refused(5, {"mode": "Required", "level": BLOCK}) is None
    assert refused(5, {"mode": "Required", "level": RACK}, nodes=()) is None


def test_a_flavor_with_a_topology_in_a_mixed_queue_wants_to_be_asked():
    mixed = {"gpu": QUOTAS, "spot": QUOTAS}
    detail = "flavor gpu serves only Jobs that ask for a topology"

    assert refused(1, None) is None
    assert assessed(1, None, quotas=mixed).detail == "flavor spot"
    assert refused(1, None, quotas=mixed, tainted="spot") == ("topologyNeeded", detail)
