from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest

from webhook.admission import review
from webhook.admission.review import Review, Verdict
from webhook.model.fields import FieldError
from webhook.model.job import Requester

JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "light-1"}}


def message(**changes: Any) -> dict[str, Any]:
    wanted = {
        "uid": "705ab4f5",
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
        "operation": "CREATE",
        "namespace": "team",
        "name": "light-1",
        "object": JOB,
        **changes,
    }
    kept = {key: value for key, value in wanted.items() if value is not ...}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": kept}


def refused(body: bytes | dict[str, Any]) -> str:
    with pytest.raises(FieldError) as caught:
        review.read_review(body if isinstance(body, bytes) else json.dumps(body).encode())
    return str(caught.value)


def answer(verdict: Verdict) -> dict[str, Any]:
    found = json.loads(verdict.to_bytes())
    assert (found["apiVersion"], found["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    return found["response"]


ANN = {"username": "ann", "uid": "7", "groups": ["ops", "ml"], "extra": {"a": ["b"]}}


def test_a_review_is_read():
    options = {"kind": "UpdateOptions", "fieldManager": "kubectl-label"}
    body = json.dumps(message(dryRun=True, userInfo=ANN, oldObject={"a": 1}, options=options))

    assert review.read_review(body.encode()) == Review(
        uid="705ab4f5",
        operation="CREATE",
        kind=("batch", "v1", "Job"),
        resource=("batch", "v1", "jobs"),
        subresource="",
        namespace="team",
        name="light-1",
        dry_run=True,
        requester=Requester(name="ann", groups=frozenset({"ml", "ops"})),
        manager="kubectl-label",
        object=JOB,
        old_object={"a": 1},
    )


def test_what_may_be_missing_is_empty():
    bare = {"uid": "u", "operation": "DELETE", "object": None, "oldObject": None}
    keys = ("kind", "resource", "namespace", "name")
    body = json.dumps(message(**bare, **dict.fromkeys(keys, ...)))

    assert review.read_review(body.encode()) == Review(
        uid="u",
        operation="DELETE",
        kind=("", "", ""),
        resource=("", "", ""),
        subresource="",
        namespace="",
        name="",
        dry_run=False,
        requester=Requester(),
        manager="",
        object={},
        old_object=None,
    )


@pytest.mark.parametrize("options", [None, [], "x", {}, {"fieldManager": 7}])
def test_options_that_cannot_be_read_name_no_manager(options):
    body = json.dumps(message(options=options))

    assert review.read_review(body.encode()).manager == ""


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"[1", "not JSON: Expecting ',' delimiter: line 1 column 3 (char 2)"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b"[]", "expected an object, got a list"),
        (b"null", "expected an object, got nothing"),
        (b'"x"', "expected an object, got a string"),
        (b"{}", "apiVersion: expected admission.k8s.io/v1, got ''"),
        (b'{"a":NaN}', "not JSON: NaN is no number"),
        (b'{"a":-Infinity}', "not JSON: -Infinity is no number"),
        (b'{"a":1e999}', "not JSON: 1e999 is no number"),
        (b'{"apiVersion":1}', "apiVersion: expected a string, got a number"),
        (b"[" * 50_000, "nested too deeply"),
        (b"[" * 100_000, "nested more than 128 deep"),
        (b'["]]]]",' * 200 + b"[" * 100_000, "nested more than 128 deep"),
        (b"9" * 401, "not JSON: a long one is no number"),
        (b"0." + b"9" * 400, "not JSON: a long one is no number"),
        (b'{"a":' * 500 + b"1" + b"}" * 500, "nested more than 128 deep"),
    ],
)
def test_what_is_no_review_is_refused(body, text):
    assert refused(body) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"[" + b"[]," * 1_000_000 + b"[]]", "more than 100000 values"),
        (b"[" + b"1," * 1_000_000 + b"1]", "more than 100000 values"),
        (b"[" + b"{}," * 70_000 + b"{}]", "more than 100000 values"),
        (b"{" + b'"a":1,' * 200_000 + b'"a":1}', "more than 100000 values"),
        (b"[" + b'"",' * 250_000 + b'""]', "more than 100000 values"),
        (b'"' + b"\\n" * 300_000 + b'"', "more than 200000 escaped characters"),
    ],
    ids=["lists", "numbers", "objects", "keys", "texts", "escapes"],
)
def test_what_would_take_long_to_read_is_not_read(body, text):
    with pytest.raises(review.TooCostlyError) as caught:
        review.read_review(body)

    assert str(caught.value) == text


