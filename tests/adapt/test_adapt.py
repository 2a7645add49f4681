from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import container, job, template
from webhook.adapt.adaptation import adapt
from webhook.model.job import Job
from webhook.model.pods import PodTemplate
from webhook.model.policy.fallback_policy import Adaptation, Option

GPU = "nvidia.com/gpu"
REMOVE = {"accelerator": "Remove"}


def adapted(before: Job, **adaptation: Any) -> Job:
    option = Option(name="cpu", queue="cpu-lq", adaptation=Adaptation.model_validate(adaptation))
    after = adapt(before, option)
    assert adapt(after, option) == after
    return after


def pods(before: Job, **adaptation: Any) -> PodTemplate:
    return adapted(before, **adaptation).pod_sets[0].template


def test_no_adaptation_gives_the_very_same_job():
    before = job()

    assert adapted(before) is before


def test_an_adaptation_that_changes_nothing_gives_the_very_same_job():
    before = job(container(requests={"cpu": "1"}))

    assert adapted(before, **REMOVE, perRemoved={"cpu": "4"}) is before


def test_node_selectors_that_pin_go_and_others_come():
    before = job(
        pods=template(
            node_selector={"cloud.google.com/gke-accelerator": "t4", "zone": "a", "pool": "gpu"}
        )
    )

    after = pods(before, **REMOVE, nodeSelector={"remove": ["pool"], "set": {"tier": "cpu"}})

    assert after.node_selector == {"zone": "a", "tier": "cpu"}


def test_a_selector_that_wants_no_gpu_stays():
    selector = {"nvidia.com/gpu.present": "false"}

    assert pods(job(pods=template(node_selector=selector)), **REMOVE).node_selector == selector


def test_tolerations_are_taken_and_added_once():
    own = {"key": "dedicated", "operator": "Equal", "value": "batch"}
    everything = {"operator": "Exists"}
    gpu = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
    sku = {"key": "sku", "value": "gpu"}
    before = job(pods=template(tolerations=(gpu, own, everything, sku, {"key": "old"})))

    after = pods(
        before,
        **REMOVE,
        tolerations={
            "remove": [{"key": "old"}, {"key": "dedicated", "value": "other"}],
            "add": [{"key": "dedicated", "value": "batch"}, {"key": "cpu", "operator": "Exists"}],
        },
    )

    assert after.tolerations == (own, everything, {"key": "cpu", "operator": "Exists"})


@pytest.mark.parametrize(
    ("adaptation", "before", "after"),
    [
        (REMOVE, "nvidia", None),
        (REMOVE, "gvisor", "gvisor"),
        (REMOVE, "kata-qemu-nvidia-gpu", "kata-qemu-nvidia-gpu"),
        (REMOVE, "nvidia-sandboxed", "nvidia-sandboxed"),
        ({}, "nvidia", "nvidia"),
        ({"runtimeClassName": "Remove"}, "gvisor", None),
        ({**REMOVE, "runtimeClassName": "kata"}, "nvidia", "kata"),
    ],
)
def test_the_runtime_class_goes_with_the_accelerator_or_as_told(adaptation, before, after):
    assert pods(job(pods=template(runtime_class=before)), **adaptation).runtime_class == after


@pytest.mark.parametrize(
    ("expects", "are_kept"),
    [
        ({"containers": (container(limits={GPU: "1"}),)}, False),
        ({"node_selector": {"nvidia.com/gpu.product": "A100"}}, False),
        ({"tolerations": ({"key": GPU, "operator": "Exists"},)}, False),
        ({"runtime_class": "nvidia"}, False),
        ({}, True),
        ({"containers": (container(limits={GPU: "0"}),)}, True),
        ({"node_selector": {"zone": "a"}, "tolerations": ({"key": "spot"},)}, True),
    ],
    ids=["asked for", "selected", "tolerated", "run by", "none", "none of it", "other nodes"],
)
def test_topology_requests_go_with_the_accelerator_and_stay_where_none_is_expected(
    expects, are_kept
):
    topology = {"kueue.x-k8s.io/podset-required-topology": "rack", "note": "x"}
    before = replace(template(annotations=topology), **expects)

    found = pods(job(pods=before), **REMOVE).annotations

    assert found == (topology if are_kept else {"note": "x"})


def test_labels_annotations_and_affinity_are_as_told():
    before = job(pods=template(labels={"a": "1"}, affinity={"podAffinity": {}}))

    after = pods(before, affinity="Remove", labels={"a": "2"}, annotations={"b": "3"})

    assert after == template(container(), labels={"a": "2"}, annotations={"b": "3"})
