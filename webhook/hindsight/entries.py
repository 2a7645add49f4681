"""Turns a finished Workload and its Job into an entry of the journal. Pure.

Of a batch Job only the metadata is needed: its Workload has the same pod template, and the decision
on the Job says what it was before. Of a Job of another kind the whole object is, as its pod
templates lie where its kind has them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from sys import intern
from typing import Any, Final, NamedTuple

from webhook.decide import decision_record
from webhook.decide.decision_record import Recorded, RecordedOption
from webhook.flow import decided_job
from webhook.flow.decided_job import DecidedJob
from webhook.hindsight import journal
from webhook.hindsight.journal import JournalEntry
from webhook.jobs import BY_NAME, reduced
from webhook.learn.run_records import WorkloadRun
from webhook.learn.workload_runs import (
    FAILED,
    SUCCEEDED,
    WorkloadPodSet,
    admitted_at,
    own_marks,
    read_conditions,
    read_flavors,
    read_mark,
    read_pod_sets,
    seconds_of,
)
from webhook.model import fields, flags, job_manifest, marks
from webhook.model.fields import EMPTY, FieldError
from webhook.model.flags import Named
from webhook.model.job import DECISION, PLAIN, QUEUE_LABEL
from webhook.model.job_manifest import said_to_kueue
from webhook.model.pods import Container
from webhook.model.reasons import LeftAlone
from webhook.model.signatures import SigningKeys
from webhook.state.workload import read_owner
from webhook.state.workload_pods import USED_OF_SPEC, read_charge

_NONE: Final = Named()
_KEPT_OF_CONTAINERS: Final = ("name", "resources", "restartPolicy")
LONGEST_TEMPLATE: Final = 8_192
"""Characters; most have some hundreds."""


class FinishedRun(NamedTuple):
    """What is learned from a finished Workload, and what the journal keeps of it."""

    ended: WorkloadRun | None
    past: JournalEntry | None


def read_finished(
    source: Mapping[str, Any], keys: SigningKeys | None = None
) -> JournalEntry | None:
    """Read a Workload to an entry that lacks what its Job tells; None: no replay can submit it.

    ``submitted`` and ``ran`` are its pod sets, reduced to what decisions need, until ``entry``
    turns them to specs; equal ones are one object.

    That is one with several pod sets that belongs to no Job, or with templates of over
    ``LONGEST_TEMPLATE`` characters. A mark that is not signed with one of the *keys* is ignored;
    None: every mark is believed.

    Raises:
        FieldError: it cannot be read.

    """
    metadata, spec, status = (fields.mapping(source, k, "") for k in ("metadata", "spec", "status"))
    owner, written = read_owner(metadata), read_pod_sets(spec)
    pod_sets = _reduced(written)
    kind = owner.kind or PLAIN
    if len(pod_sets) > LONGEST_TEMPLATE or not _is_replayed(written, kind):
        return None
    namespace = intern(fields.text(metadata, "namespace", "metadata"))
    own, _ = own_marks(metadata, written, keys)
    mark = read_mark(written, own, namespace, kind)
    conditions = read_conditions(status)
    admission = fields.mapping(status, "admission", "status")
    finished, outcome = _end(metadata, status)
    shared = intern(pod_sets)
    return JournalEntry(
        key=fields.text(metadata, "uid", "metadata"),
        uid=owner.uid,
        kind=kind,
        namespace=namespace,
        name=owner.name or fields.text(metadata, "name", "metadata"),
        created=seconds_of(metadata, "creationTimestamp", "metadata"),
        admitted=admitted_at(conditions),
        finished=finished,
        outcome=outcome,
        queue=intern(fields.text(spec, "queueName", "spec")),
        cluster_queue=intern(fields.text(admission, "clusterQueue", "status.admission")),
        flavors=read_flavors(admission),
        submitted=shared,
        ran=shared,
        job_class=intern(mark.job_class.key) if mark else "",
        coarse=intern(mark.job_class.coarse) if mark else "",
        cluster=intern(fields.text(status, "clusterName", "status")),
        # Pods that were done before others gave quota back; it is counted as if they had not.
        used=read_charge(written, EMPTY, admission),
    )


def is_over(source: Mapping[str, Any]) -> bool:
    """Return whether the Workload has ended, or is being deleted."""
    metadata, status = (fields.mapping(source, key, "") for key in ("metadata", "status"))
    return bool(_end(metadata, status)[1])


def _end(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[int, str]:
    for condition, here in fields.objects(status, "conditions", "status"):
        if condition.get("type") == "Finished" and condition.get("status") == "True":
            outcomes = {SUCCEEDED: journal.SUCCEEDED, FAILED: journal.FAILED}
            outcome = outcomes.get(fields.text(condition, "reason", here), journal.GONE)
            return seconds_of(condition, "lastTransitionTime", here), outcome
    deleted = seconds_of(metadata, "deletionTimestamp", "metadata")
    return deleted, journal.GONE if deleted else ""


def _is_replayed(pod_sets: Sequence[WorkloadPodSet], kind: str) -> bool:
    return len(pod_sets) == 1 or (len(pod_sets) > 1 and kind != PLAIN)


def _reduced(pod_sets: Sequence[WorkloadPodSet]) -> str:
    listed = [
        {"name": pod_set.name, "count": pod_set.pod_count, "template": _pruned(pod_set)}
        for pod_set in pod_sets
    ]
    return json.dumps(listed, separators=(",", ":"), sort_keys=True)


def _pruned(pod_set: WorkloadPodSet) -> dict[str, Any]:
    """Keep what decisions depend on.

    What differs from Job to Job, and may be secret, is dropped.
    """
    spec, path = pod_set.pod_spec, f"{pod_set.path}.template"
    kept: dict[str, Any] = {key: spec[key] for key in USED_OF_SPEC if key in spec}
    for key in ("containers", "initContainers"):
        kept[key] = [
            {
                **{name: container[name] for name in _KEPT_OF_CONTAINERS if name in container},
                **_values_of(container, here),
            }
            for container, here in fields.objects(spec, key, f"{path}.spec")
        ]
    said = said_to_kueue(fields.mapping(pod_set.pod_metadata, "annotations", f"{path}.metadata"))
    return {"metadata": {"annotations": said}, "spec": kept} if said else {"spec": kept}


def _values_of(container: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return short values of flags and variables: the policies that may name them come later."""
    return flags.short(
        Container(
            name="",
            command=fields.sequence(container, "command", path),
            args=fields.sequence(container, "args", path),
            env=fields.mappings(container, "env", path),
        )
    )


