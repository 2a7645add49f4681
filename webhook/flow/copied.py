"""Undoes the decision in a manifest that is created anew, such as a copy of a Job that was decided.

A signature proves who wrote a decision, not what other admission has done to the Job since: what
the decision did not leave there is not its own to undo.
"""

from __future__ import annotations

from webhook.admission.original import original_from_json, same_value
from webhook.admission.paths import pattern_of, value_at
from webhook.decide import filters, match, options, topology_choice, warning
from webhook.flow import carry_out
from webhook.flow.decided_job import DecidedJob, RecoveredJob
from webhook.kueue.occupancy import Occupancy
from webhook.model.decision import Assessment, Rejection
from webhook.model.edits import Edit
from webhook.model.fields import FieldError
from webhook.model.holds import gated
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


def _changed_place(case: RecoveredJob, occupancy: Occupancy) -> str:
    """Name a place that does not hold what the decision's option writes there; empty: all do."""
    written = {edit.path: edit.value for edit in _edits(case, occupancy)}
    recorded = original_from_json(case.recorded.original if case.recorded else {})
    for path in recorded:
        # Parents are taken off only if nothing is left in them, and marks are always our own.
        is_parent = isinstance(pattern_of(path, case.kind.allowed), dict)
        if is_parent or path[-1] in MARKS:
            continue
        if path not in written or not same_value(path, value_at(case.source, path), written[path]):
            return path[-1]
    return ""


def _edits(case: RecoveredJob, occupancy: Occupancy) -> tuple[Edit, ...]:
    """List what the decision's option changes in the Job as it was submitted.

    Raises:
        FieldError: something in the Job cannot be read.

    """
    recorded, submitted, snapshot = case.recorded, case.submitted, occupancy.snapshot
    policy = match.named(recorded.policy, submitted.namespace, snapshot) if recorded else None
    known = policy.spec.options if policy is not None else ()
    option = next((each for each in known if recorded and each.name == recorded.option), None)
    if recorded is None or policy is None or option is None:
        return ()
    queue = match.submission(submitted, snapshot).queue
    queues = filters.resolve(option, submitted, queue, occupancy)
    if isinstance(queues, Rejection):
        return ()
    local_queue, cluster_queue = queues
    after = options.adapted(submitted, option, policy)
    after = topology_choice.settled(after, option.adaptation, cluster_queue, snapshot)
    taken = Assessment(option=option.name, queue=local_queue.name, job=after)
    after = carry_out.under(after, policy, taken, decision_id=recorded.id, class_text="")
    after = gated(after) if recorded.hold is not None else after
    return case.kind.edits(submitted, after)
