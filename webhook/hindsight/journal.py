"""What is remembered of a Job that is over: as it came, what was decided, and what then happened.

A journal is a set of such entries. One is a line of JSON; equal templates are written once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from sys import intern
from typing import Any, Final

from webhook.model import fields
from webhook.model.faults import attempted
from webhook.model.fields import EMPTY

SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
GONE: Final = "Gone"
"""Deleted, or ended by Kueue, before its pods were done."""
_LONGEST_LINE: Final = 400_000
"""Characters; what is written has a few thousand, and had as many as an object may be large."""
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One option as the decision saw it; seconds from the decision on, None: not known."""

    option: str
    queue: str
    starts_in: float | None = None
    runs: float | None = None
    finishes_in: float | None = None
    rejected: str = ""
    """The reason's name; empty: it could have been taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One Workload of a Job; times in seconds since 1970, 0: it has not come to that."""

    key: str
    """The Workload's uid."""
    uid: str
    """The Job's; empty: something else owns it."""
    namespace: str
    name: str
    created: float
    admitted: int = 0
    finished: int = 0
    outcome: str = ""
    """Empty: it is not over."""
    queue: str
    """The LocalQueue that it ended up in."""
    cluster_queue: str = ""
    cluster: str = ""
    """The worker cluster that it was sent to; empty: none, or it is not known."""
    flavors: str = ""
    job_class: str = ""
    coarse: str = ""
    submitted: str
    """The spec that it was submitted with, cut down, as JSON."""
    ran: str
    """The same for what it became; equal where nothing was adapted."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """As it was submitted."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    policy: str = ""
    """That decided; empty: no decision stands on it."""
    mode: str = ""
    option: str = ""
    """Empty: left as submitted."""
    left_alone: str = ""
    decided_in: float = 0.0
    """Seconds from its creation to the decision that stands on it; moves are later."""
    moves: int = 0
    offers: tuple[Offer, ...] = ()


_TEXTS: Final = {
    "k": "key",
    "u": "uid",
    "ns": "namespace",
    "n": "name",
    "o": "outcome",
    "q": "queue",
    "cq": "cluster_queue",
    "cl": "cluster",
    "f": "flavors",
    "c": "job_class",
    "cc": "coarse",
    "p": "policy",
    "m": "mode",
    "op": "option",
    "la": "left_alone",
}
"""Short, because there are thousands: key of the line to the field."""


def write(entries: Iterable[Entry]) -> str:
    """Write entries one a line, in the order of their keys, after a line with their templates."""
    templates: dict[str, str] = {}
    lines = []
    for entry in sorted(entries, key=lambda each: each.key):
        for text in (entry.submitted, entry.ran):
            templates[_digest(text)] = text
        lines.append(write_one(entry))
    return "\n".join((_ENCODER.encode(dict(sorted(templates.items()))), *lines))


def write_one(entry: Entry) -> str:
    """Write one entry's line, which names its templates."""
    return _ENCODER.encode(_line(entry))


def read(text: str) -> tuple[Entry, ...]:
    """Read what ``write`` wrote; damaged lines are passed over.

    Raises:
        FieldError: the templates cannot be read.

    """
    head, *lines = text.split("\n")
    templates = fields.from_json(head, "templates", longest=len(text))
    found = (attempted(partial(_entry, line, templates))[0] for line in lines if line)
    return tuple(each for each in found if each is not None)


def _line(entry: Entry) -> dict[str, Any]:
    found = {short: getattr(entry, name) for short, name in _TEXTS.items()}
    found |= {
        "t": [round(entry.created, 3), entry.admitted, entry.finished],
        "s": _digest(entry.submitted),
        "r": _digest(entry.ran) if entry.ran != entry.submitted else "",
        "l": dict(entry.labels),
        "a": dict(entry.annotations),
        "d": round(entry.decided_in, 3),
        "mv": entry.moves,
        "of": [_offer_line(each) for each in entry.offers],
    }
    return {short: value for short, value in found.items() if value}


def _offer_line(offer: Offer) -> list[Any]:
    seconds = (offer.starts_in, offer.runs, offer.finishes_in)
    return [offer.option, offer.queue, *seconds, offer.rejected]


def _entry(line: str, templates: Mapping[str, Any]) -> Entry:
    source = fields.from_json(line, "", longest=_LONGEST_LINE)
    created, admitted, finished = fields.sequence(source, "t", "")
    submitted = fields.text(templates, fields.text(source, "s", ""), "")
    ran = fields.text(source, "r", "")
    return Entry(
        **{name: intern(fields.text(source, short, "")) for short, name in _TEXTS.items()},
        created=float(created),
        admitted=int(admitted),
        finished=int(finished),
        submitted=submitted,
        ran=fields.text(templates, ran, "") if ran else submitted,
        labels=fields.texts(source, "l", "") or EMPTY,
        annotations=fields.texts(source, "a", "") or EMPTY,
        decided_in=float(source.get("d") or 0.0),
        moves=fields.integer(source, "mv", "") or 0,
        offers=tuple(_offer(each) for each in fields.sequence(source, "of", "")),
    )


def _offer(item: Any) -> Offer:
    option, queue, starts_in, runs, finishes_in, rejected = item
    return Offer(
        option=intern(str(option)),
        queue=intern(str(queue)),
        starts_in=_seconds(starts_in),
        runs=_seconds(runs),
        finishes_in=_seconds(finishes_in),
        rejected=intern(str(rejected)),
    )


def _seconds(value: Any) -> float | None:
    return None if value is None else float(value)


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=6).hexdigest()
