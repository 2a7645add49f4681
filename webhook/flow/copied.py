"""What becomes of a decision that a new Job carries: of this very admission, or from a copy.

The first is carried out again where other admission has changed the Job since, the second undone
only where nothing else was done to the Job. A signature proves who wrote a decision, not what
others have done since: what it did not leave there is not its own to undo.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from webhook.admission import patch
from webhook.decide import filters, match, options, warning
from webhook.decide.applicant import Applicant, Moment, read_applicant
from webhook.decide.decision_record import Recorded
from webhook.flow import carry_out
from webhook.flow.decided_job import DecidedJob, RecoveredJob
from webhook.kueue.requests import unmodelled
from webhook.model import marks
from webhook.model.decision import Assessment, CreateOutcome, Decided, Decision, Rejection, Skipped
from webhook.model.edits import Absent, Path
from webhook.model.fields import FieldError, Json
from webhook.model.holds import gated
from webhook.model.job import Job
from webhook.model.marks import MARKS
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode
from webhook.model.reasons import LeftAlone, Obstacle, Skip
from webhook.model.signatures import unsigned_id
from webhook.state.occupancy import Occupancy

REINVOCATION_SECONDS: Final = 30.0
"""A decision older than this counts as one that came with the manifest, whatever else it says."""


def repeated(incoming: DecidedJob, occupancy: Occupancy, moment: Moment) -> CreateOutcome | None:
    """Return the outcome of a Job that was decided in this very admission; None: it was not."""
    if moment.is_dry_run and incoming.doubt is Obstacle.FOREIGN_DECISION:
        # What the first call of a dry run decided is not signed.
        incoming = replace(incoming, doubt=None)
    recorded, raw = incoming.believed, incoming.current
    # With reinvocationPolicy IfNeeded the API server calls again once Kueue's webhook has changed
    # the Job (decision 0007). The digest of the name in the decision's id rules out a copy of the
    # manifest under another name, a Workload with this id a copy of a Job that exists.
    if (
        recorded is None
        or not 0 <= moment.unix - recorded.unix <= REINVOCATION_SECONDS
        or not incoming.is_made_for_it
        or recorded.id in moment.visible
    ):
        return None
    if again := _carried_out_again(incoming, recorded, occupancy, moment):
        return again
    # The API server has passed on the warnings of the first call already.
    arrival = carry_out.decided_before(raw, recorded, occupancy.snapshot)
    return Skipped(skip=Skip.DECIDED_ALREADY, arrival=arrival)


def _carried_out_again(
    incoming: DecidedJob, recorded: Recorded, occupancy: Occupancy, moment: Moment
) -> Decided | None:
    """Carry a decision out on what other admission has made of the Job since, or undo it whole.

    None: nothing that the decision is about was changed, or what was cannot be told.
    """
    snapshot = occupancy.snapshot
    if recorded.option is None:
        return None
    try:
        case = _changed_since(incoming, occupancy)
    except FieldError:
        # Without a record that can be read there is nothing to carry out, and nothing to undo.
        return None
    policy = match.named(recorded.policy, incoming.current.namespace, snapshot)
    if case is None or policy is None or policy.spec.mode is not Mode.ENFORCE:
        return None
    case = replace(case, submitted=marks.unmarked(case.submitted))
    keys = moment.keys(snapshot)
    applicant, assessments, why_not = _possible_still(
        case.submitted, policy, recorded, occupancy, moment
    )
    decision = partial(
        Decision,
        id=unsigned_id(recorded.id),
        time=recorded.time,
        policy=policy.name,
        mode=policy.spec.mode,
        from_queue=case.submitted.queue,
        state_age_seconds=round(max(0.0, moment.now - snapshot.as_of), 3),
        options=assessments,
    )
    if applicant is not None and not why_not:
        again = decision(
            option=recorded.option, left_alone=None, reason=recorded.reason, hold=recorded.hold
        )
        outcome = carry_out.apply(case, applicant, again, keys=keys)
        why_not = patch.too_large(case.source, outcome.edits)
    if why_not:
        reason = f"left as submitted: other admission changed it since, and {why_not}"
        undone = decision(option=None, left_alone=LeftAlone.CHANGED_SINCE, reason=reason)
        outcome = carry_out.taken_back(case, undone, keys)
        arrival = carry_out.as_submitted(case.submitted, snapshot, uid=moment.uid)
        outcome = replace(outcome, arrival=arrival)
    said = warning.changed_since(outcome.decision, left=recorded.option)
    return replace(outcome, warnings=warning.by_policy(policy.spec, said))


def _possible_still(
    job: Job, policy: FallbackPolicy, recorded: Recorded, occupancy: Occupancy, moment: Moment
) -> tuple[Applicant | None, tuple[Assessment, ...], str]:
    """Assess all options, and say what rules out the one that a decision has taken; empty: nothing.

    What other admission has written and cannot be read rules it out, too.
    """
    try:
        applicant = read_applicant(job, policy, occupancy, moment)
        if why_not := applicant.unmodelled:
            return applicant, (), why_not
        assessments = options.assess(applicant)
    except FieldError as error:
        return None, (), str(error)
    taken = next(each for each in assessments if each.option == recorded.option)
    return applicant, assessments, str(taken.rejection or "")


def _changed_since(incoming: DecidedJob, occupancy: Occupancy) -> RecoveredJob | None:
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
        and not patch.same_value(path, patch.value_at(case.source, path), written[path])
    )
    if theirs:
        case = incoming.recovered(but=theirs)
        after = _after(case, occupancy) or after
    left = case.kind.edits(case.current, after)
    is_as_left = all(edit.path[-1] in MARKS for edit in left)
    snapshot, submitted = occupancy.snapshot, case.submitted
    if is_as_left and options.invalid(submitted, after, snapshot) is None:
        queue = match.submission(submitted, snapshot)
        return case if unmodelled(submitted, queue, snapshot.setup, snapshot.cluster) else None
    return case


def undone(
    incoming: DecidedJob, case: RecoveredJob, occupancy: Occupancy
) -> tuple[RecoveredJob, tuple[str, ...]]:
    """Return the Job with the decision that it carries undone, and warnings.

    It is undone as a whole, as *case* is, or not at all: only if each recorded place still holds
    what the decision's option writes there.
    """
    if case.recorded is None or not case.recorded.original:
        return case, ()
    try:
        changed = _changed_place(case, case.recorded, occupancy)
    except FieldError:
        changed = "pod template"
    if not changed:
        return case, ()
    return incoming.as_it_came(), warning.no_longer_its_own(changed)


def _changed_place(case: RecoveredJob, recorded: Recorded, occupancy: Occupancy) -> str:
    """Name a place that does not hold what the decision's option writes there; empty: all do."""
    after = _after(case, occupancy)
    written = _written(case, after) if after is not None else {}
    for path in patch.original_from_json(recorded.original):
        # Parents are taken off only if nothing is left in them, and marks are always our own.
        is_parent = isinstance(patch.pattern_of(path, case.kind.allowed), dict)
        if is_parent or path[-1] in MARKS:
            continue
        value = patch.value_at(case.source, path)
        if path not in written or not patch.same_value(path, value, written[path]):
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
    submission = match.submission(submitted, snapshot)
    queues = filters.resolve(option, submitted, submission, snapshot)
    if isinstance(queues, Rejection):
        return None
    local_queue, cluster_queue = queues
    after = options.adapted(submitted, option, policy)
    after = options.in_topologies(after, option.adaptation, cluster_queue, snapshot)
    taken = Assessment(option=option.name, queue=local_queue.name, job=after)
    after = carry_out.under(after, policy, taken, decision_id=recorded.id, class_text="")
    return gated(after) if recorded.hold is not None else after
