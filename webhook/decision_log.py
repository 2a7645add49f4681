"""One JSON line a decision, written by a thread: a stalled stdout delays no admission."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from webhook.decide import explain
from webhook.handler import Considered

_ENCODER = json.JSONEncoder(separators=(",", ":"))
CAPACITY = 10_000
PAUSE_SECONDS = 0.05
"""Between two looks of the writer. It is not woken for each line: that alone took an eighth of a
review's time."""


class DecisionLog:
    """Bounded lines and their writer; when there are too many, lines are dropped and counted."""

    def __init__(self, stream: TextIO, on_dropped: Callable[[], None]) -> None:
        self._stream = stream
        self._on_dropped = on_dropped
        self._lines: deque[Mapping[str, Any]] = deque()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._write, name="decision-log", daemon=True)
        self._thread.start()

    def put(self, line: Mapping[str, Any]) -> None:
        if len(self._lines) < CAPACITY:
            self._lines.append(line)
        else:
            self._on_dropped()

    def close(self) -> None:
        """Write what is there, and end."""
        self._closing.set()
        self._thread.join(timeout=2)

    def _write(self) -> None:
        while not self._closing.wait(PAUSE_SECONDS):
            self._write_all()
        self._write_all()

    def _write_all(self) -> None:
        while self._lines:
            # A line leaves the bound only when it is written, so that a stalled stream fills it.
            print(_ENCODER.encode(self._lines[0]), file=self._stream)
            self._lines.popleft()
        self._stream.flush()


class Latest:
    """The last decisions, for the console: only of Jobs that a policy matched."""

    def __init__(self, kept: int = 500) -> None:
        self._lines: deque[dict[str, Any]] = deque(maxlen=kept)

    def put(self, line: dict[str, Any]) -> None:
        self._lines.append(line)

    def to_bytes(self) -> bytes:
        return json.dumps({"decisions": list(self._lines)}).encode()


def line(considered: Considered) -> dict[str, Any]:
    """Describe one review for the log; no part of the object's body is in it."""
    review, outcome = considered.review, considered.outcome
    found: dict[str, Any] = {
        "msg": "restored" if outcome is None else "decided",
        "uid": review.uid,
        "operation": review.operation,
        "namespace": review.namespace,
        "name": review.name or _generate_name(review.object),
        "dryRun": review.dry_run,
    }
    if outcome is None:
        return {**found, "restored": considered.restored}
    if outcome.skip is not None:
        return {**found, "msg": "skipped", "reason": str(outcome.skip)}
    if outcome.decision is not None:
        found["decision"] = explain.decision_json(outcome.decision)
    return found


def _generate_name(source: Mapping[str, Any]) -> str:
    metadata = source.get("metadata")
    return str(metadata.get("generateName", "")) if isinstance(metadata, dict) else ""
