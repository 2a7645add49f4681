"""Lists the job kinds: how each is read into a Job, and how a changed Job becomes edits.

A new kind is a module and one entry of ``KINDS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from webhook.jobs import batch
from webhook.model.edits import Edit, Path
from webhook.model.job import Job
from webhook.model.reasons import Obstacle


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """How Jobs of one kind are named and served, read, edited and held back."""

    group: str
    version: str
    kind: str
    plural: str
    read: Callable[[Mapping[str, Any]], Job]
    edits: Callable[[Job, Job], tuple[Edit, ...]]
    allowed: tuple[Path, ...]
    """The only paths that may be patched, but for those of ``admission.patch``.

    A part ``*`` stands for any text.
    """
    held_back: Callable[[Mapping[str, Any]], Obstacle | None]
    """Returns why the object, as it is, cannot be moved or undone; None: nothing prevents it."""

    @property
    def api_version(self) -> str:
        """The value of ``apiVersion``, such as ``batch/v1``."""
        return f"{self.group}/{self.version}"

    def path(self, namespace: str = "", name: str = "") -> str:
        """Return the path by which the API server serves it; without a namespace, of all."""
        where = f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
        which = f"/{quote(name, safe='')}" if name else ""
        return f"/apis/{self.api_version}/{where}{self.plural}{which}"


JOB: Final = JobKind(
    group="batch",
    version="v1",
    kind="Job",
    plural="jobs",
    read=batch.read,
    edits=batch.edits,
    allowed=batch.ALLOWED,
    held_back=batch.held_back,
)
KINDS: Final[Mapping[tuple[str, str, str], JobKind]] = {
    (each.group, each.version, each.kind): each for each in (JOB,)
}
