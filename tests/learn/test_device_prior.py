"""How much longer runs take on other devices, by their data sheets."""

from math import hypot, log, sqrt

import pytest

from webhook.learn.device_runs import DevicePart, Guess, guess, part_of
from webhook.model.costs.devices import Device, DeviceSlice

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-2g.20gb"
A100 = Device(
    name="A100",
    bandwidth=2000.0,
    compute={"bf16": 300.0, "fp32": 20.0},
    slices=(DeviceSlice(resource=MIG, memory=1, compute=2, of=7),),
)
L4 = Device(name="L4", bandwidth=500.0, compute={"bf16": 75.0})
V100 = Device(name="V100", bandwidth=900.0, compute={"fp16": 125.0, "fp32": 15.0})


def part(device, resource=GPU, amount=1):
    return DevicePart(device=device, resource=resource, amount=amount)


def test_between_devices_bandwidth_and_computing_count_alike():
    assert guess(part(A100), part(L4)) == pytest.approx((4.0, 0.55))


def test_what_was_measured_to_bound_a_class_weighs_its_ratio():
    ratios = [guess(part(A100), part(V100), bound).ratio for bound in (0.0, 0.25, 1.0)]

    by_memory, by_computing = 2000 / 900, 20 / 15
    assert ratios == pytest.approx([by_memory, by_memory**0.75 * by_computing**0.25, by_computing])


def test_the_first_data_type_that_both_have_counts():
    found = guess(part(A100), part(V100))

    assert found == pytest.approx((sqrt(2000 / 900 * 20 / 15), 0.55))


def test_the_same_device_is_as_fast_wherever_it_is():
    assert guess(part(A100), part(A100)) == Guess(1.0, 0.0)


def test_a_slice_is_slower_than_the_whole_but_not_by_its_part():
    found = guess(part(A100), part(A100, MIG))

    assert found == pytest.approx(((7 / 2) ** 0.45, 0.36 * log(7 / 2)))


def test_a_slice_of_another_device_is_unsure_in_both_ways():
    found = guess(part(L4), part(A100, MIG))

    assert found == pytest.approx((0.25 * 3.5**0.45, hypot(0.55, 0.36 * log(3.5))))


def test_a_device_that_is_shared_in_time_is_slower_for_each():
    shared = Device(name="A100", bandwidth=2000.0, compute=A100.compute, replicas=4)

    assert guess(part(A100), part(shared)) == pytest.approx((2.0, 0.35 * log(4) + 0.3))


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (None, part(A100)),
        (part(A100), None),
        (part(A100), part(A100, amount=2)),
        (part(A100), part(L4, "amd.com/gpu")),
        (part(Device(name="a", bandwidth=1.0, compute={"int8": 1.0})), part(A100)),
        (part(Device(name="a", compute={"bf16": 1.0})), part(A100)),
    ],
)
def test_nothing_is_guessed_where_nothing_tells(first, other):
    assert guess(first, other) is None


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({("a", GPU): 2, ("a", "cpu"): 8000}, part(A100, amount=2)),
        ({("a", "cpu"): 8000}, None),
        ({("b", GPU): 1}, None),
        ({("a", GPU): 1, ("b", "rdma/ib"): 1}, None),
        ({("a", GPU): 1, ("a", MIG): 1}, None),
        ({("a", GPU): 0}, None),
    ],
)
def test_what_is_used_of_one_known_device_is_its_part(usage, expected):
    assert part_of(usage, {"a": A100}) == expected
