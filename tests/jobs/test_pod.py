"""Pods: each is its own template, and those that belong to something else are left alone."""

from dataclasses import replace

import pytest

from tests.builders import policy
from webhook.adapt.adaptation import adapt
from webhook.admission import patch
from webhook.flow.decided_job import read_decided_job
from webhook.jobs import BY_NAME
from webhook.model import marks
from webhook.model.fields import FieldError
from webhook.model.reasons import Obstacle

POD = BY_NAME["Pod"]
GPU = "nvidia.com/gpu"
GROUPED = {"kueue.x-k8s.io/pod-group-name": "g"}
OF_EIGHT = {"kueue.x-k8s.io/pod-group-total-count": "8"}


def pod(*, labels=None, annotations=None, owner=None, **spec):
    metadata = {"name": "p", "namespace": "team", "labels": labels or {}}
    if annotations:
        metadata["annotations"] = annotations
    if owner:
        reference = {"apiVersion": "v1", "kind": owner, "name": "o", "controller": True}
        metadata["ownerReferences"] = [reference]
    container = {"name": "main", "image": "train", "resources": {"limits": {GPU: "1"}}}
    spec = {"restartPolicy": "Never", "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def sent(source, **marked):
    """Send a Pod to the CPU queue; returns it as patched."""
    before = POD.read(source)
    _, cpu = policy().spec.options
    labels = {**before.labels, "kueue-fallback.dev/option": "cpu"}
    after = marks.marked(adapt(before, cpu), labels, option="cpu", decision_id="d", policy="p")
    after = replace(after, annotations={**before.annotations, **marked})
    edits = POD.edits(before, after)
    patch.operations(edits, source, POD.allowed)
    return source


def test_a_pod_is_one_pod_set_at_the_place_of_the_object_itself():
    job = POD.read(pod(labels={"a": "b"}))

    assert [(each.name, each.count, each.path) for each in job.pod_sets] == [("main", 1, ())]
    assert (job.labels, job.pod_sets[0].template.labels) == ({"a": "b"}, {"a": "b"})
    assert (job.reference, job.group, job.is_endless) == ("pod/p", "", False)
    assert POD.path("team", "p") == "/api/v1/namespaces/team/pods/p"
    assert POD.held_back({}) is Obstacle.CREATION_ONLY


def test_it_may_be_created_anew_while_kueue_gates_it_and_if_it_is_in_no_group():
    gates = [{"name": "kueue.x-k8s.io/admission"}]
    gated, started, grouped = pod(), pod(), pod(labels=GROUPED, annotations=OF_EIGHT)
    gated["spec"]["schedulingGates"] = grouped["spec"]["schedulingGates"] = gates
    deleted = {**gated, "metadata": {**gated["metadata"], "deletionTimestamp": "now"}}

    assert [POD.kept_from_anew(each) for each in (gated, started, grouped, deleted)] == [
        None,
        Obstacle.NOT_SUSPENDED,
        Obstacle.CREATION_ONLY,
        Obstacle.BEING_DELETED,
    ]


@pytest.mark.parametrize(
    "source",
    [
        pod(annotations={"kueue.x-k8s.io/pod-suspending-parent": "statefulset"}),
        pod(annotations={"kubernetes.io/config.mirror": "x"}),
        pod(owner="Job"),
        pod(owner="DaemonSet"),
        pod(owner="Node"),
    ],
)
def test_a_pod_that_kueue_does_not_queue_by_itself_has_no_pod_sets(source):
    assert POD.read(source).pod_sets == ()


def test_a_pod_of_a_group_stands_for_all_of_them():
    job = POD.read(pod(labels=GROUPED, annotations=OF_EIGHT))

    assert (job.group, job.pod_sets[0].count) == ("g", 8)
    named = {"kueue.x-k8s.io/pod-group-name": "by-annotation"}
    assert POD.read(pod(labels=GROUPED, annotations=named | OF_EIGHT)).group == "by-annotation"


@pytest.mark.parametrize("total", ["", "eight", "0", "-1", "1234567"])
def test_a_group_of_no_number_of_pods_is_not_read(total):
    with pytest.raises(FieldError, match="pod-group-total-count"):
        POD.read(pod(labels=GROUPED, annotations={"kueue.x-k8s.io/pod-group-total-count": total}))


def test_a_pod_that_is_always_started_again_never_ends():
    assert POD.read(pod(restartPolicy="Always")).is_endless


def test_marks_of_the_job_and_of_the_template_meet_on_one_object():
    after = sent(pod(labels={"a": "b"}), **{"kueue-fallback.dev/decision": "{}"})

    assert after["metadata"]["labels"] == {"a": "b", "kueue-fallback.dev/option": "cpu"}
    assert after["metadata"]["annotations"] == {
        "kueue-fallback.dev/decision": "{}",
        "kueue-fallback.dev/decision-id": "d",
        "kueue-fallback.dev/decided-by": "p",
    }
    assert after["spec"]["containers"][0]["resources"]["limits"] == {}


def test_what_a_decided_pod_carries_is_read_as_the_jobs_and_the_templates():
    job = POD.read(sent(pod(), **{"kueue-fallback.dev/decision": "{}"}))

    assert set(job.annotations) == {"kueue-fallback.dev/decision"}
    assert set(job.pod_sets[0].template.annotations) == {
        "kueue-fallback.dev/decision-id",
        "kueue-fallback.dev/decided-by",
    }


def test_marks_copied_with_a_manifest_are_taken_off_once():
    copied = sent(pod(), **{"kueue-fallback.dev/decision": "{}"})
    case = read_decided_job(copied, POD).recovered_if_possible()
    clean = marks.unmarked(case.submitted)

    edits = POD.edits(case.current, clean)
    patch.operations(edits, copied, POD.allowed)

    assert len({edit.path for edit in edits}) == len(edits)
    assert marks.MARKS.isdisjoint(copied["metadata"]["annotations"])
    assert copied["metadata"]["labels"] == {}


def test_an_overhead_that_came_with_its_runtime_class_keeps_the_runtime_class():
    before = POD.read(pod(runtimeClassName="nvidia", overhead={"cpu": "1"}))
    changed = replace(before.pod_sets[0].template, runtime_class=None)
    after = replace(before, pod_sets=(replace(before.pod_sets[0], template=changed),))

    assert POD.unwritable(before, after) == "the overhead that came with its RuntimeClass"
    assert POD.unwritable(before, before) == ""


def test_pods_that_differ_in_their_mounts_alone_are_decided_once():
    one, other = (
        POD.read(pod(volumes=[{"name": f"token-{name}", "projected": {}}])) for name in "ab"
    )

    assert one.pod_sets is other.pod_sets
