"""Job kinds: how each is read into a Job, and how a changed Job becomes edits. One line a kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from webhook.jobs import batch
from webhook.model.edits import Edit, Path
from webhook.model.job import Job
from webhook.model.reasons import Obstacle


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """What is known of one kind of Job."""

    read: Callable[[Mapping[str, Any]], Job]
    edits: Callable[[Job, Job], tuple[Edit, ...]]
    allowed: tuple[Path, ...]
    """The only places that may ever be patched, but for ``admission.ownership``.

    In a part, ``*`` stands for any text.
    """
    held_back: Callable[[Mapping[str, Any]], Obstacle | None]
    """Why the object as it is cannot be moved to another option."""


KINDS: Mapping[tuple[str, str, str], JobKind] = {
    ("batch", "v1", "Job"): JobKind(
        read=batch.read, edits=batch.edits, allowed=batch.ALLOWED, held_back=batch.held_back
    ),
}