def test_what_stands_in_texts_counts_for_nothing():
    text = '{["\\\\\\"' * 20_000
    job = {**JOB, "metadata": {"annotations": {"a": text}}}

    assert review.read_review(json.dumps(message(object=job)).encode()).object == job


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"uid": 7}, "request.uid: expected a string, got a number"),
        ({"uid": ...}, "request.uid: expected a string, got nothing"),
        ({"uid": ""}, "request.uid: expected a string, got nothing"),
        ({"operation": None}, "request.operation: expected a string, got nothing"),
        ({"kind": "Job"}, "request.kind: expected an object, got a string"),
        ({"kind": {"group": []}}, "request.kind.group: expected a string, got a list"),
        ({"dryRun": "true"}, "request.dryRun: expected true or false, got a string"),
        ({"object": [JOB]}, "request.object: expected an object, got a list"),
        ({"oldObject": "x"}, "request.oldObject: expected an object, got a string"),
        (
            {"userInfo": {"username": 1}},
            "request.userInfo.username: expected a string, got a number",
        ),
        (
            {"userInfo": {"groups": ["ml", 7]}},
            "request.userInfo.groups[1]: expected a string, got a number",
        ),
    ],
)
def test_a_wrong_type_is_refused_with_its_path(change, text):
    assert refused(message(**change)) == text


@pytest.mark.parametrize("request_", [None, [], "x"])
def test_a_review_without_a_request_is_refused(request_):
    assert refused({**message(), "request": request_}).startswith("request: expected an object")


def test_another_version_is_refused():
    body = {**message(), "apiVersion": "admission.k8s.io/v1beta1"}

    assert refused(body) == (
        "apiVersion: expected admission.k8s.io/v1, got 'admission.k8s.io/v1beta1'"
    )


def test_a_response_is_no_review():
    assert refused({"apiVersion": "admission.k8s.io/v1", "kind": "Status"}) == (
        "kind: expected AdmissionReview, got 'Status'"
    )


def test_a_verdict_without_a_patch_only_allows():
    assert answer(Verdict(uid="u")) == {"uid": "u", "allowed": True}
    assert answer(Verdict(uid="u", patch=[])) == {"uid": "u", "allowed": True}


def test_a_verdict_carries_patch_warnings_and_audit():
    operations = [{"op": "add", "path": "/metadata/labels/é", "value": "x"}]
    found = answer(
        Verdict(uid="u", patch=operations, warnings=("sent to cpu-lq",), audit={"option": "cpu"})
    )

    assert json.loads(b64decode(found.pop("patch"))) == operations
    assert found == {
        "uid": "u",
        "allowed": True,
        "patchType": "JSONPatch",
        "warnings": ["sent to cpu-lq"],
        "auditAnnotations": {"option": "cpu"},
    }


def test_a_long_warning_is_cut():
    assert answer(Verdict(uid="u", warnings=("ü" * 256,)))["warnings"] == ["ü" * 256]
    assert answer(Verdict(uid="u", warnings=("ü" * 257,)))["warnings"] == ["ü" * 255 + "…"]


def test_warnings_are_at_most_4096_characters_together():
    assert answer(Verdict(uid="u", warnings=["x" * 256] * 20))["warnings"] == ["x" * 256] * 16


@pytest.mark.parametrize("namespace", ["..", ".", "a/b", "A", "a.b", "-a", "a" * 64])
def test_a_namespace_that_is_no_dns_label_is_refused(namespace):
    in_object = {**JOB, "metadata": {"name": "light-1", "namespace": namespace}}

    for sent in (message(namespace=namespace), message(namespace=..., object=in_object)):
        assert refused(sent) == "request.namespace: expected a DNS label"
