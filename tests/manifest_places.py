"""Places in manifests: what stands at one, and which edits no rule for GitOps tools expects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from webhook.decide import written_places
from webhook.jobs import JobKind
from webhook.model.edits import Edit, Path
from webhook.model.job import OURS
from webhook.model.policy.fallback_policy import FallbackPolicy

_PART = re.compile(r"([^.\[\]]+)|\[([^\]]+)\]")


def look(value: Any, path: str) -> Any:
    """Return what stands at a path such as `spec.containers[main].image`; None: nothing."""
    for plain, bracketed in _PART.findall(path):
        part = plain or bracketed
        if isinstance(value, list) and part.isdigit():
            value = value[int(part)]
        elif isinstance(value, list):
            named = [item for item in value if part in (item.get("name"), item.get("groupName"))]
            value = named[0] if named else None
        else:
            value = value.get(part)
        if value is None:
            return None
    return value


def beyond_rules(
    kind: JobKind, edits: Iterable[Edit], policies: Sequence[FallbackPolicy]
) -> list[Path]:
    """List the paths in a manifest that are written where none of the policies' places is."""
    places = written_places.of_kind(kind, policies)
    return [
        edit.path
        for edit in edits
        # What a manifest has of ours, as a hold that was copied, is none of anybody's.
        if not any(part.startswith(OURS) for part in edit.path)
        and OURS not in str(edit.was)
        and not any(_is_at(edit.path, place) for place in places)
    ]


def _is_at(path: Path, place: Path) -> bool:
    return len(path) >= len(place) and all(
        known in ("*", part) for part, known in zip(path, place, strict=False)
    )
