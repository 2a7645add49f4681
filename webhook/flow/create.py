"""The way of a new Job: read, matched, its options assessed, one of them chosen, carried out.

Reviews, ``explain`` and ``simulate`` all take this one way, which joins stages that do not know
one another. It is pure: the time comes in as an argument, what the ledger must keep goes out.

A decision that a new Job carries already is of this very admission, or from a copy. The first is
carried out again where other admission has changed the Job since, the second undone only where
nothing else was done to the Job. A signature proves who wrote a decision, not what others have done
since: what it did not leave there is not its own to undo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from webhook.admission import patch
from webhook.decide import filters, holding, match, options, remote_options, strategies, warning
from webhook.decide.applicant import Applicant, Moment, read_applicant
from webhook.decide.decision_record import Recorded
from webhook.flow import carry_out, decided_job
from webhook.flow.decided_job import DecidedJob, RecoveredJob
from webhook.jobs import JobKind, kind_of
from webhook.kueue.requests import unmodelled
from webhook.model import marks
from webhook.model.decision import (
    Assessment,
    CreateOutcome,
    Decided,
    Decision,
    DecisionWith,
    Rejection,
    Skipped,
    taken_of,
)
from webhook.model.edits import Absent, Path
from webhook.model.fields import FieldError, Json
from webhook.model.holds import Hold, gated
from webhook.model.job import Job, Requester
from webhook.model.marks import MARKS
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode
from webhook.model.reasons import LeftAlone, Obstacle, Reason, Skip
from webhook.model.signatures import unsigned_id
from webhook.model.words import clip, rfc3339, span
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.occupancy import Occupancy
from webhook.state.snapshot import Snapshot

_NEVER_QUEUED: Final = frozenset(
    {
        Skip.OWNER_MANAGED,
        Skip.MULTIKUEUE_ORIGIN,
        Skip.PREBUILT_WORKLOAD,
        Skip.NAMESPACE_NOT_MANAGED,
        Skip.KIND_NOT_MANAGED,
        Skip.NO_POD_SETS,
    }
)
"""Reasons to skip a Job that puts no new Workload into a queue."""

_MARKED_ELSEWHERE: Final = frozenset({Skip.MULTIKUEUE_ORIGIN, Skip.PREBUILT_WORKLOAD})
"""Reasons to skip a Job whose marks another cluster put there and needs."""

_STARTS_NOW: Final = "starts now"
"""What a strategy says of a Job that could start at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The settings that a decision depends on."""

    max_state_age_seconds: float = 15.0
    """Longest age of a snapshot that decisions may use."""
    own_namespace: str = ""
    kueue_namespace: str = "kueue-system"
    """Where Kueue runs: what its ServiceAccount writes is never put back."""
    undoes_all: bool = False
    """Whether a decision is undone whatever else has changed the Job, as for one that exists."""
    may_hold: bool = True
    """Whether a controller runs that releases held Jobs; without one, none is held."""
    min_gain_probability: float = 0.8
    """How likely it must be that a Job finishes sooner in the option that it is sent to."""


def dry_run(
    source: Mapping[str, Any],
    snapshot: Snapshot,
    *,
    unix: float,
    requester: Requester | None = None,
    own_namespace: str = "",
) -> CreateOutcome:
    """Decide a Job as admission would; a decision that it carries is undone first.

    Nothing follows from it. *unix* is the snapshot's instant in seconds since 1970; *requester*
    None: nobody knows who asks.

    Raises:
        FieldError: something in the Job cannot be read.

    """
    kind = kind_of(source)
    recorded = decided_job.read_decided_job(source, kind).recorded
    moment = Moment(
        now=snapshot.as_of,
        unix=unix,
        time=rfc3339(unix),
        uid="0",
        # A decision made seconds ago must not count as one of this very admission.
        visible=frozenset() if recorded is None else frozenset({recorded.id}),
        requester=requester,
        is_dry_run=True,
    )
    rules = Rules(own_namespace=own_namespace, undoes_all=True)
    return consider(source, kind, occupancy_of(snapshot, ()), moment, rules)


def consider(
    source: Mapping[str, Any], kind: JobKind, occupancy: Occupancy, moment: Moment, rules: Rules
) -> CreateOutcome:
    """Return the outcome of one Job at its creation, with the place that it takes in a queue.

    Raises:
        FieldError: *source* cannot be read as a Job of *kind*.

    """
    snapshot = occupancy.snapshot
    source = kind.completed(source, snapshot.cluster.training_runtimes)
    incoming = decided_job.read_decided_job(source, kind, snapshot.fallback.signing)
    for pod_set in incoming.current.pod_sets:
        if not pod_set.template.containers:
            raise FieldError("spec.template.spec.containers", "expected at least one container")
    if before := repeated(incoming, occupancy, moment):
        return before
    outcome = _outcome(incoming, occupancy, moment, rules)
    # A Job that is left as submitted takes a place in its queue, too: without it, a burst of
    # such Jobs would be invisible to later reviews.
    is_queued = isinstance(outcome, Decided) or outcome.skip not in _NEVER_QUEUED
    if outcome.arrival is not None or not is_queued:
        return outcome
    arrival = carry_out.as_submitted(incoming.current, snapshot, uid=moment.uid)
    return replace(outcome, arrival=arrival)


def _outcome(
    incoming: DecidedJob, occupancy: Occupancy, moment: Moment, rules: Rules
) -> CreateOutcome:
    """Return the outcome of a Job that this admission has not decided yet."""
    if incoming.doubt is Obstacle.NEWER_DECISION:
        return Skipped(skip=Skip.DECIDED_ALREADY, warnings=incoming.warnings)
    # Read: the Job as it was submitted, without the decision that it carries.
    case, said = incoming.recovered_if_possible(), incoming.warnings
    if not rules.undoes_all:
        case, not_undone = undone(incoming, case, occupancy)
        said = (*said, *not_undone)
    unmarked = marks.unmarked(case.submitted)
    if unmarked is not case.submitted:
        case = replace(case, submitted=unmarked)
    # Match.
    policy = match.matched(
        case.submitted,
        occupancy.snapshot,
        own_namespace=rules.own_namespace,
        requester=moment.requester,
    )
    if isinstance(policy, Skipped):
        # A manager cluster copies its marks to the worker; anywhere else they are forged or copied.
        edits = () if policy.skip in _MARKED_ELSEWHERE else carry_out.unproven(case)
        return replace(policy, edits=edits, warnings=(*said, *policy.warnings))
    # Options, the choice of one, and the edits that carry it out.
    outcome = _decided(case, policy, occupancy, moment, rules)
    if what := patch.too_large(case.source, outcome.edits):
        # The Job would be too large to store, so it stays as it is.
        outcome = carry_out.without_edits(case, outcome.decision, what)
    warnings = warning.by_policy(policy.spec, outcome.warnings)
    warnings = (*said, *warnings) if policy.spec.warn else warnings
    return outcome if warnings == outcome.warnings else replace(outcome, warnings=warnings)


def _decided(
    case: RecoveredJob, policy: FallbackPolicy, occupancy: Occupancy, moment: Moment, rules: Rules
) -> Decided:
    keys = moment.keys(occupancy.snapshot)
    age, limit = max(0.0, moment.now - occupancy.snapshot.as_of), rules.max_state_age_seconds
    decision: partial[Decision] = partial(
        DecisionWith,
        id=decided_job.new_id(case.current, moment.uid),
        time=moment.time,
        policy=policy.name,
        mode=policy.spec.mode,
        from_queue=case.submitted.queue,
        state_age_seconds=round(age, 3),
    )

    def left(because: LeftAlone, why: str) -> Decided:
        reason = f"left as submitted: {why}"
        return carry_out.left(case, decision(option=None, left_alone=because, reason=reason), keys)

    # A decision on old figures would be a guess, so the Job is left as it was submitted.
    if age > limit:
        seen = f"the queues were last seen {span(age)} ago (limit {span(limit)})"
        return left(LeftAlone.STALE, f"stale: {seen}")
    # A worker cluster that has been silent for too long takes no Job (decision 0016).
    current = remote_options.fresh(occupancy, moment.now, limit)
    # An annotation that cannot be read leaves the Job alone: its author meant something by it.
    try:
        applicant = read_applicant(
            case.submitted, policy, current, moment, probability=rules.min_gain_probability
        )
    except FieldError as error:
        return left(LeftAlone.UNREADABLE, str(error))
    if why := applicant.unmodelled:
        return left(LeftAlone.UNMODELLED, why)
    chosen = _chosen(decision, applicant, options.assess(applicant))
    chosen = _held(chosen, applicant, may_hold=rules.may_hold)
    return carry_out.apply(case, applicant, chosen, keys=keys)


def _chosen(
    decision: partial[Decision], applicant: Applicant, assessments: tuple[Assessment, ...]
) -> Decision:
    """Return the decision with the option that is taken, or why none is."""
    # The option of the Job's own queue cannot be judged: Kueue may well admit the Job there, so
    # this is no reason to send it elsewhere.
    for option in assessments:
        refused = option.rejection
        if option.queue == applicant.submitted and refused and refused.reason is Reason.UNSUPPORTED:
            reason = clip(f"left as submitted: {refused.detail}")
            left = LeftAlone.UNMODELLED
            return decision(option=None, left_alone=left, reason=reason, options=assessments)
    choice = strategies.choose(applicant, assessments)
    for index, why in choice.passed_over.items():
        assessments[index].passed_over = why
    taken = None if choice.index is None else assessments[choice.index]
    restrained = applicant.policy.restrained
    return decision(
        options=assessments,
        option=None if taken is None else taken.option,
        left_alone=LeftAlone.NO_OPTION if taken is None else None,
        reason=clip(f"only observed ({restrained}): {choice.sentence}")
        if restrained
        else choice.sentence,
    )


def _held(chosen: Decision, applicant: Applicant, *, may_hold: bool) -> Decision:
    """Return a decision with its hold, or with why there is none though the Job may wait."""
    taken = taken_of(chosen)
    hold = holding.hold_or_why_not(applicant, taken) if taken is not None else None
    if isinstance(hold, Hold) and not may_hold:
        hold = "not held: no controller is installed that would release it"
    if isinstance(hold, str):
        return replace(chosen, reason=clip(f"{chosen.reason}; {hold}"))
    if hold is None:
        return chosen
    until = f"held until {rfc3339(hold.until)}" if hold.saves else "held until there is room"
    told = chosen.reason.replace(_STARTS_NOW, f"{until} (figures are of a start now)", 1)
    if _STARTS_NOW not in chosen.reason:
        told = f"{chosen.reason}; {until}"
    return replace(chosen, hold=hold, reason=clip(told))


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
    decision: partial[Decision] = partial(
        DecisionWith,
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
