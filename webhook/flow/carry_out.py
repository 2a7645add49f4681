"""Turns a decision into edits to the Job and its pod template, as far as the mode allows.

A Job takes a place in its queue until its Workload is observed, also where it is left as submitted.
It must not know how the option was chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from webhook.admission import patch
from webhook.decide import decision_record, match, warning
from webhook.decide.applicant import Applicant
from webhook.decide.decision_record import Recorded
from webhook.decide.warning import Differences
from webhook.flow.decided_job import RecoveredJob
from webhook.jobs import BY_NAME
from webhook.kueue.requests import needs, own_priority
from webhook.learn import expected_runs, job_class
from webhook.model import job as jobs
from webhook.model import marks
from webhook.model.decision import Assessment, Decided, Decision, taken_of
from webhook.model.edits import Edit
from webhook.model.fields import FieldError, Json
from webhook.model.forecasts import Basis, JobClass
from webhook.model.holds import gated
from webhook.model.job import DECISION_ID, JOB_CLASS, Job, reference_of
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode
from webhook.model.policy.rules import SERVICES
from webhook.model.queues import Arrival, PodSetNeeds
from webhook.model.reasons import LeftAlone
from webhook.model.signatures import SigningKeys, signed_id, signed_record, unsigned_id
from webhook.state.snapshot import Snapshot


def decided(
    job: Job,
    taken: Assessment,
    decision: Decision,
    snapshot: Snapshot,
    *,
    class_text: str,
) -> Arrival:
    """Return the arrival of a Job just decided, as adapted; its key is the decision's id."""
    forecast = taken.forecast
    run = forecast.run if forecast is not None else None
    # Where its run is a guess, it is tried before others of its class follow.
    is_trial = run is not None and run.basis is Basis.PROFILE
    return _asking(job, taken.needs, snapshot)(
        key=_key(job, decision.id),
        local_queue=taken.queue,
        policy=decision.policy,
        option=taken.option,
        run=expected_runs.lasting(forecast),
        job_class=_class_of(class_text, job) if is_trial else None,
        cluster=taken.cluster,
    )


def _class_of(class_text: str, job: Job) -> JobClass | None:
    mark = job_class.parse_mark(class_text, job.namespace)
    return mark.job_class if mark is not None else None


def decided_before(job: Job, recorded: Recorded, snapshot: Snapshot) -> Arrival | None:
    """Return the arrival of a Job that an earlier call of the same admission decided.

    That call may have reached another replica. None: it left the Job as submitted, or what the
    Job asks for cannot be read.
    """
    templates = [pod_set.template for pod_set in job.pod_sets if pod_set.path is not None]
    ids = {template.annotations.get(DECISION_ID) for template in templates}
    arriving = _arriving(job, snapshot)
    # Only a decision that was carried out marks the pod templates; without the mark, nothing could
    # tell the Workload from others.
    if ids != {recorded.id} or recorded.option is None or arriving is None:
        return None
    return arriving(
        key=_key(job, recorded.id),
        local_queue=job.queue,
        policy=recorded.policy,
        option=recorded.option,
        job_class=_class_of(templates[0].annotations.get(JOB_CLASS, ""), job),
    )


def as_submitted(job: Job, snapshot: Snapshot, *, uid: str) -> Arrival | None:
    """Return the arrival of a Job without a decision, keyed by its name; None: it is not queued.

    *uid* is the review's; it replaces the name that ``generateName`` has yet to make.
    """
    arriving, queue = _arriving(job, snapshot), match.submission(job, snapshot)
    # Kueue queues no Workload whose LocalQueue does not exist.
    if (job.namespace, queue) not in snapshot.setup.local_queues or arriving is None:
        return None
    return arriving(
        key=_named(job) if job.name or job.group else _unnamed(job, uid),
        local_queue=queue,
        job_class=job_class.of_job(job),
        run=expected_runs.within_limits(job),
    )


def _key(job: Job, decision_id: str) -> str:
    """Return what the Workload will be known by, so that the place is given up when it is seen."""
    # The pod template carries the id into the Workload, where Kueue copies more than its spec.
    if BY_NAME[job.kind].carries_marks:
        return decision_id
    return _named(job) if job.name or job.group else _unnamed(job, unsigned_id(decision_id))


