"""Tells whether Kubernetes accepts edits to a pending Job, and whether Kueue takes them up.

What may change in the pod templates of a suspended Job depends on its kind; and Kueue notices a
changed template only by its containers. It must not know why a Job is moved.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/util/equality/podset.go#L41
"""

from __future__ import annotations

from collections.abc import Iterable

from webhook.jobs.job_kind import JobKind
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


def obstacle(
    edits: Iterable[Edit], kind: JobKind, *, workload: Obstacle | None = None
) -> Obstacle | None:
    """Return why *edits* to a pending Job cannot be made or go unnoticed by Kueue; None: they can.

    Our own marks on the pod template do not count, as a move without other changes to it leaves
    them (see ``changes_template``). *workload* is why the Job's Workload rules a move out.
    """
    edits = tuple(edits)
    for edit in edits:
        if edit.path == _PRIORITY and edit.value is ABSENT:
            return Obstacle.IMMUTABLE_PRIORITY
        if refusal := kind.immutable(kind.below_template(edit.path), edit):
            return refusal
    changed = _of_template(edits, kind)
    if not changed and not any(edit.path in _FOLLOWED for edit in edits):
        return None
    # Once a Workload was evicted, Kueue takes up a new queue only with a changed pod template:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/reconciler.go#L580
    if workload is not None and not (changed and workload is Obstacle.EVICTED):
        return workload
    is_noticed = not changed or any(_is_noticed(below, edit) for below, edit in changed)
    return None if is_noticed else Obstacle.KUEUE_WOULD_NOT_NOTICE


def changes_template(edits: Iterable[Edit], kind: JobKind) -> bool:
    """Tell whether a pod template changes in more than our marks.

    Where it does not, only the queue label moves. The template then stays as it is, marks included,
    because Kueue would not take new marks over and would write the old ones back.
    """
    return bool(_of_template(edits, kind))


def _of_template(edits: Iterable[Edit], kind: JobKind) -> list[tuple[Path, Edit]]:
    """List the edits to pod templates, without those of our marks, with their paths below these."""
    placed = ((kind.below_template(edit.path), edit) for edit in edits)
    return [(below, edit) for below, edit in placed if below and below not in _OUR_MARKS]


def _is_noticed(below: Path, edit: Edit) -> bool:
    """Tell whether Kueue notices an edit: it changes something in a container."""
    match below:
        case ("spec", "containers" | "initContainers", _, "resources", *_):
            return not _is_same_amount(edit.was, edit.value)
        case ("spec", "containers" | "initContainers", *_):
            return True
    return False


def _is_same_amount(before: Json | Absent, after: Json | Absent) -> bool:
    # 1 and 1000m are one amount, which Kueue compares as such.
    if before is ABSENT or after is ABSENT:
        return before is after
    try:
        return quantity.exact(str(before)) == quantity.exact(str(after))
    except FieldError:
        return before == after
