"""Turns a Job at its creation into an outcome: matched, options assessed, one of them chosen.

Reviews, ``explain`` and ``simulate`` all take this one way, which joins stages that do not know
one another. It is pure: the time comes in as an argument, what the ledger must keep goes out.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from webhook.admission import patch
from webhook.decide import (
    decision_record,
    expectations,
    holding,
    match,
    options,
    remote_options,
    strategies,
    warning,
)
from webhook.decide.decision_record import Recorded
from webhook.decide.filters import Applicant
from webhook.decide.holding import HoldCase
from webhook.decide.strategies import Asking
from webhook.decide.warning import Differences
from webhook.decide.wishes import Wishes, check_own_keys, read_wishes
from webhook.flow import carry_out, copied, decided_job
from webhook.flow.decided_job import DecidedJob, RecoveredJob
from webhook.jobs import JobKind
from webhook.kueue.occupancy import Occupancy
from webhook.kueue.requests import unmodelled
from webhook.model import marks
from webhook.model.decision import Assessment, CreateOutcome, Decided, Decision, Skipped
from webhook.model.fields import FieldError
from webhook.model.holds import Hold
from webhook.model.job import Job
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode
from webhook.model.queues import Snapshot
from webhook.model.reasons import LeftAlone, Obstacle, Reason, Skip
from webhook.model.requester import Requester
from webhook.model.signatures import SigningKeys, unsigned_id
from webhook.model.words import clip, rfc3339, span

_NEVER_QUEUED = frozenset(
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

_MARKED_ELSEWHERE = frozenset({Skip.MULTIKUEUE_ORIGIN, Skip.PREBUILT_WORKLOAD})
"""Reasons to skip a Job whose marks another cluster put there and needs."""

_NOT_IN_IDS = re.compile(r"[\W_]+")

REINVOCATION_SECONDS = 30.0
"""A decision older than this counts as one that came with the manifest, whatever else it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The time of a review, what identifies it, and the user who asks."""

    now: float
    """Seconds on the clock of ``Snapshot.as_of``."""
    unix: float
    """Seconds since 1970."""
    time: str
    """The same instant as RFC 3339 in UTC, whole seconds."""
    uid: str
    """The review's UID. It is random, so ids of decisions are made from it."""
    visible: Container[str] = frozenset()
    """Ids of decisions whose Workloads have been observed lately."""
    requester: Requester | None = None
    """The user who asks; None: unknown."""
    is_dry_run: bool = False
    """Whether nothing follows from the answer, so that nothing in it is signed."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a Job's own annotations ask for."""

    allowed: frozenset[str] | None
    """The names of the options that it allows; None: every option."""
    wishes: Wishes


def consider(
    source: Mapping[str, Any], kind: JobKind, occupancy: Occupancy, moment: Moment, rules: Rules
) -> CreateOutcome:
    """Return the outcome of one Job at its creation, with the place that it takes in a queue.

    Raises:
        FieldError: *source* cannot be read as a Job of *kind*.

    """
    source = kind.completed(source, occupancy.snapshot.training_runtimes)
    incoming = decided_job.read(source, kind, occupancy.snapshot.signing)
    raw = incoming.current
    if not all(pod_set.template.containers for pod_set in raw.pod_sets):
        raise FieldError("spec.template.spec.containers", "expected at least one container")
    if before := _repeated(incoming, occupancy, moment):
        return before
    outcome = _outcome(incoming, occupancy, moment, rules)
    # A Job that is left as submitted takes a place in its queue, too: without it, a burst of
    # such Jobs would be invisible to later reviews.
    if outcome.arrival is not None or _is_never_queued(outcome):
        return outcome
    arrival = carry_out.as_submitted(raw, occupancy.snapshot, uid=moment.uid)
    return replace(outcome, arrival=arrival)