def _unnamed(job: Job, unique: str) -> str:
    """Return the key of a Job whose name *generateName* has yet to make; *unique*: in its place."""
    return f"gen:{job.namespace}/{reference_of(job.kind, job.generate_name)}/{unique}"


def _named(job: Job) -> str:
    # A group is one Workload, of the group's own name.
    return f"job:{job.namespace}/{reference_of(job.kind, job.group or job.name)}"


def _arriving(job: Job, snapshot: Snapshot) -> partial[Arrival] | None:
    """Return the arrival of a Job but for its key and its queue; None: its needs are unreadable."""
    try:
        return _asking(job, needs(job, snapshot.cluster, snapshot.setup.kueue), snapshot)
    except FieldError:
        return None


def _asking(job: Job, needs: tuple[PodSetNeeds, ...], snapshot: Snapshot) -> partial[Arrival]:
    return partial(
        Arrival,
        count=job.workloads,
        namespace=job.namespace,
        needs=needs,
        priority=own_priority(job, snapshot.cluster),
    )


def apply(
    case: RecoveredJob, applicant: Applicant, decision: Decision, *, keys: SigningKeys | None
) -> Decided:
    """Return a decision's outcome: all its edits, its record alone, or none, by the mode.

    It is signed with *keys*; None: not at all.
    """
    taken, snapshot = taken_of(decision), applicant.snapshot
    if taken is None or taken.job is None or decision.mode is Mode.OBSERVE:
        return left(case, decision, keys)
    # Warnings say what differs from the manifest that the user sent, so that is compared.
    before = match.submission(case.current, snapshot)
    after = replace(taken.job, labels=_labels(taken.job, taken, applicant.policy))
    changed = warning.between(case.current, after, left=before, taken=taken.queue)
    decision = replace(decision, changed=changed.names)
    said = warning.decided(decision, changed, submitted=before, kind=case.kind, job=case.current)
    if decision.mode is Mode.ADVISE:
        return replace(left(case, decision, keys), warnings=said)
    class_text = applicant.class_text
    decision = signed(decision, class_text, case.submitted, keys)
    decision = replace(decision, job_class=recorded_class(applicant))
    held = warning.job_held(
        decision.hold, snapshot.costs.currency, kind=case.kind, job=case.current
    )
    after = marks.marked(
        after,
        after.labels,
        option=taken.option,
        decision_id=decision.id,
        policy=applicant.policy.name,
        job_class=class_text,
    )
    after = gated(after) if decision.hold is not None else after
    arrival = decided(after, taken, decision, snapshot, class_text=class_text)
    return _changed(case, after, decision, arrival, keys=keys, warnings=(*said, *held))


def left(case: RecoveredJob, decision: Decision, keys: SigningKeys | None) -> Decided:
    """Return the outcome that leaves a Job where it is, with the decision's record by the mode."""
    if decision.mode is Mode.OBSERVE:
        return Decided(decision=decision, job=case.submitted)
    # A manifest that carries an older decision keeps that record, since it alone can undo it.
    # Marks on the pod template always go: a new Job has none of its own (decision 0024).
    proven = marks.off_templates(case.current)
    recorded = None if case.is_its_own else decision_record.record_of(decision)
    after = proven if recorded is None else annotated(proven, recorded, {}, keys)
    return Decided(
        decision=decision,
        recorded=recorded,
        edits=case.kind.edits(case.current, after),
        warnings=_unchanged(case, decision),
        job=case.submitted,
    )


def without_edits(case: RecoveredJob, decision: Decision, what: str) -> Decided:
    """Return the outcome of a decision whose edits would make *what* of the Job too large."""
    decision = replace(
        decision,
        option=None,
        left_alone=LeftAlone.TOO_LARGE,
        reason=f"left as submitted: {what}",
        changed=(),
    )
    return Decided(decision=decision, warnings=_unchanged(case, decision), job=case.submitted)


def _unchanged(case: RecoveredJob, decision: Decision) -> tuple[str, ...]:
    nothing = Differences()
    return warning.decided(decision, nothing, submitted="", kind=case.kind, job=case.current)


