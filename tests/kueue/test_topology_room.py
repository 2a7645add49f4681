"""Whether a Job of a topology starts now: what domains have left, and what is known of it."""

from dataclasses import replace

import pytest

from tests import builders
from tests.builders import arrival, cluster_queue, container, held, job, template
from tests.topologies import BLOCK, GPU, RACK, racks, with_topology
from webhook.decide import options
from webhook.model.queues import Queueing
from webhook.model.topologies import HOSTNAME, PlacedPods
from webhook.state import occupancy
from webhook.state.counted_arrivals import occupancy_of

PREFIX = "kueue.x-k8s.io/podset-"
REQUIRED, PREFERRED = f"{PREFIX}required-topology", f"{PREFIX}preferred-topology"
NODES = racks(2, 2)
QUOTAS = {"gpu": {GPU: "512", "cpu": "9000"}}


def on_nodes(*names, gpus=8):
    """Return what a Workload has on each of these Nodes."""
    amounts = ((GPU, gpus), ("pods", 1))
    return tuple(PlacedPods(flavor="", domain=(name,), amounts=amounts) for name in names)


def assessed(count, asks, *, placed=(), nodes=NODES, waiting=(), quotas=QUOTAS, cpu="1", **queue):
    snapshot = builders.snapshot(
        cluster_queue("gpu-cq", quotas, **queue),
        held={"gpu-cq": replace(held(), placed=placed)},
        competing={"gpu-cq": tuple(waiting)},
    )
    snapshot = with_topology(snapshot, nodes)
    pods = template(container(requests={"cpu": cpu}, limits={GPU: "8"}), annotations=asks)
    (found,) = options.fitted(
        builders.applicant(
            builders.policy({"name": "o", "queue": "gpu-lq"}),
            snapshot,
            of=job(pods=pods, count=count),
        )
    )
    return found


def starts(*args, **rest):
    found = assessed(*args, **rest)
    return found.starts_now, found.is_placed


@pytest.mark.parametrize(
    ("count", "asks", "placed", "want"),
    [
        (2, {REQUIRED: RACK}, (), True),
        # One Node of each rack is taken: two pods have room, but not in one rack.
        (2, {REQUIRED: RACK}, ("n0-0", "n1-1"), False),
        (2, {REQUIRED: BLOCK}, ("n0-0", "n1-1"), True),
        (2, {PREFERRED: RACK}, ("n0-0", "n1-1"), True),
        (2, {f"{PREFIX}unconstrained-topology": "true"}, ("n0-0", "n1-1"), True),
        (3, {PREFERRED: RACK}, ("n0-0", "n1-1"), False),
        # Every flavor has a topology, so it is asked for by nobody and meant all the same.
        (2, {}, ("n0-0", "n1-1"), True),
        (3, {}, ("n0-0", "n1-1"), False),
    ],
)
def test_a_gang_starts_where_domains_have_room(count, asks, placed, want):
    assert starts(count, asks, placed=on_nodes(*placed)) == (want, True)


def test_what_stands_in_the_way_is_said():
    found = assessed(3, {REQUIRED: BLOCK}, placed=on_nodes("n0-0", "n1-1"))

    assert found.detail == "no domain of flavor gpu has room"


def test_without_nodes_quota_alone_decides():
    found = assessed(2, {REQUIRED: RACK}, nodes=())

    assert (found.starts_now, found.is_placed) == (True, False)
    assert found.detail == "flavor gpu; its topology is not looked at"


def test_pods_that_kueue_has_not_placed_may_be_in_the_way():
    assert starts(1, {REQUIRED: HOSTNAME}, cpu="86") == (True, True)
    assert starts(1, {REQUIRED: HOSTNAME}, cpu="87") == (True, False)


def test_who_waits_and_fits_takes_its_domain_first():
    asks = template(annotations={REQUIRED: RACK})
    pods = builders.needs({GPU: "8", "cpu": "1"}, count=2, pods=asks)
    first = replace(arrival("first"), needs=(pods,))

    assert starts(2, {REQUIRED: RACK}, waiting=[first]) == (True, True)
    assert starts(3, {PREFERRED: RACK}, waiting=[first]) == (False, True)


def test_domains_may_be_kept_for_the_head_of_a_strict_queue():
    strict = cluster_queue("strict-cq", QUOTAS, queueing=Queueing.STRICT)
    snapshot = builders.snapshot(
        cluster_queue("gpu-cq", QUOTAS), strict, held={"strict-cq": held(pending=1)}
    )
    snapshot = with_topology(snapshot, NODES)
    asked = builders.needs({GPU: "8"}, pods=template(annotations={REQUIRED: HOSTNAME}))

    def found(name):
        there = occupancy_of(snapshot)
        return occupancy.assignment(there, (asked,), snapshot.setup.cluster_queues[name])

    assert found("strict-cq").assignment.is_placed
    assert not found("gpu-cq").assignment.is_placed
    assert found("gpu-cq").detail == "flavor gpu; its topology is not looked at"


def test_who_is_tried_in_several_flavors_may_come_again_before_others():
    both = {**QUOTAS, "plain": {GPU: "8", "cpu": "9"}}
    queue, other = cluster_queue("gpu-cq", both), cluster_queue("other-cq", QUOTAS)
    asks = template(annotations={REQUIRED: HOSTNAME})

    def placed(pending, newcomer=queue):
        snapshot = builders.snapshot(queue, other, held={"gpu-cq": held(pending=pending)})
        there = occupancy_of(with_topology(snapshot, NODES))
        asked = (builders.needs({GPU: "8"}, pods=asks),)
        return occupancy.assignment(there, asked, newcomer).assignment.is_placed

    assert (placed(0), placed(1)) == (True, False)
    assert (placed(0, other), placed(1, other)) == (True, False)
