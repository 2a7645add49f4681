from __future__ import annotations

import pytest

from tests.builders import container, job, template
from webhook.kueue.requests import is_refused, needs, per_pod
from webhook.model.fields import FieldError
from webhook.model.pods import PodTemplate, Resources
from webhook.model.queues import KueueConfig, LimitRangeItem, Transformation
from webhook.model.snapshot_parts import ClusterObjects

KUEUE = KueueConfig()
Gi = 1 << 30


def asked(pods, *, limit_ranges=(), overheads=None, kueue=KUEUE):
    return per_pod(pods, limit_ranges=limit_ranges, overheads=overheads or {}, kueue=kueue)


def test_containers_are_summed():
    first = container("a", requests={"cpu": "500m", "memory": "1Gi"})
    second = container("b", requests={"cpu": "1", "nvidia.com/gpu": "1"})

    found = asked(template(first, second))

    assert found == {"cpu": 1500, "memory": Gi, "nvidia.com/gpu": 1}


def test_a_sum_is_rounded_up_once():
    parts = [container(name, requests={"cpu": "100u"}) for name in "abc"]

    assert asked(template(*parts)) == {"cpu": 1}


def test_a_limit_stands_for_a_missing_request():
    only = container(requests={"cpu": "1"}, limits={"cpu": "2", "nvidia.com/gpu": "1"})

    assert asked(template(only)) == {"cpu": 1000, "nvidia.com/gpu": 1}


def test_the_largest_init_container_counts_where_it_exceeds_the_sum():
    main = container(requests={"cpu": "1", "memory": "2Gi"})
    init = [container(name, requests={"cpu": cpu}) for name, cpu in (("a", "3"), ("b", "2"))]

    assert asked(template(main, init=init)) == {"cpu": 3000, "memory": 2 * Gi}


def test_a_sidecar_runs_beside_the_containers_and_beside_later_init_containers_only():
    main = container(requests={"cpu": "1"})
    before = container("before", requests={"cpu": "4"})
    sidecar = container("sidecar", requests={"cpu": "2"}, sidecar=True)
    after = container("after", requests={"cpu": "3"})

    assert asked(template(main, init=[before, sidecar, after])) == {"cpu": 5000}
    assert asked(template(main, init=[before, sidecar])) == {"cpu": 4000}
    assert asked(template(main, init=[sidecar])) == {"cpu": 3000}


def test_pod_level_resources_stand_in_place_of_the_sum():
    main = container(requests={"cpu": "1", "nvidia.com/gpu": "1"})
    whole = Resources(requests={"cpu": "5"}, limits={"memory": "1Gi"})

    found = asked(template(main, resources=whole))

    assert found == {"cpu": 5000, "memory": Gi, "nvidia.com/gpu": 1}


def test_the_runtime_class_adds_its_overhead():
    pods = template(container(requests={"cpu": "1"}), runtime_class="kata")

    assert asked(pods, overheads={"kata": {"cpu": "250m"}}) == {"cpu": 1250}
    assert asked(pods) == {"cpu": 1000}


def test_the_templates_own_overhead_comes_first():
    pods = template(
        container(requests={"cpu": "1"}), runtime_class="kata", overhead={"cpu": "100m"}
    )

    assert asked(pods, overheads={"kata": {"cpu": "250m"}}) == {"cpu": 1100}


def test_limit_range_defaults_fill_each_container_and_the_first_one_stands():
    ranges = (
        LimitRangeItem(type="Container", default_request={"cpu": "1"}, default={"memory": "2Gi"}),
        LimitRangeItem(type="Container", default_request={"cpu": "9"}),
        LimitRangeItem(type="Pod", default_request={"cpu": "7"}),
    )
    pods = template(container("a"), container("b", requests={"cpu": "2"}))

    assert asked(pods, limit_ranges=ranges) == {"cpu": 3000, "memory": 4 * Gi}


def test_a_default_request_comes_before_a_limit():
    ranges = (LimitRangeItem(type="Container", default_request={"cpu": "1"}),)

    assert asked(template(container(limits={"cpu": "4"})), limit_ranges=ranges) == {"cpu": 1000}


def test_a_pod_default_counts_only_for_pod_level_resources():
    ranges = (LimitRangeItem(type="Pod", default_request={"cpu": "7"}),)
    main = container(requests={"cpu": "1"})

    assert asked(template(main), limit_ranges=ranges) == {"cpu": 1000}
    assert asked(
        template(main, resources=Resources(limits={"memory": "1Gi"})), limit_ranges=ranges
    ) == {"cpu": 7000, "memory": Gi}


def test_excluded_prefixes_are_dropped():
    pods = template(container(requests={"cpu": "1", "networking.example.com/vpc": "1"}))
    kueue = KueueConfig(excluded_prefixes=("networking.example.com/",))

    assert asked(pods, kueue=kueue) == {"cpu": 1000}


def test_a_transformation_retains_its_input_or_replaces_it():
    pods = template(container(requests={"nvidia.com/mig-1g.5gb": "2"}))
    retain = Transformation(input="nvidia.com/mig-1g.5gb", outputs={"example.com/memory": "5Gi"})
    replace = Transformation(
        input="nvidia.com/mig-1g.5gb", outputs={"example.com/memory": "5Gi"}, replace=True
    )

    assert asked(pods, kueue=KueueConfig(transformations=(retain,))) == {
        "nvidia.com/mig-1g.5gb": 2,
        "example.com/memory": 10 * Gi,
    }
    assert asked(pods, kueue=KueueConfig(transformations=(replace,))) == {
        "example.com/memory": 10 * Gi
    }


