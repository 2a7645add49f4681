"""What is known of a kind of Job, and how a Job of it becomes edits; each kind is one such value.

Its module fills in what differs: where pod templates are, what Kueue counts, what may change when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from webhook.jobs import template
from webhook.model import fields
from webhook.model.edits import Edit, Path
from webhook.model.job import OURS, PRIORITY_LABEL, QUEUE_LABEL, Job
from webhook.model.reasons import Obstacle

ORIGIN: Final = "kueue.x-k8s.io/multikueue-origin"
STOPPING: Final = "kueue.x-k8s.io/stopping"
"""Set by Kueue while it stops a Job and deletes its pods."""
SUSPENDING_PARENT: Final = "kueue.x-k8s.io/pod-suspending-parent"
"""Set by Kueue on pods that it gates for the object that makes them; the value is a framework."""
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
    """The field by which Kueue keeps it from starting, or notes that it does."""
    read: Callable[[Mapping[str, Any]], Job]
    held_back: Callable[[Mapping[str, Any]], Obstacle | None]
    """Returns why the object, as it is, cannot be moved or undone; None: nothing prevents it."""
    immutable: Callable[[Path, Edit], Obstacle | None]
    """Returns why an edit to a pod template, at a path below it, is refused once the Job exists,
    even while it is suspended; None: it is taken."""

    can_change_env: bool = False
    """Whether the environment of its pods may change while it is suspended."""
    finishes: bool = True
    """Whether a Job of it ever ends by itself; if not, no finish can be expected."""
    carries_marks: bool = True
    """Whether Kueue copies labels and annotations of its pods into Workloads."""

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
        return _at(source, self.suspend) not in (None, False)


def creation_only(*_of_what: object) -> Obstacle:
    """Return why a Job of a kind that is decided at its creation only is never changed later."""
    return Obstacle.CREATION_ONLY


def held_back_by(
    source: Mapping[str, Any], suspend: Path, *, controller: str, is_over: bool, has_pods: bool
) -> Obstacle | None:
    """Return why a Job of a kind with its own status cannot be moved or undone; None: it can.

    *controller* is the value of ``managedBy``, beside *suspend*, by which its own controller runs
    it.

    Raises:
        FieldError: a field that this depends on has a wrong type.

    """
    metadata = fields.mapping(source, "metadata", "")
    labels = fields.texts(metadata, "labels", "metadata")
    annotations = fields.texts(metadata, "annotations", "metadata")
    manager = _at(source, (*suspend[:-1], "managedBy"))
    for obstacle, applies in (
        (Obstacle.BEING_DELETED, metadata.get("deletionTimestamp") is not None),
        (Obstacle.FINISHED, is_over),
        (Obstacle.MANAGED_BY, manager not in (None, "", controller) or ORIGIN in labels),
        (Obstacle.NOT_SUSPENDED, _at(source, suspend) is not True),
        (Obstacle.STOPPING, "true" in (annotations.get(STOPPING), labels.get(STOPPING))),
        (Obstacle.PODS_ACTIVE, has_pods),
    ):
        if applies:
            return obstacle
    return None


def true_conditions(status: Mapping[str, Any]) -> frozenset[str]:
    """Return the types of the conditions that hold.

    Raises:
        FieldError: one of them has a wrong type.

    """
    return frozenset(
        fields.text(condition, "type", here)
        for condition, here in fields.objects(status, "conditions", "status")
        if fields.text(condition, "status", here) == "True"
    )


def _at(source: Mapping[str, Any], path: Path) -> Any:
    node: Any = source
    for part in path:
        node = node.get(part) if isinstance(node, dict) else None
    return node


def _fits(path: Path, pattern: Path) -> bool:
    return all(known in ("*", part) for part, known in zip(path, pattern, strict=True))
