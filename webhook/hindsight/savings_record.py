"""What the leading controller publishes of its replays: one bounded record, and its ConfigMap.

It holds gains by policy and namespace, and decisions that cannot be found on Jobs. Pure, and it
must not import replays: every observer reads it.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final

from pydantic import Field, TypeAdapter, ValidationError

from webhook.api.resources import RUN_TIMES_LABEL, SAVINGS, SAVINGS_VALUE
from webhook.decide.decision_record import RecordedOption
from webhook.model import fields
from webhook.model.fields import FieldError, field_errors
from webhook.model.job import PLAIN

MOST_DECISIONS: Final = 500
MOST_HOURS: Final = 2000
"""Rows, each of one hour, policy and namespace."""
MOST_BYTES: Final = 700_000
"""Largest size of the record, compressed; etcd takes 1 MiB."""
_MOST_TEXT: Final = 16_000_000
"""Largest size of the record as text; we write none that is larger."""
_VERSION: Final = "2"

Unix = Annotated[float, Field(ge=0, lt=1 << 32)]
"""Seconds since 1970; a time beyond is not plausible."""
Finite = Annotated[float, Field(allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gained:
    """What one policy's decisions on finished Jobs have gained in one namespace.

    Two replays of the journal are compared: with these decisions and without. If the policy
    observes or advises, it is what they would have gained.
    """

    policy: str
    namespace: str
    mode: str
    since: Unix
    jobs: int
    moved: int
    saved_seconds: Finite
    margin_seconds: Finite
    """Error of *saved_seconds*."""
    slower: int
    spent: Mapping[str, Finite] = field(default_factory=dict)
    """What its Jobs have cost: ``money``, ``kwh`` and ``grams``, as far as it is known."""
    saved: Mapping[str, Finite] = field(default_factory=dict)
    """Amounts saved compared with the Jobs as submitted; below 0: they cost more."""
    late: int = 0
    """Jobs that ended after their deadline, of the ``deadlines`` Jobs that have one."""
    deadlines: int = 0
    device_hours: Finite = 0.0
    """Hours of devices that were given back; negative: more were taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GainedHour:
    """What Jobs of one policy and namespace that came in one hour have gained and lost."""

    at: Unix
    """When the hour began."""
    policy: str
    namespace: str
    is_enforced: bool
    """Whether it was so; else it would have been."""
    jobs: int
    gained_seconds: Finite
    """Seconds by which Jobs were done sooner."""
    lost_seconds: Finite
    """Seconds by which Jobs were done later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMove:
    at: Unix
    option: str
    """The option that it was moved to."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDecision:
    """A decision as the console shows it, of the log or a Job.

    Those are published that no decision's label on a Job finds: of Jobs that are over.
    """

    id: str
    at: Unix
    namespace: str
    job: str
    """``Job.reference``: with the kind, where that is another than Job."""
    policy: str
    mode: str
    option: str
    """Empty: left alone."""
    queue: str
    """Queue that the Job went to; under Observe and Advise, would have."""
    reason: str
    options: tuple[RecordedOption, ...] = ()
    moves: tuple[ShownMove, ...] = ()
    is_replayed: bool = False
    """Made by a replay of the journal, in place of one that only another replica knows."""
    kind: str = PLAIN
    is_unverified: bool = False
    """Read from the Job alone, and not in the decision log of this replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingsRecord:
    as_of: Unix
    """When the journal was read."""
    gained: tuple[Gained, ...] = ()
    decisions: tuple[ShownDecision, ...] = ()
    """The newest first."""
    currency: str = ""
    """What money is in; empty: not known."""
    hours: tuple[GainedHour, ...] = ()
    """By hour; the newest first."""


_RECORD: Final = TypeAdapter(SavingsRecord)


def packed(record: SavingsRecord) -> bytes:
    """Return the record, compressed; while it is too large, what is older in it goes by halves.

    It is what one process tells another, and what stands in the ConfigMap.
    """
    while len(written := _packed(record)) > MOST_BYTES and (record.decisions or record.hours):
        decisions = record.decisions[: len(record.decisions) // 2]
        hours = record.hours[: len(record.hours) // 2]
        record = replace(record, decisions=decisions, hours=hours)
    return written


def config_map(written: bytes) -> Mapping[str, Any]:
    """Return the ConfigMap of a packed record; without namespace and resourceVersion."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": SAVINGS, "labels": {RUN_TIMES_LABEL: SAVINGS_VALUE}},
        "data": {"version": _VERSION},
        "binaryData": {"savings": b64encode(written).decode()},
    }


def _packed(record: SavingsRecord) -> bytes:
    return zlib.compress(_RECORD.dump_json(record, by_alias=True, exclude_defaults=True), 6)


def read_savings(source: Mapping[str, Any]) -> SavingsRecord:
    """Read the record from its ConfigMap.

    Raises:
        FieldError: it is of another version, or a value in it is not valid.
        ValueError: the compressed text is damaged.
        zlib.error: likewise.

    """
    if fields.texts(source, "data", "").get("version") != _VERSION:
        raise FieldError("data.version", f"expected {_VERSION}")
    written = b64decode(fields.texts(source, "binaryData", "").get("savings", ""))
    text = zlib.decompressobj().decompress(written, _MOST_TEXT)
    try:
        return _RECORD.validate_json(text, strict=True)
    except ValidationError as error:
        first = field_errors(error, {})[0]
        raise FieldError(f"savings.{first.path}".rstrip("."), first.message) from None
