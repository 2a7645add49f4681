"""What is known of a kind of Job, and how a Job of it becomes edits; each kind is one such value.

Its module fills in what differs: where pod templates are, what Kueue counts, what may change when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from webhook.jobs import template
from webhook.model.edits import Edit, Path
from webhook.model.job import OURS, PRIORITY_LABEL, QUEUE_LABEL, Job
from webhook.model.reasons import Obstacle

_OF_THE_OBJECT: tuple[Path, ...] = (
    ("metadata", "labels", QUEUE_LABEL),
    ("metadata", "labels", PRIORITY_LABEL),
    ("metadata", "labels", OURS + "*"),
    ("metadata", "annotations", OURS + "*"),
)


def allowed_in(templates: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the only paths of a Job that may be patched, as ``admission.patch.Allowed``.

    *templates* are those of its pod templates; ``*`` stands for a name of any element.
    """
    below = (path + pattern for path in templates for pattern in template.ALLOWED)
    return (*_OF_THE_OBJECT, *below)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """How Jobs of one kind are named and served, read, edited and held back."""

    group: str
    version: str
    kind: str
    """No other kind has this name, whatever its group: it tells Jobs of equal names apart."""
    plural: str
    framework: str
    """Its name in ``integrations.frameworks`` of Kueue's configuration."""
    templates: tuple[Path, ...]
    """The paths of its pod templates; ``*`` stands for the name of any element of a list."""
    allowed: tuple[Path, ...]
    """The only paths that may be patched, as patterns (``admission.patch.Allowed``)."""
    suspend: Path
    """The field by which Kueue keeps it from starting."""
    read: Callable[[Mapping[str, Any]], Job]
    held_back: Callable[[Mapping[str, Any]], Obstacle | None]
    """Returns why the object, as it is, cannot be moved or undone; None: nothing prevents it."""
    immutable: Callable[[Path, Edit], Obstacle | None]
    """Returns why an edit to a pod template, at a path below it, is refused once the Job exists,
    even while it is suspended; None: it is taken."""

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

    def edits(self, before: Job, after: Job) -> tuple[Edit, ...]:
        """List the differences between two versions of a Job, in all that an option may change."""
        labels, annotations = ("metadata", "labels"), ("metadata", "annotations")
        changes = [
            *template.text_edits(labels, before.labels, after.labels),
            *template.text_edits(annotations, before.annotations, after.annotations),
        ]
        for old, new in zip(before.pod_sets, after.pod_sets, strict=True):
            # A pod set without a path is not in the object: its controller makes the template.
            if old.template is not new.template and old.path:
                changes += template.edits(old.path, old.template, new.template)
        return tuple(changes)

    def below_template(self, path: Path) -> Path:
        """Return the part of a path below a pod template; empty: it is in none."""
        for pattern in self.templates:
            place = path[: len(pattern)]
            if len(place) == len(pattern) and _fits(place, pattern):
                return path[len(pattern) :]
        return ()

    def is_suspended(self, source: Mapping[str, Any]) -> bool:
        """Tell whether the object says that it shall not run yet."""
        node: Any = source
        for part in self.suspend:
            node = node.get(part) if isinstance(node, dict) else None
        return node is True


def _fits(path: Path, pattern: Path) -> bool:
    return all(known in ("*", part) for part, known in zip(path, pattern, strict=True))
