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
    """The only paths that may be patched, as patterns (``admission.patch.Allowed``)."""
    held_back: Callable[[Mapping[str, Any]], Obstacle | None]
    """Returns why the object, as it is, cannot be moved or undone; None: nothing prevents it."""

    @property
    def api_version(self) -> str:
        """The value of ``apiVersion``, such as ``batch/v1``."""
        return f"{self.group}/{self.version}"

    def path(self, namespace: str = "", name: str = "") -> str:
        """Return the API server's path of a Job.

        Without *name* it is that of all Jobs in *namespace*, without both that of all Jobs.
        """
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
    (kind.group, kind.version, kind.kind): kind for kind in (JOB,)
}
