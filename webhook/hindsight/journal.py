"""The journal: entries of finished Jobs, their lines of JSON, and their ConfigMaps.

An entry holds how a Job was submitted, decided and run; equal templates are written once. Each
ConfigMap holds the entries of one hour, bounded so that no namespace crowds out another.
"""

from __future__ import annotations

import bz2
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
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, ConfigDict, TypeAdapter
from pydantic.alias_generators import to_camel

from webhook.api.kubernetes_api import KubernetesApi, NotServed
from webhook.api.resources import JOURNAL, JOURNAL_VALUE, RUN_TIMES_LABEL
from webhook.decide import decision_record
from webhook.decide.decision_record import Recorded, RecordedOption
from webhook.hindsight import former_journal
from webhook.model import fields
from webhook.model.costs.prices import Cost
from webhook.model.faults import attempted
from webhook.model.job import PLAIN, reference_of
from webhook.state.run_records_reader import path_of

SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
GONE: Final = "Gone"
"""Deleted, or ended by Kueue, before its pods were done."""
_LONGEST_LINE: Final = 400_000
"""Characters; an entry has a few thousand, in older versions up to the size of an object."""
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


_Shared = Annotated[str, AfterValidator(intern)]
"""One object for all entries that have it. Not for texts that no other entry has: Python's table of
shared strings would grow by all that are read at once, and never shrinks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One Workload of a Job; times in seconds since 1970, 0: not reached.

    Its line has the fields under the same names as a Kubernetes object would; those that have their
    default are not written.
    """

    __pydantic_config__ = ConfigDict(alias_generator=to_camel, allow_inf_nan=False)

    key: str
    """The Workload's uid."""
    uid: str = ""
    """The Job's uid; empty: something else owns it."""
    kind: _Shared = PLAIN
    """Of the Job; of what belongs to none that is known, the batch Job's."""
    namespace: _Shared
    name: str
    """The Job's; that of the Workload where it belongs to none."""
    created: float
    admitted: int = 0
    finished: int = 0
    outcome: _Shared = ""
    """Empty: it is not finished."""
    queue: _Shared
    """The LocalQueue that it was last in."""
    cluster_queue: _Shared = ""
    cluster: _Shared = ""
    """The worker cluster that it was sent to; empty: none, or it is not known."""
    flavors: _Shared = ""
    job_class: _Shared = ""
    coarse: _Shared = ""
    submitted: str
    """The spec that it was submitted with, reduced, as JSON. In a line: the key of its template."""
    ran: str
    """The spec that it ran with, likewise; equal if nothing was adapted."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """As it was submitted."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    used: tuple[tuple[tuple[_Shared, _Shared], int], ...] = ()
    """The quota that it held, all its pods together; empty: not known."""
    decision: Annotated[Recorded | None, BeforeValidator(decision_record.whole)] = None
    """The last one, without what only an undo and people need; None: it carries none."""

    @property
    def reference(self) -> str:
        """The Job's name within its namespace, such as ``rayjob/train``."""
        return reference_of(self.kind, self.name)

    @property
    def policy(self) -> str:
        """The policy that decided; empty: it carries no decision."""
        return self.decision.policy if self.decision is not None else ""

    @property
    def mode(self) -> str:
        return str(self.decision.mode) if self.decision is not None else ""

    @property
    def option(self) -> str:
        """The option taken; empty: left as submitted."""
        return (self.decision.option or "") if self.decision is not None else ""

    @property
    def options(self) -> tuple[RecordedOption, ...]:
        return self.decision.options if self.decision is not None else ()

    @property
    def moves(self) -> int:
        return self.decision.moves if self.decision is not None else 0

    @property
    def decided(self) -> float:
        """When it was last decided; moves count."""
        return max(self.created, self.decision.unix if self.decision is not None else 0.0)

    @property
    def expected_cost(self) -> Cost | None:
        """What its decision expected it to cost as it was submitted; None: not known."""
        submitted = self.decision.from_queue if self.decision is not None else ""
        return next((option.cost for option in self.options if option.queue == submitted), None)