def _repeated(incoming: DecidedJob, occupancy: Occupancy, moment: Moment) -> CreateOutcome | None:
    """Return the outcome of a Job that was decided in this very admission; None: it was not."""
    if moment.is_dry_run and incoming.doubt is Obstacle.FOREIGN_DECISION:
        # What the first call of a dry run decided is not signed.
        incoming = replace(incoming, doubt=None)
    recorded, raw = incoming.believed, incoming.current
    if recorded is None or not _is_reinvocation(raw, recorded, moment):
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
    policy = match.named(recorded.policy, incoming.current.namespace, snapshot)
    if policy is None or policy.spec.mode is not Mode.ENFORCE or recorded.option is None:
        return None
    try:
        case = copied.changed_since(incoming, occupancy)
    except FieldError:
        # Without a record that can be read there is nothing to carry out, and nothing to undo.
        return None
    if case is None:
        return None
    case = replace(case, submitted=marks.unmarked(case.submitted))
    decision = partial(
        Decision,
        id=unsigned_id(recorded.id),
        time=recorded.time,
        policy=policy.name,
        mode=policy.spec.mode,
        from_queue=match.submission(case.submitted, snapshot).named,
        state_age_seconds=round(max(0.0, moment.now - snapshot.as_of), 3),
    )
    keys = signing(snapshot, moment)
    assessments, why_not = _possible_still(case.submitted, policy, recorded, occupancy, moment)
    if not why_not:
        again = decision(
            option=recorded.option,
            left_alone=None,
            reason=recorded.reason,
            hold=recorded.hold,
            options=assessments,
        )
        outcome = carry_out.apply(case, policy, again, occupancy, keys=keys)
        why_not = patch.too_large(case.source, outcome.edits)
    if why_not:
        reason = f"left as submitted: other admission changed it since, and {why_not}"
        undone = decision(
            option=None,
            left_alone=LeftAlone.CHANGED_SINCE,
            reason=reason,
            options=assessments,
        )
        outcome = carry_out.taken_back(case, undone, keys)
        arrival = carry_out.as_submitted(case.submitted, snapshot, uid=moment.uid)
        outcome = replace(outcome, arrival=arrival)
    said = warning.changed_since(outcome.decision, left=recorded.option)
    return replace(outcome, warnings=warning.by_policy(policy.spec, said))


def _possible_still(
    job: Job,
    policy: FallbackPolicy,
    recorded: Recorded,
    occupancy: Occupancy,
    moment: Moment,
) -> tuple[tuple[Assessment, ...], str]:
    """Assess all options, and say what rules out the one that a decision has taken; empty: nothing.

    What other admission has written and cannot be read rules it out, too.
    """
    try:
        queue = match.submission(job, occupancy.snapshot).queue
        if why_not := _not_modelled(job, policy, queue, occupancy.snapshot):
            return (), why_not
        wanted = read_wanted(job, policy, moment.unix)
        assessments = assessed(job, policy, occupancy, wanted=wanted, moment=moment)
    except FieldError as error:
        return (), str(error)
    taken = next(each for each in assessments if each.option == recorded.option)
    return assessments, str(taken.rejection or "")


def _outcome(
    incoming: DecidedJob, occupancy: Occupancy, moment: Moment, rules: Rules
) -> CreateOutcome:
    """Return the outcome of a Job that this admission has not decided yet."""
    if incoming.doubt is Obstacle.NEWER_DECISION:
        return Skipped(skip=Skip.DECIDED_ALREADY, warnings=incoming.warnings)
    if rules.undoes_all:
        case, said = incoming.recovered_if_possible(), incoming.warnings
    else:
        case, said = copied.undone(incoming, occupancy)
        said = (*incoming.warnings, *said)
    unmarked = marks.unmarked(case.submitted)
    if unmarked is not case.submitted:
        case = replace(case, submitted=unmarked)
    outcome, policy = _anew(case, occupancy, moment, rules)
    warns = policy is None or policy.spec.warn
    if said and warns:
        outcome = replace(outcome, warnings=(*said, *outcome.warnings))
    return outcome


def _anew(
    case: RecoveredJob, occupancy: Occupancy, moment: Moment, rules: Rules
) -> tuple[CreateOutcome, FallbackPolicy | None]:
    """Return the outcome of a Job as it was submitted, and the policy that applies; None: none."""
    snapshot = occupancy.snapshot
    skipped = match.skip(case.submitted, snapshot)
    if skipped is not None:
        # A manager cluster copies its marks to the worker; anywhere else they are forged or copied.
        edits = () if skipped in _MARKED_ELSEWHERE else carry_out.unproven(case)
        return Skipped(skip=skipped, edits=edits, job=case.submitted), None
    try:
        policy = match.policy_for(
            case.submitted,
            snapshot,
            own_namespace=rules.own_namespace,
            requester=moment.requester,
        )
    except FieldError as error:
        # The Job names a policy that does not match it. Jobs are never refused, so it only says so.
        warnings = warning.sentence(f"left as submitted: {error}")
        edits = carry_out.unproven(case)
        skip = Skipped(skip=Skip.NO_POLICY, edits=edits, warnings=warnings, job=case.submitted)
        return skip, None
    if policy is None:
        edits = carry_out.unproven(case)
        return Skipped(skip=Skip.NO_POLICY, edits=edits, job=case.submitted), None
    decision = _decide(case, policy, occupancy, moment, rules)
    keys = signing(snapshot, moment)
    outcome = _if_it_fits(case, carry_out.apply(case, policy, decision, occupancy, keys=keys))
    said = warning.by_policy(policy.spec, outcome.warnings)
    return (outcome if said is outcome.warnings else replace(outcome, warnings=said)), policy


