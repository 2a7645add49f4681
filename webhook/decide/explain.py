"""A decision in words: the JSON that stands on the Job and back, the warning, the table."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from webhook.decide.choice import clip
from webhook.model import edits as edits_model
from webhook.model import fields
from webhook.model.decision import Assessment, Decision, Fit, Outcome, Skip
from webhook.model.fields import FieldError
from webhook.model.job import DECISION
from webhook.model.policy import Mode

VERSION = 1
PREFIX = "kueue-fallback: "
_WARNING_LIMIT = 256
"""Characters that the API server passes on of one warning."""
_WIDTH = 100
_NAME_WIDTH = 18
_WHY_WIDTH = 28
"""With less room than this the reasons stand on lines of their own."""
_HEADER = ("OPTION", "QUEUE", "CLUSTERQUEUE", "FITS", "PENDING", "RESERVING", "WHY")
SKIPPED: Mapping[Skip, str] = {
    Skip.NO_POLICY: "no policy matches this Job",
    Skip.OPTED_OUT: "the Job's annotation kueue-fallback.dev/policy says none",
    Skip.OFF: "switched off by the ConfigMap kueue-fallback-off",
    Skip.OWNER_MANAGED: "its owner is queued by Kueue, not the Job itself",
    Skip.MULTIKUEUE_ORIGIN: "MultiKueue brought it here from another cluster",
    Skip.PREBUILT_WORKLOAD: "it names a Workload that exists already",
    Skip.ELASTIC_JOB: "Kueue resizes it while it runs (elastic-job)",
    Skip.MANAGED_BY: "spec.managedBy names another controller",
    Skip.NAMESPACE_NOT_MANAGED: "Kueue leaves this namespace alone (managedJobsNamespaceSelector)",
    Skip.KIND_NOT_MANAGED: "Kueue's integration for this kind of Job is off",
    Skip.NO_QUEUE: "it names no queue",
    Skip.DECIDED_ALREADY: "it was decided in this very admission",
    Skip.NOT_SYNCED: "the state of the cluster is not known yet",
}
"""Why a Job is not ours to decide, in words."""
_PATH = f"metadata.annotations[{DECISION}]"
_NEWER = "left as it is: its decision is of a newer version ({}) than this webhook can read"
_ENCODER = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A decision as read back from a Job."""

    version: int
    id: str
    time: str
    unix: float
    """``time`` in seconds since 1970; 0 where it cannot be read."""
    policy: str
    mode: Mode
    option: str | None
    reason: str
    from_queue: str
    original: Mapping[str, Any]
    """JSON pointers to what stood there, as ``admission.original`` writes it."""

    @property
    def is_newer(self) -> bool:
        """Say whether a newer version of this program wrote it: only that one can undo it."""
        return self.version > VERSION

    @property
    def warning(self) -> str:
        return warned(_NEWER.format(self.version) if self.is_newer else self.reason)


def to_json(decision: Decision, original: Mapping[str, Any]) -> str:
    """Write what stands in the Job's annotation: compact, seconds as numbers, unknown left out."""
    found = {**decision_json(decision), "original": original}
    return _ENCODER.encode(found)


def decision_json(decision: Decision) -> dict[str, Any]:
    """Describe a decision, without what is needed to undo it."""
    found: dict[str, Any] = {
        "version": VERSION,
        "id": decision.id,
        "time": decision.time,
        "policy": decision.policy,
        "mode": str(decision.mode),
    }
    if decision.submitted:
        found["submitted"] = decision.submitted
    if decision.option is not None:
        found["option"] = decision.option
    return {
        **found,
        "reason": decision.reason,
        "from": {"queue": decision.from_queue},
        "stateAge": round(decision.state_age_seconds, 3),
        "options": [_option_json(option) for option in decision.options],
    }


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """Describe all that one review comes to, for people and programs that ask for it."""
    found: dict[str, Any] = {}
    if outcome.skip is not None:
        found["skip"] = str(outcome.skip)
    if outcome.decision is not None:
        found["decision"] = decision_json(outcome.decision)
    found["edits"] = [_edit_json(edit) for edit in outcome.edits]
    found["warnings"] = list(outcome.warnings)
    return found


def from_json(text: str) -> Recorded:
    """Read a decision back; of a newer version's nothing but the version is taken for known.

    Raises:
        FieldError: it is no decision.

    """
    try:
        source = fields.as_mapping(json.loads(text), _PATH)
    except (ValueError, RecursionError) as error:
        if isinstance(error, FieldError):
            raise
        raise FieldError(_PATH, "expected a decision as JSON") from None
    version = fields.integer(source, "version", _PATH)
    if version is None or version < 1:
        raise FieldError(fields.child(_PATH, "version"), "expected a version number")
    if version > VERSION:
        return _newer(version)
    time = fields.text(source, "time", _PATH)
    origin = fields.mapping(source, "from", _PATH)
    return Recorded(
        version=version,
        id=fields.text(source, "id", _PATH),
        time=time,
        unix=_unix(time),
        policy=fields.text(source, "policy", _PATH),
        mode=_mode(fields.text(source, "mode", _PATH)),
        option=fields.text(source, "option", _PATH) or None,
        reason=fields.text(source, "reason", _PATH),
        from_queue=fields.text(origin, "queue", fields.child(_PATH, "from")),
        original=fields.mapping(source, "original", _PATH),
    )


