"""Tells whether Kubernetes accepts edits to a pending Job, and whether Kueue takes them up.

In the pod template of a suspended Job only resources and scheduling directives may change; and
Kueue notices a changed template only by its containers. It must not know why a Job is moved.
https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/apis/batch/validation/validation.go#L643
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/util/equality/podset.go#L41
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from webhook.jobs.batch import TEMPLATE
from webhook.model import quantity
from webhook.model.edits import ABSENT, Absent, Edit, Path
from webhook.model.fields import FieldError, Json
from webhook.model.job import (
    DECIDED_BY,
    DECISION_ID,
    JOB_CLASS,
    OPTION_LABEL,
    PRIORITY_LABEL,
    QUEUE_LABEL,
)
from webhook.model.reasons import Obstacle

_PRIORITY: Path = ("metadata", "labels", PRIORITY_LABEL)
"""Kueue's webhook lets it be added and changed, but not removed."""
_FOLLOWED: frozenset[Path] = frozenset({("metadata", "labels", QUEUE_LABEL), _PRIORITY})
"""Beside the pod template, the fields that Kueue takes over into the Workload."""
_OUR_MARKS = frozenset(
    {
        ("metadata", "labels", OPTION_LABEL),
        *(("metadata", "annotations", name) for name in (DECISION_ID, DECIDED_BY, JOB_CLASS)),
    }
)


def obstacle(edits: Iterable[Edit], *, workload: Obstacle | None = None) -> Obstacle | None:
    """Return why *edits* to a pending Job cannot be made or go unnoticed by Kueue; None: they can.

    Our own marks on the pod template do not count, as a move without other changes to it leaves
    them (see ``changes_template``). *workload* is why the Job's Workload rules a move out.
    """
    edits = tuple(edits)
    for edit in edits:
        if refusal := _immutable(edit):
            return refusal
    changed = _of_template(edits)
    if not changed and not any(edit.path in _FOLLOWED for edit in edits):
        return None
    # Once a Workload was evicted, Kueue takes up a new queue only with a changed pod template:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/reconciler.go#L580
    if workload is not None and not (changed and workload is Obstacle.EVICTED):
        return workload
    is_noticed = not changed or any(map(_is_noticed, changed))
    return None if is_noticed else Obstacle.KUEUE_WOULD_NOT_NOTICE


def changes_template(edits: Iterable[Edit]) -> bool:
    """Tell whether the pod template changes in more than our marks.

    Where it does not, only the queue label moves. The template then stays as it is, marks included,
    because Kueue would not take new marks over and would write the old ones back.
    """
    return bool(_of_template(edits))


def _of_template(edits: Iterable[Edit]) -> list[Edit]:
    return [edit for edit in edits if _within(edit.path) and _within(edit.path) not in _OUR_MARKS]


def _within(path: Path) -> Path:
    """Return the part of a path below the pod template; empty: it is not in it."""
    return path[len(TEMPLATE) :] if path[: len(TEMPLATE)] == TEMPLATE else ()


def _immutable(edit: Edit) -> Obstacle | None:
    if edit.path == _PRIORITY and edit.value is ABSENT:
        return Obstacle.IMMUTABLE_PRIORITY
    match _within(edit.path):
        case ("spec", "containers" | "initContainers", _, "image"):
            return Obstacle.IMMUTABLE_IMAGE
        case ("spec", "containers" | "initContainers", _, "env", _):
            return Obstacle.IMMUTABLE_ENV
        case ("spec", "runtimeClassName"):
            return Obstacle.IMMUTABLE_RUNTIME_CLASS
        case ("spec", "affinity") if _between_pods(edit.was) != _between_pods(edit.value):
            return Obstacle.IMMUTABLE_AFFINITY
    return None


def _between_pods(affinity: Json | Absent) -> Mapping[str, Json]:
    """Return the parts of an affinity that are immutable: all but node affinity."""
    if not isinstance(affinity, Mapping):
        return {}
    return {
        kind: terms
        for kind, terms in affinity.items()
        if kind != "nodeAffinity" and terms is not None
    }


def _is_noticed(edit: Edit) -> bool:
    """Tell whether Kueue notices an edit: it changes the amount of a container's resource."""
    match _within(edit.path):
        case ("spec", "containers" | "initContainers", _, "resources", *_):
            return not _is_same_amount(edit.was, edit.value)
    return False


def _is_same_amount(before: Json | Absent, after: Json | Absent) -> bool:
    # 1 and 1000m are one amount, which Kueue compares as such.
    if before is ABSENT or after is ABSENT:
        return before is after
    try:
        return quantity.exact(str(before)) == quantity.exact(str(after))
    except FieldError:
        return before == after
