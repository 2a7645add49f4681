"""A worker cluster's devices are those of its own ResourceFlavors."""

import pytest

from tests.cost.tariffs import profile
from webhook.cost.cluster_prices import in_worker
from webhook.model.costs.devices import Device
from webhook.model.costs.prices import Prices
from webhook.model.queues import ResourceFlavor

USAGE = {("gpu", "nvidia.com/gpu"): 1, ("cpu", "cpu"): 1000}
HERE = Prices(devices={"gpu": Device(name="NVIDIA-L40S"), "other": Device(name="NVIDIA-L4")})


def there(product="NVIDIA-H200"):
    labels = {"nvidia.com/gpu.product": product}
    return {"gpu": ResourceFlavor(name="gpu", node_labels=labels)}


def test_a_flavor_of_the_same_name_may_have_another_device_in_a_worker():
    prices = in_worker(HERE, USAGE, there(), ())

    assert {name: device.name for name, device in prices.devices.items()} == {"gpu": "NVIDIA-H200"}


def test_a_profile_tells_the_devices_of_workers_too():
    by_labels = profile("h", nodeLabels={"nvidia.com/gpu.product": "H-1"}, watts={"maximum": 9})

    prices = in_worker(HERE, USAGE, there("H-1"), (by_labels,))

    assert prices.devices["gpu"].busy_watts == pytest.approx(0.7 * 9)


def test_a_worker_whose_device_is_not_known_has_not_that_of_the_manager():
    assert in_worker(HERE, USAGE, there("unheard of"), ()).devices == {}


def test_a_worker_that_says_nothing_of_devices_costs_as_its_tariff_says():
    assert in_worker(HERE, {("cpu", "cpu"): 1}, there(), ()) is HERE
