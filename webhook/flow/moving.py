"""Turns the UPDATE that asks for a move, or for an undo, into edits of a pending Job.

The Job is recovered as it was submitted, adapted to the other option, and edited from what it is to
what it would be, so moving it there and back changes nothing. A move that cannot be made as a whole
is refused with its reason. It must not know why a move is worth making.

An undo depends on the Job, on what its Workload rules out, and on which queues are MultiKueue's; it
must not know mode, policy, the age of the state or the off switch. The Job is pinned by the
annotation ``policy: none``, so that it is neither decided nor moved again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from webhook.adapt import movable_env
from webhook.admission import patch
from webhook.decide import decision_record, match, options, warning
from webhook.decide.applicant import Applicant, Moment, read_applicant
from webhook.decide.decision_record import Recorded
from webhook.decide.match import OPT_OUT, POLICY
from webhook.flow import carry_out, decided_job
from webhook.flow.create import Rules
from webhook.flow.decided_job import DecidedJob, RecoveredJob
from webhook.jobs import JobKind
from webhook.kueue import multikueue
from webhook.model import fields, marks
from webhook.model import job as jobs
from webhook.model.decision import (
    HISTORY_KEPT,
    Assessment,
    Decision,
    Declined,
    Moved,
    Stay,
    Undone,
)
from webhook.model.job import Job, Requester, left_written
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode
from webhook.model.queues import MULTIKUEUE
from webhook.model.reasons import Obstacle, Skip
from webhook.model.signatures import SigningKeys, signed_words
from webhook.model.words import clip
from webhook.state.occupancy import Occupancy
from webhook.state.snapshot import Snapshot

UNASKED = "as asked"
"""The reason of a move that was asked for without one."""

_SKIPPED: Mapping[Skip, Obstacle] = {
    Skip.OFF: Obstacle.OFF,
    Skip.OPTED_OUT: Obstacle.OPTED_OUT,
    Skip.NOT_SYNCED: Obstacle.STALE,
    Skip.MANAGED_BY: Obstacle.MANAGED_BY,
    Skip.MULTIKUEUE_ORIGIN: Obstacle.MANAGED_BY,
}
"""Any other reason to skip a Job means that it is not ours to move."""


def move(job: DecidedJob, occupancy: Occupancy, moment: Moment, rules: Rules) -> Moved | Declined:
    """Return the outcome that moves a Job to the option its annotation ``move-to`` names.

    Raises:
        FieldError: what the decision has recorded cannot be put back, or what the Job says of
            options cannot be read.

    """
    case = decided_job.recover(job)
    if isinstance(case, Declined):
        return case
    snapshot = occupancy.snapshot
    if skipped := match.skip(case.submitted, snapshot):
        obstacle = _SKIPPED.get(skipped, Obstacle.NOT_OURS)
        return Declined(obstacle=obstacle, detail=skipped.meaning)
    age = moment.now - snapshot.as_of
    if age > rules.max_state_age_seconds:
        return Declined(obstacle=Obstacle.STALE)
    policy = _policy(case, snapshot, rules, moment.requester)
    if isinstance(policy, Declined):
        return policy
    created = fields.created_unix(case.source)
    applicant = read_applicant(
        # spec.managedBy is fixed at creation, so no move may cross the boundary of MultiKueue.
        case.submitted.as_created,
        policy,
        occupancy,
        moment,
        created=None if created == inf else created,
    )
    assessments = options.assess(applicant)
    option = case.current.annotations[jobs.MOVE_TO]
    taken = next(assessment for assessment in assessments if assessment.option == option)
    if taken.rejection is not None or taken.job is None:
        return Declined(obstacle=Obstacle.OPTION_REFUSED, detail=str(taken.rejection))
    decision = _decision(case, policy, taken, moment)
    age = round(max(0.0, age), 3)
    decision = replace(
        decision,
        options=assessments,
        state_age_seconds=age,
        job_class=carry_out.recorded_class(applicant),
    )
    return _carried_out(case, applicant, decision, taken, keys=moment.keys(snapshot))


def _policy(
    case: RecoveredJob, snapshot: Snapshot, rules: Rules, requester: Requester | None
) -> FallbackPolicy | Declined:
    """Find the policy that decided the Job, or that matches it; or say why it cannot move it."""
    recorded, option = case.recorded, case.current.annotations[jobs.MOVE_TO]
    if recorded is None:
        policy = match.policy_for(
            case.submitted, snapshot, own_namespace=rules.own_namespace, requester=requester
        )
    else:
        policy = match.named(recorded.policy, case.current.namespace, snapshot)
    if policy is None:
        return Declined(obstacle=Obstacle.NO_POLICY)
    # Beside a Kueue that is not tested, policies only observe (decision 0019).
    if policy.restrained:
        return Declined(obstacle=Obstacle.UNTESTED_KUEUE, detail=policy.restrained)
    if policy.spec.mode is not Mode.ENFORCE:
        return Declined(obstacle=Obstacle.NOT_ENFORCED)
    if option not in [known.name for known in policy.spec.options]:
        return Declined(obstacle=Obstacle.NO_SUCH_OPTION)
    if _is_in(option, recorded):
        return Declined(obstacle=Obstacle.ALREADY_THERE)
    return policy


def _is_in(option: str, recorded: Recorded | None) -> bool:
    # In the other modes the record names an option, but the Job is as it was submitted.
    return recorded is not None and recorded.mode is Mode.ENFORCE and recorded.option == option


def _decision(
    case: RecoveredJob, policy: FallbackPolicy, taken: Assessment, moment: Moment
) -> Decision:
    recorded = case.recorded
    why = " ".join(case.current.annotations.get(jobs.MOVE_REASON, "").split()) or UNASKED
    reason = clip(f"moved to {taken.queue} ({taken.option}): {why}")
    stay = Stay(time=moment.time, option=taken.option, reason=reason)
    # The id stays the same, because the Workload may carry it.
    return Decision(
        id=recorded.id if recorded is not None else decided_job.new_id(case.current, moment.uid),
        time=moment.time,
        policy=policy.name,
        mode=policy.spec.mode,
        option=taken.option,
        left_alone=None,
        reason=reason,
        from_queue=recorded.from_queue if recorded is not None else case.submitted.queue,
        state_age_seconds=0.0,
        moves=1 + (recorded.moves if recorded is not None else 0),
        history=(*_stays(recorded), stay)[-HISTORY_KEPT:],
    )


def _stays(recorded: Recorded | None) -> tuple[Stay, ...]:
    """List the options that the Job was in until now, the oldest first."""
    if recorded is None or recorded.option is None or recorded.mode is not Mode.ENFORCE:
        return ()
    first = Stay(time=recorded.time, option=recorded.option, reason=recorded.reason)
    return recorded.history or (first,)


def _carried_out(
    case: RecoveredJob,
    applicant: Applicant,
    decision: Decision,
    taken: Assessment,
    *,
    keys: SigningKeys | None,
) -> Moved | Declined:
    kind, raw = case.kind, case.current
    # Kueue takes up a changed Job only as long as its Workload has no quota (decision 0018).
    blocked = applicant.snapshot.workloads.obstacles.get((raw.namespace, raw.reference))
    class_text = applicant.class_text
    signed = carry_out.signed(decision, class_text, case.submitted, keys)
    after = carry_out.under(
        taken.job or raw, applicant.policy, taken, decision_id=signed.id, class_text=class_text
    )
    after = movable_env.still_movable(case.current, after)
    if after.rolling is not None:
        after = replace(after, rolling=after.rolling.without_gap)
    changes = kind.edits(case.current, after)
    if obstacle := kind.obstacle_to(changes, workload=blocked):
        return Declined(obstacle=obstacle)
    # Kueue takes over a changed queue alone, but not changed marks on the template: where nothing
    # else changes there, the old marks stay, and with them the old signature.
    if not kind.changes_template(changes):
        if after.queue == case.current.queue:
            return Declined(obstacle=Obstacle.ALREADY_THERE)
        # Guests are counted by the policy's mark, which such a move cannot add (decision 0013).
        if marks.would_be_uncounted(applicant.policy, taken.option, marks.decided_by(case.current)):
            return Declined(obstacle=Obstacle.UNCOUNTED_GUEST)
        after = replace(after, pod_sets=case.current.pod_sets)
    else:
        decision = signed
    return _recorded(case, decision, after, taken, keys)


def _recorded(
    case: RecoveredJob,
    decision: Decision,
    after: Job,
    taken: Assessment,
    keys: SigningKeys | None,
) -> Moved | Declined:
    """Return the outcome of a move to *after*, with the record that takes it back."""
    now, before = case.current, case.submitted
    # What earlier options changed stays on record: they may have left an empty parent there.
    edited = case.kind.edits(before, after)
    original = {**patch.original_of(edited, case.submitted_source), **case.original}
    changed = warning.between(now, after, left=now.queue, taken=after.queue)
    in_all = warning.between(before, after, left=before.queue, taken=after.queue)
    decision = replace(decision, changed=in_all.names)
    recorded = decision_record.record_of(decision)
    final = carry_out.annotated(after, recorded, patch.original_json(original), keys)
    final = _with_queue_of_pods(now, final, keys)
    edits = case.kind.edits(now, final)
    if what := patch.too_large(case.source, edits):
        return Declined(obstacle=Obstacle.TOO_LARGE, detail=what)
    return Moved(
        decision=decision,
        recorded=recorded,
        edits=edits,
        warnings=warning.moved(taken, changed, left=now.queue, kind=case.kind, job=now),
    )


_CROSSING = "its queue is MultiKueue's, and who runs a Job (managedBy) is fixed at creation"
_PINNED = f"decided no more ({POLICY}: {OPT_OUT})"


def undo(job: DecidedJob, snapshot: Snapshot, moment: Moment, rules: Rules) -> Undone | Declined:
    """Return the outcome that takes back a decision and its moves, and pins the Job.

    *snapshot* gives the signing keys, the queues that are MultiKueue's and what in the Job's
    Workload rules the undo out; what is not known may be missing.

    Raises:
        FieldError: what the decision has recorded cannot be put back.

    """
    raw, kind = job.current, job.kind
    if jobs.DECISION not in raw.annotations:
        sentence = f"nothing to undo, as it has no decision; {_PINNED}"
        return _pinned(raw, _unasked(raw), kind, sentence)
    case = decided_job.recover(job)
    if isinstance(case, Declined):
        return case
    if raw.queue and not case.submitted.queue:
        # Without the label, Kueue would keep the Job suspended for ever; and where the namespace
        # has a default queue, Kueue does not let the label be removed.
        return Declined(obstacle=Obstacle.NO_QUEUE)
    if _would_cross(raw, case.submitted, snapshot):
        return Declined(obstacle=Obstacle.MANAGED_BY, detail=_CROSSING)
    # What an old state says of Workloads counts no more: the Job alone decides.
    is_current = moment.now - snapshot.as_of <= rules.max_state_age_seconds
    blocked = (
        snapshot.workloads.obstacles.get((raw.namespace, raw.reference)) if is_current else None
    )
    after = put_back(raw, case.submitted, kind, blocked=blocked)
    if isinstance(after, Obstacle):
        return Declined(obstacle=after)
    where = f"in {after.queue} " if after.queue else ""
    sentence = f"undone: {where}as submitted, and {_PINNED}"
    after = replace(
        after,
        annotations={**after.annotations, jobs.REASON: decision_record.reason_annotation(sentence)},
    )
    after = _remembered(raw, after, case, moment.time, moment.keys(snapshot))
    after = _with_queue_of_pods(raw, after, moment.keys(snapshot))
    return _pinned(raw, after, kind, sentence)


def _with_queue_of_pods(now: Job, after: Job, keys: SigningKeys | None) -> Job:
    """Note on a Deployment the queue of its pods where its own label keeps another one."""
    if now.own_queue is None or now.own_queue == after.queue:
        return after
    text = signed_words(after.queue, now.namespace, keys)
    return replace(after, annotations={**after.annotations, jobs.PODS_QUEUE: text})


def _would_cross(raw: Job, clean: Job, snapshot: Snapshot) -> bool:
    """Return whether the Job would enter a MultiKueue queue without having been created in one."""
    local_queue = snapshot.setup.local_queues.get((raw.namespace, clean.queue))
    # Kueue sets spec.managedBy for MultiKueue at creation; it is immutable afterwards.
    if local_queue is None or raw.queue == clean.queue or raw.managed_by == MULTIKUEUE:
        return False
    cluster_queue = snapshot.setup.cluster_queues.get(local_queue.cluster_queue)
    return cluster_queue is not None and multikueue.is_multikueue(cluster_queue, snapshot.setup)


def put_back(
    raw: Job, clean: Job, kind: JobKind, *, blocked: Obstacle | None = None
) -> Job | Obstacle:
    """Return *raw* as submitted (*clean*), or the obstacle if a pending Job cannot become that.

    *blocked* is why its Workload rules the change out; None: it does not.
    """
    # Variables stay references to annotations: a Job's environment is immutable (decision 0020).
    after = movable_env.still_movable(raw, marks.unmarked(clean))
    changes = kind.edits(raw, after)
    if obstacle := kind.obstacle_to(changes, workload=blocked):
        return obstacle
    # Kueue does not take over a template in which only our marks change.
    if kind.changes_template(changes):
        return after
    return replace(after, pod_sets=raw.pod_sets)


def _unasked(raw: Job) -> Job:
    """Return the Job without ``move-to`` and our other marks, but with those of an earlier undo."""
    kept_marks = (jobs.UNDONE, jobs.UNDONE_FROM, jobs.REASON, jobs.PODS_QUEUE)
    kept = {key: raw.annotations[key] for key in kept_marks if key in raw.annotations}
    left = marks.unmarked(raw)
    return replace(left, pod_sets=raw.pod_sets, annotations={**left.annotations, **kept})


def _remembered(
    raw: Job, after: Job, case: RecoveredJob, time: str, keys: SigningKeys | None
) -> Job:
    """Note on the Job which policy had decided it, when it was undone, and what queues it left.

    Kueue may be admitting it in one of these at this moment; the controller then repairs that.
    """
    recorded = case.recorded
    if recorded is None or (raw.queue == after.queue and not recorded.moves):
        return after
    noted = {jobs.UNDONE: recorded.policy}
    if elsewhere := decision_record.elsewhere(recorded, after.queue):
        # Signed, as it makes the controller follow Jobs and Workloads (decision 0024).
        text = left_written(time, elsewhere)
        noted[jobs.UNDONE_FROM] = signed_words(text, raw.namespace, keys)
    return replace(after, annotations={**after.annotations, **noted})


def _pinned(raw: Job, left: Job, kind: JobKind, sentence: str) -> Undone:
    after = replace(
        left,
        labels=asked_about(left),
        annotations={**left.annotations, POLICY: OPT_OUT},
    )
    return Undone(
        edits=kind.edits(raw, after), warnings=warning.sentence(sentence), sentence=sentence
    )


def asked_about(undecided: Job) -> Mapping[str, str]:
    """Return the labels of a Job without its option; ``option: none`` if it needs restoration.

    Because of this label the API server sends the Job's updates to the webhook. A manifest that is
    applied again sets as a value what the Job reads from an annotation, and the API server refuses
    both together; and each update makes Kueue write a Deployment's queue over that of its pods.
    """
    labels = {name: text for name, text in undecided.labels.items() if name != jobs.OPTION_LABEL}
    is_read = movable_env.as_literals(undecided) is not undecided
    is_sent = is_read or jobs.PODS_QUEUE in undecided.annotations
    return {**labels, jobs.OPTION_LABEL: jobs.UNDO} if is_sent else labels
