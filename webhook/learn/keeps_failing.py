"""Which options a class of Jobs is refused, because what it runs keeps failing there."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.learn.run_records import FAILURES_THAT_TELL, Outcome, Record, unpack_outcomes
from webhook.model.policy.fallback_policy import FallbackPolicy

REFUSED_SECONDS = 86_400.0
"""Since the last failure, and at most since the last success in the first option."""
_AS_SUBMITTED = ("", "")


def refused(record: Record, policy: FallbackPolicy, unix: float) -> Iterator[tuple[str, float]]:
    """List the options that a class is refused, each with when that ends, since 1970.

    It failed there at least three times and never succeeded under the policy as it is now, while
    Jobs of the class succeed in the first option, or as they were submitted.
    """
    first, *others = (option.name for option in policy.spec.options)
    ends = _last_success(record, policy, first) + REFUSED_SECONDS
    if ends <= unix:
        return
    for name in others:
        outcomes = [
            outcome
            for outcome in _outcomes(record, (policy.name, name))
            if outcome.generation == policy.generation
        ]
        failed = [outcome.finished for outcome in outcomes if not outcome.succeeded]
        if len(failed) < FAILURES_THAT_TELL or len(failed) < len(outcomes):
            continue
        until = min(max(failed) + REFUSED_SECONDS, ends)
        if unix < until:
            yield name, until


def _last_success(record: Record, policy: FallbackPolicy, first: str) -> float:
    places = (_AS_SUBMITTED, (policy.name, first))
    ends = [
        outcome.finished
        for place in places
        for outcome in _outcomes(record, place)
        if outcome.succeeded
    ]
    return max(ends, default=-REFUSED_SECONDS)


def _outcomes(record: Record, place: tuple[str, str]) -> tuple[Outcome, ...]:
    return unpack_outcomes(record.outcomes.get(place, b""))
