from __future__ import annotations

import re

import pytest

from webhook.jobs import JOB, batch
from webhook.model.edits import ABSENT, Edit
from webhook.model.fields import FieldError
from webhook.model.job import Job, Owner, PodSet
from webhook.model.pods import Container, PodTemplate, Resources

MAIN = ("spec", "template", "spec", "containers", "main")


def source(**spec):
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "light-1", "namespace": "team"},
        "spec": {"template": {"spec": {"containers": [{"name": "main"}]}}, **spec},
    }


def job(*containers, labels=None, **template):
    pods = PodTemplate(containers=containers or (Container(name="main"),), **template)
    return Job(
        namespace="team",
        name="light-1",
        labels=labels or {},
        pod_sets=(PodSet(name="main", count=1, template=pods),),
    )


def test_a_job_is_read():
    given = source(managedBy="example.com/x", activeDeadlineSeconds=60, parallelism=2)
    given["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpu-lq"}
    given["metadata"]["annotations"] = {"a": "b"}
    given["spec"]["template"]["spec"]["containers"][0] |= {
        "image": "sd",
        "resources": {"requests": {"cpu": 4}, "limits": {"nvidia.com/gpu": "1"}},
        "env": [{"name": "RUN_ENV", "value": "gpu"}],
    }

    assert batch.read_job(given) == Job(
        namespace="team",
        name="light-1",
        labels={"kueue.x-k8s.io/queue-name": "gpu-lq"},
        annotations={"a": "b"},
        managed_by="example.com/x",
        active_deadline_seconds=60,
        pod_sets=(
            PodSet(
                name="main",
                count=2,
                template=PodTemplate(
                    containers=(
                        Container(
                            name="main",
                            image="sd",
                            resources=Resources(
                                requests={"cpu": "4"}, limits={"nvidia.com/gpu": "1"}
                            ),
                            env=({"name": "RUN_ENV", "value": "gpu"},),
                        ),
                    )
                ),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({}, 1),
        ({"parallelism": 4}, 4),
        ({"parallelism": 4, "completions": 3}, 3),
        ({"parallelism": 4, "completions": 9}, 4),
        ({"completions": 9}, 1),
        ({"parallelism": 0}, 0),
        ({"parallelism": -1}, 0),
    ],
)
def test_pods_are_counted_as_kueue_counts_them(spec, count):
    assert batch.read_job(source(**spec)).pod_sets[0].count == count


def test_the_controller_among_the_owners_counts():
    given = source()
    given["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "a"},
        {"apiVersion": "batch/v1", "kind": "CronJob", "name": "b", "controller": True},
    ]

    assert batch.read_job(given).owner == Owner(api_version="batch/v1", kind="CronJob")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parallelism": "2"}, "spec.parallelism: expected a whole number, got a string"),
        ({"template": []}, "spec.template: expected an object, got a list"),
        (
            {"template": {"spec": {"containers": {"name": "main"}}}},
            "spec.template.spec.containers: expected a list, got an object",
        ),
        (
            {"template": {"spec": {"containers": [{"name": 1}]}}},
            "spec.template.spec.containers[0].name: expected a string, got a number",
        ),
        (
            {"template": {"metadata": {"labels": {"a": True}}}},
            "spec.template.metadata.labels.a: expected a string, got a boolean",
        ),
    ],
)
def test_a_wrong_type_is_named_with_its_place(change, message):
    with pytest.raises(FieldError) as caught:
        batch.read_job(source(**change))

    assert str(caught.value) == message


def test_the_same_job_has_no_edits():
    assert JOB.edits(job(), job()) == ()


