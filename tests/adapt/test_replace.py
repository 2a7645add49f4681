"""What becomes of a Job whose devices are replaced by slices, shares or another vendor's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import container, job, template
from webhook.adapt import validity
from webhook.adapt.adaptation import adapt
from webhook.model.job import Job
from webhook.model.pods import PodTemplate
from webhook.model.policy.fallback_policy import Adaptation, Option

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-2g.20gb"
GAUDI = "habana.ai/gaudi"
PRODUCT = "nvidia.com/gpu.product"
BY_MIG = {"accelerator": "Replace", "by": {MIG: 1}}
BY_GAUDI = {"accelerator": "Replace", "by": {GAUDI: 1}}


def adapted(before: Job, **adaptation: Any) -> Job:
    option = Option(name="mig", queue="mig-lq", adaptation=Adaptation.model_validate(adaptation))
    after = adapt(before, option)
    assert adapt(after, option) == after
    return after


def pods(before: PodTemplate, **adaptation: Any) -> PodTemplate:
    return adapted(job(pods=before), **adaptation).pod_sets[0].template


def asked(*containers: Any, init: Any = (), **adaptation: Any) -> list[Any]:
    after = pods(template(*containers, init=init), **adaptation)
    every = (*after.containers, *after.init_containers)
    return [(each.resources.requests, each.resources.limits) for each in every]


def test_each_device_becomes_what_is_given_for_it_in_its_own_container():
    assert asked(
        container(requests={"cpu": "4", GPU: "1"}, limits={GPU: "1"}),
        container("second", limits={"amd.com/gpu": "2", "memory": "1Gi"}),
        container("third", requests={"cpu": "1"}),
        init=(container("init", limits={GPU: "1"}),),
        **BY_MIG,
    ) == [
        ({"cpu": "4", MIG: "1"}, {MIG: "1"}),
        ({MIG: "2"}, {"memory": "1Gi", MIG: "2"}),
        ({"cpu": "1"}, {}),
        ({MIG: "1"}, {MIG: "1"}),
    ]


@pytest.mark.parametrize(
    ("before", "by", "after"),
    [
        ({GPU: "1"}, {GPU: 1, "nvidia.com/gpumem": 8000}, {GPU: "1", "nvidia.com/gpumem": "8000"}),
        # What measures a part of a device goes with it.
        ({GPU: "1", "nvidia.com/gpumem": "3000"}, {MIG: 1}, {MIG: "1"}),
        ({"nvidia.com/mig-7g.80gb": "1"}, {GPU: "1"}, {GPU: "1"}),
        ({GPU: "1"}, {"aws.amazon.com/neuroncore": 2}, {"aws.amazon.com/neuroncore": "2"}),
        ({GPU: "2"}, {"nvidia.com/gpu.shared": 1}, {"nvidia.com/gpu.shared": "2"}),
        # It has been replaced already.
        ({"aws.amazon.com/neuroncore": "4"},) * 2 + ({"aws.amazon.com/neuroncore": "4"},),
        ({GPU: "0"}, {MIG: 1}, {}),
    ],
)
def test_what_is_given_takes_the_place_of_all_that_is_asked_of_devices(before, by, after):
    found = asked(container(requests=before, limits=before), accelerator="Replace", by=by)

    assert found == [(after, after)]


def test_a_job_without_devices_stays_as_it_is():
    before = job(
        container(requests={"cpu": "1"}),
        pods=template(container(requests={"cpu": "1"}), node_selector={PRODUCT: "Tesla-T4"}),
    )

    assert adapted(before, **BY_MIG) is before


def test_what_names_a_product_goes_and_the_rest_of_the_nodes_description_stays():
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": PRODUCT, "operator": "In", "values": ["Tesla-T4"]},
                            {"key": "zone", "operator": "In", "values": ["a"]},
                        ]
                    }
                ]
            }
        }
    }
    of_vendor = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
    of_product = {"key": PRODUCT, "value": "Tesla-T4", "effect": "NoSchedule"}
    selector = {
        PRODUCT: "Tesla-T4",
        "cloud.google.com/gke-accelerator": "nvidia-tesla-t4",
        "karpenter.k8s.aws/instance-gpu-name": "t4",
        "nvidia.com/gpu.present": "true",
        "zone": "a",
    }
    before = template(
        container(limits={GPU: "1"}, env=({"name": "A", "value": "1"},)),
        node_selector=selector,
        affinity=affinity,
        tolerations=(of_vendor, of_product, {"operator": "Exists"}),
        runtime_class="nvidia",
        annotations={"kueue.x-k8s.io/podset-required-topology": "rack", "note": "x"},
    )

    after = pods(before, **BY_MIG)

    assert after.node_selector == {"nvidia.com/gpu.present": "true", "zone": "a"}
    assert str(after.affinity).count(PRODUCT) == 0
    assert "zone" in str(after.affinity)
    assert after.tolerations == (of_vendor, {"operator": "Exists"})
    assert (after.runtime_class, after.containers[0].env) == (
        "nvidia",
        ({"name": "A", "value": "1"},),
    )
    assert after.annotations == {"note": "x"}


def test_for_another_vendors_device_all_that_selects_the_first_ones_nodes_goes():
    selector = {
        "nvidia.com/gpu.present": "true",
        "feature.node.kubernetes.io/pci-10de.present": "x",
    }
    before = template(container(limits={GPU: "1"}), node_selector={**selector, "zone": "a"})

    assert pods(before, **BY_GAUDI).node_selector == {"zone": "a"}


@pytest.mark.parametrize(
    ("selector", "pinned"),
    [
        ({"pool": "a100"}, "node selector pool=a100"),
        ({"node.kubernetes.io/instance-type": "p4d.24xlarge"}, "node selector node.kubernetes.io/"),
        ({"nvidia.com/gpu.sharing-strategy": "none"}, "node selector nvidia.com/gpu.sharing"),
        ({"nvidia.com/gpu.memory": "81920"}, "node selector nvidia.com/gpu.memory=81920"),
        ({"pool": "gpu"}, ""),
        ({"nvidia.com/gpu.present": "true"}, ""),
        ({PRODUCT: "Tesla-T4"}, ""),
        ({"zone": "a"}, ""),
    ],
)
def test_a_job_that_would_still_pin_to_the_first_device_is_refused(selector, pinned):
    before = job(pods=template(container(limits={GPU: "1"}), node_selector=selector))

    refusal = validity.refusal(before, adapted(before, **BY_MIG), ())

    assert (refusal.detail if refusal else "").startswith(pinned)
    assert bool(refusal) == bool(pinned)
