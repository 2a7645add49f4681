"""What the leader publishes of slices that wait, in the ConfigMap of congestion prices. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import AwareDatetime, Field

from webhook.hindsight.freed_slices import Fragmentation, FreedSlices, NewCut, SliceSize
from webhook.model.policy.custom_object import Strict
from webhook.model.words import rfc3339
from webhook.state import published_congestion

_KEY: Final = "slices.json"
_MOST: Final = 100
"""Sizes; Jobs of one Node."""
_MOST_NODES: Final = 20
"""Of one size."""
_LONGEST: Final = 200_000
_Name = Annotated[str, Field(max_length=520)]
_Names = Annotated[tuple[_Name, ...], Field(max_length=_MOST)]
_Count = Annotated[int, Field(ge=0, le=10**9)]
_Devices = Annotated[float, Field(ge=0, le=1e9)]
_Cut = Annotated[dict[_Name, _Count], Field(max_length=_MOST)]


class PublishedFreed(Strict):
    node: _Name
    must_end: _Names = ()
    cut_anew: bool = False

    @property
    def words(self) -> str:
        return FreedSlices(node=self.node, jobs=self.must_end, is_cut=self.cut_anew).words


class PublishedSize(Strict):
    resource: _Name
    waiting: _Count
    free: _Count
    blocked: _Count
    unusable: _Devices
    """Of all Nodes."""
    nodes: Annotated[dict[_Name, _Devices], Field(max_length=_MOST_NODES)]
    """What it is on those where it is most."""
    freed: Annotated[tuple[PublishedFreed, ...], Field(max_length=2)] = ()


class PublishedCut(Strict):
    node: _Name
    before: _Cut
    """Empty: it is whole."""
    after: _Cut
    must_end: _Names = ()


class PublishedFragmentation(Strict):
    at: AwareDatetime
    until: AwareDatetime
    """When it has been replaced, unless nobody looks any more."""
    sizes: Annotated[tuple[PublishedSize, ...], Field(max_length=_MOST)] = ()
    cuts: Annotated[tuple[PublishedCut, ...], Field(max_length=_MOST)] = ()


def config_map_of(found: Fragmentation, unix: float, until: float) -> Mapping[str, Any]:
    """Return the ConfigMap with this key alone: written over it, the others stay."""
    published = {
        "at": rfc3339(unix),
        "until": rfc3339(until),
        "sizes": [_size(size) for size in found.sizes[:_MOST]],
        "cuts": [_cut(cut) for cut in found.cuts[:_MOST]],
    }
    return published_congestion.config_map(_KEY, json.dumps(published, separators=(",", ":")))


def _size(size: SliceSize) -> Mapping[str, Any]:
    most = sorted(size.unusable.items(), key=lambda item: (-item[1], item[0]))
    return {
        "resource": size.resource,
        "waiting": size.waiting,
        "free": size.free,
        "blocked": size.blocked,
        "unusable": round(sum(size.unusable.values()), 3),
        "nodes": {node: round(devices, 3) for node, devices in most[:_MOST_NODES]},
        "freed": [{**freed.figures(), "mustEnd": list(freed.jobs[:_MOST])} for freed in size.freed],
    }


def _cut(cut: NewCut) -> Mapping[str, Any]:
    return {
        "node": cut.node,
        "before": dict(cut.before),
        "after": dict(cut.after),
        "mustEnd": list(cut.jobs[:_MOST]),
    }


def read_fragmentation(source: Mapping[str, Any], unix: float) -> PublishedFragmentation | None:
    """Read it from the ConfigMap; None: it is not there, or not of now any more.

    Raises:
        FieldError: something in it is not valid.

    """
    found = published_congestion.read_published(
        source, _KEY, PublishedFragmentation, longest=_LONGEST
    )
    return found if found is not None and unix <= found.until.timestamp() else None