def _newer(version: int) -> Recorded:
    return Recorded(
        version=version,
        id="",
        time="",
        unix=0.0,
        policy="",
        mode=Mode.OBSERVE,
        option=None,
        reason="",
        from_queue="",
        original={},
    )


def warning(decision: Decision) -> str:
    """Say a decision in the one line that kubectl prints, at most 256 characters."""
    return warned(decision.reason)


def warned(reason: str) -> str:
    return clip(PREFIX + reason, _WARNING_LIMIT)


def unreadable(error: FieldError) -> str:
    """Say which of the Job's own words could not be read, and that nothing was done."""
    return clip(f"{PREFIX}left as submitted: {error}", _WARNING_LIMIT)


def table(outcome: Outcome) -> str:
    """Lay a decision out for a terminal of 100 columns: the options with numbers and reasons."""
    if outcome.decision is None:
        why = SKIPPED[outcome.skip] if outcome.skip is not None else "nothing to decide"
        return "\n".join([f"Left untouched: {why}.", *outcome.warnings])
    decision = outcome.decision
    head = f"Policy {decision.policy} ({decision.mode}): {decision.reason}"
    lines = textwrap.wrap(head, _WIDTH, subsequent_indent="  ")
    if decision.options:
        lines += ["", *_rows(decision)]
    return "\n".join(lines)


def _rows(decision: Decision) -> list[str]:
    marks = ["  "] + [
        "> " if option.option == decision.option else "  " for option in decision.options
    ]
    cells = [_HEADER, *(_cells(option) for option in decision.options)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEADER) - 1)]
    left = sum(widths) + 2 * len(widths) + 2
    lines = []
    for mark, row in zip(marks, cells, strict=True):
        start = mark + "".join(
            f"{cell:<{width + 2}}" for cell, width in zip(row, widths, strict=False)
        )
        if _WIDTH - left >= _WHY_WIDTH:
            lines += _beside(start, row[-1])
        else:
            lines += _below(start, row[-1])
    return lines


def _beside(start: str, why: str) -> list[str]:
    wrapped = textwrap.wrap(why, _WIDTH - len(start)) or [""]
    lines = [start + wrapped[0], *(" " * len(start) + line for line in wrapped[1:])]
    return [line.rstrip() for line in lines]


def _below(start: str, why: str) -> list[str]:
    if why == _HEADER[-1]:
        return [start.rstrip()]
    indent = " " * 6
    wrapped = textwrap.wrap(why, _WIDTH, initial_indent=indent, subsequent_indent=indent)
    return [start.rstrip(), *wrapped]


def _cells(option: Assessment) -> tuple[str, ...]:
    why = str(option.rejection) if option.rejection is not None else option.detail
    names = (option.option, option.queue, option.cluster_queue)
    return (
        *(clip(name or "-", _NAME_WIDTH) for name in names),
        _fits(option),
        _count(option.pending),
        _count(option.reserving),
        why,
    )


def _fits(option: Assessment) -> str:
    if option.fit is None or option.rejection is not None:
        return "refused"
    if option.starts_now:
        return "now"
    return {Fit.FITS: "yes", Fit.MAY_PREEMPT: "may preempt"}.get(option.fit, "waits")


def _count(number: int | None) -> str:
    return "-" if number is None else str(number)


def _option_json(option: Assessment) -> dict[str, Any]:
    found: dict[str, Any] = {"name": option.option}
    if option.queue:
        found["queue"] = option.queue
    if option.cluster_queue:
        found["clusterQueue"] = option.cluster_queue
    if option.fit is not None:
        found["fits"] = option.fit is Fit.FITS
    if option.pending is not None:
        found["pending"] = option.pending
    if option.starts_now:
        found["startsIn"] = 0
    if option.rejection is not None:
        found["rejected"] = str(option.rejection)
    return found


def _edit_json(edit: edits_model.Edit) -> dict[str, Any]:
    found: dict[str, Any] = {"path": edits_model.to_pointer(edit.path)}
    if edit.value is edits_model.ABSENT:
        return {**found, "removed": True}
    return {**found, "value": edit.value}


def _unix(time: str) -> float:
    try:
        moment = datetime.fromisoformat(time)
        return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _mode(text: str) -> Mode:
    """Read a mode; one that a newer version added counts as the one that touches nothing."""
    return Mode(text) if text in Mode.__members__.values() else Mode.OBSERVE
