from __future__ import annotations

from typing import Any

import pytest

from tests.builders import container, job, template
from webhook.decide.adapt import adapt
from webhook.model.job import Job
from webhook.model.pods import Container, PodTemplate, Resources
from webhook.model.policy import Adaptation, Option

GPU = "nvidia.com/gpu"
VOID = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
REMOVE = {"accelerator": "Remove"}


def adapted(before: Job, **adaptation: Any) -> Job:
    option = Option(name="cpu", queue="cpu-lq", adaptation=Adaptation.model_validate(adaptation))
    after = adapt(before, option)
    assert adapt(after, option) == after
    return after


def pods(before: Job, **adaptation: Any) -> PodTemplate:
    return adapted(before, **adaptation).pod_sets[0].template


def containers(*before: Container, init: tuple[Container, ...] = (), **adaptation: Any) -> Any:
    after = pods(job(pods=template(*before, init=init)), **adaptation)
    return (*after.containers, *after.init_containers)


def asked(*before: Container, init: tuple[Container, ...] = (), **adaptation: Any) -> list[Any]:
    after = containers(*before, init=init, **adaptation)
    return [(each.resources.requests, each.resources.limits) for each in after]


def test_no_adaptation_gives_the_very_same_job():
    before = job()

    assert adapted(before) is before


def test_an_adaptation_that_changes_nothing_gives_the_very_same_job():
    before = job(container(requests={"cpu": "1"}))

    assert adapted(before, **REMOVE, perRemoved={"cpu": "4"}) is before


def test_accelerators_go_from_requests_and_limits_of_every_container():
    gpu = {GPU: "1", "cpu": "2"}

    assert asked(
        container(requests=gpu, limits=gpu),
        container("second", limits={"amd.com/gpu": "2"}),
        init=(container("init", limits={"nvidia.com/mig-1g.5gb": "1", "memory": "1Gi"}),),
        **REMOVE,
    ) == [({"cpu": "2"}, {"cpu": "2"}), ({}, {}), ({}, {"memory": "1Gi"})]


def test_a_container_that_lost_its_gpu_sees_none():
    before = container(limits={GPU: "1"}, env=({"name": "A", "value": "1"},))

    first, second = containers(before, container("helper"), **REMOVE)

    assert first.env == ({"name": "A", "value": "1"}, VOID)
    assert second.env == ()


def test_each_removed_unit_is_worth_its_requests():
    before = container(requests={"cpu": "2"}, limits={GPU: "8"})

    assert asked(before, **REMOVE, perRemoved={"cpu": "1500m", "memory": "6Gi"}) == [
        ({"cpu": "12", "memory": "48Gi"}, {})
    ]


def test_a_request_that_is_larger_stays():
    before = container(requests={"cpu": "8", "memory": "1Gi"}, limits={GPU: "1"})

    assert asked(before, **REMOVE, perRemoved={"cpu": "4", "memory": "6Gi"}) == [
        ({"cpu": "8", "memory": "6Gi"}, {})
    ]


def test_limits_below_the_new_requests_are_raised_to_them():
    before = container(requests={"cpu": "1"}, limits={GPU: "1", "cpu": "2", "memory": "9Gi"})

    assert asked(before, **REMOVE, perRemoved={"cpu": "4", "memory": "6Gi"}) == [
        ({"cpu": "4"}, {"cpu": "4", "memory": "9Gi"})
    ]


def test_a_limit_stands_for_a_missing_request():
    before = container(limits={GPU: "1", "cpu": "2"})

    assert asked(before, **REMOVE, perRemoved={"cpu": "4"}) == [({"cpu": "4"}, {"cpu": "4"})]


def test_resources_go_to_the_containers_that_lost_one():
    changes = {"remove": ["example.com/fpga"], "requests": {"cpu": "4"}, "limits": {"cpu": "5"}}

    assert asked(
        container(limits={"example.com/fpga": "1", "memory": "1Gi"}),
        container("helper", requests={"cpu": "1"}),
        resources=changes,
    ) == [({"cpu": "4"}, {"memory": "1Gi", "cpu": "5"}), ({"cpu": "1"}, {})]


def test_resources_go_to_the_named_containers():
    assert asked(
        container(limits={GPU: "1"}),
        container("helper"),
        containers=["helper"],
        resources={"remove": [GPU], "requests": {"cpu": "4"}},
    ) == [({}, {GPU: "1"}), ({"cpu": "4"}, {})]


def test_without_anything_to_remove_resources_go_to_all_main_containers():
    assert asked(
        container(),
        container("helper"),
        init=(container("init"),),
        resources={"requests": {"cpu": "4"}},
    ) == [({"cpu": "4"}, {}), ({"cpu": "4"}, {}), ({}, {})]


def test_env_is_set_in_place_in_all_containers():
    field = {"name": "RUN_ENV", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    other = {"name": "A", "value": "$(RUN_ENV)"}
    wanted = {"name": "RUN_ENV", "value": "cpu"}
    after = containers(
        container(env=(field, other)),
        container("helper", env=({"name": "RUN_ENV", "value": "a"}, {**wanted, "value": "b"})),
        init=(container("init"),),
        env={"RUN_ENV": "cpu"},
    )

    assert [each.env for each in after] == [
        (wanted, other),
        ({"name": "RUN_ENV", "value": "a"}, wanted),
        (wanted,),
    ]


def test_the_authors_env_wins_over_the_hidden_devices():
    (after,) = containers(
        container(limits={GPU: "1"}), **REMOVE, env={"NVIDIA_VISIBLE_DEVICES": "none"}
    )

    assert after.env == ({"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"},)


def test_an_empty_value_is_the_same_as_none_written():
    before = job(container(env=({"name": "A"},)))

    assert adapted(before, env={"A": ""}) is before


def test_the_image_is_that_of_the_container_that_lost_its_gpu():
    gpu = container(image="sd", limits={GPU: "1"})

    after = containers(gpu, container("proxy", image="envoy"), **REMOVE, image="sd-cpu")

    assert [each.image for each in after] == ["sd-cpu", "envoy"]


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
        ({}, "nvidia", "nvidia"),
        ({"runtimeClassName": "Remove"}, "gvisor", None),
        ({**REMOVE, "runtimeClassName": "kata"}, "nvidia", "kata"),
    ],
)
def test_the_runtime_class_goes_with_the_accelerator_or_as_told(adaptation, before, after):
    assert pods(job(pods=template(runtime_class=before)), **adaptation).runtime_class == after


def test_topology_requests_go_with_the_accelerator():
    topology = {"kueue.x-k8s.io/podset-required-topology": "rack", "note": "x"}

    assert pods(job(pods=template(annotations=topology)), **REMOVE).annotations == {"note": "x"}


def test_labels_annotations_and_affinity_are_as_told():
    before = job(pods=template(labels={"a": "1"}, affinity={"podAffinity": {}}))

    after = pods(before, affinity="Remove", labels={"a": "2"}, annotations={"b": "3"})

    assert after == template(container(), labels={"a": "2"}, annotations={"b": "3"})


def test_the_papers_light_job():
    asks = {"cpu": "4", "memory": "6Gi"}
    before = job(
        container(requests=asks, limits={GPU: "1"}, env=({"name": "RUN_ENV", "value": "gpu"},))
    )

    after = adapted(before, **REMOVE, perRemoved=asks, env={"RUN_ENV": "cpu"})

    assert after == job(
        Container(
            name="main",
            resources=Resources(requests=asks),
            env=({"name": "RUN_ENV", "value": "cpu"}, VOID),
        )
    )
