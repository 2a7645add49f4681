"""The strategies by name: each picks one of the options, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from webhook.decide import finish_time, threshold
from webhook.decide.choice import Choice
from webhook.model.decision import Assessment
from webhook.model.policy import FallbackPolicy, StrategyType

Strategy: TypeAlias = Callable[[FallbackPolicy, Sequence[Assessment], str], Choice]

STRATEGIES: Mapping[StrategyType, Strategy] = {
    StrategyType.FINISH_TIME: finish_time.choose,
    StrategyType.THRESHOLD: threshold.choose,
}


def choose(
    policy: FallbackPolicy, assessments: Sequence[Assessment], submitted: str = ""
) -> Choice:
    """Ask the policy's strategy; *submitted* is the LocalQueue the Job would go to unasked."""
    return STRATEGIES[policy.spec.strategy.type](policy, assessments, submitted)
