"""Lists the job kinds: how each is read into a Job, and how a changed Job becomes edits.

A new kind is a module and one line in ``KINDS``.
"""

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
    """How Jobs of one kind are read, edited and held back."""

    read: Callable[[Mapping[str, Any]], Job]
    edits: Callable[[Job, Job], tuple[Edit, ...]]
    allowed: tuple[Path, ...]
    """The only paths that may be patched, but for those of ``admission.ownership``.

    A part ``*`` stands for any text.
    """
    held_back: Callable[[Mapping[str, Any]], Obstacle | None]
    """Returns why the object, as it is, cannot be moved or undone; None: nothing prevents it."""


KINDS: Mapping[tuple[str, str, str], JobKind] = {
    ("batch", "v1", "Job"): JobKind(
        read=batch.read, edits=batch.edits, allowed=batch.ALLOWED, held_back=batch.held_back
    ),
}
