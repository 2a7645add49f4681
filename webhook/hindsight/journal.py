"""The journal: entries of finished Jobs, their lines of JSON, and their ConfigMaps.

An entry holds how a Job was submitted, decided and run; equal templates are written once. Each
ConfigMap holds the entries of one hour, bounded so that no namespace crowds out another.
"""

from __future__ import annotations

import heapq
import json
import zlib
from base64 import b64decode, b64encode
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from sys import intern
from typing import Any, Final, NamedTuple

from webhook.api.kubernetes_api import KubernetesApi, NotServed
from webhook.api.resources import JOURNAL, JOURNAL_VALUE, RUN_TIMES_LABEL
from webhook.decide.decision_record import OptionFigures
from webhook.model import fields
from webhook.model.costs.prices import Cost
from webhook.model.faults import attempted
from webhook.model.fields import EMPTY
from webhook.model.job import PLAIN, reference_of
from webhook.model.queues import FlavorResource
from webhook.state.run_records_reader import path_of
from webhook.state.workload_charges import Charge

SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
GONE: Final = "Gone"
"""Deleted, or ended by Kueue, before its pods were done."""
_LONGEST_LINE: Final = 400_000
"""Characters; an entry has a few thousand, in older versions up to the size of an object."""
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One Workload of a Job; times in seconds since 1970, 0: not reached."""

    key: str
    """The Workload's uid."""
    uid: str
    """The Job's uid; empty: something else owns it."""
    namespace: str
    name: str
    created: float
    admitted: int = 0
    finished: int = 0
    outcome: str = ""
    """Empty: it is not finished."""
    kind: str = PLAIN
    queue: str
    """The LocalQueue that it was last in."""
    cluster_queue: str = ""
    cluster: str = ""
    """The worker cluster that it was sent to; empty: none, or it is not known."""
    flavors: str = ""
    job_class: str = ""
    coarse: str = ""
    submitted: str
    """The spec that it was submitted with, reduced, as JSON."""
    ran: str
    """The spec that it ran with, likewise; equal if nothing was adapted."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """As it was submitted."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    policy: str = ""
    """The policy that decided; empty: it carries no decision."""
    mode: str = ""
    option: str = ""
    """Empty: left as submitted."""
    left_alone: str = ""
    decided_in: float = 0.0
    """Seconds from its creation to its last decision; moves count."""
    moves: int = 0
    offers: tuple[OptionFigures, ...] = ()
    used: Charge = ()
    """The quota that it held, all its pods together; empty: not known."""
    expected_cost: Cost | None = None
    """What its decision expected it to cost as it was submitted."""

    @property
    def reference(self) -> str:
        """The Job's name within its namespace, such as ``rayjob/train``."""
        return reference_of(self.kind, self.name)


