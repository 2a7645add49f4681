"""Which cuts would have saved waiting, on pools small enough to follow by hand."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from webhook.cost.slice_geometry import WHOLE, geometry
from webhook.hindsight.slice_advice import WORTH, DeviceDemand, DeviceNode, advise, slice_advice
from webhook.model.costs.device_table import DEVICES

GIB, HOUR, DAY = 1 << 30, 3600.0, 86_400.0
A100 = DEVICES["NVIDIA-A100-SXM4-80GB"]
ONE, THREE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
SEVENTHS, HALVES = geometry({ONE: 7}), geometry({THREE: 2})


def asked(need, *, times=1, every=HOUR, seconds=HOUR, begin=0.0, devices=1):
    return [DeviceDemand(begin + every * n, seconds, need, devices) for n in range(times)]


def nodes(*cuts, busy=()):
    """Nodes of one device each, in this order; those named have a Job."""
    names = [f"node-{number:02}" for number in range(len(cuts))]
    return [
        DeviceNode(
            name=name, device=A100, cuts=(cut,), used={"team/job": {}} if name in busy else {}
        )
        for name, cut in zip(names, cuts, strict=True)
    ]


def test_a_gang_needs_whole_devices_at_once():
    gangs = asked(inf, times=40, every=HOUR, devices=4)

    advice = advise(nodes(*(WHOLE,) * 3, *(HALVES,) * 5), gangs)

    assert advice.after.count(WHOLE) >= 4
    assert sum(advice.then.values()) == 0


def test_devices_are_cut_in_proportion_to_what_was_asked_and_those_in_use_last():
    # Three at once need a seventh each, and one a whole device.
    small = asked(4 * GIB, times=3 * 48, every=HOUR / 3, seconds=HOUR * 0.99)
    whole = asked(inf, times=48, every=HOUR, seconds=HOUR * 0.9)

    advice = advise(nodes(WHOLE, WHOLE, WHOLE, busy=["node-00"]), small + whole)

    assert {node.name: cuts for node, cuts in advice.changed()} == {"node-01": (SEVENTHS,)}
    assert sum(advice.now.values()) > 1
    assert sum(advice.then.values()) == 0


def test_what_would_help_in_one_half_of_the_time_alone_is_not_advised():
    small = asked(4 * GIB, times=240, every=HOUR / 8)
    whole = asked(inf, times=80, every=HOUR / 2.1, begin=8 * DAY)

    advice = advise(nodes(WHOLE, WHOLE), small + whole)

    assert advice.after == (WHOLE, WHOLE)
    assert advice.why_not == "what would have helped in one half of the time would not in the other"


def test_a_node_of_which_it_is_not_known_how_its_devices_are_cut_is_named():
    labels = {"nvidia.com/gpu.product": A100.name}
    metadata = {"name": "broken", "labels": labels}
    broken = {"kind": "Node", "metadata": metadata, "status": {"allocatable": {"cpu": "64"}}}

    advice, left_out = slice_advice([broken], [], [], {})

    assert advice == []
    assert left_out == ["Node broken: how its devices are cut is not known"]


def test_what_is_too_small_for_half_of_the_jobs_is_half_of_no_use():
    halves = [*asked(4 * GIB, times=10), *asked(inf, times=10)]

    advice = advise(nodes(WHOLE, SEVENTHS), halves)

    assert advice.fragmentation((WHOLE, WHOLE)) == 0
    assert advice.fragmentation((WHOLE, SEVENTHS)) == 0.25


needs = st.sampled_from([4 * GIB, 15 * GIB, 30 * GIB, inf])
times, lengths = st.floats(0, 7 * DAY), st.floats(60, 6 * HOUR)
jobs = st.one_of(
    st.builds(DeviceDemand, times, lengths, needs, st.just(1)),
    st.builds(DeviceDemand, times, lengths, st.just(inf), st.integers(2, 4)),
)


@given(st.lists(jobs, max_size=40), st.integers(1, 3), st.integers(0, 3))
def test_advice_never_makes_jobs_wait_longer_and_keeps_the_devices(demands, whole, sliced):
    before = (WHOLE,) * whole + (SEVENTHS,) * sliced

    advice = advise(nodes(*before), demands)

    assert (advice.before, len(advice.after)) == (before, whole + sliced)
    assert sum(advice.then.values()) <= sum(advice.now.values())
    assert advice.why_not or advice.saved >= WORTH
