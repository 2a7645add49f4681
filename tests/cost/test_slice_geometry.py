"""Into which slices devices can be cut: what the published tables list, and nothing else."""

import pytest

from webhook.cost.slice_geometry import WHOLE, cut_of, geometries, geometry
from webhook.model.costs.device_table import DEVICES
from webhook.model.costs.devices import Device, DeviceSlice

A100 = DEVICES["NVIDIA-A100-SXM4-80GB"]
GB = 10**9
ONE, TWO, THREE, FOUR, SEVEN = (
    f"nvidia.com/mig-{name}" for name in ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
)
A30 = Device(
    name="NVIDIA-A30",
    resource="nvidia.com/gpu",
    memory=24 * GB,
    slices=tuple(
        DeviceSlice(resource=f"nvidia.com/mig-{name}", memory=memory * GB, compute=compute, of=4)
        for name, memory, compute in (("1g.6gb", 6, 1), ("2g.12gb", 12, 2), ("4g.24gb", 24, 4))
    ),
)


def test_an_a100_is_cut_in_the_twelve_ways_that_are_known():
    found = geometries(A100, (ONE, TWO, THREE, FOUR, SEVEN))

    assert set(found) == set(
        map(
            geometry,
            (
                {SEVEN: 1},
                {FOUR: 1, THREE: 1},
                {FOUR: 1, TWO: 1, ONE: 1},
                {FOUR: 1, ONE: 3},
                {THREE: 2},
                {THREE: 1, TWO: 2},
                {THREE: 1, TWO: 1, ONE: 2},
                {THREE: 1, ONE: 4},
                {TWO: 3, ONE: 1},
                {TWO: 2, ONE: 3},
                {TWO: 1, ONE: 5},
                {ONE: 7},
            ),
        )
    )


def test_an_a30_has_four_slices():
    small, middle, large = (part.resource for part in A30.slices)

    assert set(geometries(A30, (small, middle, large))) == {
        ((small, 4),),
        ((small, 2), (middle, 1)),
        ((middle, 2),),
        ((large, 1),),
    }


def test_only_what_is_wanted_is_cut():
    assert geometries(A100, (TWO,)) == (((TWO, 3),),)
    assert geometries(A100, ()) == ()


@pytest.mark.parametrize(
    ("counts", "devices", "cuts"),
    [
        ({ONE: 4, TWO: 2, THREE: 2}, 2, (((ONE, 2), (TWO, 1), (THREE, 1)),) * 2),
        ({}, 0, ()),
        ({}, 1, (WHOLE,)),
        ({THREE: 2, ONE: 7}, 2, (((THREE, 2),), ((ONE, 7),))),
        ({ONE: 15}, 2, None),
        ({FOUR: 2}, 1, None),
        ({"nvidia.com/mig-1g.99gb": 1}, 1, None),
    ],
)
def test_how_devices_are_cut_is_read_from_what_a_node_has(counts, devices, cuts):
    assert cut_of(A100, counts, devices) == cuts
