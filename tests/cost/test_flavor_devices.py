import pytest

from tests.cost.tariffs import profile
from webhook.cost.flavor_devices import devices_of
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
    assert (device.memory, device.bandwidth, device.watts) == (
        40 << 30,
        table.bandwidth,
        table.watts,
    )


def test_each_row_of_the_table_says_where_its_figures_are_from():
    assert [
        name for name, device in DEVICES.items() if not (device.source and device.resource)
    ] == []