_TEXTS: Final = {
    "k": "key",
    "u": "uid",
    "kd": "kind",
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
_ITS_OWN: Final = frozenset({"key", "uid", "name"})
"""Fields whose texts no other entry has: Python's table of shared strings would grow by all that
are read at once, and never shrinks."""


def write(entries: Iterable[JournalEntry]) -> str:
    """Return entries one a line, in the order of their keys, after a line with their templates."""
    templates: dict[str, str] = {}
    lines = []
    for entry in sorted(entries, key=lambda each: each.key):
        for text in (entry.submitted, entry.ran):
            templates[_digest(text)] = text
        lines.append(write_one(entry))
    return "\n".join((_ENCODER.encode(dict(sorted(templates.items()))), *lines))


def write_one(entry: JournalEntry) -> str:
    """Return one entry's line, which names its templates."""
    return _ENCODER.encode(_line(entry))


def read(text: str) -> Iterator[JournalEntry]:
    """Read what ``write`` wrote, entry by entry; damaged lines are skipped.

    Raises:
        FieldError: the templates cannot be read.

    """
    head, *lines = text.split("\n")
    templates = fields.from_json(head, "templates", longest=len(text))
    entries = (attempted(partial(_entry, line, templates))[0] for line in lines if line)
    return (entry for entry in entries if entry is not None)


def _line(entry: JournalEntry) -> dict[str, Any]:
    line = {short: getattr(entry, name) for short, name in _TEXTS.items()}
    # Batch Jobs are most, and older entries are all of them.
    line["kd"] = "" if entry.kind == PLAIN else entry.kind
    line |= {
        "t": [round(entry.created, 3), entry.admitted, entry.finished],
        "s": _digest(entry.submitted),
        "r": _digest(entry.ran) if entry.ran != entry.submitted else "",
        "l": dict(entry.labels),
        "a": dict(entry.annotations),
        "d": round(entry.decided_in, 3),
        "mv": entry.moves,
        "of": [_offer_line(offer) for offer in entry.offers],
        "us": [[*cell, amount] for cell, amount in entry.used],
        "xc": _cost_line(entry.expected_cost),
    }
    return {short: value for short, value in line.items() if value}


def _cost_line(cost: Cost | None) -> list[float | None]:
    if cost is None:
        return []
    return [cost.money, cost.electricity, cost.kwh, cost.carbon_grams]


def _offer_line(offer: OptionFigures) -> list[Any]:
    seconds = (offer.starts_in, offer.runs, offer.finishes_in)
    passed = [offer.passed_over] if offer.passed_over else []
    return [offer.name, offer.queue, *seconds, offer.rejected, *passed]


def _entry(line: str, templates: Mapping[str, Any]) -> JournalEntry:
    source = fields.from_json(line, "", longest=_LONGEST_LINE)
    created, admitted, finished = fields.sequence(source, "t", "")
    submitted = fields.text(templates, fields.text(source, "s", ""), "")
    ran = fields.text(source, "r", "")
    texts = {name: _shared(name, fields.text(source, short, "")) for short, name in _TEXTS.items()}
    return JournalEntry(
        **{**texts, "kind": texts["kind"] or PLAIN},
        created=float(created),
        admitted=int(admitted),
        finished=int(finished),
        submitted=submitted,
        ran=fields.text(templates, ran, "") if ran else submitted,
        labels=fields.texts(source, "l", "") or EMPTY,
        annotations=fields.texts(source, "a", "") or EMPTY,
        decided_in=float(source.get("d") or 0.0),
        moves=fields.integer(source, "mv", "") or 0,
        offers=tuple(_offer(offer) for offer in fields.sequence(source, "of", "")),
        used=tuple(_used(cell) for cell in fields.sequence(source, "us", "")),
        expected_cost=_cost(fields.sequence(source, "xc", "")),
    )


def _used(line: Any) -> tuple[FlavorResource, int]:
    flavor, resource, amount = line
    return (intern(str(flavor)), intern(str(resource))), int(amount)


def _cost(line: Sequence[Any]) -> Cost | None:
    if not line:
        return None
    money, electricity, kwh, carbon_grams = map(_known, line)
    return Cost(money=money, electricity=electricity, kwh=kwh, carbon_grams=carbon_grams)


def _shared(field_name: str, text: str) -> str:
    return text if field_name in _ITS_OWN else intern(text)


def _offer(line: Any) -> OptionFigures:
    option, queue, starts_in, runs, finishes_in, rejected, *passed = line
    return OptionFigures(
        name=intern(str(option)),
        queue=intern(str(queue)),
        starts_in=_known(starts_in),
        runs=_known(runs),
        finishes_in=_known(finishes_in),
        rejected=intern(str(rejected)),
        passed_over=intern(str(passed[0])) if passed else "",
    )


def _known(value: Any) -> float | None:
    return None if value is None else float(value)


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=6).hexdigest()


