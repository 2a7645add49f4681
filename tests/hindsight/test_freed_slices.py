"""Whose end frees a slice, worked out by hand on A100s of 40 GB: of 8 slices of memory, 7 of
computing."""

import pytest

from webhook.cost.slice_geometry import WHOLE, geometry
from webhook.hindsight.freed_slices import (
    FreedSlices,
    NewCut,
    fragmentation,
    freed_slices,
)
from webhook.hindsight.slice_advice import DeviceNode
from webhook.model.costs.device_table import DEVICES

A100 = DEVICES["NVIDIA-A100-SXM4-40GB"]
ONE, TWO, THREE, FOUR, SEVEN = (
    f"nvidia.com/mig-{name}" for name in ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
)
SEVENTHS, HALVES, MIXED = (
    geometry({ONE: 7}),
    geometry({THREE: 2}),
    geometry({THREE: 1, TWO: 1, ONE: 2}),
)


def node(name, *cuts, **used):
    """A Node; a Job has of a resource what is said of it."""
    jobs = {f"team/{job}": devices for job, devices in used.items()}
    return DeviceNode(name=name, device=A100, cuts=cuts, used=jobs)


def after(name, *jobs, cut=False):
    return FreedSlices(node=name, jobs=tuple(f"team/{job}" for job in jobs), is_cut=cut)


def test_the_end_of_one_job_that_has_such_a_slice_frees_it():
    nodes = [
        node("n1", HALVES, a={THREE: 1}, b={THREE: 1}),
        node("n2", SEVENTHS, c={ONE: 1}, d={ONE: 1}),
    ]

    assert freed_slices(nodes, THREE) == (after("n1", "a"),)


def test_a_device_that_is_cut_anew_is_named_where_fewer_jobs_must_end_for_that():
    nodes = [node("n1", HALVES, a={THREE: 2}), node("n2", SEVENTHS), node("n3", WHOLE)]

    assert freed_slices(nodes, THREE) == (after("n1", "a"), after("n2", cut=True))


def test_for_the_widest_slice_all_jobs_of_one_device_must_end():
    nodes = [
        node("n1", MIXED, a={THREE: 1}, b={TWO: 1}, c={ONE: 1}, d={ONE: 1}),
        node("n2", HALVES, e={THREE: 1}, f={THREE: 1}),
        node("n3", SEVENTHS, g={ONE: 4}, h={ONE: 1}, i={ONE: 1}),
    ]

    assert freed_slices(nodes, SEVEN) == (after("n2", "e", "f", cut=True),)


def test_of_two_slices_for_one_pod_those_jobs_are_named_that_have_most():
    nodes = [node("n1", SEVENTHS, a={ONE: 1}, b={ONE: 3}, c={ONE: 1}, d={ONE: 1})]

    # One is free; of the three that are missing the end of b alone gives enough.
    assert freed_slices(nodes, ONE, 4) == (after("n1", "b"),)
    assert freed_slices(nodes, ONE) == (after("n1"),)


def test_a_whole_device_is_cut_when_the_job_that_has_it_has_ended():
    nodes = [node("n1", WHOLE, WHOLE, a={A100.resource: 1}, b={A100.resource: 1})]

    assert freed_slices(nodes, FOUR) == (after("n1", "a", cut=True),)


def test_devices_whose_jobs_have_other_slices_do_not_count():
    nodes = [node("n1", SEVENTHS, HALVES, a={ONE: 1}, b={THREE: 1}, c={THREE: 1})]

    assert freed_slices(nodes, TWO) == (after("n1", "a", cut=True),)


def test_more_slices_than_any_device_gives_come_never_free():
    assert freed_slices([node("n1", HALVES)], THREE, 3) == ()
    assert freed_slices([node("n1", WHOLE)], "nvidia.com/mig-1g.10gb.unknown") == ()


def test_what_is_free_in_smaller_slices_is_of_no_use_to_a_size_node_by_node():
    nodes = [
        # Four of seven are free: 4/7 of a device.
        node("n1", SEVENTHS, a={ONE: 3}),
        # 2g.10gb (2/7) and two of 1g.5gb (2/7) are free.
        node("n2", MIXED, b={THREE: 1}),
    ]

    found = fragmentation(nodes, {THREE: 3})

    one, two, three = found.sizes
    assert (one.resource, two.resource, three.resource) == (ONE, TWO, THREE)
    assert one.unusable == {}
    assert two.unusable == {"n1": pytest.approx(4 / 7), "n2": pytest.approx(2 / 7)}
    assert three.unusable == {"n1": pytest.approx(4 / 7), "n2": pytest.approx(4 / 7)}
    assert (one.free, two.free, three.free) == (6, 1, 0)
    # Half a device is a 3g.20gb: each Node has enough for one, if it were in one piece.
    assert (one.blocked, two.blocked, three.blocked) == (0, 0, 2)
    assert three.freed == (after("n2", "b"),)
    assert one.freed == ()


def test_what_is_free_on_two_nodes_is_not_enough_for_one_slice():
    # 3/7 of a device each.
    nodes = [node("n1", SEVENTHS, a={ONE: 4}), node("n2", SEVENTHS, b={ONE: 4})]

    assert [size.blocked for size in fragmentation(nodes, {THREE: 1}).sizes] == [0, 0]


def test_whose_end_frees_the_largest_slice_is_known_before_anybody_waits():
    (half,) = fragmentation([node("n1", HALVES, a={THREE: 1}, b={THREE: 1})], {}).sizes

    assert (half.waiting, half.blocked, half.freed) == (0, 0, (after("n1", "a"),))


def test_a_wait_for_what_is_free_is_not_blocked():
    (size,) = fragmentation([node("n1", HALVES)], {THREE: 2}).sizes

    assert (size.waiting, size.free, size.blocked, size.freed) == (2, 2, 0, ())


def test_devices_are_cut_for_what_waits_where_the_fewest_jobs_must_end():
    nodes = [
        node("n1", SEVENTHS, a={ONE: 1}, b={ONE: 1}),
        node("n2", SEVENTHS, c={ONE: 1}),
        node("n3", WHOLE),
    ]

    cuts = fragmentation(nodes, {THREE: 3, TWO: 1}).cuts

    # Two of 3g.20gb fill a device; the third goes with the 2g.10gb, beside which one more fits.
    assert cuts == (
        NewCut(node="n3", before=WHOLE, after=geometry({THREE: 2}), jobs=()),
        NewCut(node="n2", before=SEVENTHS, after=geometry({THREE: 1, TWO: 2}), jobs=("team/c",)),
    )


def test_slices_for_which_others_wait_are_not_cut_away():
    nodes = [node("n1", SEVENTHS, a={ONE: 7})]

    assert fragmentation(nodes, {THREE: 1, ONE: 1}).cuts == ()
    assert len(fragmentation(nodes, {THREE: 1}).cuts) == 1
