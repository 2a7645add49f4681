"""What the leading controller publishes of its replays: one bounded record, and its ConfigMap.

It holds gains by policy and namespace, and decisions that cannot be found on Jobs. Pure, and it
must not import replays: every observer reads it.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from dataclasses import fields as fields_of
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    WrapSerializer,
)

from webhook.api.resources import RUN_TIMES_LABEL, SAVINGS, SAVINGS_VALUE
from webhook.decide.decision_record import Recorded, whole
from webhook.model import fields
from webhook.model.decision import Stay
from webhook.model.fields import FieldError, field_errors
from webhook.model.job import PLAIN
from webhook.model.policy.fallback_policy import Mode

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


class Sum(NamedTuple):
    """A sum over Jobs."""

    amount: Finite
    jobs: int
    """For how many Jobs it is known."""


Sums: TypeAlias = Mapping[str, Sum]
"""By what is summed up: ``money``, ``kwh`` and ``grams``; what is known of no Job is not there."""


def rounded(sums: Sums) -> dict[str, float]:
    """Return the amounts to six digits that count: more are not known, and take room."""
    return {kind: float(f"{total.amount:.6g}") for kind, total in sums.items()}


JOURNAL: Final = "journal"
FORECASTS: Final = "forecasts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gained:
    """What decisions on some Jobs have gained: two replays compared, with decisions and without.

    If the policy observes or advises, it is what they would have gained. Whatever is shown of
    gains, by whatever Jobs have in common, is this value, and ``added`` is the only way in which
    those of Jobs become one of many.
    """

    policy: str = ""
    """Empty, as what follows: no policy matches them, or they are of several."""
    namespace: str = ""
    kind: str = ""
    mode: str = ""
    """The mode that held."""
    cluster: str = ""
    """The worker cluster in which they ran; empty: none."""
    since: Unix = 0.0
    """When they came, the first of them at the earliest."""
    seen: int = 0
    unseen: int = 0
    """Seen Jobs that are in no replay, because a worker cluster's state is unknown."""
    started: int = 0
    ended: int = 0
    """Seen Jobs that ran and have ended."""
    jobs: int = 0
    """Seen Jobs that have ended and are compared: all times but *waited_seconds* are sums over
    these."""
    moved: int = 0
    """Seen Jobs that were moved, at their creation or later; or that would have been."""
    reconsidered: int = 0
    """Seen Jobs that were moved while they were pending."""
    assumed: int = 0
    """Moved Jobs whose run time in the other option comes only from the policy."""
    stayed: Mapping[str, int] = field(default_factory=dict)
    """Why seen Jobs that a policy matches were not moved, to their number."""
    waited_seconds: Finite = 0.0
    """From arrival to admission, of those that have started."""
    before_seconds: Finite = 0.0
    """From arrival to end, without decisions."""
    gained_seconds: Finite = 0.0
    """By which Jobs were done sooner."""
    lost_seconds: Finite = 0.0
    """By which Jobs were done later."""
    by_others_seconds: Finite = 0.0
    """Part of *saved_seconds* of Jobs that were not moved, because others were."""
    margin_seconds: Finite = 0.0
    """Error of *saved_seconds*, as far as it is known."""
    slower: int = 0
    """Jobs that were noticeably later."""
    device_hours: Finite = 0.0
    """Hours of devices that were given back; negative: more were taken."""
    spent: Sums = field(default_factory=dict)
    """What those that have ended have cost."""
    saved: Sums = field(default_factory=dict)
    """Amounts saved compared with the Jobs as submitted; below 0: they cost more."""
    late: int = 0
    """Jobs that ended after their deadline, of the ``deadlines`` Jobs that have one."""
    deadlines: int = 0
    rests: str = JOURNAL
    """``journal``: replays are compared; ``forecasts``: what decisions expected."""

    @property
    def is_enforced(self) -> bool:
        """Return whether it was so; else it would have been."""
        return self.mode == Mode.ENFORCE

    @property
    def saved_seconds(self) -> float:
        """Return by how many seconds all together were done sooner."""
        return self.gained_seconds - self.lost_seconds

    @property
    def after_seconds(self) -> float:
        """Return the time from arrival to end, with decisions."""
        return self.before_seconds - self.saved_seconds

    @property
    def percent(self) -> float:
        """Return by how many percent the Jobs were done sooner."""
        return 100 * self.saved_seconds / self.before_seconds if self.before_seconds else 0.0