SHARDS: Final = 192
"""More hours than are ever kept, so that a setting changes what is kept and never where it lies.
A multiple of 32: where there were so many, an hour is too old by the time its place is taken."""
LONGEST_DAYS: Final = 7
SLOT_SECONDS: Final = 3600
_DAY_HOURS: Final = 24
_SPARE_HOURS: Final = 8
"""Kept beyond whole days."""
MOST_ENTRIES: Final = 5_000
"""In one hour; others are counted and left out."""
MOST_BYTES: Final = 700_000
"""Largest size of one ConfigMap, compressed; etcd takes 1 MiB."""
MOST_TEXT: Final = 8_000_000
"""Characters of one ConfigMap before it is packed. The fullest hour has 3 million; what packs well,
as a tenant may have it, would take hundreds of megabytes of whoever reads it."""
_MOST_READ: Final = 4 * MOST_TEXT
"""Bytes of it that are read: what is larger was not written by us."""
_SHED_AT_ONCE: Final = 8
"""One part in so many is dropped before it is packed again."""
_LONGEST_NUMBER: Final = 15
_VERSION: Final = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The entries of Jobs that ended within one hour."""

    number: int
    """Hours since 1970."""
    entries: Mapping[str, JournalEntry]
    """By key."""
    left_out: int = 0

    def merged(self, entries: Iterable[JournalEntry]) -> Slot:
        """Add entries; known keys keep their entry.

        If there are too many, those of the namespace that has most of them are dropped.
        """
        by_key = dict(self.entries)
        for added in entries:
            by_key.setdefault(added.key, added)
        kept = _without(by_key.values(), len(by_key) - MOST_ENTRIES, lambda _: 1)
        left_out = self.left_out + len(by_key) - len(kept)
        return Slot(
            number=self.number, entries={entry.key: entry for entry in kept}, left_out=left_out
        )


def slot_of(finished: float) -> int:
    return int(finished) // SLOT_SECONDS


def name_of(slot: int) -> str:
    return f"{JOURNAL}-{slot % SHARDS}"


def hours_kept(days: int) -> int:
    """Return how many slots are kept, with the one of now: those days, and some hours."""
    return days * _DAY_HOURS + _SPARE_HOURS


def oldest_kept(now: float, days: int) -> int:
    """Return the oldest slot that is kept; ``journal_days`` says for how many days."""
    return slot_of(now) - hours_kept(days) + 1


def oldest_held(now: float) -> int:
    """Return the oldest slot whose ConfigMap no newer one has replaced."""
    return slot_of(now) - SHARDS + 1


def config_map(slot: Slot) -> Mapping[str, Any]:
    """Return the ConfigMap of one slot; without namespace and resourceVersion.

    If it is too large, the largest entries are dropped, of the namespace that takes most room.
    """
    entries = sorted(slot.entries.values(), key=_age)
    entries = _shed(entries, lambda total: total - MOST_TEXT)
    while len(packed := _packed(entries)) > MOST_BYTES:
        entries = _shed(entries, lambda total: max(1, total // _SHED_AT_ONCE))
    left_out = slot.left_out + len(slot.entries) - len(entries)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name_of(slot.number), "labels": {RUN_TIMES_LABEL: JOURNAL_VALUE}},
        "data": {"version": _VERSION, "hour": str(slot.number), "leftOut": str(left_out)},
        "binaryData": {"entries": b64encode(packed).decode()},
    }


def _shed(entries: list[JournalEntry], surplus: Callable[[int], int]) -> list[JournalEntry]:
    """Drop so many characters as *surplus* tells of their total."""
    sizes = _sizes(entries)
    left_over = surplus(sum(sizes.values()))
    if left_over <= 0:
        return entries
    return _without(entries, left_over, lambda entry: sizes[entry.key])


def read_slot(
    source: Mapping[str, Any], *, most: int = MOST_ENTRIES, oldest: int = 0
) -> Slot | None:
    """Read the newest entries of one slot, at most *most*.

    None: of another version, damaged, or of an hour before *oldest*, which costs nothing.
    """
    return attempted(lambda: _slot(source, most, oldest))[0]


def _slot(source: Mapping[str, Any], most: int, oldest: int) -> Slot | None:
    data = fields.texts(source, "data", "")
    if data.get("version") != _VERSION or _number(data["hour"]) < oldest:
        return None
    packed = b64decode(fields.texts(source, "binaryData", "").get("entries", ""))
    text = zlib.decompressobj().decompress(packed, _MOST_READ).decode()
    return Slot(
        number=_number(data["hour"]),
        # The others are dropped as they are read: all at once would take the memory of two hours.
        entries={entry.key: entry for entry in heapq.nsmallest(most, read(text), key=_newness)},
        left_out=_number(data.get("leftOut", "0")),
    )


def _number(text: str) -> int:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


class NewestEntries(NamedTuple):
    entries: tuple[JournalEntry, ...]
    left_out: int
    """In the hours that were read; entries older than these are not counted."""


def newest(transport: KubernetesApi, namespace: str, unix: float, most: int) -> NewestEntries:
    """Read the newest entries of a day, at most *most*, ConfigMap by ConfigMap.

    However long they are kept. *unix*: now, in seconds since 1970.

    Raises:
        ClusterError: one cannot be read.

    """
    entries: list[JournalEntry] = []
    left_out = 0
    for number in range(slot_of(unix), oldest_kept(unix, 1) - 1, -1):
        try:
            stored = transport.get(f"{path_of(namespace)}/{name_of(number)}")
        except NotServed:
            continue
        slot = read_slot(stored, most=most - len(entries))
        if slot is not None and slot.number == number:
            entries += sorted(slot.entries.values(), key=_newness)
            left_out += slot.left_out
        if len(entries) >= most:
            break
    return NewestEntries(tuple(entries), left_out)


def _newness(entry: JournalEntry) -> tuple[int, str]:
    return -entry.finished, entry.key


def _without(
    entries: Iterable[JournalEntry], surplus: int, weight: Callable[[JournalEntry], int]
) -> list[JournalEntry]:
    """Drop *surplus* weight, always of the heaviest namespace: its heaviest, then its newest.

    So what one namespace adds costs the others nothing until it has no more than they.
    """
    kept: defaultdict[str, list[tuple[int, int, str, JournalEntry]]] = defaultdict(list)
    for entry in entries:
        kept[entry.namespace].append((weight(entry), entry.finished, entry.key, entry))
    for of_namespace in kept.values():
        of_namespace.sort(key=lambda weighed: weighed[:3])
    heaviest = [(-sum(weighed[0] for weighed in members), name) for name, members in kept.items()]
    heapq.heapify(heaviest)
    while surplus > 0 and heaviest:
        total, name = heaviest[0]
        gone = kept[name].pop()[0]
        surplus -= gone
        if kept[name]:
            heapq.heapreplace(heaviest, (total + gone, name))
        else:
            heapq.heappop(heaviest)
    return sorted((weighed[3] for members in kept.values() for weighed in members), key=_age)


def _sizes(entries: Sequence[JournalEntry]) -> Mapping[str, int]:
    """Return how many characters each entry adds; a template is shared by all that have it."""
    users = Counter(text for entry in entries for text in {entry.submitted, entry.ran})
    return {
        entry.key: len(write_one(entry))
        + sum(len(text) // users[text] for text in {entry.submitted, entry.ran})
        for entry in entries
    }


def _age(entry: JournalEntry) -> tuple[int, str]:
    return entry.finished, entry.key


def _packed(entries: Sequence[JournalEntry]) -> bytes:
    return zlib.compress(write(entries).encode(), 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What one step of the journal's keeper has written."""

    tried: bool = False
    """False: it was not time yet."""
    written: int = 0
    """Shards."""
    errors: tuple[str, ...] = ()
