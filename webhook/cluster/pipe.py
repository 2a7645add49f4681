"""Frames over a pipe between the observer and its server, and what is in them.

Pickle, because both ends are one program of one version and the pipe is theirs alone: a snapshot
is taken up in a tenth of a millisecond.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import IO, Any

from webhook.cluster.seen import Seen
from webhook.model.queues import Snapshot

_LENGTH = struct.Struct(">I")
_CARRIED_APART = "as_of"


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What has changed since the last one; the first of an observer carries everything."""

    changed: Mapping[str, Any] = field(default_factory=dict)
    """Field of Snapshot to its new value."""
    seen: tuple[Seen, ...] = ()
    """Workloads that this update is the first to count."""
    as_of: float = 0.0
    """Monotonic clock (one for all processes of a machine): when all that was so, at the least."""
    synced: bool = False
    ages: Mapping[str, float] = field(default_factory=dict)
    """Kind to seconds since its last sign of life."""
    relists: Mapping[str, int] = field(default_factory=dict)
    """Kind to the number of lists it took so far."""
    problems: Mapping[str, int] = field(default_factory=dict)
    """Kind to the number of objects that cannot be read."""


def changes(before: Snapshot | None, after: Snapshot) -> dict[str, Any]:
    """Find the fields that are not the same objects any more; None: all of them."""
    names = (each.name for each in fields(Snapshot) if each.name != _CARRIED_APART)
    return {
        name: getattr(after, name)
        for name in names
        if before is None or getattr(after, name) is not getattr(before, name)
    }


def apply_update(snapshot: Snapshot, update: Update) -> Snapshot:
    return replace(snapshot, as_of=update.as_of, **update.changed)


def write_update(stream: IO[bytes], update: Update) -> None:
    content = pickle.dumps(update, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(_LENGTH.pack(len(content)) + content)
    stream.flush()


def read_update(stream: IO[bytes]) -> Update | None:
    """Wait for the next; None: the other end is gone."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(head)
    content = stream.read(size)
    if len(content) < size:
        return None
    update: Update = pickle.loads(content)  # noqa: S301 - written by our own child
    return update
