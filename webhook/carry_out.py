"""Carries a decision out: what it writes on the Job and its pod template, as far as the mode goes.

What an option does to a template is worked out once for all Jobs of that template.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from webhook.admission import original as originals
from webhook.admission import patch
from webhook.decide import arrivals, differences, explain, match, warning
from webhook.decide.differences import Differences
from webhook.decide.occupancy import Occupancy
from webhook.jobs import JobKind
from webhook.model import job as jobs
from webhook.model import job_class, marks
from webhook.model.decision import Assessment, Decision, Outcome
from webhook.model.edits import HOLE, Prepared
from webhook.model.job import Job
from webhook.model.job_class import Mark
from webhook.model.policy import FallbackPolicy, Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A Job as it came (``raw``), and as it was before any decision that came with it."""

    kind: JobKind
    raw: Job
    clean_source: Mapping[str, Any]
    clean: Job
    carried: bool


def apply(case: Case, policy: FallbackPolicy, decision: Decision, occupancy: Occupancy) -> Outcome:
    """Turn a decision into edits, as far as the policy's mode goes."""
    if policy.spec.mode is Mode.OBSERVE:
        return Outcome(decision=decision, job=case.clean)
    taken = next((item for item in decision.options if item.option == decision.option), None)
    decision, warnings = _told(case, policy, decision, taken, occupancy)
    if policy.spec.mode is Mode.ADVISE or taken is None or taken.job is None:
        # A manifest that carries an older decision keeps the record by which that one is undone.
        recorded = annotated(case.raw, decision, {})
        edits = () if case.carried else case.kind.edits(case.raw, recorded)
        return Outcome(decision=decision, edits=edits, warnings=warnings, job=case.clean)
    prepared = _prepared(case, taken.job, taken, policy)
    if prepared is None:
        after = under(case, policy, taken.job, taken, decision_id=decision.id)
        found = _changed(case, after, decision, taken, occupancy)
        return replace(found, warnings=warnings)
    # The template's part is known already; what is left are labels and annotations of the Job.
    prepared = patch.filled(prepared, decision.id)
    labelled = replace(case.clean, labels=_labels(taken.job, taken, policy))
    named = case.kind.edits(case.clean, labelled)
    original = {**prepared.original, **originals.original_of(named, case.clean_source)}
    recorded = annotated(labelled, decision, originals.to_json(original))
    return Outcome(
        decision=decision,
        edits=prepared.edits + named + case.kind.edits(labelled, recorded),
        prepared=prepared,
        original=original,
        warnings=warnings,
        arrival=arrivals.decided(labelled, taken, decision, occupancy.snapshot),
        job=case.clean,
    )


def _told(
    case: Case,
    policy: FallbackPolicy,
    decision: Decision,
    taken: Assessment | None,
    occupancy: Occupancy,
) -> tuple[Decision, tuple[str, ...]]:
    """Note in the decision what it changes, and say so in warnings."""
    if taken is None or taken.job is None:
        return decision, warning.decided(decision, Differences(), submitted="")
    left = match.submission(case.raw, occupancy.snapshot).queue
    after = replace(taken.job, labels=_labels(taken.job, taken, policy))
    changed = differences.between(case.raw, after, left=left, taken=taken.queue)
    decision = replace(decision, changed=changed.names)
    return decision, warning.decided(decision, changed, submitted=left)


def under(
    case: Case, policy: FallbackPolicy, job: Job, taken: Assessment, *, decision_id: str
) -> Job:
    """Mark the adapted Job as one that takes this option."""
    return _marked(job, taken, policy, decision_id=decision_id, class_text=_class_of(case, policy))


def annotated(job: Job, decision: Decision, original: Mapping[str, Any]) -> Job:
    """Write the decision on the Job, with what is needed to undo it."""
    annotations = {
        **job.annotations,
        jobs.DECISION: explain.to_json(decision, original),
        jobs.REASON: explain.reason_of(decision),
    }
    return replace(job, annotations=annotations)


def _changed(
    case: Case, after: Job, decision: Decision, taken: Assessment, occupancy: Occupancy
) -> Outcome:
    """Find the edits of a Job of which nothing was worked out before, or that carries a record."""
    changed = case.kind.edits(case.clean, after)
    original = originals.original_of(changed, case.clean_source)
    recorded = annotated(after, decision, originals.to_json(original))
    if case.raw is case.clean:
        edits = changed + case.kind.edits(after, recorded)
    else:
        edits = case.kind.edits(case.raw, recorded)
    return Outcome(
        decision=decision,
        edits=edits,
        original=original,
        arrival=arrivals.decided(after, taken, decision, occupancy.snapshot),
        job=case.clean,
    )


def _prepared(case: Case, job: Job, taken: Assessment, policy: FallbackPolicy) -> Prepared | None:
    """Recall what this option of this policy does to this template; None: it cannot be."""
    before = case.clean.pod_sets
    if case.raw is not case.clean or not isinstance(before, jobs.PodSets):
        return None

    class_text = _class_of(case, policy)

    def work() -> Prepared | None:
        marked = _marked(job, taken, policy, decision_id=HOLE, class_text=class_text)
        edits = case.kind.edits(case.clean, replace(case.clean, pod_sets=marked.pod_sets))
        return patch.prepare(edits, case.clean_source, case.kind.allowed)

    key = (_prepared, job.pod_sets, policy, taken.option, case.kind, class_text)
    return before.recall(key, work)


def _marked(
    job: Job, taken: Assessment, policy: FallbackPolicy, *, decision_id: str, class_text: str
) -> Job:
    """Put queue, option, the decision's id and the class on the adapted Job."""
    return marks.marked(
        job,
        _labels(job, taken, policy),
        option=taken.option,
        decision_id=decision_id,
        policy=policy.name,
        job_class=class_text,
    )


def _class_of(case: Case, policy: FallbackPolicy) -> str:
    """Write the class of the Job as it was submitted; equal ones are the very same text."""
    found = job_class.of_job(case.clean, policy.spec.job_class_label)
    return job_class.written(Mark(found, policy.generation))


def _labels(job: Job, taken: Assessment, policy: FallbackPolicy) -> dict[str, str]:
    labels = {**job.labels, jobs.QUEUE_LABEL: taken.queue, jobs.OPTION_LABEL: taken.option}
    guests = next(o for o in policy.spec.options if o.name == taken.option).guests
    if guests is not None and guests.priority_class:
        labels[jobs.PRIORITY_LABEL] = guests.priority_class
    return labels
