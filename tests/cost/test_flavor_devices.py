import pytest

from tests.cost.tariffs import profile
from webhook.cost.cluster_prices import devices_of
from webhook.model.costs.device_table import DEVICES
from webhook.model.queues import ResourceFlavor


def device_of(labels, *profiles, name="fast"):
    found = devices_of([ResourceFlavor(name=name, node_labels=labels)], profiles)
    return found[name].name if name in found else None


@pytest.mark.parametrize(
    ("labels", "device"),
    [
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}, "NVIDIA-A100-SXM4-80GB"),
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"}, "NVIDIA-A100-SXM4-80GB"),
        ({"nvidia.com/gpu.product": "Tesla-T4-SHARED"}, "Tesla-T4"),
        ({"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}, "Tesla-T4"),
        ({"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"}, "tpu-v6e-slice"),
        ({"karpenter.k8s.aws/instance-gpu-name": "l40s"}, "NVIDIA-L40S"),
        ({"karpenter.k8s.aws/instance-gpu-name": "a100"}, None),
        ({"pool": "gpu"}, None),
        ({}, None),
    ],
)
def test_without_a_profile_the_flavors_own_labels_tell_its_device(labels, device):
    assert device_of(labels) == device


def test_a_profile_that_names_the_flavor_comes_before_one_by_labels_and_the_table():
    labels = {"nvidia.com/gpu.product": "Tesla-T4", "pool": "a"}
    by_labels = profile("a-by-labels", nodeLabels={"pool": "a"})
    by_name = profile("z-by-name", flavors=["fast"])

    assert device_of(labels, by_labels, by_name) == "z-by-name"
    assert device_of(labels, by_labels) == "a-by-labels"
    assert device_of(labels, profile("other", nodeLabels={"pool": "b"})) == "Tesla-T4"


def test_of_several_profiles_the_first_by_name_counts():
    assert device_of({}, profile("b", flavors=["fast"]), profile("a", flavors=["fast"])) == "a"


def test_a_profile_like_a_product_keeps_the_figures_that_it_does_not_give():
    device = profile("mine", like="NVIDIA-L40S", flavors=["x"], memory="40Gi").device

    table = DEVICES["NVIDIA-L40S"]
    assert (device.memory, device.bandwidth, device.busy_watts) == (
        40 << 30,
        table.bandwidth,
        table.busy_watts,
    )


def test_each_row_of_the_table_says_where_its_figures_are_from():
    assert [
        name for name, device in DEVICES.items() if not (device.source and device.resource)
    ] == []


A100 = {
    "pool": "a",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/gpu.memory": "81920",
    "nvidia.com/gpu.replicas": "1",
}
FLAVOR = {"pool": "a"}


def of_nodes(*node_labels, profiles=(), labels=FLAVOR):
    flavor = ResourceFlavor(name="fast", node_labels=labels)
    return devices_of([flavor], profiles, node_labels).get("fast")


def test_nodes_tell_the_device_where_nothing_else_does():
    found = of_nodes({**A100, "pool": "b"}, A100)

    assert (found.name, found.memory) == ("NVIDIA-A100-SXM4-80GB", 80 << 30)
    assert found.busy_watts == DEVICES["NVIDIA-A100-SXM4-80GB"].busy_watts
    assert found.source.endswith(", and labels of Nodes")
    assert of_nodes(A100, profiles=[profile("mine", flavors=["fast"])]).name == "mine"
    assert of_nodes(A100, labels={"pool": "a", "accelerator": "l4"}).name == "NVIDIA-L4"


def test_where_nodes_differ_the_smallest_memory_counts():
    small = {**A100, "nvidia.com/gpu.memory": "40960"}

    assert of_nodes(A100, small).memory == 40 << 30


@pytest.mark.parametrize(
    ("labels", "isolation", "replicas"),
    [
        ({"nvidia.com/gpu.sharing-strategy": "time-slicing"}, "None", 1),
        ({"nvidia.com/gpu.sharing-strategy": "mps", "nvidia.com/gpu.replicas": "4"}, "Memory", 4),
        ({"nvidia.com/gpu.sharing-strategy": "none"}, "Exclusive", 1),
        ({"nvidia.com/gpu.replicas": "many"}, "Exclusive", 1),
    ],
)
def test_nodes_tell_how_their_devices_are_shared(labels, isolation, replicas):
    found = of_nodes({**A100, **labels})

    assert (str(found.isolation), found.replicas) == (isolation, replicas)


def test_nodes_tell_into_which_parts_their_devices_are_cut():
    cut = {
        "nvidia.com/mig-1g.12gb.count": "7",
        "nvidia.com/mig-1g.12gb.memory": "11008",
        "nvidia.com/mig-1g.12gb.slices.gi": "1",
        "nvidia.com/mig-3g.47gb.memory": "47616",
    }

    (part,) = of_nodes({**A100, **cut}).slices
    assert (part.resource, part.memory, part.compute, part.of) == (
        "nvidia.com/mig-1g.12gb",
        11008 << 20,
        1,
        7,
    )


def test_the_memory_of_nodes_that_are_cut_alike_is_that_of_a_part():
    cut = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"}

    found = of_nodes({**A100, **cut, "nvidia.com/gpu.memory": "9856"})

    assert found.memory == DEVICES["NVIDIA-A100-SXM4-80GB"].memory


def test_a_product_that_no_table_has_is_known_by_what_nodes_say():
    found = of_nodes({**A100, "nvidia.com/gpu.product": "NVIDIA-X1"})

    assert (found.name, found.memory, found.busy_watts) == ("NVIDIA-X1", 80 << 30, None)


@pytest.mark.parametrize(
    ("nodes", "labels"),
    [((), FLAVOR), (({"pool": "a"},), FLAVOR), ((A100,), {}), ((A100,), {"pool": "b"})],
    ids=["no Nodes", "no device", "a flavor of all Nodes", "of others"],
)
def test_nodes_that_say_nothing_of_a_flavor_leave_its_device_unknown(nodes, labels):
    assert of_nodes(*nodes, labels=labels) is None
