"""Turns the bytes of an AdmissionReview into a Review, and a Verdict into bytes.

A probe is a review that an install sends to see that the webhook is called; it is answered here.

It trusts nothing that it reads, and must not know what kinds of objects are reviewed.
https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

import json
import re
from array import array
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import isfinite
from typing import Any, NoReturn

from webhook.model import fields
from webhook.model.fields import FieldError
from webhook.model.job import PROBE, Requester, read_requester

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

_MOST_VALUES = 100_000
"""JSON values in a request: these are read in some 20 ms; a Job of 1 MB has half as many."""
_MOST_ESCAPES = 200_000
_LONGEST_NUMBER = 400
"""Characters; the longest of JSON's doubles has 309 digits."""
_HEAD_BYTES = 256
_UID = re.compile(rb'"request": ?{"uid": ?"([0-9A-Za-z-]{1,64})"')
_LARGE = 64 << 10
"""Bytes of a body that is checked before it is parsed; ordinary Jobs are smaller and cheap."""
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""Turns brackets into steps of one level down or up, as signed bytes."""
_TO_BRACES = bytes.maketrans(b"[]", b"{}")
_MAX_WARNING = 256
_MAX_WARNINGS = 4096
"""Characters of all warnings together; clients cut or drop what is longer, as with one warning."""


class TooCostlyError(FieldError):
    """A request that would keep all others waiting while it is parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    uid: str
    operation: str
    kind: tuple[str, str, str]
    """(group, version, kind)"""
    resource: tuple[str, str, str]
    """(group, version, resource)"""
    subresource: str
    namespace: str
    name: str
    dry_run: bool
    requester: Requester
    manager: str
    """The field manager of who sends the request, such as ``kubectl-label``; or empty."""
    object: dict[str, Any]
    """As parsed; empty where the operation carries none."""
    old_object: dict[str, Any] | None

    def name_namespace(self) -> None:
        """Write its namespace on the object: a create may leave that to the URL.

        Raises:
            FieldError: the object has no metadata.

        """
        metadata = self.object.get("metadata")
        if not isinstance(metadata, dict):
            raise FieldError("request.object.metadata", "expected an object")
        metadata["namespace"] = self.namespace or metadata.get("namespace") or "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer to a review; it always allows."""

    uid: str
    patch: Sequence[Mapping[str, Any]] | None = None
    """JSON Patch operations; None or empty: the object is left as it is."""
    warnings: Sequence[str] = ()
    audit: Mapping[str, str] = field(default_factory=dict)
    """Audit annotations; the API server puts the webhook's name before the keys."""

    def to_bytes(self) -> bytes:
        response: dict[str, Any] = {"uid": self.uid, "allowed": True}
        # The API server expects the patch in base64, as it is bytes to it.
        if self.patch:
            response["patchType"] = "JSONPatch"
            response["patch"] = b64encode(_dumps(list(self.patch))).decode()
        warnings = _cut(self.warnings)
        if warnings:
            response["warnings"] = warnings
        if self.audit:
            response["auditAnnotations"] = dict(self.audit)
        return _dumps({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def read_review(body: bytes) -> Review:
    """Return the review that the API server posts.

    Raises:
        TooCostlyError: it would take too long to read.
        FieldError: it is no AdmissionReview; the path says where.

    """
    source = fields.as_mapping(_parse(body), "")
    _expect(source, "apiVersion", API_VERSION)
    _expect(source, "kind", KIND)
    if source.get("request") is None:
        raise FieldError("request", "expected an object, got nothing")
    request = fields.mapping(source, "request", "")
    return Review(
        uid=_required(request, "uid"),
        operation=_required(request, "operation"),
        kind=_names(request, "kind", "kind"),
        resource=_names(request, "resource", "resource"),
        subresource=fields.text(request, "subResource", "request"),
        namespace=_namespace(request),
        name=fields.text(request, "name", "request"),
        dry_run=fields.flag(request, "dryRun", "request"),
        requester=read_requester(
            fields.mapping(request, "userInfo", "request"), "request.userInfo"
        ),
        manager=_manager(request),
        object=dict(fields.mapping(request, "object", "request")),
        old_object=_old_object(request),
    )


def _manager(request: Mapping[str, Any]) -> str:
    # It decides nothing but a warning, so what cannot be read keeps no review from its answer.
    options = request.get("options")
    manager = options.get("fieldManager") if isinstance(options, dict) else None
    return manager if isinstance(manager, str) else ""


def uid_of(body: bytes) -> str:
    """Return a review's UID, read at the beginning of *body*; empty: it is not there.

    With it, even a review that would take too long to read can be answered.
    """
    match = _UID.search(body, 0, _HEAD_BYTES)
    return match[1].decode() if match else ""


def _parse(body: bytes) -> Any:
    is_large = len(body) > _LARGE
    if is_large:
        _check_shape(body)
    try:
        parsed = _DECODER.decode(body.decode("utf-8"))
    except RecursionError:
        raise FieldError("", "nested too deeply") from None
    except UnicodeDecodeError as error:
        raise FieldError("", f"not UTF-8 at byte {error.start}") from None
    except FieldError:
        raise
    except ValueError as error:
        raise FieldError("", f"not JSON: {error}") from None
    if not is_large and _may_be_deep(body):
        fields.check_depth(parsed, "")
    return parsed


def _refuse_number(text: str) -> NoReturn:
    raise FieldError("", f"not JSON: {text} is no number")


def _finite(text: str) -> float:
    number = float(text) if len(text) <= _LONGEST_NUMBER else _refuse_number("a long one")
    return number if isfinite(number) else _refuse_number(text)


def _whole(text: str) -> int:
    # The time that Python takes to read an integer grows with the square of its digits.
    return int(text) if len(text) <= _LONGEST_NUMBER else _refuse_number("a long one")


_DECODER = json.JSONDecoder(parse_constant=_refuse_number, parse_float=_finite, parse_int=_whole)


def _check_shape(body: bytes) -> None:
    """Refuse a body that would take long to parse, or is nested too deeply for recursive code.

    Strings are removed first, so that their contents do not count. If *body* is no JSON, the check
    is exact up to the place where parsing would fail.

    Raises:
        TooCostlyError: it has too many values.
        FieldError: it is nested too deeply.

    """
    if body.count(b"\\") > _MOST_ESCAPES:
        raise TooCostlyError("", f"more than {_MOST_ESCAPES} escaped characters")
    bare = body.replace(rb"\\", b"").replace(rb"\"", b"")
    if bare.count(b'"') > 2 * _MOST_VALUES:
        raise TooCostlyError("", f"more than {_MOST_VALUES} values")
    outside = b"".join(bare.split(b'"')[::2])
    brackets = outside.translate(_STEPS, _OTHERS)
    if outside.count(b",") + len(brackets) // 2 > _MOST_VALUES:
        raise TooCostlyError("", f"more than {_MOST_VALUES} values")
    if max(accumulate(array("b", brackets)), default=0) > fields.DEEPEST:
        raise FieldError("", f"nested more than {fields.DEEPEST} deep")


def _may_be_deep(body: bytes) -> bool:
    """Return whether a body may be nested too deeply; it may be where brackets in strings remain.

    Brackets are removed in pairs from the inside, at a tenth of the cost of a walk over all values.
    """
    left = body.translate(_TO_BRACES, _OTHERS)
    for _ in range(fields.DEEPEST):
        before, left = len(left), left.replace(b"{}", b"")
        if not left or len(left) == before:
            break
    return bool(left)


def _expect(source: Mapping[str, Any], key: str, expected: str) -> None:
    actual = fields.text(source, key, "")
    if actual != expected:
        raise FieldError(key, f"expected {expected}, got {actual!r}")


def _required(request: Mapping[str, Any], key: str) -> str:
    text = fields.text(request, key, "request")
    if not text:
        raise FieldError(f"request.{key}", "expected a string, got nothing")
    return text


_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


def _namespace(request: Mapping[str, Any]) -> str:
    """Return the namespace; empty: the object is in none. It goes into paths of the API server."""
    named = fields.text(request, "namespace", "request")
    # What has the wrong shape is refused where the Job is read.
    metadata = fields.mapping(request, "object", "request").get("metadata")
    in_object = metadata.get("namespace") if isinstance(metadata, dict) else None
    for namespace in (named, in_object):
        if namespace and not (isinstance(namespace, str) and _LABEL.fullmatch(namespace)):
            raise FieldError("request.namespace", "expected a DNS label")
    return named


def _names(request: Mapping[str, Any], key: str, last: str) -> tuple[str, str, str]:
    source, here = fields.mapping(request, key, "request"), f"request.{key}"
    return (
        fields.text(source, "group", here),
        fields.text(source, "version", here),
        fields.text(source, last, here),
    )


def _old_object(request: Mapping[str, Any]) -> dict[str, Any] | None:
    old = fields.mapping(request, "oldObject", "request")
    return dict(old) if request.get("oldObject") is not None else None


def _cut(warnings: Sequence[str]) -> list[str]:
    """Return the warnings, each as short as every client shows, without those beyond the total."""
    kept, left = [], _MAX_WARNINGS
    for warning in warnings:
        text = warning if len(warning) <= _MAX_WARNING else warning[: _MAX_WARNING - 1] + "…"
        if len(text) > left:
            break
        left -= len(text)
        kept.append(text)
    return kept


def _dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


_NONCE = re.compile(r"[0-9a-z-]{1,64}")


def probe_verdict(review: Review, *, seen_by: str) -> Verdict | None:
    """Return a verdict that only repeats the nonce of a dry run; None: the review is no probe.

    *seen_by* names the server that answers.
    """
    if not review.dry_run or review.operation != "CREATE":
        return None
    metadata = review.object.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    nonce = annotations.get(PROBE) if isinstance(annotations, dict) else None
    # Anybody may send a dry run: only what cannot mislead a reader is repeated.
    if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce):
        return None
    return Verdict(uid=review.uid, warnings=(probe_warning(nonce, seen_by=seen_by),))


def probe_warning(nonce: str, *, seen_by: str = "") -> str:
    """Return the warning that answers a probe.

    Without *seen_by* it is the beginning that every answer to this nonce has.
    """
    return f"kueue-fallback: probe {nonce} seen by {seen_by}"
