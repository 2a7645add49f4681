"""Turns the server's log lines and Jobs' annotations into the decisions that the console shows.

Both are JSON that others wrote; what cannot be read is left out. The store merges both sources.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any, Final

from webhook.api.resources import Key
from webhook.decide import decision_record
from webhook.decide.decision_record import Recorded
from webhook.hindsight.savings_record import ShownDecision
from webhook.model import fields
from webhook.model.fields import FieldError, child
from webhook.model.job import DECISION, PLAIN, QUEUE_LABEL, reference_of

_OPTIONS = 16
"""Twice as many as a policy may have."""
_LONGEST_LINE = 1 << 20
"""Most characters of a log line that is read."""
_DAY: Final = 86_400.0
_SAME_SECONDS: Final = 5.0
"""Longest time between a decision and its Job's creation, by the clocks of two machines."""
_AT = f"metadata.annotations[{DECISION}]"


def from_line(text: str) -> ShownDecision | None:
    """Read a line of the decision log; None: it is not that of a decision."""
    try:
        line = fields.from_json(text, "", longest=_LONGEST_LINE)
        name = fields.text(line, "name", "") or fields.text(line, "generateName", "")
        return _decision(
            decision_record.from_object(fields.mapping(line, "decision", "")),
            namespace=fields.text(line, "namespace", ""),
            kind=fields.text(line, "kind", "") or PLAIN,
            name=name,
            queue=fields.text(line, "queue", ""),
        )
    except FieldError:
        return None


def from_job(source: Mapping[str, Any], kind: str = PLAIN) -> ShownDecision | None:
    """Read a Job of a kind, or its metadata alone; None: no decision can be read from it.

    Who may write the Job may have written the decision, so its time counts only as far as the API
    server's own times confirm it.
    """
    try:
        metadata = fields.mapping(source, "metadata", "")
        annotations, labels = (
            fields.mapping(metadata, key, "metadata") for key in ("annotations", "labels")
        )
        decision = _decision(
            decision_record.from_annotations(annotations),
            namespace=fields.text(metadata, "namespace", "metadata"),
            kind=kind,
            name=fields.text(metadata, "name", "metadata"),
            queue=fields.text(labels, QUEUE_LABEL, "metadata.labels"),
        )
        return replace(decision, at=_borne_out(decision, metadata), is_unverified=True)
    except FieldError:
        return None


def _borne_out(decision: ShownDecision, metadata: Mapping[str, Any]) -> float:
    """Return when a Job was decided, confirmed by the API server's times.

    Raises:
        FieldError: the decision's time contradicts them.

    """
    created = _unix(fields.text(metadata, "creationTimestamp", "metadata"))
    if not created - _SAME_SECONDS <= decision.at <= created + _DAY:
        raise FieldError(child(_AT, "time"), "expected a time within a day of the Job's creation")
    if decision.at <= created + _SAME_SECONDS:
        return decision.at
    entries = fields.objects(metadata, "managedFields", "metadata")
    changed = [
        _unix(fields.text(entry, "time", here)) for entry, here in entries if "time" in entry
    ]
    # A later time is that of a move, which was an update of the Job.
    return min(decision.at, max((created, *changed))) if decision.moves else created


def _decision(
    recorded: Recorded, *, namespace: str, kind: str, name: str, queue: str
) -> ShownDecision:
    if not recorded.id or not namespace:
        raise FieldError(child(_AT, "id"), "expected what tells it from others")
    # Under Advise, the Job is in another queue than that of the option taken.
    named = {option.name: option.queue for option in recorded.options}
    decision = ShownDecision(
        recorded=replace(recorded, options=recorded.options[:_OPTIONS], original={}),
        at=_unix(recorded.time),
        namespace=namespace,
        job=reference_of(kind, name),
        kind=kind,
        queue=named.get(recorded.option or "") or queue,
    )
    for move in decision.moves:
        _unix(move.time)
    return decision


def _unix(time: str) -> float:
    return fields.seconds_since_1970(time, child(_AT, "time"))


KEPT = 500
_SLACK = 100
"""So many beyond the limit before the oldest are searched for."""


class DecisionStore:
    """The newest decisions; lines are parsed only when they are requested, which most never are."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._lines: deque[str] = deque(maxlen=kept)
        self._decisions: dict[tuple[str, str], ShownDecision] = {}
        """By namespace and id: no namespace can replace another's."""
        self._of_jobs: dict[str, dict[Key, str]] = {}
        """For each kind: Jobs to the ids of the decisions that they carry."""
        self._lock = threading.Lock()

    def put_line(self, line: str) -> None:
        """Add a line of the server's decision log."""
        self._lines.append(line)

    def put(self, job: Key, decision: ShownDecision | None, kind: str = PLAIN) -> None:
        """Add what a Job of a kind carries; of one Job only the last decision is kept."""
        with self._lock:
            of_jobs = self._of_jobs.setdefault(kind, {})
            before = of_jobs.get(job)
            if before is not None and (decision is None or decision.recorded.id != before):
                self._drop(job, of_jobs)
            if decision is not None:
                of_jobs[job] = decision.recorded.id
                self._put(decision)

    def forget_others(self, jobs: Container[Key], kind: str = PLAIN) -> None:
        """Forget what was read from Jobs of a kind that do not exist any more."""
        with self._lock:
            of_jobs = self._of_jobs.setdefault(kind, {})
            for job in [known_job for known_job in of_jobs if known_job not in jobs]:
                self._drop(job, of_jobs)

    def _drop(self, job: Key, of_jobs: dict[Key, str]) -> None:
        key = job[0], of_jobs.pop(job)
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
        key = decision.namespace, decision.recorded.id
        before = self._decisions.get(key)
        if before is None or before.at <= decision.at:
            self._decisions[key] = decision if before is None else _together(before, decision)
        if len(self._decisions) > self._kept + _SLACK:
            self._trim()

    def _trim(self) -> None:
        ranked = sorted(self._decisions.items(), key=lambda item: (-item[1].at, item[0][1]))
        self._decisions = dict(ranked[: self._kept])
        self._of_jobs = {
            kind: {job: id_ for job, id_ in jobs.items() if (job[0], id_) in self._decisions}
            for kind, jobs in self._of_jobs.items()
        }


def _together(before: ShownDecision, decision: ShownDecision) -> ShownDecision:
    """Merge a Job's decisions: a move comes after the creation; for one instant, the log's is kept.

    A complete name is kept, too: the log knows only the prefix of a generated one.
    """
    if before.at < decision.at:
        return decision
    kept = before if decision.is_unverified and not before.is_unverified else decision
    return replace(kept, job=max(before.job, decision.job, key=len))
