"""Finds annotations and labels with our prefix that nothing reads: misspelt, or misplaced.

The author meant something by it, so the Job is left alone, as where a value cannot be read.
Administrators make labels of their own: only one that looks like an annotation of ours is wrong.
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
"""The annotations by which a Job may ask for something."""
MOST_NAMED: Final = 3
_KNOWN: Final = MARKS | {*WISHES, PROBE}
_NAMES: Final = [key.removeprefix(OURS) for key in WISHES]
_LONGEST: Final = 63
"""Characters after the prefix that are compared; Kubernetes allows no more in a name."""
_MOST_COMPARED: Final = 100
"""Labels of a Job that are compared with ``WISHES``; an administrator has a few."""


def check(job: Job, policy: FallbackPolicy) -> None:
    """Refuse a Job with annotations or labels that have our prefix and that nothing reads.

    Raises:
        FieldError: its path is the first such key, its message names up to ``MOST_NAMED``.

    """
    if not any(key.startswith(OURS) for texts in (job.annotations, job.labels) for key in texts):
        return
    # No more are looked for than are named, as a Job may have thousands.
    errors = [
        *islice(chain(_annotations(job.annotations), _labels(job.labels, policy)), MOST_NAMED)
    ]
    if errors:
        first, *others = errors
        raise FieldError(first.path, "; ".join([first.message, *map(str, others)]))


def _annotations(keys: Iterable[str]) -> Iterator[FieldError]:
    # A key that only a newer version knows is refused as well: after a rollback the Job is left
    # alone rather than half obeyed (decision 0021).
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
            # The opt-out given as a label was ignored in silence once, and the Job was moved.
            yield FieldError(f"metadata.labels[{key}]", "not read, make it an annotation")
        elif near := _nearest(key):
            meant = f"did you mean the annotation {near}?"
            yield FieldError(f"metadata.labels[{key}]", f"not known, {meant}")


def _nearest(key: str) -> str:
    name = key.removeprefix(OURS)[:_LONGEST]
    return next(iter(get_close_matches(name.lower(), _NAMES, n=1)), "")


def _used(policy: FallbackPolicy) -> set[str]:
    """Return the names of the labels that the policy itself reads."""
    selector = policy.spec.match.job_selector or LabelSelector()
    selected = (*selector.match_labels, *(each.key for each in selector.match_expressions))
    return {policy.spec.job_class_label or "", *selected}