def _is_never_queued(outcome: CreateOutcome) -> bool:
    return isinstance(outcome, Skipped) and outcome.skip in _NEVER_QUEUED


def _if_it_fits(case: RecoveredJob, outcome: Decided) -> Decided:
    """Return the outcome, or one without edits where they would make the Job too large to store."""
    what = patch.too_large(case.source, outcome.edits)
    if not what:
        return outcome
    decision = replace(
        outcome.decision,
        option=None,
        left_alone=LeftAlone.TOO_LARGE,
        reason=f"left as submitted: {what}",
        changed=(),
    )
    warnings = warning.decided(
        decision, Differences(), submitted="", kind=case.kind, job=case.current
    )
    return Decided(decision=decision, warnings=warnings, job=case.submitted)


def _decide(
    case: RecoveredJob, policy: FallbackPolicy, occupancy: Occupancy, moment: Moment, rules: Rules
) -> Decision:
    submitted = match.submission(case.submitted, occupancy.snapshot)
    age = max(0.0, moment.now - occupancy.snapshot.as_of)
    decision = partial(
        Decision,
        id=decision_id(case.current, moment),
        time=moment.time,
        policy=policy.name,
        mode=policy.spec.mode,
        from_queue=submitted.named,
        state_age_seconds=round(age, 3),
    )
    # A decision on old figures would be a guess, so the Job is left as it was submitted.
    if age > rules.max_state_age_seconds:
        reason = _stale(age, rules.max_state_age_seconds)
        return decision(option=None, left_alone=LeftAlone.STALE, reason=reason)
    # An annotation that cannot be read leaves the Job alone: its author meant something by it.
    try:
        wanted = read_wanted(case.submitted, policy, moment.unix)
    except FieldError as error:
        reason = f"left as submitted: {error}"
        return decision(option=None, left_alone=LeftAlone.UNREADABLE, reason=reason)
    if why := _not_modelled(case.submitted, policy, submitted.queue, occupancy.snapshot):
        reason = f"left as submitted: {why}"
        return decision(option=None, left_alone=LeftAlone.UNMODELLED, reason=reason)
    # A worker cluster that has been silent for too long takes no Job (decision 0016).
    current = remote_options.fresh(occupancy, moment.now, rules.max_state_age_seconds)
    assessments = assessed(case.submitted, policy, current, wanted=wanted, moment=moment)
    asking = Asking(
        submitted=submitted.queue,
        wishes=wanted.wishes,
        draw=_draw(moment.uid),
        probability=rules.min_gain_probability,
        currency=occupancy.snapshot.currency,
    )
    chosen = _chosen(decision, policy, assessments, asking)
    waiting = HoldCase(
        job=case.submitted,
        policy=policy,
        snapshot=current.snapshot,
        wishes=wanted.wishes,
        unix=moment.unix,
    )
    return _held(chosen, waiting, may_hold=rules.may_hold)


_NOW: Final = "starts now"
"""What a strategy says of a Job that could start at once."""


def _held(chosen: Decision, case: HoldCase, *, may_hold: bool) -> Decision:
    """Return a decision with its hold, or with why there is none though the Job may wait."""
    taken = chosen.taken
    hold = holding.held(case, taken) if taken is not None else None
    if isinstance(hold, Hold) and not may_hold:
        hold = "not held: no controller is installed that would release it"
    if isinstance(hold, str):
        return replace(chosen, reason=clip(f"{chosen.reason}; {hold}"))
    if hold is None:
        return chosen
    until = f"held until {rfc3339(hold.until)}" if hold.saves else "held until there is room"
    told = chosen.reason.replace(_NOW, f"{until} (figures are of a start now)", 1)
    if _NOW not in chosen.reason:
        told = f"{chosen.reason}; {until}"
    return replace(chosen, hold=hold, reason=clip(told))


def _not_modelled(job: Job, policy: FallbackPolicy, queue: str, snapshot: Snapshot) -> str:
    """Say what keeps a Job in a LocalQueue from being decided by what is modelled; empty: nothing.

    Raises:
        FieldError: a quantity of the Job cannot be read.

    """
    if job.is_endless and policy.spec.strategy.forecasts:
        return "restartPolicy Always never ends, so only Threshold fits"
    what = unmodelled(job, queue, snapshot)
    # In words of which some end with a comma, to go on, and some are many.
    return f"not modelled: {what.rstrip(',')}" if what else ""


def _stale(age: float, limit: float) -> str:
    limited = f"(limit {span(limit)})"
    return f"left as submitted: stale: the queues were last seen {span(age)} ago {limited}"


