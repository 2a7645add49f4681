"""What a Job gets otherwise than it was submitted; our own marks are no difference."""

import pytest

from tests.builders import container, job, template
from webhook.decide.warning import Differences, between
from webhook.model.job import DECISION_ID, OPTION_LABEL, PRIORITY_LABEL

LIMITS = {"nvidia.com/gpu": "1"}
READ = {
    "name": "A",
    "valueFrom": {
        "fieldRef": {
            "apiVersion": "v1",
            "fieldPath": "metadata.annotations['kueue-fallback.dev/env.A']",
        }
    },
}


def differences(before, after, **queues):
    return between(before, after, **{"left": "gpu-lq", "taken": "gpu-lq", **queues})


def in_pod(*containers, **rest):
    return job(pods=template(*containers, **rest))


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (container(limits=LIMITS), container(), {"lost": ("nvidia.com/gpu",)}),
        (container(), container(limits=LIMITS), {"gained": ("nvidia.com/gpu",)}),
        (
            container(requests={"cpu": "1"}),
            container(requests={"cpu": "2"}),
            {"others": ("cpu",)},
        ),
        (container(image="a"), container(image="b"), {"others": ("image",)}),
        (
            container(env=({"name": "A", "value": "a"}, {"name": "B"})),
            container(env=({"name": "A", "value": "b"}, {"name": "B"})),
            {"others": ("env A",)},
        ),
        (container(env=({"name": "A", "value": "a"},)), container(), {"others": ("env A",)}),
    ],
)
def test_of_containers(before, after, found):
    assert differences(in_pod(before), in_pod(after)) == Differences(**found)


def test_of_the_rest_of_the_pod():
    after = in_pod(
        node_selector={"a": "b"},
        tolerations=({"key": "a"},),
        affinity={"nodeAffinity": {"required": [{}]}},
        runtime_class="a",
        labels={"a": "b"},
        annotations={"a": "b"},
    )

    assert differences(in_pod(), after).names == (
        "node selector",
        "tolerations",
        "affinity",
        "runtime class",
        "labels",
        "annotations",
    )


def test_an_affinity_that_asks_for_nothing_is_none():
    assert differences(in_pod(affinity={"nodeAffinity": {}}), in_pod()).names == ()


def test_of_the_job_itself():
    after = job(labels={PRIORITY_LABEL: "low"})

    assert differences(job(), after, taken="cpu-lq").names == ("queue", "priority class")


def test_our_marks_are_none():
    after = job(
        labels={OPTION_LABEL: "gpu"},
        pods=template(labels={OPTION_LABEL: "gpu"}, annotations={DECISION_ID: "a"}),
    )

    assert differences(job(), after) == Differences()


@pytest.mark.parametrize(("held", "names"), [("a", ()), ("b", ("env A",))])
def test_a_variable_that_is_read_from_an_annotation_has_its_value(held, names):
    before = in_pod(container(env=({"name": "A", "value": "a"},)))
    after = in_pod(container(env=(READ,)), annotations={"kueue-fallback.dev/env.A": held})

    assert differences(before, after).names == names
