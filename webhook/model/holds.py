"""A Job held from admission until a better hour: the gate that holds it, and how it is told.

Kueue admits no Workload while its annotation ``admission-gated-by`` names a gate. Names may be
taken off and never added after the creation, so a hold can only end.
https://github.com/kubernetes-sigs/kueue/tree/main/keps/6915-admission-gated-by
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from webhook.model.faults import attempted
from webhook.model.fields import seconds_since_1970
from webhook.model.job import OURS, Job
from webhook.model.quantity import Amounts
from webhook.model.words import rfc3339, three_digits

GATE: Final = "kueue.x-k8s.io/admission-gated-by"
"""The annotation with the names of gates, joined by commas."""
OUR_GATE: Final = OURS + "hold"
HELD: Final = OURS + "held"
"""The label of a Job that is held, by which people find it."""
_HELD: Final = "true"
SLOT_SECONDS: Final = 900.0
"""Between the starts that are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Until when a Job is held, and what that saves; moments in seconds since 1970."""

    until: float
    """When it is planned to be released; the moment of the decision: as soon as there is room."""
    latest: float
    """When it is released, whatever is known by then."""
    saves: float
    """Money, CO2 with its price included; 0: it is held for want of room alone."""
    of: float
    """What it would cost now."""
    grams: float | None = None
    """CO2 that it saves; None: not known."""
    of_grams: float | None = None
    seconds: float = 0.0
    """For how long its quota will be held."""
    usage: Amounts = field(default_factory=dict)
    """The quota."""
    job_class: str = ""
    """The Job's class as it was submitted, of which it may turn out that it keeps failing there."""


def read_hold(given: Any) -> Hold | None:
    """Read what ``hold_json`` writes; what cannot be read is no hold, so that it ends at once."""
    found, _ = attempted(lambda: _parsed(given))
    return found


def _parsed(given: Any) -> Hold:
    saves = given["saves"]
    usage = {(str(flavor), str(name)): int(amount) for flavor, name, amount in given["quota"]}
    return Hold(
        until=seconds_since_1970(given["until"], "hold"),
        latest=seconds_since_1970(given["latest"], "hold"),
        saves=float(saves["money"]),
        of=float(saves["of"]),
        grams=saves.get("carbonGrams"),
        of_grams=saves.get("ofCarbonGrams"),
        seconds=float(given["seconds"]),
        usage=usage,
        job_class=str(given.get("class", "")),
    )


def hold_json(hold: Hold) -> dict[str, Any]:
    saves = {"money": three_digits(hold.saves), "of": three_digits(hold.of)}
    if hold.grams is not None and hold.of_grams is not None:
        saves["carbonGrams"] = three_digits(hold.grams)
        saves["ofCarbonGrams"] = three_digits(hold.of_grams)
    return {
        "until": rfc3339(hold.until),
        "latest": rfc3339(hold.latest),
        "saves": saves,
        "seconds": round(hold.seconds),
        "class": hold.job_class,
        "quota": [[*cell, amount] for cell, amount in sorted(hold.usage.items())],
    }


def gates_of(annotations: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the gates that hold a Job or Workload."""
    written = annotations.get(GATE)
    names = written.split(",") if isinstance(written, str) else ()
    return tuple(name for given in names if (name := given.strip()))


def is_gated(annotations: Mapping[str, Any]) -> bool:
    """Tell whether our gate holds it."""
    return GATE in annotations and OUR_GATE in gates_of(annotations)


def gated(job: Job) -> Job:
    """Return the Job with our gate, beside those of others, and with its label."""
    gates = dict.fromkeys((*gates_of(job.annotations), OUR_GATE))
    return replace(
        job,
        labels={**job.labels, HELD: _HELD},
        annotations={**job.annotations, GATE: ",".join(gates)},
    )


def ungated(job: Job) -> Job:
    """Return the Job without our gate; the same object if it has none."""
    if not is_gated(job.annotations):
        return job
    others = without_ours(job.annotations)
    rest = {key: text for key, text in job.annotations.items() if key != GATE}
    return replace(job, annotations={**rest, GATE: others} if others else rest)


def without_ours(annotations: Mapping[str, Any]) -> str:
    """Return the annotation with the gates of others alone; empty: there are none."""
    return ",".join(name for name in gates_of(annotations) if name != OUR_GATE)


def release_patch(version: str, others: str) -> Mapping[str, Any]:
    """Return the merge patch that takes our gate and label off a Job, and leaves *others*' gates.

    It is refused where the Job's resourceVersion is another than *version*; empty: it is not.
    """
    metadata: dict[str, Any] = {
        "annotations": {GATE: others or None},
        "labels": {HELD: None},
    }
    return {"metadata": {**metadata, **({"resourceVersion": version} if version else {})}}


def is_released(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Tell whether an update from *old* to *new*, two objects' metadata, ends a hold.

    That is where the annotation goes, or the label with our gate. A manifest that is applied again
    takes neither, but may bring back an annotation that has the gates of others alone.
    """
    before, after = (_texts(metadata, "annotations") for metadata in (old, new))
    if not is_gated(before) or is_gated(after):
        return False
    return GATE not in after or HELD not in _texts(new, "labels")


def _texts(metadata: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    texts = metadata.get(key)
    return texts if isinstance(texts, dict) else {}
