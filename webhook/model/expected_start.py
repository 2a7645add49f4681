"""When a pending Job was last expected to start, as it stands on the Job for its owner to read.

A newer forecast stands in an annotation of its own; the first one is part of the decision.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from webhook.model import fields
from webhook.model.fields import FieldError
from webhook.model.job import EXPECTED_START
from webhook.model.words import rfc3339

_LONGEST: Final = 512
"""Characters of the annotation; the names in it have at most 253."""
_PATH: Final = f"metadata.annotations[{EXPECTED_START}]"
_PART: Final = 0.1
"""A wait that changed by less of itself is not written anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedStart:
    at: float
    """When it is expected to start, in seconds since 1970."""
    as_of: float
    """When that was forecast."""
    cluster_queue: str = ""
    """Where it waits; empty: not known."""
    position: int = 0
    """1: the first there; 0: not known."""
    pending: int = 0
    """How many wait there."""

    def differs(self, other: ExpectedStart | None, unix: float) -> bool:
        """Return whether *other* would tell the owner something else at *unix*."""
        if other is None or self.cluster_queue != other.cluster_queue:
            return True
        left = max(other.at - unix, 0.0)
        return abs(self.at - other.at) > max(_PART * left, 1.0)


def annotation_of(expected: ExpectedStart) -> str:
    """Return the text of the annotation."""
    shown = {
        "starts": rfc3339(expected.at),
        "asOf": rfc3339(expected.as_of),
        "clusterQueue": expected.cluster_queue,
        "position": expected.position,
        "pending": expected.pending,
    }
    return json.dumps(shown, separators=(",", ":"))


def read_expected_start(annotations: Mapping[str, Any]) -> ExpectedStart | None:
    """Read the annotation, which whoever may edit the Job can have changed; None: there is none."""
    text = annotations.get(EXPECTED_START)
    if not isinstance(text, str):
        return None
    try:
        said = fields.from_json(text, _PATH, longest=_LONGEST)
        return ExpectedStart(
            at=fields.seconds_since_1970(fields.text(said, "starts", _PATH), _PATH),
            as_of=fields.seconds_since_1970(fields.text(said, "asOf", _PATH), _PATH),
            cluster_queue=fields.text(said, "clusterQueue", _PATH),
            position=fields.integer(said, "position", _PATH) or 0,
            pending=fields.integer(said, "pending", _PATH) or 0,
        )
    except FieldError:
        return None
