"""When domains have room, as those who run end and those who wait are placed."""

from dataclasses import replace

import pytest

from tests import builders
from tests.builders import cluster_queue, template
from tests.topologies import GPU, RACK, racks, with_topology
from webhook.kueue.domain_timeline import RunningGang, WaitingGang, first_room, timeline
from webhook.model.queues import Queueing
from webhook.model.topologies import PlacedPods

REQUIRED = "kueue.x-k8s.io/podset-required-topology"
NODES = racks(2, 2)
NOTHING = {}


def snapshot(**queue):
    made = builders.snapshot(cluster_queue("gpu-cq", {"gpu": {GPU: "512"}}, **queue))
    return with_topology(made, NODES)


def running(ends_in, *names):
    amounts = ((GPU, 8), ("pods", 1))
    placed = tuple(PlacedPods(flavor="", domain=(name,), amounts=amounts) for name in names)
    return RunningGang(ends_in=ends_in, placed=placed)


def pods(count, asks=None):
    made = builders.needs({GPU: "8"}, count=count, pods=template(annotations=asks or {}))
    return (made,)


def waiting(count, seconds, asks=None, number=1):
    return WaitingGang(
        cluster_queue="gpu-cq", needs=pods(count, asks), seconds=seconds, count=number
    )


def room(moments, count, asks, after=0.0):
    return first_room(pods(count, asks), ["gpu"], moments, snapshot(), after=after)


def test_a_gang_waits_until_one_rack_has_room():
    gangs = [running(10.0, "n0-0"), running(20.0, "n1-0"), running(30.0, "n1-1")]

    moments = timeline(snapshot(), gangs, (), NOTHING)

    assert [moment.at for moment in moments] == [0.0, 10.0, 20.0, 30.0]
    assert room(moments, 2, {REQUIRED: RACK}) == 10.0
    assert room(moments, 1, {}) == 0.0
    assert room(moments, 4, {}) == 30.0
    assert room(moments, 1, {}, after=12.0) == 12.0
    assert room(moments, 5, {}) is None


def test_those_who_wait_take_their_domains_first():
    gangs = [running(10.0, "n0-0", "n0-1"), running(20.0, "n1-0", "n1-1")]

    moments = timeline(snapshot(), gangs, [waiting(2, 100.0, {REQUIRED: RACK})], NOTHING)

    assert room(moments, 2, {REQUIRED: RACK}) == 20.0
    assert room(moments, 3, {}) == 110.0


@pytest.mark.parametrize(
    ("queueing", "want"), [(Queueing.BEST_EFFORT, 5.0), (Queueing.STRICT, 10.0)]
)
def test_a_strict_queue_lets_nobody_pass_its_head(queueing, want):
    gangs = [running(10.0, "n0-0", "n0-1")]
    behind = [waiting(4, 5.0), waiting(2, 5.0, {REQUIRED: RACK})]

    moments = timeline(snapshot(queueing=queueing), gangs, behind, NOTHING)

    assert moments[1].at == want


def test_what_others_hold_stays():
    held = {("", ("n0-0",)): {GPU: 8, "pods": 1}}

    moments = timeline(snapshot(), [running(10.0, "n1-0")], (), held)

    assert room(moments, 2, {REQUIRED: RACK}) == 10.0
    assert room(moments, 4, {}) is None
    unknown = replace(snapshot(), topologies={})
    assert first_room(pods(1), ["gpu"], moments, unknown, after=0.0) is None
