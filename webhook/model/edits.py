"""Edits: single changes to an object at named paths, and the record that undoes them exactly.

A path is a tuple of names; an element of ``containers``, ``initContainers`` or ``env`` goes by its
``name``, not its place, so that the record outlives containers that others inject. Elements without
names, as an AppWrapper's components, go by their index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from webhook.model.fields import Json


class Absent(Enum):
    ABSENT = "absent"


ABSENT = Absent.ABSENT
Path: TypeAlias = tuple[str, ...]
KEYED_BY_NAME = frozenset(
    {"containers", "initContainers", "env", "replicatedJobs", "runtimePatches", "sidecars"}
)
LISTED = (KEYED_BY_NAME | {"components", "workerGroupSpecs"}) - {"env", "runtimePatches"}
"""Lists whose elements have places of their own; edits neither add nor remove any of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Set *path* to *value*; ABSENT takes it away. *was* is what stood there."""

    path: Path
    value: Json | Absent
    was: Json | Absent


Original: TypeAlias = Mapping[Path, "Json | Absent"]
"""What stood at each edited path before; parents that had to be created are ABSENT too."""


Operation: TypeAlias = "dict[str, Any]"
"""One of JSON Patch (RFC 6902)."""
