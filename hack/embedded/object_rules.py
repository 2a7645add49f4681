"""What Kubernetes adds to objects and refuses of them, as far as those matter who are tested here.

Of definitions only the defaults are taken; whether an object fits its schema is not looked at.
"""

import base64
import copy
from typing import Any, Final

from hack.api import Object
from hack.embedded.object_store import now
from hack.embedded.refusals import invalid
from hack.embedded.served_kinds import ServedKind

_JOB: Final[Object] = {
    "backoffLimit": 6,
    "completionMode": "NonIndexed",
    "manualSelector": False,
    "parallelism": 1,
    "podReplacementPolicy": "TerminatingOrFailed",
    "suspend": False,
}
_POD: Final[Object] = {
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}
_CONTAINER: Final[Object] = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_UID_LABELS: Final = ("batch.kubernetes.io/controller-uid", "controller-uid")
_NAME_LABELS: Final = ("batch.kubernetes.io/job-name", "job-name")
_NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
_STATUS_FROM_CREATION: Final = frozenset({"nodes"})


def begin(kind: ServedKind, version: str, item: Object) -> None:
    """Make a new object ready for admission."""
    if kind.has_status and kind.full_name not in _STATUS_FROM_CREATION:
        item.pop("status", None)
    if kind.full_name == "namespaces":
        labels = item["metadata"].get("labels") or {}
        item["metadata"]["labels"] = {**labels, _NAMESPACE_LABEL: item["metadata"]["name"]}
        item["status"] = {"phase": "Active"}
    elif kind.full_name == "pods":
        item["status"] = {"phase": "Pending", "qosClass": "Burstable"}
    fill_in(kind, version, item)


def fill_in(kind: ServedKind, version: str, item: Object) -> None:
    """Set defaults."""
    if kind.full_name == "jobs.batch":
        spec = item.setdefault("spec", {})
        # With parallelism alone it is a work queue: how many are to succeed is not known.
        _fill(spec, {} if "parallelism" in spec else {"completions": 1})
        _fill(spec, _JOB)
        _fill_pod(spec.get("template", {}).get("spec", {}))
    elif kind.full_name == "pods":
        spec = item.setdefault("spec", {})
        _fill_pod(spec)
        for container in spec.get("containers") or ():
            # Of pods, but not of templates, what is limited is asked for.
            if limits := container["resources"].get("limits"):
                asked = container["resources"].get("requests") or {}
                container["resources"]["requests"] = {**limits, **asked}
    elif kind.full_name == "secrets":
        _decode(item)
    elif version in kind.schemas:
        _fill_by_schema(item, kind.schemas[version])


def _decode(item: Object) -> None:
    """Move a Secret's texts to its data, as the API server does."""
    texts = item.pop("stringData", None) or {}
    if texts:
        encoded = {k: base64.b64encode(v.encode()).decode() for k, v in texts.items()}
        item["data"] = {**(item.get("data") or {}), **encoded}
    item.setdefault("type", "Opaque")


def _fill_pod(spec: Object) -> None:
    _fill(spec, _POD)
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        pulled = "Always" if _is_latest(container.get("image") or "") else "IfNotPresent"
        _fill(container, {**_CONTAINER, "imagePullPolicy": pulled})


def _is_latest(image: str) -> bool:
    """Return whether an image names no version, or the tag ``latest``."""
    name, _, tag = image.rpartition("/")[2].partition(":")
    return "@" not in name and tag in ("", "latest")


def _fill(item: Object, defaults: Object) -> None:
    for key, value in defaults.items():
        if item.get(key) is None:
            item[key] = copy.deepcopy(value)


def _fill_by_schema(value: Any, schema: Object) -> None:
    if isinstance(value, dict):
        for key, below in (schema.get("properties") or {}).items():
            if key not in value and "default" in below:
                value[key] = copy.deepcopy(below["default"])
            if key in value:
                _fill_by_schema(value[key], below)
        if isinstance(more := schema.get("additionalProperties"), dict):
            for each in value.values():
                _fill_by_schema(each, more)
    elif isinstance(value, list):
        for each in value:
            _fill_by_schema(each, schema.get("items") or {})


def prepare(kind: ServedKind, item: Object) -> None:
    """Give an admitted Job its selector, and its pods the labels of that."""
    if kind.full_name != "jobs.batch" or item["spec"].get("manualSelector"):
        return
    uid, name = item["metadata"]["uid"], item["metadata"]["name"]
    template = item["spec"].setdefault("template", {}).setdefault("metadata", {})
    labels = {**dict.fromkeys(_UID_LABELS, uid), **dict.fromkeys(_NAME_LABELS, name)}
    template["labels"] = {**(template.get("labels") or {}), **labels}
    item["spec"]["selector"] = {"matchLabels": {_UID_LABELS[0]: uid}}


def check(kind: ServedKind, item: Object, before: Object | None) -> None:
    """Raise 422 where a Job that is not suspended is to get another pod template."""
    if kind.full_name != "jobs.batch" or before is None:
        return
    was_suspended = before["spec"].get("suspend") and not before.get("status", {}).get("startTime")
    if item["spec"].get("template") != before["spec"].get("template") and not was_suspended:
        raise invalid(kind, item["metadata"]["name"], [("spec.template", "field is immutable")])


def established(spec: Object) -> Object:
    """Return the status of a definition that is served."""
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": now(),
        }
        for kind, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    stored = [version["name"] for version in spec["versions"] if version.get("storage")]
    return {"conditions": conditions, "acceptedNames": spec["names"], "storedVersions": stored}