def test_a_transformation_multiplies_by_another_resource():
    pods = template(container(requests={"example.com/gpumem": "512", "example.com/gpu": "3"}))
    rule = Transformation(
        input="example.com/gpumem",
        outputs={"example.com/total": "1500m"},
        replace=True,
        multiply_by="example.com/gpu",
    )

    assert asked(pods, kueue=KueueConfig(transformations=(rule,))) == {
        "example.com/gpu": 3,
        "example.com/total": 2304,
    }


def test_what_transformations_generate_never_lowers_what_was_asked_for():
    pods = template(container(requests={"cpu": "1", "example.com/a": "2"}))
    rule = Transformation(input="example.com/a", outputs={"cpu": "-5"})

    assert asked(pods, kueue=KueueConfig(transformations=(rule,))) == {
        "cpu": 1000,
        "example.com/a": 2,
    }


def test_needs_use_the_namespaces_limit_ranges_and_keep_the_count():
    item = LimitRangeItem(type="Container", default_request={"cpu": "2"})

    (found,) = needs(
        job(count=3), ClusterObjects(limit_ranges={"team": (item,), "other": ()}), KueueConfig()
    )

    assert (found.per_pod, found.count, found.total) == ({"cpu": 2000}, 3, {"cpu": 6000})


def test_a_quantity_that_cannot_be_read_is_named():
    pods = template(init=[container("first", requests={"cpu": "lots"})])

    with pytest.raises(FieldError) as error:
        asked(pods)

    assert str(error.value) == (
        "spec.template.spec.initContainers[0].resources.requests.cpu: "
        "expected a quantity such as 500m or 6Gi, got 'lots'"
    )


def test_what_a_placement_keeps_of_a_template_is_what_flavors_depend_on():
    required = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    long = container(requests={"cpu": "1"}, args=["x" * 1_000_000])
    pods = template(long, node_selector={"gpu": "t4"}, annotations={**required, "note": "x" * 1000})

    (found,) = needs(job(pods=pods), ClusterObjects(), KueueConfig())

    assert found.per_pod == {"cpu": 1000}
    assert found.template == PodTemplate(node_selector={"gpu": "t4"}, annotations=required)


def test_devices_count_by_the_name_of_their_mapping():
    # ``TestResolveExtendedResources`` of Kueue's ``pkg/dra``: init containers run one by one.
    gpu, mig = "nvidia.com/gpu", "nvidia.com/mig"
    mains = [container(name, requests={gpu: "2", "cpu": "1"}) for name in "ab"]
    init = [
        container("first", requests={gpu: "5", mig: "1"}),
        container("next", requests={mig: "1"}),
    ]
    halved = Transformation(input=gpu, outputs={"credits": "3"}, replace=True)
    kueue = KueueConfig(
        devices={gpu: "whole-gpus", mig: "whole-gpus"},
        transformations=(halved,),
        excluded_prefixes=(mig,),
    )

    found = asked(template(*mains, init=init), kueue=kueue)

    assert found == {"cpu": 2000, "credits": 15, "whole-gpus": 6}


def test_a_device_without_a_request_counts_by_its_own_name():
    kueue = KueueConfig(devices={"nvidia.com/gpu": "whole-gpus"})

    found = asked(template(container(limits={"nvidia.com/gpu": "2"})), kueue=kueue)

    assert found == {"nvidia.com/gpu": 2}


def test_policies_see_devices_by_the_names_in_the_template():
    kueue = KueueConfig(devices={"nvidia.com/gpu": "whole-gpus"})
    pods = template(container(requests={"nvidia.com/gpu": "2"}))

    (found,) = needs(job(pods=pods, count=3), ClusterObjects(), kueue)

    assert found.total == {"whole-gpus": 6}
    assert found.asked == {"nvidia.com/gpu": 6, "whole-gpus": 6}


LIMITS = (
    LimitRangeItem(type="Container", min={"cpu": "100m"}, max={"cpu": "2", "memory": "1Gi"}),
    LimitRangeItem(type="Pod", max={"cpu": "3"}),
)


@pytest.mark.parametrize(
    ("requests", "limits", "refused"),
    [
        ({"cpu": "1"}, {}, False),
        ({"cpu": "1", "nvidia.com/gpu": "8"}, {}, False),
        ({"cpu": "3"}, {}, True),
        ({"cpu": "50m"}, {}, True),
        ({"cpu": "1"}, {"memory": "2Gi"}, True),
        ({"cpu": "2"}, {}, True),
    ],
)
def test_kueue_admits_no_pod_that_limit_ranges_forbid(requests, limits, refused):
    pods = template(*(container(name, requests=requests, limits=limits) for name in "ab"))

    assert is_refused(pods, LIMITS) is refused


def test_kueue_admits_no_pod_that_asks_for_more_than_its_limits():
    whole = Resources(requests={"cpu": "2"}, limits={"cpu": "1"})
    exceeding = container(requests=whole.requests, limits=whole.limits)

    assert is_refused(template(container(), init=[exceeding]), ())
    assert is_refused(template(container(), resources=whole), ())
    assert not is_refused(template(container(requests={"cpu": "1"}, limits={"cpu": "1"})), ())
