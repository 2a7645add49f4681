"""Strategy FinishTime: the earliest expected finish; the first option while that is unknown."""

from __future__ import annotations

from collections.abc import Sequence

from webhook.decide.choice import Choice, leave, take
from webhook.model.decision import Assessment
from webhook.model.policy import FallbackPolicy


def choose(
    policy: FallbackPolicy, assessments: Sequence[Assessment], submitted: str = ""
) -> Choice:
    """Take the first option: no run time is known to forecast a finish from."""
    if assessments[0].rejection is not None:
        return leave(assessments)
    starts = ("starts now",) if assessments[0].starts_now else ()
    reasons = (*starts, "no run time is known yet, so the first option stands")
    return take(policy, assessments, 0, submitted=submitted, because=reasons)
