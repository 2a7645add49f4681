"""One JSON line a decision, written by a thread: a stalled stdout delays no admission."""

from __future__ import annotations

import json
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from webhook.decide import explain
from webhook.handler import Considered

CAPACITY = 10_000
_CLOSE = None


class DecisionLog:
    """A bounded queue and its writer; when it is full, lines are dropped and counted."""

    def __init__(self, stream: TextIO, on_dropped: Callable[[], None]) -> None:
        self._stream = stream
        self._on_dropped = on_dropped
        self._lines: queue.Queue[Mapping[str, Any] | None] = queue.Queue(CAPACITY)
        self._thread = threading.Thread(target=self._write, name="decision-log", daemon=True)
        self._thread.start()

    def put(self, line: Mapping[str, Any]) -> None:
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._on_dropped()

    def close(self) -> None:
        """Write what is queued, and end."""
        self._lines.put(_CLOSE)
        self._thread.join(timeout=2)

    def _write(self) -> None:
        while (line := self._lines.get()) is not _CLOSE:
            print(json.dumps(line, separators=(",", ":")), file=self._stream, flush=True)


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
