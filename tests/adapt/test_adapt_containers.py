from __future__ import annotations

from typing import Any

from tests.builders import container, job, template
from webhook.adapt.adaptation import adapt
from webhook.model.pods import Container, PodTemplate
from webhook.model.policy.fallback_policy import Adaptation, Option

GPU = "nvidia.com/gpu"
REMOVE = {"accelerator": "Remove"}


def pods(before: PodTemplate, **adaptation: Any) -> PodTemplate:
    option = Option(name="cpu", queue="cpu-lq", adaptation=Adaptation.model_validate(adaptation))
    after = adapt(job(pods=before), option)
    assert adapt(after, option) == after
    return after.pod_sets[0].template


def containers(*before: Container, init: tuple[Container, ...] = (), **adaptation: Any) -> Any:
    after = pods(template(*before, init=init), **adaptation)
    return (*after.containers, *after.init_containers)


def asked(*before: Container, init: tuple[Container, ...] = (), **adaptation: Any) -> list[Any]:
    after = containers(*before, init=init, **adaptation)
    return [(each.resources.requests, each.resources.limits) for each in after]


def test_accelerators_go_from_requests_and_limits_of_every_container():
    gpu = {GPU: "1", "cpu": "2"}

    assert asked(
        container(requests=gpu, limits=gpu),
        container("second", limits={"amd.com/gpu": "2"}),
        init=(container("init", limits={"nvidia.com/mig-1g.5gb": "1", "memory": "1Gi"}),),
        **REMOVE,
    ) == [({"cpu": "2"}, {"cpu": "2"}), ({}, {}), ({}, {"memory": "1Gi"})]


def test_a_container_that_lost_its_gpu_keeps_its_environment():
    env = ({"name": "A", "value": "1"},)

    (after,) = containers(container(limits={GPU: "1"}, env=env), **REMOVE)

    assert after.env == env


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


def test_what_is_given_per_unit_replaces_what_was_removed():
    before = container(requests={"memory": "9Gi"}, limits={GPU: "1"})

    assert asked(
        before, **REMOVE, perRemoved={"memory": "6Gi"}, resources={"remove": ["memory"]}
    ) == [({"memory": "6Gi"}, {})]


def test_a_share_of_a_device_counts_as_one():
    before = container(limits={"nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "50"})

    assert asked(before, **REMOVE, perRemoved={"cpu": "1"}) == [({"cpu": "1"}, {})]


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


def test_an_empty_value_is_the_same_as_none_written():
    (after,) = containers(container(env=({"name": "A"},)), env={"A": ""})

    assert after.env == ({"name": "A"},)


def test_the_image_is_that_of_the_container_that_lost_its_gpu():
    gpu = container(image="sd", limits={GPU: "1"})

    after = containers(gpu, container("proxy", image="envoy"), **REMOVE, image="sd-cpu")

    assert [each.image for each in after] == ["sd-cpu", "envoy"]
