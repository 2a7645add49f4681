from __future__ import annotations

from typing import Any

import pytest

from tests.builders import container, job, template
from webhook.adapt.validity import refusal
from webhook.model.job import Job
from webhook.model.pods import Resources
from webhook.model.queues import LimitRangeItem
from webhook.model.reasons import Reason

GPU = "nvidia.com/gpu"
MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
BEFORE = job(container(requests={"memory": "2Gi"}, limits={GPU: "1", "memory": "2Gi"}))


def verdict(before: Job, after: Job, *items: LimitRangeItem) -> str | None:
    found = refusal(before, after, items)
    return None if found is None else str(found)


def after(**resources: Any) -> str | None:
    return verdict(BEFORE, job(container(**resources)))


def limited(item: LimitRangeItem, **resources: Any) -> str | None:
    return verdict(BEFORE, job(container(**resources)), item)


def test_an_adapted_job_that_is_fine_is_not_refused():
    assert after(requests={"cpu": "4"}, limits={"cpu": "4", "example.com/nic": "1"}) is None


@pytest.mark.parametrize(
    ("before", "after", "items", "detail"),
    [
        ({GPU: "1"}, {GPU: "0"}, (), "wouldBeInvalid: container main would request nothing"),
        ({GPU: "1"}, {}, (LimitRangeItem(type="Container", default_request={"cpu": "1"}),), None),
        ({GPU: "0"}, {}, (), None),
    ],
    ids=["zero left", "a default left", "nothing before"],
)
def test_a_container_is_left_with_a_request(before, after, items, detail):
    adapted = job(container(requests=after, limits=after))

    assert verdict(job(container(requests=before, limits=before)), adapted, *items) == detail


def test_what_the_submitter_wrote_is_never_refused():
    wrong = template(
        container(requests={"cpu": "9", GPU: "0.5"}, limits={"cpu": "1"}, claims=True),
        container("second", requests={"cpu": "no quantity"}),
        node_selector={"accelerator": "a100"},
        annotations={"a": "x" * 300_000},
    )
    labelled = template(
        *wrong.containers,
        node_selector=wrong.node_selector,
        annotations=wrong.annotations,
        labels={"new": "label"},
    )

    assert verdict(job(pods=wrong), job(pods=wrong)) is None
    assert verdict(job(pods=wrong), job(pods=labelled)) is None


