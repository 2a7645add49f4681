"""One JSON line a decision, written by a thread, so that a stalled stdout delays no review.

A line is passed on once a Workload of its Job was observed: whoever reaches the port can ask about
Jobs that nobody creates, and what shows decisions must not fill with them.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TextIO

from webhook.admission.review import Review
from webhook.decide import decision_record
from webhook.learn import job_class as jobs_class
from webhook.metric_table import NO_OPTION
from webhook.model import faults, job_manifest
from webhook.model.decision import (
    Decided,
    Decision,
    DecisionWith,
    Declined,
    Moved,
    Restored,
    Skipped,
    Undone,
)
from webhook.model.fields import FieldError
from webhook.model.flags import Named
from webhook.model.job import PLAIN, QUEUE_LABEL, Job
from webhook.serving.handler import Considered
from webhook.serving.server_metrics import DECIDED

CAPACITY = 10_000
_MOST_UNSEEN = 512
"""Lines that wait for a Workload, and keys of Workloads that wait for a line: both take less than a
second. The oldest are forgotten."""
_LONGEST_NAME = 253
"""Characters of a Kubernetes name."""
_LONGEST_LINE = 32_768
"""Characters of a line: who writes a Job writes names, keys and values in it, in any number."""
_LONGEST_TEXT = 1024
"""Characters of a text in a line that would be longer."""
_TOGETHER = 20
"""Lines in one write: more would keep the interpreter from a review for too long."""
PAUSE_SECONDS = 0.05
"""Between two passes of the writer. It is not woken for each line: that alone took an eighth of a
review's time."""


