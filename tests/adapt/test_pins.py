from __future__ import annotations

import pytest

from webhook.adapt import accelerators, pins

GPU = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["T4"]}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
POD = {"requiredDuringSchedulingIgnoredDuringExecution": []}


def required(*terms):
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}
        }
    }


def preferred(*terms):
    weighted = [{"weight": 1, "preference": term} for term in terms]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}


def term(*expressions, **rest):
    return {"matchExpressions": list(expressions), **rest}


FIELDS = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, None),
        (required(term(ZONE)), required(term(ZONE))),
        (required(term(GPU, ZONE)), required(term(ZONE))),
        (required(term(GPU)), None),
        (required(term(GPU, **FIELDS)), required(FIELDS)),
        # One of them asked for nothing but a GPU: without it, any node will do.
        (required(term(GPU), term(GPU, ZONE)), None),
        # The submitter said where it may run without one.
        (required(term(GPU), term(ZONE)), required(term(ZONE))),
        (required(term(GPU, **FIELDS), term(ZONE)), required(term(ZONE))),
        (preferred(term(GPU), term(GPU, ZONE), term(ZONE)), preferred(term(ZONE), term(ZONE))),
        (preferred(term(GPU)), None),
        ({**required(term(GPU)), "podAntiAffinity": POD}, {"podAntiAffinity": POD}),
        ({**required(term(GPU)), **preferred(term(ZONE))}, preferred(term(ZONE))),
    ],
)
def test_affinity_terms_that_pin_go(before, after):
    assert pins.without_affinity(before, accelerators.pins_label) == after


@pytest.mark.parametrize(
    "expression",
    [
        {"key": "nvidia.com/gpu.present", "operator": "DoesNotExist"},
        {"key": "nvidia.com/gpu.product", "operator": "NotIn", "values": ["T4"]},
        {"key": "nvidia.com/gpu.present", "operator": "In", "values": ["false"]},
    ],
)
def test_terms_that_keep_away_from_accelerators_stay(expression):
    affinity = required(term(expression))

    assert pins.without_affinity(affinity, accelerators.pins_label) is affinity


@pytest.mark.parametrize(
    "affinity",
    [
        {"nodeAffinity": "x"},
        {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": None}},
        required("x", {"matchExpressions": ["y"]}),
        preferred("x", {"matchExpressions": "y"}),
    ],
)
def test_what_is_no_affinity_does_not_break_it(affinity):
    pins.without_affinity(affinity, accelerators.pins_label)


@pytest.mark.parametrize(
    ("resource", "is_one", "counts"),
    [
        ("nvidia.com/gpu", True, True),
        ("nvidia.com/gpu.shared", True, True),
        ("nvidia.com/mig-1g.5gb", True, True),
        ("nvidia.com/mig-1g.5gb.shared", True, True),
        ("nvidia.com/gpumem", True, False),
        ("nvidia.com/gpucores", True, False),
        ("amd.com/gpu", True, True),
        ("gpu.intel.com/i915", True, True),
        ("gpu.intel.com/memory.max", True, False),
        ("habana.ai/gaudi", True, True),
        ("google.com/tpu", True, True),
        ("aws.amazon.com/neuroncore", True, True),
        ("huawei.com/Ascend910", True, True),
        ("nvidia.com/hostdev", False, False),
        ("rdma/hca", False, False),
        ("cpu", False, False),
        ("example.com/gpu", True, True),
        ("tke.cloud.tencent.com/qgpu-core", True, False),
        ("vke.volcengine.com/mgpu-memory", True, False),
        ("metax-tech.com/vmemory", True, False),
        ("koordinator.sh/gpu-memory-ratio", True, False),
        ("volcano.sh/vnpu-core", True, False),
        ("baidu.com/cgpu", True, True),
        ("graphcore.ai/ipu", True, True),
        ("deviceclass.resource.kubernetes.io/gpu.nvidia.com", True, True),
        ("example.com/gpu-licenses", False, False),
        ("example.kubernetes.io/gpu", False, False),
        ("example.com/fast-disk", False, False),
    ],
)
def test_accelerators_are_told_from_other_resources(resource, is_one, counts):
    assert accelerators.is_accelerator(resource) is is_one
    assert accelerators.counts_devices(resource) is counts


@pytest.mark.parametrize(
    ("key", "value", "pinned"),
    [
        ("cloud.google.com/gke-accelerator", "nvidia-tesla-t4", True),
        ("nvidia.com/gpu.count", "8", True),
        ("karpenter.k8s.aws/instance-gpu-name", "t4", True),
        ("feature.node.kubernetes.io/pci-0302_10de.present", "true", True),
        ("feature.node.kubernetes.io/pci-0302_10de.present", "false", False),
        ("accelerator", "nvidia", True),
        ("topology.kubernetes.io/zone", "a", False),
        ("pool", "gpu", False),
    ],
)
def test_labels_of_accelerators_are_told_from_others(key, value, pinned):
    assert accelerators.pins_label(key, value) is pinned
