"""From a Job's metadata and its Workload to an entry of the journal. Pure.

The Job's own pod template is not needed: its Workload has the same one, and the decision on the Job
says what it was before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from webhook.admission import original as originals
from webhook.decide import decision_record
from webhook.flow import create
from webhook.hindsight.journal import Entry, Offer
from webhook.hindsight.past import Past
from webhook.jobs import KINDS
from webhook.model import fields, job_manifest, marks
from webhook.model.fields import EMPTY, FieldError
from webhook.model.job import DECISION, OURS, QUEUE_LABEL, Job
from webhook.model.refusals import LeftAlone
from webhook.model.signatures import SigningKeys

_LEFT_ALONE: Final = frozenset(map(str, LeftAlone))
_KIND: Final = KINDS["batch", "v1", "Job"]
_ALMOST_A_SECOND: Final = 0.999
"""Times are told in whole seconds: a Job came within the one that its creation names."""
_KEPT: Final = ("name", "namespace", "uid", "labels", "creationTimestamp")


def metadata_of(source: Mapping[str, Any]) -> dict[str, Any]:
    """Keep of a Job's metadata what ``entry`` needs."""
    metadata = fields.mapping(source, "metadata", "")
    annotations = fields.mapping(metadata, "annotations", "metadata")
    found = {key: metadata[key] for key in _KEPT if key in metadata}
    found["annotations"] = {
        key: text
        for key, text in annotations.items()
        if key.startswith((OURS, job_manifest.KUEUES)) and len(str(text)) <= _longest(key)
    }
    owners = fields.objects(metadata, "ownerReferences", "metadata")
    found["ownerReferences"] = [each for each, _ in owners if each.get("controller") is True]
    return found


def _longest(key: str) -> int:
    return decision_record.LONGEST if key == DECISION else job_manifest.LONGEST_SAID


def entry(
    past: Past,
    metadata: Mapping[str, Any] | None,
    *,
    seen: float = 0.0,
    keys: SigningKeys | None = None,
) -> Entry:
    """Put a Workload and its Job's metadata together.

    *seen*: when the Job was first seen, in seconds since 1970; it tells apart those that came
    within one second. A decision that is not signed with one of the *keys* counts for nothing.

    Raises:
        FieldError: the Job cannot be read.

    """
    source = _job(past, metadata or EMPTY)
    raw = _KIND.read(source)
    recorded = _recorded(raw, keys, fields.created_unix(source))
    submitted = marks.unmarked(_before(source, raw, recorded))
    created = float(past.created)
    return Entry(
        key=past.key,
        uid=past.job_uid,
        namespace=past.namespace,
        name=raw.name,
        created=min(max(created, seen), created + _ALMOST_A_SECOND),
        admitted=past.admitted,
        finished=past.finished,
        outcome=past.outcome,
        queue=past.queue,
        cluster_queue=past.cluster_queue,
        cluster=past.cluster,
        flavors=past.flavors,
        job_class=past.job_class,
        coarse=past.coarse,
        submitted=_written(job_manifest.spec(submitted, past.job_class)),
        ran=_written(job_manifest.spec(raw, past.job_class)),
        labels=job_manifest.labels_of(submitted),
        annotations=job_manifest.annotations_of(submitted),
        **_decided(raw, recorded, past),
    )


def _job(past: Past, metadata: Mapping[str, Any]) -> dict[str, Any]:
    named = {"namespace": past.namespace, "name": past.job or past.name}
    metadata = {**named, **metadata}
    labels = fields.mapping(metadata, "labels", "metadata")
    if QUEUE_LABEL not in labels:
        metadata["labels"] = {**labels, QUEUE_LABEL: past.queue}
    spec = {"parallelism": past.pods, "template": json.loads(past.template)}
    return {"metadata": metadata, "spec": spec}


def _recorded(
    job: Job, keys: SigningKeys | None, created: float
) -> decision_record.Recorded | None:
    found = create.recorded_on(job, keys, created=created)
    return None if found is None or found.is_newer else found


def _before(source: dict[str, Any], raw: Job, recorded: decision_record.Recorded | None) -> Job:
    if recorded is None or not recorded.original:
        return raw
    try:
        original = originals.from_json(recorded.original)
        return _KIND.read(originals.undone(source, original, _KIND.allowed))
    except FieldError:
        return raw


def _decided(raw: Job, recorded: decision_record.Recorded | None, past: Past) -> dict[str, Any]:
    if recorded is None:
        return {}
    decision = decision_record.parsed(raw.annotations[DECISION])
    last = max(recorded.unix, recorded.moved_unix)
    return {
        "policy": recorded.policy,
        "mode": str(recorded.mode),
        "option": recorded.option or "",
        "left_alone": _why(recorded, has_options=bool(decision.get("options"))),
        "decided_in": max(0.0, last - past.created),
        "moves": recorded.moves,
        "offers": tuple(_offers(fields.objects(decision, "options", ""))),
    }


def _why(recorded: decision_record.Recorded, *, has_options: bool) -> str:
    """Say why a Job was left as submitted; of a version that did not write it, what is likely."""
    if recorded.option is not None:
        return ""
    likely = LeftAlone.NO_OPTION if has_options else LeftAlone.STALE
    return recorded.left_alone if recorded.left_alone in _LEFT_ALONE else str(likely)


def _offers(options: Iterable[tuple[Mapping[str, Any], str]]) -> Iterator[Offer]:
    for item, here in options:
        yield Offer(
            option=fields.text(item, "name", here),
            queue=fields.text(item, "queue", here),
            starts_in=_number(item.get("startsIn")),
            runs=_number(item.get("runs")),
            finishes_in=_number(item.get("finishesIn")),
            rejected=fields.text(item, "rejected", here).partition(":")[0],
        )


def _number(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number else None


def _written(spec: Mapping[str, Any]) -> str:
    return json.dumps(spec, separators=(",", ":"), sort_keys=True)
