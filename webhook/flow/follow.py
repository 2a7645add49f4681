"""Makes a pod follow what was decided for its group, and says what a group's first pod decides.

Whatever the queues, the policies or the off switch say by then, the pods of a group go one way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from webhook.adapt import validity
from webhook.decide import match, options, warning
from webhook.flow import carry_out, create, decided_job
from webhook.flow.create import Moment
from webhook.flow.decided_job import RecoveredJob
from webhook.jobs import JobKind
from webhook.kueue.occupancy import Occupancy
from webhook.kueue.requests import needs
from webhook.model import marks
from webhook.model.decision import Assessment, CreateOutcome, Decided, Decision, Skipped
from webhook.model.fields import FieldError
from webhook.model.pod_groups import GroupClaim
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode, Option
from webhook.model.queues import Snapshot
from webhook.model.reasons import Skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CannotFollow:
    """Why a pod cannot go where its group goes; it must not be admitted otherwise."""

    reason: str


def claim_of(outcome: CreateOutcome, unix: float) -> GroupClaim:
    """Return what the outcome of a group's first pod means for all of them."""
    made = GroupClaim(unix=int(unix))
    if not isinstance(outcome, Decided) or outcome.decision.mode is not Mode.ENFORCE:
        return made
    decision = outcome.decision
    taken = next((each for each in decision.options if each.option == decision.option), None)
    if taken is None:
        return made
    return replace(made, policy=decision.policy, option=taken.option, queue=taken.queue)


def follow(
    source: Mapping[str, Any],
    kind: JobKind,
    claim: GroupClaim,
    occupancy: Occupancy,
    moment: Moment,
) -> CreateOutcome | CannotFollow:
    """Return the outcome of a pod whose group was decided.

    Raises:
        FieldError: *source* cannot be read as a Job of *kind*.

    """
    incoming = decided_job.read(source, kind, occupancy.snapshot.signing)
    if before := create.repeated(incoming, occupancy, moment):
        return before
    case = incoming.recovered_if_possible()
    case = replace(case, submitted=marks.unmarked(case.submitted))
    if not claim.option:
        job = case.submitted
        arrival = carry_out.as_submitted(job, occupancy.snapshot, uid=moment.uid)
        edits = carry_out.unproven(case)
        return Skipped(skip=Skip.POD_GROUP, edits=edits, arrival=arrival, job=job)
    policy = _policy(claim, case.submitted.namespace, occupancy.snapshot)
    known = policy.spec.options if policy is not None else ()
    option = next((each for each in known if each.name == claim.option), None)
    if policy is None or option is None:
        return _cannot(case, claim, f"policy {claim.policy} has no such option any more")
    return _followed(case, claim, (policy, option), occupancy, moment)


def _policy(claim: GroupClaim, namespace: str, snapshot: Snapshot) -> FallbackPolicy | None:
    """Return the group's policy, as one that enforces, whatever it says by now."""
    policy = match.named(claim.policy, namespace, snapshot)
    if policy is None or policy.spec.mode is Mode.ENFORCE:
        return policy
    spec = policy.spec.model_copy(update={"mode": Mode.ENFORCE})
    return policy.model_copy(update={"spec": spec})


def _followed(
    case: RecoveredJob,
    claim: GroupClaim,
    taken: tuple[FallbackPolicy, Option],
    occupancy: Occupancy,
    moment: Moment,
) -> Decided | CannotFollow:
    (policy, option), snapshot, before = taken, occupancy.snapshot, case.submitted
    if before.annotations.get(match.POLICY) == match.OPT_OUT:
        return _cannot(case, claim, f"it says {match.POLICY}: {match.OPT_OUT}")
    try:
        after = options.adapted(before, option, policy)
        asked = needs(after, snapshot)
    except FieldError as error:
        return _cannot(case, claim, str(error))
    limits = snapshot.limit_ranges.get(before.namespace, ())
    refusal = validity.refusal(before, after, limits)
    if what := refusal.detail if refusal else case.kind.unwritable(before, after):
        return _cannot(case, claim, what)
    local_queue = snapshot.local_queues.get((before.namespace, claim.queue))
    assessment = Assessment(
        option=option.name,
        queue=claim.queue,
        cluster_queue=local_queue.cluster_queue if local_queue else "",
        job=after,
        needs=asked,
    )
    decision = Decision(
        id=create.decision_id(case.current, moment),
        time=moment.time,
        policy=policy.name,
        mode=policy.spec.mode,
        option=option.name,
        left_alone=None,
        reason=f"goes to {claim.queue} ({option.name}) with its group {before.group}",
        from_queue=match.submission(before, snapshot).named,
        state_age_seconds=round(max(0.0, moment.now - snapshot.as_of), 3),
        submitted=case.current.submitted,
        options=(assessment,),
    )
    outcome = carry_out.apply(
        case, policy, decision, occupancy, keys=create.signing(snapshot, moment)
    )
    return replace(outcome, warnings=warning.by_policy(policy.spec, outcome.warnings))


def _cannot(case: RecoveredJob, claim: GroupClaim, why: str) -> CannotFollow:
    group = case.submitted.group
    where = f"{claim.queue} ({claim.option})"
    return CannotFollow(
        reason=f"the pods of group {group} go to {where}, and this one cannot: {why}"
    )
