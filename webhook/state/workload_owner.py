"""Reads which Job a Workload belongs to, from its metadata alone.

By Kueue's rules: its owner references, the names that Kueue gives, and what MultiKueue marks. It
must not know whether the Job exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from sys import intern
from typing import Any, Final, NamedTuple

from webhook.model import fields
from webhook.model.job import LONGEST_KIND, MULTIKUEUE_ORIGIN, reference_of

_OF_GROUP = "kueue.x-k8s.io/is-group-workload"
_NOT_CONTROLLING = frozenset({"LeaderWorkerSet", "StatefulSet"})
"""Kinds that own their Workloads without being marked as their controllers."""
_HASH = len("-a0cfe")


class WorkloadOwner(NamedTuple):
    """The Job that a Workload belongs to; all texts are empty where none is known."""

    kind: str = ""
    """In small letters where only the Workload's name tells it."""
    name: str = ""
    uid: str = ""

    @property
    def reference(self) -> str:
        return reference_of(self.kind, self.name) if self.name else ""


NO_OWNER: Final = WorkloadOwner()


def read_owner(metadata: Mapping[str, Any]) -> WorkloadOwner:
    if fields.mapping(metadata, "annotations", "metadata").get(_OF_GROUP) == "true":
        # Each of its pods owns it; it goes by the group's name, as a Pod would.
        return WorkloadOwner("Pod", fields.text(metadata, "name", "metadata"))
    for owner, here in fields.objects(metadata, "ownerReferences", "metadata"):
        kind = owner.get("kind")
        if not isinstance(kind, str) or len(kind) > LONGEST_KIND:
            continue
        # The Workload of a variant is owned by another Workload.
        if kind in _NOT_CONTROLLING or (kind != "Workload" and owner.get("controller") is True):
            name, uid = (fields.text(owner, key, here) for key in ("name", "uid"))
            return WorkloadOwner(intern(kind), name, uid)
    if MULTIKUEUE_ORIGIN in fields.mapping(metadata, "labels", "metadata"):
        return _owner_by_name(fields.text(metadata, "name", "metadata"))
    return NO_OWNER


def _owner_by_name(name: str) -> WorkloadOwner:
    """Return the Job of a Workload that MultiKueue created, before the Job itself exists here.

    Kueue names a Workload ``<kind>-<name>-<hash>``; a long name is cut, and its Job is not found.
    """
    kind, _, rest = name.partition("-")
    return WorkloadOwner(intern(kind), rest[:-_HASH]) if len(rest) > _HASH else NO_OWNER
