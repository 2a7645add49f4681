"""Annotations and labels with our prefix on a Job that nothing reads: misspelt, or misplaced.

Whoever wrote one meant something by it, so the Job is left alone, as where a value cannot be read.
Labels are the admin's too: only one that looks like an annotation of ours counts as misread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import chain, islice
from typing import Final

from webhook.decide.match import ALLOW, POLICY
from webhook.decide.wishes import DEADLINE, MAX_SLOWDOWN, MAX_WAIT, RUN_TIME
from webhook.model.fields import FieldError
from webhook.model.job import MOVE_TO, OURS, PROBE, Job
from webhook.model.marks import MARKS
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.policy.spec import LabelSelector

WISHES: Final = (POLICY, ALLOW, MAX_SLOWDOWN, DEADLINE, MAX_WAIT, RUN_TIME, MOVE_TO)
"""What a Job may say."""
MOST_NAMED: Final = 3
_KNOWN: Final = MARKS | {*WISHES, PROBE}
_NAMES: Final = [key.removeprefix(OURS) for key in WISHES]
_LONGEST: Final = 63
"""Characters of what may follow the prefix; nothing else is compared."""
_MOST_COMPARED: Final = 100
"""Labels of a Job that are compared with what a Job may say; an admin has a few."""


def check(job: Job, policy: FallbackPolicy) -> None:
    """Refuse a Job that says something to us which is not read.

    Raises:
        FieldError: it names the first of such keys, and a few others in its message.

    """
    if not any(key.startswith(OURS) for texts in (job.annotations, job.labels) for key in texts):
        return
    # As many as are named, and no more: there may be thousands.
    errors = [
        *islice(chain(_annotations(job.annotations), _labels(job.labels, policy)), MOST_NAMED)
    ]
    if errors:
        first, *others = errors
        raise FieldError(first.path, "; ".join([first.message, *map(str, others)]))


def _annotations(keys: Iterable[str]) -> Iterator[FieldError]:
    for key in sorted(keys):
        if key.startswith(OURS) and key not in _KNOWN:
            near = _nearest(key)
            meant = f"did you mean {near}?" if near else f"a Job may say {', '.join(_NAMES)}"
            yield FieldError(f"metadata.annotations[{key}]", f"not known, {meant}")


def _labels(keys: Iterable[str], policy: FallbackPolicy) -> Iterator[FieldError]:
    expected = MARKS | _used(policy)
    ours = sorted(key for key in keys if key.startswith(OURS) and key not in expected)
    for key in ours[:_MOST_COMPARED]:
        if key in WISHES:
            yield FieldError(f"metadata.labels[{key}]", "not read, make it an annotation")
        elif near := _nearest(key):
            meant = f"did you mean the annotation {near}?"
            yield FieldError(f"metadata.labels[{key}]", f"not known, {meant}")


def _nearest(key: str) -> str:
    name = key.removeprefix(OURS)[:_LONGEST]
    return next(iter(get_close_matches(name.lower(), _NAMES, n=1)), "")


def _used(policy: FallbackPolicy) -> set[str]:
    """Name the labels that the policy itself reads."""
    selector = policy.spec.match.job_selector or LabelSelector()
    selected = (*selector.match_labels, *(each.key for each in selector.match_expressions))
    return {policy.spec.job_class_label or "", *selected}