_ENTRY: Final = TypeAdapter(JournalEntry)
_OF_DECISIONS: Final = {"id", "reason", "state_age_seconds"}
_LEFT_OUT: Final[Any] = {"submitted": True, "ran": True, "decision": _OF_DECISIONS}
"""What a line has not, or in another form."""


def write_entries(entries: Iterable[JournalEntry]) -> str:
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
    line = _ENTRY.dump_python(
        entry,
        mode="json",
        by_alias=True,
        exclude=_LEFT_OUT,
        exclude_defaults=True,
        warnings=False,
    )
    line["submitted"] = _digest(entry.submitted)
    if entry.ran != entry.submitted:
        line["ran"] = _digest(entry.ran)
    return _ENCODER.encode(line)


def read_entries(
    text: str, converted: Callable[[Any], Any] = lambda line: line
) -> Iterator[JournalEntry]:
    """Read what ``write_entries`` wrote, entry by entry; damaged lines are skipped.

    *converted* brings a line of an older version to the form of this one.

    Raises:
        FieldError: the templates cannot be read.

    """
    head, *lines = text.split("\n")
    templates = fields.from_json(head, "templates", longest=len(text))
    entries = (attempted(partial(_entry, line, templates, converted))[0] for line in lines if line)
    return (entry for entry in entries if entry is not None)


def _entry(
    text: str, templates: Mapping[str, Any], converted: Callable[[Any], Any]
) -> JournalEntry:
    line = converted(fields.from_json(text, "", longest=_LONGEST_LINE))
    submitted, ran = line["submitted"], line.get("ran", line["submitted"])
    return _ENTRY.validate_python(
        {**line, "submitted": templates[submitted], "ran": templates[ran]}
    )


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
"""Characters of one ConfigMap before it is packed. The fullest hour has 5 million; what packs well,
as a tenant may have it, would take hundreds of megabytes of whoever reads it."""
_MOST_READ: Final = 4 * MOST_TEXT
"""Bytes of it that are read: what is larger was not written by us."""
_SHED_AT_ONCE: Final = 8
"""One part in so many is dropped before it is packed again."""
_LONGEST_NUMBER: Final = 15
_VERSION: Final = "2"
_FORMER_VERSION: Final = "1"


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
    version = data.get("version")
    if version not in {_VERSION, _FORMER_VERSION} or _number(data["hour"]) < oldest:
        return None
    packed = b64decode(fields.texts(source, "binaryData", "").get("entries", ""))
    if version == _FORMER_VERSION:
        text = zlib.decompressobj().decompress(packed, _MOST_READ).decode()
        found = read_entries(text, former_journal.converted)
    else:
        text = bz2.BZ2Decompressor().decompress(packed, _MOST_READ).decode()
        found = read_entries(text)
    return Slot(
        number=_number(data["hour"]),
        # The others are dropped as they are read: all at once would take the memory of two hours.
        entries={entry.key: entry for entry in heapq.nsmallest(most, found, key=_newness)},
        left_out=_number(data.get("leftOut", "0")),
    )


def _number(text: str) -> int:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def newest(
    transport: KubernetesApi, namespace: str, unix: float, most: int
) -> tuple[JournalEntry, ...]:
    """Read the newest entries of a day, at most *most*, ConfigMap by ConfigMap.

    However long they are kept. *unix*: now, in seconds since 1970.

    Raises:
        ClusterError: one cannot be read.

    """
    entries: list[JournalEntry] = []
    for number in range(slot_of(unix), oldest_kept(unix, 1) - 1, -1):
        try:
            stored = transport.get(f"{path_of(namespace)}/{name_of(number)}")
        except NotServed:
            continue
        slot = read_slot(stored, most=most - len(entries))
        if slot is not None and slot.number == number:
            entries += sorted(slot.entries.values(), key=_newness)
        if len(entries) >= most:
            break
    return tuple(entries)


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
    # A third smaller than by zlib, with which a full hour of decisions by cost would not fit.
    return bz2.compress(write_entries(entries).encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What one step of the journal's keeper has written."""

    tried: bool = False
    """False: it was not time yet."""
    written: int = 0
    """Shards."""
    errors: tuple[str, ...] = ()
