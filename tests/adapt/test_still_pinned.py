from __future__ import annotations

import pytest

from tests.builders import container, job, template
from webhook.adapt.validity import refusal

GPU = container(requests={"cpu": "1"}, limits={"nvidia.com/gpu": "1"})
CPU = container(requests={"cpu": "1"})


def left_over(**pins):
    return refusal(job(pods=template(GPU, **pins)), job(pods=template(CPU, **pins)), ())


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def in_terms(*terms):
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [term]} for term in terms]
            }
        }
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("pool", "gpu"),
        ("pool", "a100-spot"),
        ("accelerator", "nvidia-tesla-t4"),
        ("has-gpu", "true"),
        ("node.kubernetes.io/instance-type", "p4d.24xlarge"),
        ("node.kubernetes.io/instance-type", "Standard_NC6s_v3"),
        ("cloud.google.com/machine-family", "g2"),
        ("karpenter.k8s.aws/instance-family", "g5"),
    ],
)
def test_a_selector_that_looks_like_one_for_accelerators_is_refused(key, value):
    assert str(left_over(node_selector={key: value})) == (
        f"stillPinned: node selector {key}={value}"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("pool", "cpu"),
        ("gpu", "false"),
        ("pool", "non-gpu"),
        ("node.kubernetes.io/instance-type", "m5.large"),
        ("cloud.google.com/machine-family", "n2"),
        ("topology.kubernetes.io/zone", "eu-west-1a"),
    ],
)
def test_other_selectors_are_no_pins(key, value):
    assert left_over(node_selector={key: value}) is None


def test_a_required_term_that_looks_like_one_for_accelerators_is_refused():
    pool = {"key": "pool", "operator": "In", "values": ["gpu", "gpu-spot"]}

    assert str(left_over(affinity=in_terms(pool))) == (
        "stillPinned: required node affinity pool In gpu, gpu-spot"
    )
    assert str(left_over(affinity=in_terms({"key": "has-gpu", "operator": "Exists"}))) == (
        "stillPinned: required node affinity has-gpu Exists"
    )


@pytest.mark.parametrize(
    "terms",
    [
        [{"key": "pool", "operator": "In", "values": ["gpu", "cpu"]}],
        [{"key": "pool", "operator": "NotIn", "values": ["gpu"]}],
        [
            {"key": "pool", "operator": "In", "values": ["gpu"]},
            {"key": "zone", "operator": "In", "values": ["a"]},
        ],
    ],
)
def test_a_term_with_another_way_out_is_no_pin(terms):
    assert left_over(affinity=in_terms(*terms)) is None


@pytest.mark.parametrize(
    ("expected", "detail"),
    [
        (
            {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "nvidia.com/gpu.clique"}]}}},
            "pod affinity by nvidia.com/gpu.clique",
        ),
        (
            {"spread": ({"topologyKey": "nvidia.com/gpu.clique"},)},
            "topology spread by nvidia.com/gpu.clique",
        ),
        ({"spread": ({"topologyKey": "topology.kubernetes.io/zone"},)}, ""),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "gpu"}]}}}, ""),
        (
            {
                "affinity": in_terms(
                    {"key": "pool", "operator": "In", "values": ["gpu"]},
                    {"key": "node-type", "operator": "In", "values": ["mi300x"]},
                )
            },
            "required node affinity pool In gpu or node-type In mi300x",
        ),
    ],
)
def test_pods_that_need_the_domains_of_accelerators_are_pinned(expected, detail):
    found = left_over(**expected)

    assert ("" if found is None else found.detail) == detail


@pytest.mark.parametrize(
    ("given", "is_refused"),
    [
        ({"command": ("torchrun", "--nproc-per-node=gpu", "x.py")}, True),
        ({"args": ("--nproc_per_node", "gpu")}, True),
        ({"env": ({"name": "PET_NPROC_PER_NODE", "value": "gpu"},)}, True),
        ({"args": ("--nproc-per-node=auto",)}, False),
        ({"args": ("--nproc-per-node=2",)}, False),
    ],
)
def test_a_process_for_each_gpu_needs_one(given, is_refused):
    before = container(requests={"cpu": "1"}, limits={"nvidia.com/gpu": "1"}, **given)
    after = container(requests={"cpu": "1"}, **given)

    found = refusal(job(before), job(after), ())

    assert (found is not None) is is_refused
    assert found is None or "starts a process for each GPU" in found.detail


def test_what_the_author_asks_for_is_no_pin():
    after = job(pods=template(CPU, node_selector={"pool": "gpu"}))

    assert refusal(job(GPU), after, ()) is None


def test_a_job_that_keeps_its_accelerator_may_stay_pinned():
    pins = {"node_selector": {"pool": "gpu"}}
    before, after = template(GPU, **pins), template(GPU, labels={"tier": "two"}, **pins)

    assert refusal(job(pods=before), job(pods=after), ()) is None


@pytest.mark.parametrize("sandbox", ["kata-qemu-nvidia-gpu", "kata-qemu-nvidia-gpu-snp"])
def test_a_sandbox_that_needs_a_device_is_kept_and_the_option_refused(sandbox):
    assert str(left_over(runtime_class=sandbox)) == f"stillPinned: runtime class {sandbox}"
