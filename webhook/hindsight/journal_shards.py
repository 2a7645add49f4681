"""The journal as ConfigMaps: a ring of them, each with what ended within one hour.

Which one holds an entry follows from when it ended, so that two writers come to the same, and what
is too old is written over in time.
"""

from __future__ import annotations

import heapq
import zlib
from base64 import b64decode, b64encode
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from webhook.api.errors import NotServed
from webhook.api.kubernetes_api import KubernetesApi
from webhook.api.resources import JOURNAL, JOURNAL_VALUE, RUN_TIMES_LABEL
from webhook.hindsight import journal
from webhook.hindsight.journal import Entry
from webhook.model import fields
from webhook.model.faults import attempted
from webhook.state.run_records_reader import path_of

SHARDS: Final = 32
SLOT_SECONDS: Final = 3600
"""All of them hold a day and some hours."""
MOST_ENTRIES: Final = 5_000
"""Of one hour; others are counted and left out."""
MOST_BYTES: Final = 700_000
"""Of one object, compressed; etcd takes 1 MiB."""
_MOST_TEXT: Final = 32_000_000
"""Of one object, as text: what is larger was not written by us."""
_SHED_AT_ONCE: Final = 8
"""One part in so many goes before it is packed again."""
_LONGEST_NUMBER: Final = 15
_VERSION: Final = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """What ended within one hour."""

    number: int
    """Hours since 1970."""
    entries: Mapping[str, Entry]
    """By key."""
    left_out: int = 0

    def merged(self, entries: Iterable[Entry]) -> Slot:
        """Add entries; of those that are known, the known ones stay.

        Where they are too many, those of the namespace that has most of them go.
        """
        found = dict(self.entries)
        for each in entries:
            found.setdefault(each.key, each)
        kept = _without(found.values(), len(found) - MOST_ENTRIES, lambda _: 1)
        left_out = self.left_out + len(found) - len(kept)
        return Slot(
            number=self.number, entries={each.key: each for each in kept}, left_out=left_out
        )


def slot_of(finished: float) -> int:
    return int(finished) // SLOT_SECONDS


def name_of(slot: int) -> str:
    return f"{JOURNAL}-{slot % SHARDS}"


def oldest_kept(now: float) -> int:
    """Name the oldest slot whose place is not taken by a newer one."""
    return slot_of(now) - SHARDS + 1


def config_map(slot: Slot) -> Mapping[str, Any]:
    """Write one slot; without namespace and version.

    Where it is too large, the largest entries go, of the namespace that takes most of the room.
    """
    entries = sorted(slot.entries.values(), key=_age)
    while len(packed := _packed(entries)) > MOST_BYTES:
        sizes = _sizes(entries)
        surplus = max(1, sum(sizes.values()) // _SHED_AT_ONCE)
        entries = _without(entries, surplus, lambda each: sizes[each.key])  # noqa: B023
    left_out = slot.left_out + len(slot.entries) - len(entries)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name_of(slot.number), "labels": {RUN_TIMES_LABEL: JOURNAL_VALUE}},
        "data": {"version": _VERSION, "hour": str(slot.number), "leftOut": str(left_out)},
        "binaryData": {"entries": b64encode(packed).decode()},
    }


def read_slot(source: Mapping[str, Any]) -> Slot | None:
    """Read one slot; None: of another version, or damaged."""
    return attempted(lambda: _slot(source))[0]


def _slot(source: Mapping[str, Any]) -> Slot | None:
    data = fields.texts(source, "data", "")
    if data.get("version") != _VERSION:
        return None
    packed = b64decode(fields.texts(source, "binaryData", "").get("entries", ""))
    text = zlib.decompressobj().decompress(packed, _MOST_TEXT).decode()
    return Slot(
        number=_number(data["hour"]),
        entries={entry.key: entry for entry in journal.read(text)},
        left_out=_number(data.get("leftOut", "0")),
    )


def _number(text: str) -> int:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


class Newest(NamedTuple):
    entries: tuple[Entry, ...]
    left_out: int
    """Of the hours that were read; and what is older than the entries is not counted."""


def newest(transport: KubernetesApi, namespace: str, unix: float, most: int) -> Newest:
    """Read the newest entries, at most *most*, object by object as ``shards`` does.

    Raises:
        ClusterError: one cannot be read.

    """
    found: list[Entry] = []
    left_out = 0
    for number in range(slot_of(unix), oldest_kept(unix) - 1, -1):
        try:
            slot = read_slot(transport.get(f"{path_of(namespace)}/{name_of(number)}"))
        except NotServed:
            continue
        if slot is not None and slot.number == number:
            found += sorted(slot.entries.values(), key=lambda each: (-each.finished, each.key))
            left_out += slot.left_out
        if len(found) >= most:
            break
    return Newest(tuple(found[:most]), left_out)


def _without(entries: Iterable[Entry], surplus: int, weight: Callable[[Entry], int]) -> list[Entry]:
    """Leave out so much, always of the namespace that weighs most: its heaviest, then its newest.

    So whatever one namespace brings costs the others nothing until it has no more than they.
    """
    kept: defaultdict[str, list[tuple[int, int, str, Entry]]] = defaultdict(list)
    for each in entries:
        kept[each.namespace].append((weight(each), each.finished, each.key, each))
    for found in kept.values():
        found.sort(key=lambda each: each[:3])
    heaviest = [(-sum(each[0] for each in found), name) for name, found in kept.items()]
    heapq.heapify(heaviest)
    while surplus > 0 and heaviest:
        total, name = heaviest[0]
        gone = kept[name].pop()[0]
        surplus -= gone
        if kept[name]:
            heapq.heapreplace(heaviest, (total + gone, name))
        else:
            heapq.heappop(heaviest)
    return sorted((each[3] for found in kept.values() for each in found), key=_age)


def _sizes(entries: Sequence[Entry]) -> Mapping[str, int]:
    """Tell how many characters each adds; a template is shared by all that have it."""
    users = Counter(text for each in entries for text in {each.submitted, each.ran})
    return {
        each.key: len(journal.write_one(each))
        + sum(len(text) // users[text] for text in {each.submitted, each.ran})
        for each in entries
    }


def _age(entry: Entry) -> tuple[int, str]:
    return entry.finished, entry.key


def _packed(entries: Sequence[Entry]) -> bytes:
    return zlib.compress(journal.write(entries).encode(), 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What one look came to."""

    tried: bool = False
    """False: it was not time yet."""
    written: int = 0
    """Shards."""
    errors: tuple[str, ...] = ()