_NAMES: Final = ("policy", "namespace", "kind", "mode", "cluster", "since", "rests")
_BY_KIND: Final = ("stayed", "spent", "saved")
_ADDED: Final = tuple(
    named.name for named in fields_of(Gained) if named.name not in {*_NAMES, *_BY_KIND}
)


def added(gains: Iterable[Gained], **named: Any) -> Gained:
    """Add up gains; *named* is what those of all Jobs have in common."""
    parts = tuple(gains)
    stayed: Counter[str] = Counter()
    for part in parts:
        stayed.update(part.stayed)
    return Gained(
        **{name: sum(getattr(part, name) for part in parts) for name in _ADDED},
        stayed=dict(sorted(stayed.items())),
        spent=_together(part.spent for part in parts),
        saved=_together(part.saved for part in parts),
        **named,
    )


def _together(of_parts: Iterable[Sums]) -> Sums:
    total: dict[str, Sum] = {}
    for sums in of_parts:
        for kind, (amount, jobs) in sums.items():
            before = total.get(kind, Sum(0.0, 0))
            total[kind] = Sum(before.amount + amount, before.jobs + jobs)
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDecision:
    """A recorded decision with its Job, of the log or a Job, as the console shows it.

    Those are published that no decision's label on a Job finds: of Jobs that are over.
    """

    recorded: Recorded
    at: Unix
    """When it was made; of what only a Job says, as far as the API server's times confirm it."""
    namespace: str
    job: str
    """``Job.reference``: with the kind, where that is another than Job."""
    queue: str
    """Queue that the Job went to; under Observe and Advise, would have."""
    is_replayed: bool = False
    """Made by a replay of the journal, in place of one that only another replica knows."""
    kind: str = PLAIN
    is_unverified: bool = False
    """Read from the Job alone, and not in the decision log of this replica."""

    @property
    def option(self) -> str:
        """The option taken; empty: left alone."""
        return self.recorded.option or ""

    @property
    def moves(self) -> tuple[Stay, ...]:
        """The stays that the Job was moved to; its first one is where it began."""
        stays = self.recorded.history
        return stays[max(0, len(stays) - self.recorded.moves) :]


_OF_A_DECISION: Final = (
    *("id", "at", "namespace", "job", "policy", "mode", "option", "queue", "reason", "options"),
    *("is_replayed", "kind"),
)
"""What is published of a decision, in one object."""


def _flat(decision: ShownDecision, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
    written: dict[str, Any] = write(decision)
    every = {"option": "", **written.pop("recorded"), **written}
    return {name: every[name] for name in _OF_A_DECISION if name in every}


def _nested(given: Any) -> Any:
    return {**given, "recorded": whole(given)} if isinstance(given, dict) else given


_Published = Annotated[ShownDecision, BeforeValidator(_nested), WrapSerializer(_flat)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingsRecord:
    # Recorded decisions are as lenient here as on a Job.
    __pydantic_config__ = ConfigDict(strict=True)

    as_of: Unix
    """When the journal was read."""
    gained: tuple[Gained, ...] = ()
    """By policy and namespace."""
    decisions: tuple[_Published, ...] = ()
    """The newest first."""
    currency: str = ""
    """What money is in; empty: not known."""
    hours: tuple[Gained, ...] = ()
    """By the hour in which Jobs came, policy and namespace; the newest first."""


_RECORD: Final = TypeAdapter(SavingsRecord)
_OF_AN_HOUR: Final = frozenset(
    {"policy", "namespace", "mode", "since", "jobs", "gained_seconds", "lost_seconds"}
)
_OF_A_POLICY: Final = _OF_AN_HOUR | {
    *("moved", "slower", "margin_seconds", "device_hours"),
    *("spent", "saved", "late", "deadlines"),
}
"""What is published of gains; there is room for some thousands."""
_LEFT_OUT: Final = {
    name: {"__all__": {named.name for named in fields_of(Gained)} - kept}
    for name, kept in (("gained", _OF_A_POLICY), ("hours", _OF_AN_HOUR))
}


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
    written = _RECORD.dump_json(record, by_alias=True, exclude=_LEFT_OUT, exclude_defaults=True)
    return zlib.compress(written, 6)


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
        return _RECORD.validate_json(text)
    except ValidationError as error:
        first = field_errors(error, {})[0]
        raise FieldError(f"savings.{first.path}".rstrip("."), first.message) from None
