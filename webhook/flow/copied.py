"""Tells what other admission has made of a Job since it was decided.

So the decision in a copy of a Job is undone only where nothing else was done to it, and one of this
very admission is carried out again where something was. A signature proves who wrote a decision,
not what others have done to the Job since: what it did not leave there is not its own to undo.
"""

from __future__ import annotations

from webhook.admission.patch import original_from_json, pattern_of, same_value, value_at
from webhook.decide import filters, match, options, warning
from webhook.flow import carry_out
from webhook.flow.decided_job import DecidedJob, RecoveredJob
from webhook.kueue.occupancy import Occupancy
from webhook.kueue.requests import unmodelled
from webhook.model.decision import Assessment, Rejection
from webhook.model.edits import Absent, Path
from webhook.model.fields import FieldError, Json
from webhook.model.holds import gated
from webhook.model.job import Job
from webhook.model.marks import MARKS


def undone(incoming: DecidedJob, occupancy: Occupancy) -> tuple[RecoveredJob, tuple[str, ...]]:
    """Return the Job with the decision that it carries undone, and warnings.

    It is undone as a whole or not at all: only if each recorded place still holds what the
    decision's option writes there.
    """
    case = incoming.recovered_if_possible()
    if case.recorded is None or not case.recorded.original:
        return case, ()
    try:
        changed = _changed_place(case, occupancy)
    except FieldError:
        changed = "pod template"
    if not changed:
        return case, ()
    return incoming.as_it_came(), warning.no_longer_its_own(changed)


def changed_since(incoming: DecidedJob, occupancy: Occupancy) -> RecoveredJob | None:
    """Return the Job as it would be submitted now, where its option would not make that of it.

    Values that others have put in the place of the decision's are theirs, and stay. None: it is
    as the option leaves it, or what that would be is not known any more.

    Raises:
        FieldError: the submitted values cannot be put back, or something in the Job cannot be read.

    """
    case = incoming.recovered()
    after = _after(case, occupancy)
    if after is None:
        return None
    written = _written(case, after)
    theirs = frozenset(
        path
        for path in case.original
        # Marks are always our own, and the class is not known here.
        if path in written
        and path[-1] not in MARKS
        and not same_value(path, value_at(case.source, path), written[path])
    )
    if theirs:
        case = incoming.recovered(but=theirs)
        after = _after(case, occupancy) or after
    left = case.kind.edits(case.current, after)
    is_as_left = all(edit.path[-1] in MARKS for edit in left)
    snapshot, submitted = occupancy.snapshot, case.submitted
    if is_as_left and options.invalid(submitted, after, snapshot) is None:
        queue = match.submission(submitted, snapshot).queue
        return case if unmodelled(submitted, queue, snapshot) else None
    return case


def _changed_place(case: RecoveredJob, occupancy: Occupancy) -> str:
    """Name a place that does not hold what the decision's option writes there; empty: all do."""
    after = _after(case, occupancy)
    written = _written(case, after) if after is not None else {}
    recorded = original_from_json(case.recorded.original if case.recorded else {})
    for path in recorded:
        # Parents are taken off only if nothing is left in them, and marks are always our own.
        is_parent = isinstance(pattern_of(path, case.kind.allowed), dict)
        if is_parent or path[-1] in MARKS:
            continue
        if path not in written or not same_value(path, value_at(case.source, path), written[path]):
            return path[-1]
    return ""


def _written(case: RecoveredJob, after: Job) -> dict[Path, Json | Absent]:
    return {edit.path: edit.value for edit in case.kind.edits(case.submitted, after)}


def _after(case: RecoveredJob, occupancy: Occupancy) -> Job | None:
    """Return the Job as the decision's option leaves it; None: there is no such option any more.

    Raises:
        FieldError: something in the Job cannot be read.

    """
    recorded, submitted, snapshot = case.recorded, case.submitted, occupancy.snapshot
    policy = match.named(recorded.policy, submitted.namespace, snapshot) if recorded else None
    known = policy.spec.options if policy is not None else ()
    option = next((each for each in known if recorded and each.name == recorded.option), None)
    if recorded is None or policy is None or option is None:
        return None
    queue = match.submission(submitted, snapshot).queue
    queues = filters.resolve(option, submitted, queue, occupancy)
    if isinstance(queues, Rejection):
        return None
    local_queue, cluster_queue = queues
    after = options.adapted(submitted, option, policy)
    after = options.in_topologies(after, option.adaptation, cluster_queue, snapshot)
    taken = Assessment(option=option.name, queue=local_queue.name, job=after)
    after = carry_out.under(after, policy, taken, decision_id=recorded.id, class_text="")
    return gated(after) if recorded.hold is not None else after
