"""A decision in words: the JSON that stands on the Job and back, and the sentence beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from webhook.model import edits as edits_model
from webhook.model import fields
from webhook.model.decision import HISTORY_KEPT, Assessment, Decision, Fit, InCluster, Outcome, Stay
from webhook.model.fields import FieldError
from webhook.model.forecasts import Basis, Forecast, RunTime, Start
from webhook.model.job import DECISION
from webhook.model.policy.fallback_policy import Mode
from webhook.model.words import clip

VERSION = 1
PREFIX = "kueue-fallback: "
LONGEST = 65_536
"""Characters of a decision that is read; ours have a few thousand."""
_LONGEST_NAME = 253
_REASON_LIMIT = 256
"""Characters of the annotation ``reason``."""
_WHOLE_FROM = 100.0
_PATH = f"metadata.annotations[{DECISION}]"
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
    left_alone: str = ""
    """Why no option was taken, by ``LeftAlone``; empty where one was, or by an older version."""
    moves: int = 0
    history: tuple[Stay, ...] = ()
    changed: tuple[str, ...] = ()
    cluster_queues: Mapping[str, str] = field(default_factory=dict)
    """LocalQueue of an option to its ClusterQueue, as they were when it was decided or moved."""

    def elsewhere(self, queue: str) -> frozenset[str]:
        """Name the ClusterQueues of the options that are not in this LocalQueue."""
        others = {there for name, there in self.cluster_queues.items() if name != queue}
        return frozenset(others - {self.cluster_queues.get(queue)})

    @property
    def is_newer(self) -> bool:
        """Say whether a newer version of this program wrote it: only that one can undo it."""
        return self.version > VERSION

    @property
    def moved_unix(self) -> float:
        """When it was last moved, in seconds since 1970; 0: never, or it cannot be read."""
        return _unix(self.history[-1].time) if self.moves and self.history else 0.0


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
    if decision.left_alone is not None:
        found["leftAlone"] = str(decision.left_alone)
    found |= {
        "reason": decision.reason,
        "from": {"queue": decision.from_queue},
        "stateAge": round(decision.state_age_seconds, 3),
    }
    if decision.changed:
        found["changed"] = list(decision.changed)
    if decision.moves:
        found["moves"] = decision.moves
        found["history"] = [
            {"time": stay.time, "option": stay.option, "reason": stay.reason}
            for stay in decision.history
        ]
    found["options"] = [_option_json(option) for option in decision.options]
    return found


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
    source = parsed(text)
    version = fields.integer(source, "version", _PATH)
    if version is None or version < 1:
        raise FieldError(fields.child(_PATH, "version"), "expected a version number")
    if version > VERSION:
        return _newer(version)
    time = fields.text(source, "time", _PATH)
    origin = fields.mapping(source, "from", _PATH)
    return Recorded(
        version=version,
        id=_name(source, "id", _PATH),
        time=time,
        unix=_unix(time),
        policy=_name(source, "policy", _PATH),
        mode=_mode(fields.text(source, "mode", _PATH)),
        option=_name(source, "option", _PATH) or None,
        reason=fields.text(source, "reason", _PATH),
        from_queue=_name(origin, "queue", fields.child(_PATH, "from")),
        original=fields.mapping(source, "original", _PATH),
        left_alone=fields.text(source, "leftAlone", _PATH),
        moves=max(0, fields.integer(source, "moves", _PATH) or 0),
        history=tuple(
            Stay(**{name: fields.text(item, name, here) for name in ("time", "option", "reason")})
            for item, here in fields.objects(source, "history", _PATH)
        )[-HISTORY_KEPT:],
        changed=tuple(fields.strings(source, "changed", _PATH)),
        cluster_queues={
            fields.text(item, "queue", here): fields.text(item, "clusterQueue", here)
            for item, here in fields.objects(source, "options", _PATH)
            if item.get("queue") and item.get("clusterQueue")
        },
    )


def parsed(text: str) -> Mapping[str, Any]:
    """Read all that stands in the annotation, bounded in size, depth and numbers.

    Raises:
        FieldError: it is no object in JSON.

    """
    return fields.from_json(text, _PATH, longest=LONGEST)


def _name(source: Mapping[str, Any], key: str, path: str) -> str:
    found = fields.text(source, key, path)
    if len(found) > _LONGEST_NAME:
        raise FieldError(fields.child(path, key), f"expected at most {_LONGEST_NAME} characters")
    return found


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


def reason_of(decision: Decision) -> str:
    """Say a decision in the one line that stands on the Job, at most 256 characters."""
    return said(decision.reason)


def said(reason: str) -> str:
    return clip(PREFIX + reason, _REASON_LIMIT)


def _option_json(option: Assessment) -> dict[str, Any]:
    found: dict[str, Any] = {"name": option.option}
    if option.queue:
        found["queue"] = option.queue
    if option.cluster_queue:
        found["clusterQueue"] = option.cluster_queue
    if option.cluster:
        found["cluster"] = option.cluster
    if option.clusters:
        found["clusters"] = [_cluster_json(each) for each in option.clusters]
    if option.fit is not None:
        found["fits"] = option.fit is Fit.FITS
    if option.pending is not None:
        found["pending"] = option.pending
    if option.forecast is not None:
        found |= _forecast_json(option.forecast)
    elif option.starts_now:
        found["startsIn"] = 0
    if option.rejection is not None:
        found["rejected"] = str(option.rejection)
    return found


def _cluster_json(each: InCluster) -> dict[str, Any]:
    found: dict[str, Any] = {"name": each.cluster}
    if each.cluster_queue:
        found["clusterQueue"] = each.cluster_queue
    if each.fit is not None:
        found |= {"fits": each.fit is Fit.FITS, "pending": each.pending}
    if each.starts_in is not None and each.starts_in < inf:
        found["startsIn"] = _seconds(each.starts_in)
    if each.refused:
        found["rejected"] = each.refused
    return found


def _forecast_json(forecast: Forecast) -> dict[str, Any]:
    """Seconds; a pair is a range that holds about four of five. What never starts is left out."""
    found: dict[str, Any] = {}
    run = forecast.run
    found |= _start_json(forecast.start)
    if forecast.dispatch is not None:
        found["startsBy"] = forecast.dispatch.by
    if forecast.delay is not None:
        found["delay"] = _seconds(forecast.delay.seconds)
        found["delayBy"] = forecast.delay.by
    if run is not None:
        found["runs"] = _seconds(run.seconds)
        found["runsBetween"] = [_seconds(run.low), _seconds(run.high)]
        found["runsBy"] = basis_of(run)
    if forecast.finish is not None and forecast.finish < inf:
        found["finishesIn"] = _seconds(forecast.finish)
        low, high = forecast.finish_low, forecast.finish_high
        if low is not None and high is not None and high > low:
            found["finishesBetween"] = [_seconds(low), _seconds(high)]
    return found


def _start_json(start: Start) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if start.unseen:
        found["unknownAhead"] = start.unseen
    if start.unordered:
        found["startUnknown"] = start.unordered
    if start.is_known and start.seconds < inf:
        found["startsIn"] = _seconds(start.seconds)
        if start.high > start.low:
            found["startsBetween"] = [_seconds(start.low), _seconds(start.high)]
    if start.uncertain:
        found["uncertain"] = list(start.uncertain)
    return found


def basis_of(run: RunTime) -> str:
    """Say what an expected run time rests on."""
    runs = f"{run.runs} run{'' if run.runs == 1 else 's'}"
    return {
        Basis.LEARNED: f"learned from {runs}",
        Basis.SLOWDOWN: f"the first option's {runs} and the policy's slowdown",
        Basis.ANNOTATION: "the Job's annotation run-time"
        + (f", scaled by {runs}" if run.runs else ""),
        Basis.POLICY: "the policy",
    }[run.basis]


def _seconds(amount: float) -> float:
    """Round to what is worth reading: tenths below 100."""
    return round(amount, 1) if amount < _WHOLE_FROM else round(amount)


def _edit_json(edit: edits_model.Edit) -> dict[str, Any]:
    found: dict[str, Any] = {"path": edits_model.to_pointer(edit.path)}
    if edit.value is edits_model.ABSENT:
        return {**found, "removed": True}
    return {**found, "value": edit.value}


def _unix(time: str) -> float:
    try:
        return fields.seconds_since_1970(time, _PATH)
    except FieldError:
        return 0.0


def _mode(text: str) -> Mode:
    """Read a mode; one that a newer version added counts as the one that touches nothing."""
    return Mode(text) if text in Mode.__members__.values() else Mode.OBSERVE
