"""What is known of a kind of Job, and how a Job of it becomes edits; each kind is one such value.

Its module fills in what differs: where pod templates are, what Kueue counts, what may change when.
Here is also whether Kubernetes accepts edits to a pending Job, and whether Kueue takes them up: it
notices a changed template only by its containers.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/util/equality/podset.go#L41
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from webhook.jobs import template
from webhook.model import fields, quantity
from webhook.model.edits import ABSENT, Absent, Edit, Path
from webhook.model.fields import Json
from webhook.model.job import (
    DECIDED_BY,
    DECISION_ID,
    EXPECTED_START,
    JOB_CLASS,
    MULTIKUEUE_ORIGIN,
    OPTION_LABEL,
    OURS,
    PRIORITY_LABEL,
    QUEUE_LABEL,
    Job,
    Replicas,
    Rolling,
)
from webhook.model.pods import PodTemplate
from webhook.model.reasons import Obstacle

STOPPING: Final = "kueue.x-k8s.io/stopping"
"""Set by Kueue while it stops a Job and deletes its pods."""
SUSPENDING_PARENT: Final = "kueue.x-k8s.io/pod-suspending-parent"
"""Set by Kueue on pods that it gates for the object that makes them; the value is a framework."""
_QUEUE: Path = ("metadata", "labels", QUEUE_LABEL)
_PRIORITY: Path = ("metadata", "labels", PRIORITY_LABEL)
"""Kueue's webhook lets it be added and changed, but not removed."""
_FOLLOWED: frozenset[Path] = frozenset({_QUEUE, _PRIORITY})
"""Beside the pod template, the fields that Kueue takes over into the Workload."""
_OUR_MARKS = frozenset(
    {
        ("metadata", "labels", OPTION_LABEL),
        *(("metadata", "annotations", name) for name in (DECISION_ID, DECIDED_BY, JOB_CLASS)),
    }
)
REPLICAS: Path = ("replicas",)
"""Stands for the path of a number of replicas below its pod template, beside which it is."""
OF_THE_OBJECT: tuple[Path, ...] = (
    _QUEUE,
    _PRIORITY,
    ("metadata", "labels", OURS + "*"),
    ("metadata", "annotations", OURS + "*"),
    ("metadata", "annotations", EXPECTED_START),
)


