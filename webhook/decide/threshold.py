"""Strategy Threshold: rules in order on what fits, what is pending and what holds quota.

A rule's option is taken when it fits and fewer than ``andReservingBelow`` have quota reserved
there, or when fewer than ``orPendingBelow`` are pending there. What a rule does not give is no
condition: with ``orPendingBelow`` alone it is taken when it fits or few are pending, with
``andReservingBelow`` alone when it fits and few hold quota, with neither when it fits. An option
that may preempt counts as one that fits, so that a preferred queue with that right is not left.
"""

from __future__ import annotations

from collections.abc import Sequence

from webhook.decide.choice import UNASKED, Asking, Choice, leave, take
from webhook.model.decision import Assessment, Fit
from webhook.model.policy.fallback_policy import FallbackPolicy, ThresholdRule


def choose(
    policy: FallbackPolicy, assessments: Sequence[Assessment], asking: Asking = UNASKED
) -> Choice:
    """Take the first rule's option that holds; none: the first option; that refused: none."""
    places = {item.option: index for index, item in enumerate(assessments)}
    passed: list[str] = []
    for rule in policy.spec.strategy.threshold or ():
        index = places.get(rule.option)
        if index is None:
            continue
        because = _because(rule, assessments[index])
        if because is not None:
            reasons = (because, *passed)
            return take(policy, assessments, index, submitted=asking.submitted, because=reasons)
        passed.append(_against(rule, assessments[index]))
    if assessments[0].rejection is not None:
        return leave(assessments)
    reasons = ("no threshold holds", *passed)
    return take(policy, assessments, 0, submitted=asking.submitted, because=reasons)


def _because(rule: ThresholdRule, option: Assessment) -> str | None:
    """Say why the rule holds; None: it does not."""
    if option.rejection is not None or option.fit is None:
        return None
    reserving, below = option.reserving or 0, rule.and_reserving_below
    if option.fit >= Fit.MAY_PREEMPT and (below is None or reserving < below):
        return _how_it_fits(option)
    pending, limit = option.pending or 0, rule.or_pending_below
    if limit is not None and pending < limit:
        return f"{pending} pending there, fewer than {limit}"
    return None


def _how_it_fits(option: Assessment) -> str:
    if option.starts_now:
        return "starts now"
    return "may preempt" if option.fit is Fit.MAY_PREEMPT else "has quota free"


def _against(rule: ThresholdRule, option: Assessment) -> str:
    if option.rejection is not None:
        return f"{option.queue or option.option} refused: {option.rejection.detail}"
    if option.fit is not None and option.fit >= Fit.MAY_PREEMPT:
        return f"{option.queue} has {option.reserving} with quota reserved"
    if rule.or_pending_below is None:
        return f"{option.queue} has no quota free"
    return f"{option.queue} has {option.pending} pending"
