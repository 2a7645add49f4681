"""The strategies by name: each picks one of the options, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from webhook.decide import finish_time, threshold
from webhook.decide.choice import UNASKED, Asking, Choice
from webhook.model.decision import Assessment
from webhook.model.policy.fallback_policy import FallbackPolicy, StrategyType

Strategy: TypeAlias = Callable[[FallbackPolicy, Sequence[Assessment], Asking], Choice]

STRATEGIES: Mapping[StrategyType, Strategy] = {
    StrategyType.FINISH_TIME: finish_time.choose,
    StrategyType.THRESHOLD: threshold.choose,
}


def choose(
    policy: FallbackPolicy, assessments: Sequence[Assessment], asking: Asking = UNASKED
) -> Choice:
    """Ask the policy's strategy."""
    return STRATEGIES[policy.spec.strategy.type](policy, assessments, asking)
