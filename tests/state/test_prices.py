"""Prices in snapshots: from Tariffs, AcceleratorProfiles, flavors and series in ConfigMaps."""

import base64
import json

from tests.cost.tariffs import tariff_object
from webhook.state.state import State

NOW = 1796112000.0
GPU = {
    "metadata": {"name": "gpu"},
    "spec": {"nodeLabels": {"nvidia.com/gpu.product": "NVIDIA-L40S"}},
}
POINTS = [{"from": "2026-12-01T08:00:00Z", "value": 0.7}]


def config_map(name="day-ahead", **fields):
    return {"metadata": {"namespace": "ours", "name": name}, **fields}


def state(*tariffs, flavors=(GPU,), config_maps=()):
    found = State()
    found.replace("resourceflavors", flavors)
    found.replace("tariffs", tariffs)
    for source in config_maps:
        found.replace(f"series {source['metadata']['name']}", [source])
    return found


def with_series(**spec):
    series = {"electricity": {"configMap": "day-ahead", "key": "kr.json"}}
    return tariff_object(series=series, electricity=[{"price": "0.3"}], **spec)


def electricity(found, at=NOW):
    return found.snapshot(1.0, NOW).costs.prices[""].electricity.at(at)


def test_a_flavors_device_is_known_without_any_tariff():
    prices = state().snapshot(1.0, NOW).costs.prices

    assert prices[""].devices["gpu"].name == "NVIDIA-L40S"
    assert (prices[""].rates, prices[""].electricity) == ({}, None)


def test_without_tariffs_and_devices_there_are_no_prices():
    assert state(flavors=()).snapshot(1.0, NOW).costs.prices == {}


def test_a_series_stands_above_the_entries_and_ends_with_its_last_point():
    found = state(with_series(), config_maps=[config_map(data={"kr.json": json.dumps(POINTS)})])

    assert (electricity(found), electricity(found, NOW + 3600)) == (0.7, 0.3)
    assert found.snapshot(1.0, NOW).costs.tariffs[0].series_until == NOW + 3600


def test_a_series_may_stand_in_binary_data():
    encoded = base64.b64encode(json.dumps(POINTS).encode()).decode()

    found = state(with_series(), config_maps=[config_map(binaryData={"kr.json": encoded})])

    assert electricity(found) == 0.7


def test_prices_are_compiled_anew_each_hour_and_not_in_between():
    found = state(tariff_object(electricity=[{"price": "0.3"}]))

    first, soon = found.snapshot(1.0, NOW), found.snapshot(2.0, NOW + 60)
    later = found.snapshot(3.0, NOW + 3600)

    assert soon.costs.prices is first.costs.prices
    assert later.costs.prices[""].electricity.end == first.costs.prices[""].electricity.end + 3600
    assert later.generation == soon.generation + 1


def test_a_tariff_that_comes_first_and_says_no_overhead_leaves_it_to_the_next():
    cloud = tariff_object("cloud", rates=[{"flavors": ["gpu"], "resources": {"cpu": 1}}])
    owned = tariff_object("owned", overhead="1.35", watts={"core": 6}, carbon=[{"intensity": 1}])
    third = tariff_object("third", overhead="2", transfer="0.1")

    prices = state(third, owned, cloud).snapshot(1.0, NOW).costs.prices[""]

    assert (prices.overhead, prices.core_watts, prices.gibibyte_watts) == (1.35, 6.0, 0.4)
    assert (prices.interruptions, prices.transfer) == ({}, 0.1)


def node(name, memory="81920", **labels):
    discovered = {"nvidia.com/gpu.product": "NVIDIA-X1", "nvidia.com/gpu.memory": memory}
    own = {"kubernetes.io/hostname": name, "unlike": name}
    return {"metadata": {"name": name, "labels": {**own, **discovered, **labels}}}


def test_nodes_are_kept_as_the_few_sets_of_labels_that_tell_devices():
    plain = {"metadata": {"name": "pool"}, "spec": {"nodeLabels": {"pool": "a"}}}
    found = state(flavors=(plain,))
    found.replace("nodes", [node(f"n-{number}", pool="a") for number in range(50)])

    first = found.snapshot(1.0, NOW)
    found.apply("nodes", "MODIFIED", node("n-7", pool="a", zone="z"))
    same = found.snapshot(2.0, NOW)
    found.apply("nodes", "MODIFIED", node("n-7", "40960", pool="a"))
    other = found.snapshot(3.0, NOW)

    assert len(first.setup.node_labels) == 1
    assert first.costs.prices[""].devices["pool"].memory == 80 << 30
    assert same.costs.prices is first.costs.prices
    assert other.costs.prices[""].devices["pool"].memory == 40 << 30


def test_interruptions_are_of_the_flavors_that_their_tariff_names():
    rates = [{"flavors": ["spot"], "resources": {"nvidia.com/gpu": "1"}}]
    spot = tariff_object("spot", rates=rates, interruptions="0.2")
    others = tariff_object("others", interruptions="0.01")

    prices = state(spot, others).snapshot(1.0, NOW).costs.prices[""]

    assert prices.interrupted(["spot"]) == 0.2
    assert prices.interrupted(["gpu"]) == 0.01
    assert prices.interrupted(["cpu", "spot"]) == 0.2


def test_what_no_tariff_expects_to_be_interrupted_is_not():
    assert state().snapshot(1.0, NOW).costs.prices[""].interrupted(["gpu"]) == 0.0
