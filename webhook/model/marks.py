"""Our marks on a Job and its pod templates: put there by a decision, taken off before a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from webhook.model.holds import HELD, is_gated, ungated
from webhook.model.job import (
    DECIDED_BY,
    DECISION,
    DECISION_ID,
    EXPECTED_START,
    JOB_CLASS,
    MOVE_REASON,
    MOVE_TO,
    OPTION_LABEL,
    PODS_QUEUE,
    REASON,
    UNDONE,
    UNDONE_FROM,
    Job,
    PodSet,
)
from webhook.model.policy.fallback_policy import FallbackPolicy

LONGEST: Final = 200
"""Characters of a mark but the decision, which has a limit of its own. Who may create Jobs writes
them as they like, and each one is kept in memory many times."""
MARKS_OF_EDITS = frozenset({OPTION_LABEL, DECISION_ID, DECIDED_BY, JOB_CLASS, HELD})
"""Those that stand among the edits of a decision; the others come and go with its annotation."""
MARKS = MARKS_OF_EDITS | {
    *(DECISION, REASON, MOVE_TO, MOVE_REASON, UNDONE, UNDONE_FROM, EXPECTED_START, PODS_QUEUE)
}
"""Labels and annotations that a decision leaves or that ask for one; taken away with it, recorded
or not."""


def mark_of(texts: Mapping[str, Any], name: str) -> str:
    """Read a mark; empty: there is none, or it is longer than any of ours, or has line breaks."""
    text = texts.get(name)
    is_ours = isinstance(text, str) and len(text) <= LONGEST and text.isprintable()
    return str(text) if is_ours else ""


def marked(
    job: Job,
    labels: Mapping[str, str],
    *,
    option: str,
    decision_id: str,
    policy: str,
    job_class: str | None = None,
) -> Job:
    """Return the Job with marks of its decision; Kueue copies those of the pods into Workloads.

    *labels* are the Job's, marked already; *job_class* is as ``learn.job_class.mark_text`` has it.
    """
    ours = {DECISION_ID: decision_id, DECIDED_BY: policy}
    if job_class is not None:
        ours[JOB_CLASS] = job_class

    def mark(pod_set: PodSet) -> PodSet:
        # Its controller makes this template, so nothing can be written into it.
        if pod_set.path is None:
            return pod_set
        template = pod_set.template
        labels = {**template.labels, OPTION_LABEL: option}
        annotations = {**template.annotations, **ours}
        template = replace(template, labels=labels, annotations=annotations)
        return replace(pod_set, template=template)

    return replace(job, labels=labels, pod_sets=tuple([mark(each) for each in job.pod_sets]))


def decided_by(job: Job) -> str:
    """Return the policy that the mark on the Job's pods names, to count guests; empty: none."""
    return next((pod_set.template.annotations.get(DECIDED_BY, "") for pod_set in job.pod_sets), "")


def would_be_uncounted(policy: FallbackPolicy, option: str, marked_by: str) -> bool:
    """Return whether *option* limits its guests and would not count a Job marked by *marked_by*.

    A move that changes nothing but the queue leaves the marks of the pod template as they are.
    """
    guests = next(candidate.guests for candidate in policy.spec.options if candidate.name == option)
    return guests is not None and marked_by != policy.name


def off_templates(job: Job) -> Job:
    """Return the Job without a hold and without the marks of its pod templates.

    The same object if it has none.
    """
    job = unheld(job)
    templates = [pod_set.template for pod_set in job.pod_sets]
    texts = (text for template in templates for text in (template.labels, template.annotations))
    if all(map(MARKS.isdisjoint, texts)):
        return job
    return replace(job, pod_sets=unmarked(job).pod_sets)


def unheld(job: Job) -> Job:
    """Return the Job without our gate and its label; the same object if it has neither."""
    if not is_gated(job.annotations) and HELD not in job.labels:
        return job
    labels = {key: text for key, text in job.labels.items() if key != HELD}
    return replace(ungated(job), labels=labels)


def unmarked(job: Job) -> Job:
    """Return the Job without any mark or hold, also without those that a forged decision left."""
    job = ungated(job)
    if not _is_marked(job):
        return job

    def unmark(pod_set: PodSet) -> PodSet:
        template = pod_set.template
        labels, annotations = _without(template.labels), _without(template.annotations)
        return replace(pod_set, template=replace(template, labels=labels, annotations=annotations))

    return replace(
        job,
        labels=_without(job.labels),
        annotations=_without(job.annotations),
        pod_sets=tuple(unmark(pod_set) for pod_set in job.pod_sets),
    )


def _is_marked(job: Job) -> bool:
    if not (MARKS.isdisjoint(job.labels) and MARKS.isdisjoint(job.annotations)):
        return True
    for pod_set in job.pod_sets:
        template = pod_set.template
        if not (MARKS.isdisjoint(template.labels) and MARKS.isdisjoint(template.annotations)):
            return True
    return False


def _without(texts: Mapping[str, str]) -> Mapping[str, str]:
    if MARKS.isdisjoint(texts):
        return texts
    return {key: value for key, value in texts.items() if key not in MARKS}