def taken_back(case: RecoveredJob, decision: Decision, keys: SigningKeys | None) -> Decided:
    """Return the outcome that leaves nothing on a new Job of the decision that it carries.

    *decision* is the one that says so, on the Job where there is room for it.
    """
    recorded = decision_record.record_of(decision)
    after = annotated(case.submitted, recorded, {}, keys)
    edits = case.kind.edits(case.current, after)
    if patch.too_large(case.source, edits):
        edits = case.kind.edits(case.current, case.submitted)
    return Decided(decision=decision, recorded=recorded, edits=edits, job=case.submitted)


def unproven(case: RecoveredJob) -> tuple[Edit, ...]:
    """List the edits that take foreign decisions and copied marks off a Job that is not decided.

    Foreign are those that are not signed, or were made for another Job. Marks on a new Job's pod
    template are never our own: they came with the manifest.
    """
    after = marks.off_templates(case.current)
    if jobs.DECISION in after.annotations and not case.is_its_own:
        left = {key: text for key, text in after.annotations.items() if key != jobs.DECISION}
        after = replace(after, annotations=left)
    return case.kind.edits(case.current, after) if after is not case.current else ()


def recorded_class(applicant: Applicant) -> str:
    """Return the class that a decision records: that of a service whose metrics are asked for."""
    is_asked_for = applicant.policy.spec.serving is not None and applicant.job.kind in SERVICES
    return applicant.class_text if is_asked_for else ""


def signed(decision: Decision, class_text: str, job: Job, keys: SigningKeys | None) -> Decision:
    """Return the decision with an id that signs the marks of *job*'s pod template.

    Without keys it is returned as it is.
    """
    if keys is None:
        return decision
    # Readers of Workloads trust only signed marks, as users can write any annotation
    # (decision 0024).
    written = (decision.policy, decision.option or "", class_text)
    return replace(decision, id=signed_id(decision.id, job.namespace, written, keys))


def under(
    job: Job, policy: FallbackPolicy, taken: Assessment, *, decision_id: str, class_text: str
) -> Job:
    """Return the adapted Job with its queue, and with option, decision id, policy and class."""
    return marks.marked(
        job,
        _labels(job, taken, policy),
        option=taken.option,
        decision_id=decision_id,
        policy=policy.name,
        job_class=class_text,
    )


def annotated(
    job: Job, recorded: Recorded, original: Mapping[str, Json], keys: SigningKeys | None
) -> Job:
    """Return the Job with the signed decision on it; *original* is what an undo puts back."""
    text = decision_record.to_json(recorded, original)
    annotations = {
        **job.annotations,
        jobs.DECISION: signed_record(text, job.namespace, keys),
        jobs.REASON: decision_record.reason_annotation(recorded.reason),
    }
    return replace(job, annotations=annotations)


def _changed(
    case: RecoveredJob,
    after: Job,
    decision: Decision,
    arrival: Arrival,
    *,
    keys: SigningKeys | None,
    warnings: tuple[str, ...],
) -> Decided:
    """Return the outcome of a Job that is *after* the decision, with what an undo puts back."""
    changed = case.kind.edits(case.submitted, after)
    original = patch.original_of(changed, case.submitted_source)
    recorded = decision_record.record_of(decision)
    final = annotated(after, recorded, patch.original_json(original), keys)
    if case.current is case.submitted:
        edits = changed + case.kind.edits(after, final)
    else:
        # The patch applies to the object under review, which has marks that ``submitted`` lacks.
        edits = case.kind.edits(case.current, final)
    return Decided(
        decision=decision,
        recorded=recorded,
        edits=edits,
        warnings=warnings,
        arrival=arrival,
        job=case.submitted,
    )


def _labels(job: Job, taken: Assessment, policy: FallbackPolicy) -> dict[str, str]:
    labels = {**job.labels, jobs.QUEUE_LABEL: taken.queue, jobs.OPTION_LABEL: taken.option}
    for option in policy.spec.options:
        # Kueue reads a Job's WorkloadPriorityClass from this label.
        if option.name == taken.option and option.given_priority:
            labels[jobs.PRIORITY_LABEL] = option.given_priority
    return labels