def allowed_in(templates: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the only paths of a Job that may be patched, as ``admission.patch.Allowed``.

    *templates* are those of its pod templates; ``*`` stands for a name of any element.
    """
    below = (path + pattern for path in templates for pattern in template.ALLOWED)
    return (*OF_THE_OBJECT, *below)


def _whole(
    source: Mapping[str, Any], _runtimes: Mapping[tuple[str, str], Mapping[str, Any]]
) -> Mapping[str, Any]:
    return source


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
    replicas: tuple[Path, ...] = ()
    """Likewise those of the numbers of replicas that an option may change."""
    allowed: tuple[Path, ...]
    """The only paths that may be patched, as patterns (``admission.patch.Allowed``)."""
    suspend: Path
    """The field by which Kueue keeps it from starting, or notes that it does."""
    read: Callable[[Mapping[str, Any]], Job]
    held_back: Callable[[Mapping[str, Any]], Obstacle | None]
    """Returns why the object, as it is, cannot be moved or undone; None: nothing prevents it."""
    immutable: Callable[[Path, Edit], Obstacle | None]
    """Returns why an edit to a pod template, at a path below it, or to a number of replicas is
    refused once the Job exists, even while it is suspended; None: it is taken."""

    kept: Callable[[Mapping[str, Any]], Obstacle | None] | None = None
    """Returns why the object, as it is, cannot be deleted and created anew as it was submitted;
    None: nothing prevents it. Not given: as ``held_back`` says."""
    ungenerated: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda source: source
    """Returns the object without what the API server generates into its pod templates."""
    without_kueues: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda source: source
    """Returns the object without what Kueue's webhook adds to each one that is created."""
    has_ready_pods: Callable[[Mapping[str, Any]], bool] = lambda _: False
    """Tells whether the object says that some of its pods are ready."""
    changes_with_kubernetes: bool = False
    """Whether it depends on the version of Kubernetes if resources of a suspended one may change;
    else it depends on its own controller alone."""
    completed: Callable[
        [Mapping[str, Any], Mapping[tuple[str, str], Mapping[str, Any]]], Mapping[str, Any]
    ] = _whole
    """Returns the object with what it refers to and ``read`` needs, out of what is known of the
    kind ``trainingruntimes``, by namespace and name."""
    write: Callable[[Path, PodTemplate, PodTemplate], Iterable[Edit]] = template.edits
    """Returns the edits to the object that change the pod template at a path into another one."""
    unwritable: Callable[[Job, Job], str] = lambda *_: ""
    """Returns what differs between two versions of a Job and has no field in it, in words; empty:
    all can be written."""
    gate: str = ""
    """The feature gate without which Kueue does not queue it; empty: it needs none."""
    can_change_env: bool = False
    """Whether the environment of its pods may change while it is suspended."""
    finishes: bool = True
    """Whether a Job of it ever ends by itself; if not, no finish can be expected."""
    owns_queued: bool = True
    """Whether Kueue queues whatever a Job of it makes together with it, and none of that by
    itself."""
    carries_marks: bool = True
    """Whether Kueue copies labels and annotations of its pods into Workloads."""
    resizes: bool = True
    """Whether Kueue lets the replicas of a service change while its pods run."""
    rolled_out: Callable[[Mapping[str, Any]], bool] | None = None
    """Tells whether all of its pods are made from the template as it is, and ready. None: its pods
    are not replaced by new ones when the template changes while they run."""

    @property
    def api_version(self) -> str:
        """The value of ``apiVersion``, such as ``batch/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def rolls(self) -> bool:
        """Whether it replaces its pods by new ones when its pod template changes."""
        return self.rolled_out is not None

    @property
    def is_movable(self) -> bool:
        """Whether anything of a Job of it can be changed after its creation."""
        return self.held_back is not creation_only

    @property
    def is_whole(self) -> bool:
        """Whether all of a Job's pods stands in its own object, which is all a controller reads."""
        return self.completed is _whole

    def kept_from_anew(self, source: Mapping[str, Any]) -> Obstacle | None:
        """Return why an object cannot be deleted and created anew as submitted; None: it can.

        Raises:
            FieldError: a field that this depends on has a wrong type.

        """
        return (self.kept or self.held_back)(source)

    def path(self, namespace: str = "", name: str = "") -> str:
        """Return the API server's path of a Job.

        Without *name* it is that of all Jobs in *namespace*, without both that of all Jobs.
        """
        where = f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
        which = f"/{quote(name, safe='')}" if name else ""
        api = "apis" if self.group else "api"
        return f"/{api}/{self.api_version}/{where}{self.plural}{which}"

    def edits(self, before: Job, after: Job) -> tuple[Edit, ...]:
        """List the differences between two versions of a Job, in all that an option may change."""
        labels, annotations = ("metadata", "labels"), ("metadata", "annotations")
        changes = [
            *self._of_labels(labels, before, after),
            *template.text_edits(annotations, before.annotations, after.annotations),
            *_of_rolling(before.rolling, after.rolling),
        ]
        for old, new in zip(before.pod_sets, after.pod_sets, strict=True):
            # A pod set without a path is not in the object: its controller makes the template.
            if old.template is not new.template and old.path is not None:
                changes += self.write(old.path, old.template, new.template)
            changes += _of_replicas(old.replicas, new.replicas)
        return tuple(changes)

    def _of_labels(self, path: Path, before: Job, after: Job) -> list[Edit]:
        """List the edits to the labels at *path*; the queue's may count in the pod template."""
        if before.own_queue is None:
            return template.text_edits(path, before.labels, after.labels)
        left, taken = ({QUEUE_LABEL: job.queue} for job in (before, after))
        return [
            *template.text_edits(path, before.labels, {**after.labels, **left}),
            *template.text_edits((*self.templates[0], *path), left, taken),
        ]

    def obstacle_to(
        self, edits: Iterable[Edit], *, workload: Obstacle | None = None
    ) -> Obstacle | None:
        """Return why edits to a pending Job cannot be made or go unnoticed by Kueue; None: neither.

        Our own marks on the pod template do not count, as a move without other changes to it leaves
        them (see ``changes_template``). *workload* is why the Job's Workload rules a move out.
        """
        edits = tuple(edits)
        for edit in edits:
            # Kueue lets it be changed where the pods are to come, but never be removed.
            if edit.path == _PRIORITY and (edit.value is ABSENT or self.rolls):
                return Obstacle.IMMUTABLE_PRIORITY
            if refusal := self.immutable(self.below_template(edit.path), edit):
                return refusal
        if self.rolls:
            # Each new pod gets a Workload of its own.
            return None
        changed = self._of_template(edits)
        if not changed and not any(edit.path in _FOLLOWED for edit in edits):
            return None
        if workload is not None and not _lets_change(workload, with_template=bool(changed)):
            return workload
        is_noticed = not changed or any(_is_noticed(below, edit) for below, edit in changed)
        return None if is_noticed else Obstacle.KUEUE_WOULD_NOT_NOTICE

    def changes_template(self, edits: Iterable[Edit]) -> bool:
        """Return whether a pod template changes in more than our marks.

        Where it does not, only the queue label moves. The template then stays as it is, marks
        included, because Kueue would not take new marks over and would write the old ones back.
        """
        return bool(self._of_template(edits))

    def _of_template(self, edits: Iterable[Edit]) -> list[tuple[Path, Edit]]:
        """List the edits to pod templates but those of our marks, with their paths below these."""
        placed = ((self.below_template(edit.path), edit) for edit in edits)
        return [(below, edit) for below, edit in placed if below and below not in _OUR_MARKS]

    def below_template(self, path: Path) -> Path:
        """Return the part of a path below a pod template; empty: it is in none.

        Of a number of replicas, which is beside the template, it is ``REPLICAS``.
        """
        for pattern in self.templates:
            place = path[: len(pattern)]
            if len(place) == len(pattern) and _fits(place, pattern):
                return path[len(pattern) :]
        is_number = any(len(path) == len(each) and _fits(path, each) for each in self.replicas)
        return REPLICAS if is_number else ()

    def is_suspended(self, source: Mapping[str, Any]) -> bool:
        """Return whether the object says that it shall not run yet."""
        return _at(source, self.suspend) not in (None, False)

    def is_started(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
        """Return whether an update lets the object run, or ends one of several waits for that."""
        before, after = _at(old, self.suspend), _at(new, self.suspend)
        if isinstance(before, list):
            # A Pod's gates, each of which somebody else takes off.
            return any(gate not in (after or ()) for gate in before)
        return self.is_suspended(old) and not self.is_suspended(new)


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
    # What MultiKueue copied here was decided where it was submitted.
    for obstacle, applies in (
        (Obstacle.BEING_DELETED, metadata.get("deletionTimestamp") is not None),
        (Obstacle.FINISHED, is_over),
        (Obstacle.MANAGED_BY, manager not in (None, "", controller) or MULTIKUEUE_ORIGIN in labels),
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


def _of_replicas(before: Replicas | None, after: Replicas | None) -> Iterator[Edit]:
    if before is None or after is None or before.given == after.given:
        return
    values = (ABSENT if number is None else number for number in (before.given, after.given))
    was, value = values
    yield Edit(path=before.path, value=value, was=was)


def _of_rolling(before: Rolling | None, after: Rolling | None) -> Iterator[Edit]:
    if before is None or after is None:
        return
    for name, was, value in (
        ("maxSurge", before.surge, after.surge),
        ("maxUnavailable", before.unavailable, after.unavailable),
    ):
        if was != value:
            yield Edit(path=(*before.path, name), value=value, was=was)


def _lets_change(workload: Obstacle, *, with_template: bool) -> bool:
    """Return whether a Workload follows its Job although it is evicted or deactivated."""
    # Once a Workload was evicted, Kueue takes up a new queue only with a changed pod template:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/reconciler.go#L580
    # It leaves a deactivated one deactivated (``updateWorkloadToMatchJob``), and our controller
    # writes the queue there that Kueue does not take up.
    return workload is Obstacle.DEACTIVATED or (with_template and workload is Obstacle.EVICTED)


def _is_noticed(below: Path, edit: Edit) -> bool:
    """Return whether Kueue notices an edit: it changes something in a container, or a count."""
    match below:
        case ("replicas",):
            return True
        case ("spec", "containers" | "initContainers", _, "resources", *_):
            return not _is_same_amount(edit.was, edit.value)
        case ("spec", "containers" | "initContainers", *_):
            return True
    return False


def _is_same_amount(before: Json | Absent, after: Json | Absent) -> bool:
    # 1 and 1000m are one amount, which Kueue compares as such.
    if before is ABSENT or after is ABSENT:
        return before is after
    return quantity.is_same(before, after)