def test_each_difference_is_one_edit():
    before = job(
        Container(
            name="main",
            image="sd",
            resources=Resources(requests={"cpu": "1", "memory": "1Gi"}, limits={"gpu": "1"}),
            env=({"name": "A", "value": "1"},),
        ),
        labels={"q": "gpu"},
        node_selector={"pool": "gpu"},
        runtime_class="nvidia",
        tolerations=({"key": "gpu"},),
    )
    after = job(
        Container(
            name="main",
            image="sd-cpu",
            resources=Resources(requests={"cpu": "4", "memory": "1Gi"}),
            env=({"name": "A", "value": "1"}, {"name": "B", "value": "2"}),
        ),
        labels={"q": "cpu", "new": "x"},
        affinity={"podAffinity": {}},
    )
    spec = ("spec", "template", "spec")

    assert JOB.edits(before, after) == (
        Edit(path=("metadata", "labels", "q"), value="cpu", was="gpu"),
        Edit(path=("metadata", "labels", "new"), value="x", was=ABSENT),
        Edit(path=(*MAIN, "resources", "requests", "cpu"), value="4", was="1"),
        Edit(path=(*MAIN, "resources", "limits", "gpu"), value=ABSENT, was="1"),
        Edit(path=(*MAIN, "env", "B"), value={"name": "B", "value": "2"}, was=ABSENT),
        Edit(path=(*MAIN, "image"), value="sd-cpu", was="sd"),
        Edit(path=(*spec, "nodeSelector", "pool"), value=ABSENT, was="gpu"),
        Edit(path=(*spec, "tolerations"), value=ABSENT, was=[{"key": "gpu"}]),
        Edit(path=(*spec, "affinity"), value={"podAffinity": {}}, was=ABSENT),
        Edit(path=(*spec, "runtimeClassName"), value=ABSENT, was="nvidia"),
    )


def test_of_several_env_entries_with_one_name_the_last_counts():
    twice = ({"name": "A", "value": "1"}, {"name": "A", "value": "2"})
    before = job(Container(name="main", env=twice))
    after = job(Container(name="main", env=(twice[0], {"name": "A", "value": "3"})))

    assert JOB.edits(before, after) == (
        Edit(
            path=(*MAIN, "env", "A"),
            value={"name": "A", "value": "3"},
            was={"name": "A", "value": "2"},
        ),
    )


def test_equal_templates_are_read_once_and_never_from_the_object_that_is_patched():
    first, second = source(), source()
    found = batch.read_job(first)
    first["spec"]["template"]["spec"]["containers"][0]["name"] = "patched"

    again = batch.read_job(second)

    assert again.pod_sets is found.pod_sets
    assert found.pod_sets[0].template.containers[0].name == "main"


NAMED = {"name": "main"}


@pytest.mark.parametrize(
    ("pods", "message"),
    [
        ({"containers": [NAMED] * 60, "initContainers": [NAMED] * 41}, "101 containers, too many"),
        ({"nodeSelector": {f"key-{n}": "x" for n in range(1001)}}, "nodeSelector: more than 2000"),
        ({"nodeSelector": {"k" * 20_000: "x"}}, "nodeSelector: an entry of more than 317"),
        ({"tolerations": [{"key": "x"}] * 2001}, "tolerations: more than 2000"),
        ({"containers": [{**NAMED, "env": [NAMED] * 2001}]}, "containers[0].env: too many"),
        (
            {"containers": [{**NAMED, "resources": {"limits": {"r" * 20_000: "1"}}}]},
            "containers[0].resources: an entry of more than 317",
        ),
    ],
    ids=["containers", "selectors", "long selector", "tolerations", "variables", "long resource"],
)
def test_a_template_that_would_take_long_to_decide_is_refused(pods, message):
    template = {"spec": {"containers": [NAMED], **pods}}

    with pytest.raises(FieldError, match=re.escape(message)):
        batch.read_job(source(template=template))


@pytest.mark.parametrize(
    ("containers", "init_containers", "where"),
    [
        ([{"image": "x"}], [], "containers[0]"),
        ([{"name": "a"}, {"name": "a"}], [], "containers[1]"),
        ([{"name": "a"}], [{"name": "a"}], "initContainers[0]"),
    ],
    ids=["no name", "twice", "an init container's too"],
)
def test_a_container_without_a_name_of_its_own_is_refused(containers, init_containers, where):
    spec = {"containers": containers, "initContainers": init_containers}
    job = {"metadata": {"name": "j"}, "spec": {"template": {"spec": spec}}}

    with pytest.raises(FieldError) as caught:
        batch.read_job(job)

    assert caught.value.path == f"spec.template.spec.{where}.name"
    assert caught.value.message == "expected a name of its own"
