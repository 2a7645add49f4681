"""What the leading controller publishes of its looks back: one bounded record, and its ConfigMap.

It holds gains by policy and namespace, and decisions that cannot be found on Jobs. Pure, and it
must not import replays: every observer reads it.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from webhook.api.resources import RUN_TIMES_LABEL, SAVINGS, SAVINGS_VALUE
from webhook.hindsight.journal import WeighedOption
from webhook.model import fields
from webhook.model.fields import FieldError, child

MOST_DECISIONS: Final = 500
MOST_BYTES: Final = 700_000
"""Of the record, compressed; etcd takes 1 MiB."""
_MOST_TEXT: Final = 16_000_000
"""Of the record, as text: what is larger was not written by us."""
_VERSION: Final = "1"
_LAST: Final = 1 << 32
"""Seconds since 1970; a time beyond is not plausible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gained:
    """What one policy's decisions on finished Jobs have gained in one namespace.

    Two replays of the journal are compared: with these decisions and without. If the policy
    observes or advises, it is what they would have gained.
    """

    policy: str
    namespace: str
    mode: str
    since: float
    """Seconds since 1970."""
    jobs: int
    moved: int
    saved_seconds: float
    margin_seconds: float
    """By so much *saved_seconds* may be wrong."""
    slower: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDecision:
    """A decision on a finished Job that cannot be found by the label of a decision."""

    id: str
    at: float
    """Seconds since 1970."""
    namespace: str
    job: str
    policy: str
    mode: str
    """Advise: its advice, as the journal has it; Observe: what a replay decides."""
    option: str
    queue: str
    reason: str
    options: tuple[WeighedOption, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingsRecord:
    as_of: float
    """When the journal was read, in seconds since 1970."""
    gained: tuple[Gained, ...] = ()
    decisions: tuple[PastDecision, ...] = ()
    """The newest first."""


def config_map(record: SavingsRecord) -> Mapping[str, Any]:
    """Return the record's ConfigMap; without namespace and resourceVersion.

    If it is too large, the older half of its decisions is dropped, and again.
    """
    while len(packed := _packed(record)) > MOST_BYTES and record.decisions:
        kept = record.decisions[: len(record.decisions) // 2]
        record = replace(record, decisions=kept)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": SAVINGS, "labels": {RUN_TIMES_LABEL: SAVINGS_VALUE}},
        "data": {"version": _VERSION},
        "binaryData": {"savings": b64encode(packed).decode()},
    }


def _packed(record: SavingsRecord) -> bytes:
    text = json.dumps(asdict(record), separators=(",", ":"), ensure_ascii=False)
    return zlib.compress(text.encode(), 6)


def read_savings(source: Mapping[str, Any]) -> SavingsRecord:
    """Read the record from its ConfigMap.

    Raises:
        FieldError: it is of another version, or what it says cannot be meant.
        ValueError: what is packed there is damaged; so does ``zlib.error`` say.

    """
    if fields.texts(source, "data", "").get("version") != _VERSION:
        raise FieldError("data.version", f"expected {_VERSION}")
    packed = b64decode(fields.texts(source, "binaryData", "").get("savings", ""))
    text = zlib.decompressobj().decompress(packed, _MOST_TEXT).decode()
    found = fields.from_json(text, "savings", longest=_MOST_TEXT)
    return SavingsRecord(
        as_of=_unix(found, "as_of", "savings"),
        gained=tuple(_read_gained(*each) for each in fields.objects(found, "gained", "savings")),
        decisions=tuple(
            _read_decision(*each)
            for each in fields.objects(found, "decisions", "savings")[:MOST_DECISIONS]
        ),
    )


def _read_gained(source: Mapping[str, Any], path: str) -> Gained:
    return Gained(
        policy=fields.text(source, "policy", path),
        namespace=fields.text(source, "namespace", path),
        mode=fields.text(source, "mode", path),
        since=_unix(source, "since", path),
        jobs=fields.integer(source, "jobs", path) or 0,
        moved=fields.integer(source, "moved", path) or 0,
        saved_seconds=_number(source, "saved_seconds", path) or 0.0,
        margin_seconds=_number(source, "margin_seconds", path) or 0.0,
        slower=fields.integer(source, "slower", path) or 0,
    )


def _read_decision(source: Mapping[str, Any], path: str) -> PastDecision:
    return PastDecision(
        id=fields.text(source, "id", path),
        at=_unix(source, "at", path),
        namespace=fields.text(source, "namespace", path),
        job=fields.text(source, "job", path),
        policy=fields.text(source, "policy", path),
        mode=fields.text(source, "mode", path),
        option=fields.text(source, "option", path),
        queue=fields.text(source, "queue", path),
        reason=fields.text(source, "reason", path),
        options=tuple(_read_option(*each) for each in fields.objects(source, "options", path)),
    )


def _read_option(source: Mapping[str, Any], path: str) -> WeighedOption:
    return WeighedOption(
        option=fields.text(source, "option", path),
        queue=fields.text(source, "queue", path),
        starts_in=_number(source, "starts_in", path),
        runs=_number(source, "runs", path),
        finishes_in=_number(source, "finishes_in", path),
        rejected=fields.text(source, "rejected", path),
    )


def _unix(source: Mapping[str, Any], key: str, path: str) -> float:
    found = _number(source, key, path)
    if found is None or not 0 <= found < _LAST:
        raise FieldError(child(path, key), "expected seconds since 1970")
    return found


def _number(source: Mapping[str, Any], key: str, path: str) -> float | None:
    value = source.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FieldError(child(path, key), f"expected a number, got {fields.kind_of(value)}")
    return float(value)
