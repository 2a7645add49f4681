"""Turns the server's log lines and Jobs' annotations into the decisions that the console shows.

Both are JSON that others wrote; what cannot be read is left out. The store merges both sources.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Container, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final, NoReturn

from webhook.api.resources import Key
from webhook.console.view import ShownDecision, ShownMove, ShownOption
from webhook.model import fields
from webhook.model.decision import HISTORY_KEPT
from webhook.model.fields import FieldError, child
from webhook.model.job import DECISION, QUEUE_LABEL

_OPTIONS = 16
"""Twice as many as a policy may have."""
_AGES = 1 << 33
"""Seconds; a time beyond is not plausible."""
_DAY: Final = 86_400.0
_SAME_SECONDS: Final = 5.0
"""Longest time between a decision and its Job's creation, by the clocks of two machines."""
_AT = f"metadata.annotations[{DECISION}]"


def from_line(text: str | bytes) -> ShownDecision | None:
    """Read a line of the decision log; None: it is not that of a decision."""
    try:
        line = fields.as_mapping(_loaded(text), "")
        name = _text(line, "name", "")
        return _decision(
            fields.mapping(line, "decision", ""),
            namespace=_text(line, "namespace", ""),
            job=name or _text(line, "generateName", ""),
            queue=_text(line, "queue", ""),
        )
    except FieldError:
        return None


def from_job(source: Mapping[str, Any]) -> ShownDecision | None:
    """Read a Job, or its metadata alone; None: no decision can be read from it.

    Who may write the Job may have written the decision, so its time counts only as far as the API
    server's own times confirm it.
    """
    try:
        metadata = fields.mapping(source, "metadata", "")
        annotations, labels = (
            fields.mapping(metadata, key, "metadata") for key in ("annotations", "labels")
        )
        decision = _decision(
            fields.as_mapping(_loaded(_text(annotations, DECISION, _AT)), _AT),
            namespace=_text(metadata, "namespace", "metadata"),
            job=_text(metadata, "name", "metadata"),
            queue=_text(labels, QUEUE_LABEL, "metadata.labels"),
        )
        return replace(decision, at=_borne_out(decision, metadata), is_unverified=True)
    except FieldError:
        return None


def _borne_out(decision: ShownDecision, metadata: Mapping[str, Any]) -> float:
    """Return when a Job was decided, confirmed by the API server's times.

    Raises:
        FieldError: the decision's time contradicts them.

    """
    created = _unix(_text(metadata, "creationTimestamp", "metadata"))
    if not created - _SAME_SECONDS <= decision.at <= created + _DAY:
        raise FieldError(child(_AT, "time"), "expected a time within a day of the Job's creation")
    if decision.at <= created + _SAME_SECONDS:
        return decision.at
    entries = fields.objects(metadata, "managedFields", "metadata")
    changed = [_unix(_text(entry, "time", here)) for entry, here in entries if "time" in entry]
    # A later time is that of a move, which was an update of the Job.
    return min(decision.at, max((created, *changed))) if decision.moves else created


def _loaded(text: str | bytes) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise FieldError(_AT, "expected JSON") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _decision(source: Mapping[str, Any], *, namespace: str, job: str, queue: str) -> ShownDecision:
    identity = _text(source, "id", _AT)
    if not identity or not namespace:
        raise FieldError(child(_AT, "id"), "expected what tells it from others")
    return ShownDecision(
        id=identity,
        at=_unix(_text(source, "time", _AT)),
        namespace=namespace,
        job=job,
        policy=_text(source, "policy", _AT),
        mode=_text(source, "mode", _AT),
        option=_text(source, "option", _AT),
        queue=_queue(source, queue),
        reason=_text(source, "reason", _AT),
        options=tuple(
            _option(*option) for option in fields.objects(source, "options", _AT)[:_OPTIONS]
        ),
        moves=_moves(source),
    )


def _moves(source: Mapping[str, Any]) -> tuple[ShownMove, ...]:
    """Return the last moves; the first entry is where the Job began, not a move."""
    stays = fields.objects(source, "history", _AT)[-HISTORY_KEPT:]
    count = max(0, min(fields.integer(source, "moves", _AT) or 0, len(stays)))
    return tuple(_move(*stay) for stay in stays[len(stays) - count :])


def _queue(source: Mapping[str, Any], queue: str) -> str:
    """Return the queue of the option taken: under Advise, the Job is in another."""
    taken = _text(source, "option", _AT)
    for option, here in fields.objects(source, "options", _AT):
        if taken and option.get("name") == taken:
            return _text(option, "queue", here) or queue
    return queue