def _chosen(
    decision: partial[Decision],
    policy: FallbackPolicy,
    assessments: Sequence[Assessment],
    asking: Asking,
) -> Decision:
    """Return the decision with the option that is taken, or why none is."""
    if detail := _unsupported(assessments, asking.submitted):
        reason = clip(f"left as submitted: {detail}")
        return decision(
            option=None,
            left_alone=LeftAlone.UNMODELLED,
            reason=reason,
            options=tuple(assessments),
        )
    choice = strategies.choose(policy, assessments, asking)
    taken = None if choice.index is None else assessments[choice.index]
    return decision(
        options=tuple(
            replace(option, passed_over=choice.passed_over[index])
            if index in choice.passed_over
            else option
            for index, option in enumerate(assessments)
        ),
        option=None if taken is None else taken.option,
        left_alone=LeftAlone.NO_OPTION if taken is None else None,
        reason=_restrained(policy, choice.sentence),
    )


def _draw(uid: str) -> float:
    """Return a number in [0, 1), the same for the same review.

    Replicas with equal forecasts would else all take a near tie, or all leave it.
    """
    return zlib.crc32(uid.encode()) / (1 << 32)


def _restrained(policy: FallbackPolicy, sentence: str) -> str:
    """Say why a policy that enforces only observes, if so."""
    restrained = policy.restrained
    return clip(f"only observed ({restrained}): {sentence}") if restrained else sentence


def _unsupported(assessments: Sequence[Assessment], queue: str) -> str:
    """Say why the option of the Job's own queue cannot be judged; empty: it can.

    Kueue may well admit the Job there, so this is no reason to send it elsewhere.
    """
    rejections = (assessment.rejection for assessment in assessments if assessment.queue == queue)
    unsupported = (
        rejection
        for rejection in rejections
        if rejection and rejection.reason is Reason.UNSUPPORTED
    )
    return next((rejection.detail for rejection in unsupported), "")


def read_wanted(job: Job, policy: FallbackPolicy, created_unix: float) -> Wanted:
    """Read which options a Job allows and what it asks of them.

    *created_unix* is its creation in seconds since 1970.

    Raises:
        FieldError: one of its annotations cannot be read, or has our prefix and is unknown.

    """
    check_own_keys(job, policy)
    return Wanted(
        allowed=match.allowed_options(job, policy),
        wishes=read_wishes(job.annotations, created_unix),
    )


def assessed(
    job: Job, policy: FallbackPolicy, occupancy: Occupancy, *, wanted: Wanted, moment: Moment
) -> tuple[Assessment, ...]:
    """Assess each option, in the policy's order; with forecasts if its strategy needs them.

    Raises:
        FieldError: something in the Job cannot be read.

    """
    submitted = match.submission(job, occupancy.snapshot).queue
    applicant = Applicant(
        submitted=submitted,
        allowed=wanted.allowed,
        requester=moment.requester,
        gpu_memory=wanted.wishes.gpu_memory,
        use=match.device_use(job, policy, occupancy.snapshot),
    )
    assessments = options.assess(job, policy, occupancy, applicant)
    if not policy.spec.strategy.forecasts:
        return assessments
    expecting = expectations.ForecastCase(
        job=job,
        policy=policy,
        occupancy=occupancy,
        job_class=match.class_of(job, policy, occupancy.snapshot),
        wishes=wanted.wishes,
        now=moment.now,
        unix=moment.unix,
    )
    return expectations.expect(expecting, assessments)


def _is_reinvocation(job: Job, recorded: decision_record.Recorded, moment: Moment) -> bool:
    """Return whether the decision on the Job was made earlier in this very admission.

    The digest of the name in its id rules out a copy of the manifest under another name. A Workload
    with this id rules out a copy of a Job that exists.
    """
    # With reinvocationPolicy IfNeeded the API server calls again once Kueue's webhook has changed
    # the Job (decision 0008).
    return (
        0 <= moment.unix - recorded.unix <= REINVOCATION_SECONDS
        and decided_job.is_made_for(recorded, job)
        and recorded.id not in moment.visible
    )


def signing(snapshot: Snapshot, moment: Moment) -> SigningKeys | None:
    """Return the keys to sign an answer with; None: it is not signed.

    Who only asks what would be decided could carry a signature elsewhere.
    """
    return None if moment.is_dry_run else snapshot.signing


def decision_id(job: Job, moment: Moment) -> str:
    """Make an id from the review's UID and a digest of the Job's namespace and name."""
    random_part = _NOT_IN_IDS.sub("", moment.uid.lower())[:12]
    name = job.name or job.generate_name
    return f"{random_part or '0'}-{decided_job.name_digest(job.namespace, name)}"
