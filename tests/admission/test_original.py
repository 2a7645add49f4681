from __future__ import annotations

from typing import Any

import pytest

from webhook.admission.patch import (
    completed,
    original_from_json,
    original_json,
    original_of,
    patched,
    undone,
)
from webhook.jobs import KINDS
from webhook.model.edits import ABSENT, Edit
from webhook.model.fields import FieldError
from webhook.model.job import DECISION, DECISION_ID, OPTION_LABEL, QUEUE_LABEL, REASON

ALLOWED = KINDS["batch", "v1", "Job"].allowed
TEMPLATE = ("spec", "template", "metadata")
POD = ("spec", "template", "spec")
MAIN = (*POD, "containers", "main")
HERE = f"metadata.annotations[{DECISION}].original"


def job(main: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", **(main or {})}]
    return {"metadata": {}, "spec": {"template": {"spec": {"containers": containers, **spec}}}}


def edit(path: tuple[str, ...], value: Any = "x") -> Edit:
    return Edit(path=path, value=value, was=ABSENT)


def test_the_record_is_json_pointers_with_names():
    original = {(*MAIN, "resources", "limits", "nvidia.com/gpu"): "1", (*MAIN, "env"): ABSENT}
    written = {
        "/spec/template/spec/containers/main/resources/limits/nvidia.com~1gpu": "1",
        "/spec/template/spec/containers/main/env": None,
    }

    assert original_json(original) == written
    assert original_from_json(written) == original


def test_what_the_job_itself_tells_is_left_out_of_the_record():
    source = job()
    edits = (
        edit(("metadata", "labels", QUEUE_LABEL)),
        edit(("metadata", "labels", OPTION_LABEL)),
        edit((*TEMPLATE, "labels", OPTION_LABEL)),
        edit((*TEMPLATE, "annotations", DECISION_ID)),
        edit((*MAIN, "resources", "requests", "cpu")),
    )
    original = original_of(edits, source)

    record = original_json(original)

    assert record == {
        "/metadata/labels/kueue.x-k8s.io~1queue-name": None,
        "/spec/template/metadata": None,
        "/spec/template/spec/containers/main/resources": None,
        "/spec/template/spec/containers/main/resources/requests/cpu": None,
    }
    decided = patched(source, edits, ALLOWED)
    assert completed(original_from_json(record), decided, ALLOWED) == original
    assert completed(original, decided, ALLOWED) == original


def test_marks_in_lists_of_pods_are_found_again():
    kind = KINDS["ray.io", "v1", "RayJob"]
    group = ("spec", "rayClusterSpec", "workerGroupSpecs", "workers")
    place = (*group, "template", "metadata", "annotations", DECISION_ID)
    source = {"spec": {"rayClusterSpec": {"workerGroupSpecs": [{"groupName": "workers"}]}}}
    original = original_of([edit(place)], source)

    found = completed(
        original_from_json(original_json(original)),
        patched(source, [edit(place)], kind.allowed),
        kind.allowed,
    )

    assert found == original


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ({"a": 1}, "expected a JSON Pointer, got 'a'"),
        ({"": 1}, "expected a JSON Pointer, got ''"),
    ],
)
def test_what_is_no_record_is_refused(source, text):
    with pytest.raises(FieldError) as caught:
        original_from_json(source)

    assert str(caught.value) == f"{HERE}: {text}"


def test_what_others_added_stays():
    original = {(*POD, "nodeSelector"): ABSENT, (*POD, "nodeSelector", "pool"): ABSENT}
    decided = job(nodeSelector={"pool": "cpu", "injected": "x"})

    assert undone(decided, original, ALLOWED) == job(nodeSelector={"injected": "x"})


def test_marks_go_even_where_they_were_not_recorded():
    source = job()
    source["metadata"] = {
        "labels": {OPTION_LABEL: "cpu", "team": "a"},
        "annotations": {DECISION: "{}", REASON: "x"},
    }
    source["spec"]["template"]["metadata"] = {"annotations": {DECISION_ID: "1"}, "name": "x"}

    assert undone(source, {}, ALLOWED) == {
        "metadata": {"labels": {"team": "a"}},
        "spec": {
            "template": {
                **job()["spec"]["template"],
                "metadata": {"name": "x"},
            }
        },
    }


def test_a_container_that_is_gone_is_not_made_up():
    original = {(*POD, "containers", "gone", "image"): "sd", (*POD, "initContainers"): ABSENT}

    assert undone(job(), original, ALLOWED) == job()


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("spec", "suspend"), False, "/spec/suspend may not be restored"),
        (("metadata", "name"), "x", "/metadata/name may not be restored"),
        (("spec",), {}, "/spec has a value of a wrong type"),
        (("metadata", "labels"), {"a": "b"}, "/metadata/labels has a value of a wrong type"),
        ((*POD, "tolerations"), ["x"], "/spec/template/spec/tolerations has a value of a"),
        ((*POD, "affinity"), "x", "/spec/template/spec/affinity has a value of a wrong type"),
        ((*POD, "nodeSelector", "a"), 1, "/spec/template/spec/nodeSelector/a has a value"),
        ((*MAIN, "image"), 1, "/spec/template/spec/containers/main/image has a value of a"),
        ((*MAIN, "env", "A"), {"name": "B"}, "/spec/template/spec/containers/main/env/A has"),
        ((*MAIN, "resources", "limits", "cpu"), True, "main/resources/limits/cpu has a value"),
        ((*POD, "containers"), [], "/spec/template/spec/containers has a value of a wrong type"),
    ],
)  # fmt: skip
def test_a_forged_record_is_refused(path, value, text):
    with pytest.raises(FieldError) as caught:
        undone(job(), {path: value}, ALLOWED)

    assert text in str(caught.value)
    assert str(caught.value).startswith(f"{HERE}: /")


def test_a_forged_record_takes_nothing_away():
    original = {("spec",): ABSENT, (*POD, "containers"): ABSENT}

    assert undone(job(), original, ALLOWED) == job()