def _option(source: Mapping[str, Any], path: str) -> ShownOption:
    return ShownOption(
        name=_text(source, "name", path),
        queue=_text(source, "queue", path),
        pending=fields.integer(source, "pending", path),
        starts_in=_seconds(source, "startsIn", path),
        runs=_seconds(source, "runs", path),
        finishes_in=_seconds(source, "finishesIn", path),
        rejected=_text(source, "rejected", path),
        cluster=_text(source, "cluster", path),
    )


def _move(source: Mapping[str, Any], path: str) -> ShownMove:
    return ShownMove(
        at=_unix(_text(source, "time", path)),
        option=_text(source, "option", path),
        reason=_text(source, "reason", path),
    )


def _text(source: Mapping[str, Any], key: str, path: str) -> str:
    """Read a text that can be written as UTF-8; JSON can hold others, too."""
    return fields.text(source, key, path).encode(errors="replace").decode()


def _seconds(source: Mapping[str, Any], key: str, path: str) -> float | None:
    value = source.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FieldError(child(path, key), f"expected seconds, got {fields.kind_of(value)}")
    try:
        seconds = float(value)
    except OverflowError:
        raise FieldError(child(path, key), "expected seconds") from None
    if not isfinite(seconds):
        raise FieldError(child(path, key), "expected seconds")
    return seconds


def _unix(time: str) -> float:
    try:
        moment = datetime.fromisoformat(time)
        unix = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        unix = -1.0
    if not 0 <= unix < _AGES:
        raise FieldError(child(_AT, "time"), "expected a time")
    return unix


KEPT = 500
_SLACK = 100
"""So many beyond the limit before the oldest are searched for."""


class DecisionStore:
    """The newest decisions; lines are parsed only when they are requested, which most never are."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._lines: deque[bytes] = deque(maxlen=kept)
        self._decisions: dict[tuple[str, str], ShownDecision] = {}
        """By namespace and id: no namespace can replace another's."""
        self._of_jobs: dict[Key, str] = {}
        """Jobs to the ids of the decisions that they carry."""
        self._lock = threading.Lock()

    def put_line(self, line: bytes) -> None:
        """Add a line of the server's decision log."""
        self._lines.append(line)

    def put(self, job: Key, decision: ShownDecision | None) -> None:
        """Add what a Job carries; of one Job only the last decision is kept."""
        with self._lock:
            before = self._of_jobs.get(job)
            if before is not None and (decision is None or decision.id != before):
                self._drop(job)
            if decision is not None:
                self._of_jobs[job] = decision.id
                self._put(decision)

    def forget_others(self, jobs: Container[Key]) -> None:
        """Forget what was read from Jobs that do not exist any more."""
        with self._lock:
            for job in [known_job for known_job in self._of_jobs if known_job not in jobs]:
                self._drop(job)

    def _drop(self, job: Key) -> None:
        key = job[0], self._of_jobs.pop(job)
        decision = self._decisions.get(key)
        if decision is not None and decision.is_unverified:
            del self._decisions[key]

    def newest(self) -> tuple[ShownDecision, ...]:
        """Return what is known, the newest first."""
        with self._lock:
            while self._lines:
                decision = from_line(self._lines.popleft())
                if decision is not None:
                    self._put(decision)
            self._trim()
            return tuple(self._decisions.values())

    def _put(self, decision: ShownDecision) -> None:
        key = decision.namespace, decision.id
        before = self._decisions.get(key)
        if before is None or before.at <= decision.at:
            self._decisions[key] = decision if before is None else _together(before, decision)
        if len(self._decisions) > self._kept + _SLACK:
            self._trim()

    def _trim(self) -> None:
        ranked = sorted(self._decisions.values(), key=lambda decision: (-decision.at, decision.id))
        self._decisions = {
            (decision.namespace, decision.id): decision for decision in ranked[: self._kept]
        }
        kept = {job: id_ for job, id_ in self._of_jobs.items() if (job[0], id_) in self._decisions}
        self._of_jobs = kept


def _together(before: ShownDecision, decision: ShownDecision) -> ShownDecision:
    """Merge a Job's decisions: a move comes after the creation; for one instant, the log's is kept.

    A complete name is kept, too: the log knows only the prefix of a generated one.
    """
    if before.at < decision.at:
        return decision
    kept = before if decision.is_unverified and not before.is_unverified else decision
    return replace(kept, job=max(before.job, decision.job, key=len))
