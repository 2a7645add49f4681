"""The way of a new Job: read, matched, its options assessed, one of them chosen, carried out.

Reviews, ``explain`` and ``simulate`` all take this one way, which joins stages that do not know
one another. It is pure: the time comes in as an argument, what the ledger must keep goes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from webhook.admission import patch
from webhook.decide import holding, match, options, remote_options, strategies, warning
from webhook.decide.applicant import Applicant, Moment, read_applicant
from webhook.flow import carry_out, copied, decided_job
from webhook.flow.decided_job import DecidedJob, RecoveredJob
from webhook.jobs import JobKind, kind_of
from webhook.model import marks
from webhook.model.decision import (
    Assessment,
    CreateOutcome,
    Decided,
    Decision,
    Skipped,
    taken_of,
)
from webhook.model.fields import FieldError
from webhook.model.holds import Hold
from webhook.model.job import Requester
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.reasons import LeftAlone, Obstacle, Reason, Skip
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
    if not all(pod_set.template.containers for pod_set in incoming.current.pod_sets):
        raise FieldError("spec.template.spec.containers", "expected at least one container")
    if before := copied.repeated(incoming, occupancy, moment):
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
        case, not_undone = copied.undone(incoming, case, occupancy)
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
    decision = partial(
        Decision,
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