class DecisionLog:
    """A bounded queue of lines and its writer; lines beyond the bound are dropped and counted."""

    def __init__(
        self,
        stream: TextIO,
        on_dropped: Callable[[], None],
        pass_on: Callable[[Sequence[str]], None] = lambda _: None,
        named: Callable[[], Named] = Named,
    ) -> None:
        """Write lines to *stream*; *pass_on* gets those of decisions that are ``seen``, too.

        *named*: the flags and variables of which values may be written.
        """
        self._stream = stream
        self._on_dropped = on_dropped
        self._pass_on = pass_on
        self._named = named
        self._encoder = json.JSONEncoder(separators=(",", ":"), default=self._written)
        self._lines: deque[tuple[Mapping[str, Any], str]] = deque()
        """Each with the key of its decision's placement; empty: it is not passed on."""
        self._unseen: OrderedDict[str, str] = OrderedDict()
        """Key to its line; empty: its Workload was observed before the line was written."""
        self._exchange = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._write, name="decision-log", daemon=True)
        self._thread.start()

    def put(self, line: Mapping[str, Any], *, key: str = "") -> None:
        """Write a line; *key*: that of the placement with whose Workload it is passed on."""
        if len(self._lines) < CAPACITY:
            self._lines.append(({"ts": round(time.time(), 3), "level": "info", **line}, key))
        else:
            self._on_dropped()

    def seen(self, keys: Iterable[str]) -> None:
        """Pass on the lines of placements whose Workloads were observed."""
        self._pass_together(list(filter(None, (self._meet(key, "") for key in keys))))

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Write the lines that wait, and end; may be called by the writer itself."""
        self._closing.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=2)

    def _write(self) -> None:
        while not self._closing.wait(PAUSE_SECONDS):
            self._write_all()
        self._write_all()

    def _write_all(self) -> None:
        while self._lines:
            # Lines leave the bound only when they are written, so that a stalled stream fills it.
            count = min(len(self._lines), _TOGETHER)
            lines = [self._lines[index] for index in range(count)]
            encoded = [self._encoded(line) for line, _ in lines]
            keys = [key for _, key in lines]
            shown = [self._meet(*pair) for pair in zip(keys, encoded, strict=True) if all(pair)]
            self._pass_together(list(filter(None, shown)))
            self._write_together([text for text in encoded if text])
            for _ in encoded:
                self._lines.popleft()

    def _meet(self, key: str, text: str) -> str:
        """Return the line with this key, if it is written and its Workload was observed.

        *text* is the line; empty: the Workload was observed. Empty: the other of both is to come.
        """
        with self._exchange:
            if key in self._unseen and bool(self._unseen[key]) is not bool(text):
                return self._unseen.pop(key) or text
            self._unseen[key] = text
            while len(self._unseen) > _MOST_UNSEEN:
                self._unseen.popitem(last=False)
        return ""

    def _encoded(self, line: Mapping[str, Any]) -> str:
        """Return a line as JSON.

        Empty if it cannot be encoded: it is dropped, and an error logged.
        """
        try:
            return self._in_bounds(line)
        except Exception as error:  # noqa: BLE001 - one line must not end the server
            self._on_dropped()
            which = {"uid": str(line.get("uid", "")), "error": faults.describe(error)}
            self.put({"level": "error", "msg": "line not written", **which})
            return ""

    def _in_bounds(self, line: Mapping[str, Any]) -> str:
        """Return a line as JSON, without the Job and even the decision if it is too long."""
        text = self._encoder.encode(line)
        for left_out in (["job"], ["job", "decision"]):
            if len(text) > _LONGEST_LINE:
                text = self._encoder.encode(_shortened(line, left_out))
        return text

    def _written(self, value: Any) -> Any:
        """Convert a decision, or a Job to its manifest, for which a review has no time.

        Raises:
            TypeError: the value is neither.

        """
        if isinstance(value, DecisionWith):
            return decision_record.decision_json(value)
        if not isinstance(value, Job):
            raise TypeError(f"expected a Job, got {type(value).__name__}")
        try:
            job_class = jobs_class.of_job(value).key
        except FieldError:
            job_class = ""
        return job_manifest.manifest(value, job_class, self._named())

    def _pass_together(self, lines: list[str]) -> None:
        try:
            if lines:
                self._pass_on(lines)
        except Exception as error:  # noqa: BLE001 - what shows decisions is not worth the log
            self.put(
                {"level": "error", "msg": "lines not passed on", "error": faults.describe(error)}
            )

    def _write_together(self, lines: list[str]) -> None:
        try:
            # Each write releases the interpreter and wants it back in the middle of a review.
            self._stream.write("\n".join((*lines, "")))
            self._stream.flush()
        except Exception:  # noqa: BLE001 - no stream, and no text, must end the writer
            # The reader may come back; a thread that has ended would write nothing any more.
            for _ in lines:
                self._on_dropped()


def _shortened(line: Mapping[str, Any], left_out: list[str]) -> dict[str, Any]:
    """Return a line without some of its values, which it names, and with its texts cut."""
    kept = {
        key: value[:_LONGEST_TEXT] if isinstance(value, str) else value
        for key, value in line.items()
        if key not in left_out
    }
    return {**kept, "left_out": left_out}


def line(considered: Considered, seconds: float) -> dict[str, Any]:
    """Return the log line of one review, without the Job's spec, *seconds* after it came in.

    ``queue`` is where the Job goes; option and reason are the labels of the metrics.
    """
    review, outcome = considered.review, considered.outcome
    record: dict[str, Any] = {
        "msg": _MESSAGES[type(outcome)],
        **about(review),
        "dry_run": review.dry_run,
        "latency_ms": round(seconds * 1000, 3),
    }
    if isinstance(outcome, Restored):
        return {**record, "restored": len(outcome.edits)}
    record["queue"] = _text(review.object, "labels", QUEUE_LABEL)
    match outcome:
        case Skipped():
            record["reason"] = str(outcome.skip)
        case Declined():
            record["reason"] = str(outcome.obstacle)
        case Decided() | Moved():
            record["option"], record["reason"] = taken(outcome.decision)
            record["state_age_s"] = round(outcome.decision.state_age_seconds, 3)
            recorded = outcome.recorded or decision_record.record_of(outcome.decision)
            record["decision"] = recorded
        case Undone():
            pass
    return record


_MESSAGES: Final[Mapping[type, str]] = {
    Skipped: "skipped",
    Decided: "decided",
    Moved: "moved",
    Undone: "undone",
    Declined: "not moved",
    Restored: "restored",
}


def with_job(line: Mapping[str, Any], considered: Considered) -> Mapping[str, Any]:
    """Return the line with the Job as submitted, so that `simulate` can replay its arrival."""
    outcome = considered.outcome
    if considered.review.dry_run or not isinstance(outcome, (Skipped, Decided)):
        return line
    return line if outcome.job is None else {**line, "job": outcome.job}


def about(review: Review) -> dict[str, Any]:
    """Return the fields that identify a review; a Job without a name has its generateName.

    A batch Job's kind goes without saying.
    """
    # Whoever reaches the port writes them at any length.
    name = review.name[:_LONGEST_NAME] or _text(review.object, "name")
    named = {"name": name} if name else {"generateName": _text(review.object, "generateName")}
    kind = {} if review.kind[2] == PLAIN else {"kind": review.kind[2]}
    return {
        "uid": review.uid[:_LONGEST_NAME],
        "operation": review.operation,
        **kind,
        "namespace": review.namespace,
        **named,
    }


def taken(decision: Decision) -> tuple[str, str]:
    """Return option and reason as the labels of the metrics have them."""
    return decision.option or NO_OPTION, str(decision.left_alone or DECIDED)


def _text(source: Mapping[str, Any], *path: str) -> str:
    """Return a name below ``metadata``, or empty; in a review that failed it may be anything."""
    node: Any = source.get("metadata")
    for part in path:
        node = node.get(part) if isinstance(node, dict) else None
    return node[:_LONGEST_NAME] if isinstance(node, str) else ""
