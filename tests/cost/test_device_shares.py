"""Which part of a device a unit of a resource is, and what it costs."""

import pytest

from webhook.cost.device_shares import fraction, rate_of
from webhook.cost.slice_geometry import rise
from webhook.model.costs.device_table import DEVICES
from webhook.model.costs.devices import Device, DeviceSlice, Isolation
from webhook.model.costs.prices import Prices, curve

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
SMALL, MIDDLE, LARGE = (f"nvidia.com/mig-{name}" for name in ("1g.10gb", "2g.20gb", "3g.40gb"))
A100 = DEVICES["NVIDIA-A100-SXM4-80GB"]
IN_TURN = Device(name="a100-4", resource=GPU, memory=80, replicas=4, isolation=Isolation.NONE)
DAY = 86400.0
GB = 10**9


@pytest.mark.parametrize(
    ("resource", "device", "part"),
    [
        (GPU, A100, 1),
        (SMALL, A100, 1 / 7),
        # A fourth of the memory of which a seventh of the computing is left to others.
        ("nvidia.com/mig-1g.20gb", A100, 1 / 4),
        (LARGE, A100, 1 / 2),
        ("nvidia.com/mig-7g.80gb", A100, 1),
        (GPU, IN_TURN, 1 / 4),
        (SHARED, IN_TURN, 1 / 4),
        # Nothing says how many share it.
        (SHARED, A100, None),
        (SMALL, Device(name="unknown"), 1 / 7),
    ],
)
def test_a_slice_is_the_larger_of_its_parts(resource, device, part):
    assert fraction(resource, device) == (None if part is None else pytest.approx(part))


def hourly(cell, rates, **devices):
    prices = Prices(
        rates={key: curve({0: rate}, DAY) for key, rate in rates.items()}, devices=devices
    )
    found = rate_of(cell, prices)
    return None if found is None else round(found[0].at(0) * found[1], 6)


def test_a_slice_without_a_rate_costs_its_part_of_its_devices():
    both = {"a100": A100, "mig": A100}

    assert hourly(("mig", LARGE), {("mig", GPU): 3.0}, **both) == 1.5
    assert hourly(("mig", LARGE), {("a100", GPU): 4.0}, **both) == 2.0
    assert hourly(("mig", LARGE), {("a100", GPU): 4.0, ("mig", LARGE): 0.1}, **both) == 0.1
    assert hourly(("mig", GPU), {("a100", GPU): 4.0}, **both) is None
    assert hourly(("mig", LARGE), {("a100", GPU): 4.0}, a100=A100) is None
    assert hourly(("mig", "cpu"), {("a100", GPU): 4.0}, **both) is None


def test_where_one_device_has_two_rates_nobody_knows_which_is_meant():
    devices = {"a100": A100, "spot": A100, "mig": A100}
    rates = {("a100", GPU): 4.0, ("spot", GPU): 4.0}

    assert hourly(("mig", LARGE), rates, **devices) == 2.0
    assert hourly(("mig", LARGE), rates | {("spot", GPU): 1.0}, **devices) is None


def test_what_a_job_takes_is_lost_to_those_alone_who_could_have_used_it():
    devices = {
        "mig": A100,
        "other": Device(
            name="unknown", slices=(DeviceSlice(resource="x.y/z", memory=1, compute=1, of=2),)
        ),
    }
    needed = {10 * GB: 6, 20 * GB: 3, 40 * GB: 1}

    def change(resource, amount=1, flavor="mig"):
        return rise({(flavor, resource): amount, (flavor, "cpu"): 1000}, needed, devices)

    # Four in ten need more than the smallest has, one in ten more than the middle one.
    assert change(SMALL) == pytest.approx(-0.4 / 7)
    assert change(MIDDLE) == pytest.approx(-0.1 * 2 / 7)
    assert change(LARGE) == change(GPU) == 0
    assert change("x.y/z", 2, "other") == -1
    assert change(SMALL, flavor="nobody-knows") is None
    assert rise({("mig", SMALL): 1}, {}, devices) is None
