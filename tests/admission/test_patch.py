from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from jsonpatch import JsonPatchConflict, JsonPointerException, PatchOperation

from webhook.admission.patch import PatchError, operations
from webhook.jobs import KINDS
from webhook.model.edits import ABSENT, Edit
from webhook.model.job import DECISION, OPTION_LABEL, QUEUE_LABEL

ALLOWED = KINDS["batch", "v1", "Job"].allowed
POD = ("spec", "template", "spec")
MAIN = (*POD, "containers", "main")


def job(main: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "proxy"}, {"name": "main", **(main or {})}]
    return {"metadata": {}, "spec": {"template": {"spec": {"containers": containers, **spec}}}}


def edit(path: tuple[str, ...], value: Any) -> Edit:
    return Edit(path=path, value=value, was=ABSENT)


def patch(source: dict[str, Any], *edits: Edit) -> list[tuple[Any, ...]]:
    found = operations(edits, source, ALLOWED)
    return [tuple(operation.values()) for operation in found]


def refused(source: dict[str, Any], *edits: Edit) -> str:
    with pytest.raises(PatchError) as caught:
        operations(edits, source, ALLOWED)
    return str(caught.value)


def test_of_a_large_object_only_the_members_that_change_are_sent():
    source = {**job(), "metadata": {"labels": {"team": "a" * 600, QUEUE_LABEL: "gpu-lq"}}}

    assert patch(
        source,
        edit(("metadata", "labels", QUEUE_LABEL), "cpu-lq"),
        edit(("metadata", "labels", OPTION_LABEL), "cpu"),
    ) == [
        ("replace", "/metadata/labels/kueue.x-k8s.io~1queue-name", "cpu-lq"),
        ("add", "/metadata/labels/kueue-fallback.dev~1option", "cpu"),
    ]


def test_a_null_parent_is_replaced():
    source = {**job(), "metadata": {"annotations": None}}

    assert patch(source, edit(("metadata", "annotations", DECISION), "{}")) == [
        ("replace", "/metadata/annotations", {DECISION: "{}"})
    ]


def test_env_entries_go_by_name():
    env = [{"name": "A"}, {"name": "B"}, {"name": "A"}, {"name": "C"}, {"name": "B"}]
    source = job({"env": env})

    assert patch(
        source,
        edit((*MAIN, "env", "B"), ABSENT),
        edit((*MAIN, "env", "A"), {"name": "A", "value": "1"}),
        edit((*MAIN, "env", "D"), {"name": "D"}),
    ) == [
        ("remove", "/spec/template/spec/containers/1/env/4"),
        ("remove", "/spec/template/spec/containers/1/env/1"),
        ("replace", "/spec/template/spec/containers/1/env/1", {"name": "A", "value": "1"}),
        ("add", "/spec/template/spec/containers/1/env/-", {"name": "D"}),
    ]
    assert source["spec"]["template"]["spec"]["containers"][1]["env"] == [
        {"name": "A"},
        {"name": "A", "value": "1"},
        {"name": "C"},
        {"name": "D"},
    ]


@pytest.mark.parametrize(
    "path",
    [
        ("spec", "suspend"),
        ("spec",),
        (),
        ("metadata", "name"),
        ("metadata", "labels"),
        ("metadata", "labels", "team"),
        ("metadata", "annotations", "note"),
        ("metadata", "annotations", "evil.kueue-fallback.dev/x"),
        (*MAIN, "command"),
        (*MAIN, "resources"),
        (*MAIN, "resources", "claims"),
        (*MAIN, "resources", "requests", "cpu", "x"),
        (*POD, "serviceAccountName"),
        (*POD, "volumes"),
    ],
)
def test_other_places_are_never_patched(path):
    source = job()
    before = deepcopy(source)

    assert refused(source, edit(path, "x")).endswith(": may not be patched")
    assert source == before


def test_a_place_edited_twice_is_refused():
    path = (*MAIN, "image")

    assert refused(job(), edit(path, "a"), edit(path, "b")) == (
        "/spec/template/spec/containers/main/image: edited twice"
    )


@pytest.mark.parametrize(
    ("source", "path", "text"),
    [
        (job(), (*POD, "containers", "gone", "image"), "nothing called gone"),
        ({}, (*MAIN, "image"), "nothing called main at /spec"),
        ({"metadata": []}, ("metadata", "labels", QUEUE_LABEL), "nothing called labels"),
        (job(nodeSelector="x"), (*POD, "nodeSelector", "pool"), "no object at"),
        (job({"resources": "x"}), (*MAIN, "resources", "requests", "cpu"), "nothing called"),
    ],
)  # fmt: skip
def test_a_place_that_cannot_be_reached_is_refused(source, path, text):
    assert text in refused(source, edit(path, "x"))


@pytest.mark.parametrize("error", [JsonPatchConflict, JsonPointerException])
def test_what_the_library_refuses_is_no_patch_and_tells_nothing_of_the_object(monkeypatch, error):
    def refuse(_operation: PatchOperation, found: Any) -> None:
        raise error(f"member not found in {found}")

    monkeypatch.setattr(PatchOperation, "apply", refuse)

    assert refused(job({"command": ["secret"]}), edit((*MAIN, "image"), "a")) == (
        f"/spec/template/spec/containers/main/image: does not apply: {error.__name__}"
    )


def test_a_patch_that_does_not_give_exactly_what_was_wanted_is_refused(monkeypatch):
    monkeypatch.setattr(PatchOperation, "apply", lambda _operation, found: found)

    assert refused(job(), edit((*MAIN, "image"), "a")) == (
        "/spec/template/spec/containers/main/image: does not have its value after the patch"
    )
