"""A Workload that is over, cut down to what a journal keeps of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from sys import intern
from typing import Any, Final, NamedTuple

from webhook.hindsight import journal
from webhook.learn.run_records import Ended
from webhook.learn.workload_runs import (
    FAILED,
    SUCCEEDED,
    admitted_at,
    own_marks,
    read_conditions,
    read_flavors,
    read_mark,
    seconds_of,
)
from webhook.model import fields
from webhook.model.job_manifest import said_to_kueue
from webhook.model.signatures import SigningKeys
from webhook.state.workload import USED_OF_SPEC

LONGEST_TEMPLATE: Final = 32_768
"""Characters; most have some hundreds."""


class Past(NamedTuple):
    """Times in seconds since 1970; 0: it has not come to that."""

    key: str
    """Its uid."""
    namespace: str
    name: str
    job_uid: str
    """Empty: it belongs to no Job."""
    job: str
    created: int
    admitted: int
    finished: int
    outcome: str
    """As in a journal's entry; empty: it is not over."""
    queue: str
    cluster_queue: str
    flavors: str
    pods: int
    template: str
    """Its pod template as JSON, without what deciding does not need; equal ones are one text."""
    job_class: str
    coarse: str
    cluster: str = ""
    """The worker cluster that MultiKueue sent it to."""


class Over(NamedTuple):
    """What is learned from a Workload that is over, and what is remembered of it."""

    ended: Ended | None
    past: Past | None


def read(source: Mapping[str, Any], keys: SigningKeys | None = None) -> Past | None:
    """Read one that is over or not; None: no replay can submit it.

    It has several pod sets, or a template that would take the room of hundreds of others.

    *keys* as for ``read_workload``.

    Raises:
        FieldError: it cannot be read.

    """
    metadata, spec, status = (fields.mapping(source, k, "") for k in ("metadata", "spec", "status"))
    pod_sets = fields.objects(spec, "podSets", "spec")
    if len(pod_sets) != 1:
        return None
    pod_set, here = pod_sets[0]
    template = fields.mapping(pod_set, "template", here)
    namespace = intern(fields.text(metadata, "namespace", "metadata"))
    marks, _ = own_marks(metadata, spec, keys)
    mark = read_mark(spec, marks, namespace)
    conditions = read_conditions(status)
    admission = fields.mapping(status, "admission", "status")
    owner = _owner(metadata)
    finished, outcome = _end(metadata, status)
    count = fields.integer(pod_set, "count", here)
    pruned = _pruned(template, here)
    if len(pruned) > LONGEST_TEMPLATE:
        return None
    return Past(
        key=fields.text(metadata, "uid", "metadata"),
        namespace=namespace,
        name=fields.text(metadata, "name", "metadata"),
        job_uid=fields.text(owner, "uid", "metadata"),
        job=fields.text(owner, "name", "metadata"),
        created=seconds_of(metadata, "creationTimestamp", "metadata"),
        admitted=admitted_at(conditions),
        finished=finished,
        outcome=outcome,
        queue=intern(fields.text(spec, "queueName", "spec")),
        cluster_queue=intern(fields.text(admission, "clusterQueue", "status.admission")),
        flavors=read_flavors(admission),
        pods=1 if count is None else count,
        template=intern(pruned),
        job_class=intern(mark.job_class.key) if mark else "",
        coarse=intern(mark.job_class.coarse) if mark else "",
        cluster=intern(fields.text(status, "clusterName", "status")),
    )


def is_over(source: Mapping[str, Any]) -> bool:
    """Tell whether there is anything to remember: it has ended, or is about to be gone."""
    metadata, status = (fields.mapping(source, key, "") for key in ("metadata", "status"))
    return bool(_end(metadata, status)[1])


def _end(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[int, str]:
    for each, here in fields.objects(status, "conditions", "status"):
        if each.get("type") == "Finished" and each.get("status") == "True":
            outcomes = {SUCCEEDED: journal.SUCCEEDED, FAILED: journal.FAILED}
            outcome = outcomes.get(fields.text(each, "reason", here), journal.GONE)
            return seconds_of(each, "lastTransitionTime", here), outcome
    deleted = seconds_of(metadata, "deletionTimestamp", "metadata")
    return deleted, journal.GONE if deleted else ""


def _owner(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    for owner, _ in fields.objects(metadata, "ownerReferences", "metadata"):
        if owner.get("kind") == "Job" and owner.get("controller") is True:
            return owner
    return fields.EMPTY


def _pruned(template: Mapping[str, Any], path: str) -> str:
    """Keep what is decided by; what differs from Job to Job, and what may be secret, goes."""
    metadata, spec = (fields.mapping(template, key, path) for key in ("metadata", "spec"))
    kept: dict[str, Any] = {key: spec[key] for key in USED_OF_SPEC if key in spec}
    for key in ("containers", "initContainers"):
        kept[key] = [
            {name: item[name] for name in ("name", "resources", "restartPolicy") if name in item}
            for item, _ in fields.objects(spec, key, path)
        ]
    said = said_to_kueue(fields.mapping(metadata, "annotations", path))
    found = {"metadata": {"annotations": said}, "spec": kept} if said else {"spec": kept}
    return json.dumps(found, separators=(",", ":"), sort_keys=True)