@pytest.mark.parametrize(
    ("resources", "detail"),
    [
        (
            {"requests": {"cpu": "8"}, "limits": {"cpu": "4"}},
            "cpu limit 4 below its request 8 in container main",
        ),
        (
            {"requests": {"example.com/nic": "1"}},
            "example.com/nic request 1 has no limit in container main",
        ),
        (
            {"requests": {"example.com/nic": "1"}, "limits": {"example.com/nic": "2"}},
            "example.com/nic request 1 differs from its limit 2 in container main",
        ),
        (
            {"limits": {"example.com/nic": "500m"}},
            "example.com/nic limit 500m is not a whole number in container main",
        ),
        (
            {"limits": {"hugepages-2Mi": "4Mi"}},
            "hugepages need cpu or memory in container main",
        ),
        (
            {"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}},
            "hugepages-2Mi limit 3Mi is no multiple of the page size in container main",
        ),
        (
            {"requests": {"hugepages-2Mi": "2Mi", "cpu": "1"}},
            "hugepages-2Mi request 2Mi has no limit in container main",
        ),
        ({"requests": {"cpu": "-1"}}, "cpu request -1 is negative in container main"),
        (
            {"requests": {"cpu": "much"}},
            "expected a quantity such as 500m or 6Gi, got 'much'",
        ),
    ],
)
def test_what_the_api_server_refuses_is_refused_with_its_numbers(resources, detail):
    assert after(**resources) == f"wouldBeInvalid: {detail}"


def test_equal_quantities_written_differently_are_equal():
    resources = {"requests": {"cpu": "1000m"}, "limits": {"cpu": "1"}}

    assert after(**resources) is None


def test_init_containers_are_checked_too():
    before = job(pods=template(init=(container("init", limits={GPU: "1"}),)))
    after = job(
        pods=template(init=(container("init", requests={"cpu": "2"}, limits={"cpu": "1"}),))
    )

    assert verdict(before, after) == (
        "wouldBeInvalid: cpu limit 1 below its request 2 in container init"
    )


@pytest.mark.parametrize(
    ("item", "detail"),
    [
        (
            LimitRangeItem(type="Container", max={"cpu": "3"}),
            "cpu limit 4 over LimitRange's maximum 3 in container main",
        ),
        (
            LimitRangeItem(type="Container", min={"cpu": "5"}),
            "cpu request 4 below LimitRange's minimum 5 in container main",
        ),
        (
            LimitRangeItem(type="Container", max={"memory": "1Gi"}),
            "LimitRange wants a memory limit of at most 1Gi, container main has none",
        ),
        (
            LimitRangeItem(type="Container", min={"memory": "1Gi"}),
            "LimitRange wants a memory request of at least 1Gi, container main has none",
        ),
        (
            LimitRangeItem(type="Pod", max={"cpu": "3"}),
            "cpu limit 4 over LimitRange's maximum 3 in the pod",
        ),
        (
            LimitRangeItem(type="Container", max_ratio={"memory": "2"}),
            "LimitRange wants a memory request and limit, container main lacks one",
        ),
    ],
)
def test_what_a_limit_range_refuses_is_refused_with_its_numbers(item, detail):
    found = limited(item, requests={"cpu": "4"}, limits={"cpu": "4"})

    assert found == f"wouldBeInvalid: {detail}"


def test_a_ratio_is_that_of_limit_to_request():
    item = LimitRangeItem(type="Container", max_ratio={"cpu": "1.5"})

    assert limited(item, requests={"cpu": "2"}, limits={"cpu": "3"}) is None
    assert limited(item, requests={"cpu": "2"}, limits={"cpu": "4"}) == (
        "wouldBeInvalid: cpu limit is 2 times its request, over LimitRange's 1.5 in container main"
    )


def test_a_default_limit_below_the_new_request_is_refused():
    item = LimitRangeItem(type="Container", default={"cpu": "1"}, default_request={"cpu": "1"})

    assert limited(item, requests={"cpu": "4"}) == (
        "wouldBeInvalid: cpu limit 1 (LimitRange's default) below its request 4 in container main"
    )


def test_defaults_count_for_what_is_not_written():
    item = LimitRangeItem(
        type="Container", default={"cpu": "2"}, default_request={"cpu": "1"}, max={"cpu": "2"}
    )

    assert limited(item) is None


def test_the_pod_is_the_sum_of_its_containers_and_sidecars():
    def pods(cpu: str) -> Job:
        amounts = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
        side = container("side", sidecar=True, **amounts)
        return job(pods=template(container(**amounts), init=(side, container("init", **amounts))))

    assert verdict(pods("1"), pods("2"), LimitRangeItem(type="Pod", max={"cpu": "4"})) is None
    assert verdict(pods("1"), pods("2"), LimitRangeItem(type="Pod", max={"cpu": "3"})) == (
        "wouldBeInvalid: cpu limit 4 over LimitRange's maximum 3 in the pod"
    )


def test_what_a_limit_range_refused_as_submitted_is_not_held_against_the_option():
    item = LimitRangeItem(type="Container", min={"ephemeral-storage": "1Gi"})

    assert limited(item, requests={"cpu": "1"}) is None


def test_too_long_annotations_are_refused():
    after = job(pods=template(annotations={"a": "x" * 262_000}))

    assert verdict(job(), after) == (
        "wouldBeInvalid: the pod template's annotations would be 262001 bytes long, over 261632"
    )


def test_a_new_runtime_class_under_the_pods_own_overhead_is_refused():
    before = job(pods=template(runtime_class="nvidia", overhead={"cpu": "1"}))

    assert verdict(before, job(pods=template(overhead={"cpu": "1"}))) == (
        "wouldBeInvalid: the runtime class would change,"
        " and the pod's own overhead belongs to the old one"
    )


CHANGED = container(requests={"cpu": "1"})


@pytest.mark.parametrize(
    ("rest", "annotations", "detail"),
    [
        ({"claims": True}, {}, "resources would change in a pod with resource claims"),
        (
            {},
            {MIN_PARALLELISM: "2"},
            f"resources would change in a Job with the annotation {MIN_PARALLELISM}",
        ),
        (
            {"resources": Resources(requests={"cpu": "2"})},
            {},
            "cpu would change in a pod with pod-level resources",
        ),
    ],
)
def test_changed_resources_that_cannot_be_followed_are_refused(rest, annotations, detail):
    before = job(pods=template(container(), **rest), annotations=annotations)
    after = job(pods=template(CHANGED, **rest), annotations=annotations)
    found = refusal(before, after, ())

    assert found is not None
    assert (found.reason, found.detail) == (Reason.UNSUPPORTED, detail)


def test_devices_may_change_under_pod_level_resources():
    level = {"resources": Resources(requests={"cpu": "2"})}
    before = job(pods=template(container(limits={GPU: "1"}), **level))

    assert verdict(before, job(pods=template(container(), **level))) is None
