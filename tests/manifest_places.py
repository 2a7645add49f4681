"""Which edits to a Job no rule for GitOps tools expects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from webhook.decide import written_places
from webhook.jobs import JobKind
from webhook.model.edits import Edit, Path
from webhook.model.job import OURS
from webhook.model.policy.fallback_policy import FallbackPolicy


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