_ALMOST_A_SECOND: Final = 0.999
"""Times are in whole seconds: a Job was created within the second that it names."""
_KEPT: Final = ("name", "generateName", "namespace", "uid", "labels", "creationTimestamp")


def metadata_of(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a Job's metadata that ``entry`` needs."""
    metadata = fields.mapping(source, "metadata", "")
    annotations = fields.mapping(metadata, "annotations", "metadata")
    kept = {key: metadata[key] for key in _KEPT if key in metadata}
    kept["annotations"] = {
        key: text
        for key, text in job_manifest.meant(annotations)
        if len(str(text)) <= _longest(key)
    }
    owners = fields.objects(metadata, "ownerReferences", "metadata")
    kept["ownerReferences"] = [owner for owner, _ in owners if owner.get("controller") is True]
    return kept


def _longest(key: str) -> int:
    return decision_record.LONGEST if key == DECISION else job_manifest.LONGEST_SAID


def entry(
    past: JournalEntry,
    metadata: Mapping[str, Any] | None,
    *,
    seen: float = 0.0,
    keys: SigningKeys | None = None,
    named: Named = _NONE,
    whole: Mapping[str, Any] | None = None,
) -> JournalEntry:
    """Complete what ``read_finished`` has read by its Job's metadata.

    *whole* is the Job itself where it is of another kind than batch; None: it is not there.

    *seen*: when the Job was first observed, in seconds since 1970, to order Jobs created within one
    second. A decision not signed with one of the *keys* is ignored. *named*: the flags and
    variables whose values may be kept.

    Raises:
        FieldError: the Job cannot be read, or how it was submitted is not known without it.

    """
    decided = _decided_job(past, metadata or EMPTY, keys, whole)
    raw = decided.current
    submitted = marks.unmarked(decided.recovered_if_possible().submitted)
    return replace(
        past,
        name=raw.name,
        created=round(min(max(past.created, seen), past.created + _ALMOST_A_SECOND), 3),
        submitted=_written(job_manifest.spec(submitted, past.job_class, named)),
        ran=_written(job_manifest.spec(raw, past.job_class, named)),
        labels=job_manifest.labels_of(submitted),
        annotations=job_manifest.annotations_of(submitted),
        decision=_kept(decided.believed),
    )


def _decided_job(
    past: JournalEntry,
    metadata: Mapping[str, Any],
    keys: SigningKeys | None,
    whole: Mapping[str, Any] | None,
) -> DecidedJob:
    kind = BY_NAME.get(past.kind)
    if whole is not None and kind is not None:
        return decided_job.read_stored(whole, kind, keys)
    decided = decided_job.read_stored(_job(past, metadata), reduced.kind_named(past.kind), keys)
    # Where its kind has the values that were changed, only the Job itself can tell.
    if past.kind != PLAIN and decided.believed is not None and decided.believed.original:
        raise FieldError("", f"its {past.kind} is gone, so how it was submitted is not known")
    return decided


def _job(past: JournalEntry, metadata: Mapping[str, Any]) -> dict[str, Any]:
    named = {"namespace": past.namespace, "name": past.name}
    metadata = {**named, **metadata}
    labels = fields.mapping(metadata, "labels", "metadata")
    if QUEUE_LABEL not in labels:
        metadata["labels"] = {**labels, QUEUE_LABEL: past.queue}
    pod_sets = json.loads(past.submitted)
    spec = {"podSets": pod_sets}
    if past.kind == PLAIN:
        spec = {"parallelism": pod_sets[0]["count"], "template": pod_sets[0]["template"]}
    return {"metadata": metadata, "spec": spec}


def _kept(recorded: Recorded | None) -> Recorded | None:
    """Return what replays and bills need of a decision: there are thousands in an hour."""
    if recorded is None:
        return None
    return replace(
        recorded,
        id="",
        reason="",
        state_age_seconds=0.0,
        hold=None,
        changed=(),
        history=(),
        original={},
        left_alone=_why(recorded),
        options=tuple(_kept_option(option, recorded.from_queue) for option in recorded.options),
    )


def _why(recorded: Recorded) -> LeftAlone | None:
    """Return why a Job was left as submitted.

    For versions that did not write it, what is likely.
    """
    if recorded.option is not None:
        return None
    return recorded.left_alone or (LeftAlone.NO_OPTION if recorded.options else LeftAlone.STALE)


def _kept_option(option: RecordedOption, submitted: str) -> RecordedOption:
    # Bills compare with where it was submitted.
    cost = option.cost if option.queue == submitted else None
    if cost is not None:
        cost = replace(cost, time=None, lateness=None, congestion=None, transfer=None)
    return RecordedOption(
        name=option.name,
        queue=option.queue,
        starts_in=option.starts_in,
        runs=option.runs,
        finishes_in=option.finishes_in,
        cost=cost,
        rejected=option.rejected,
        passed_over=option.passed_over,
    )


def _written(spec: Mapping[str, Any]) -> str:
    return json.dumps(spec, separators=(",", ":"), sort_keys=True)
