"""Values derived from a policy's texts, in the units that decisions are made in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from webhook.model import quantity
from webhook.model.policy.fallback_policy import FallbackPolicy, LabelSelector
from webhook.model.selector import Expression, Operator, Selector

_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|h|m|s)")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def selector(given: LabelSelector | None, default: Selector) -> Selector:
    """Turn a policy's label selector into one that matches; *default* stands for an absent one."""
    if given is None:
        return default
    return Selector(
        labels=given.match_labels,
        expressions=tuple(
            Expression(key=one.key, operator=Operator(one.operator), values=one.values)
            for one in given.match_expressions
        ),
    )


def seconds(duration: str) -> float:
    """Tell how many seconds a valid duration such as ``1h30m`` is."""
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(duration))


def amounts(given: Mapping[str, str]) -> Mapping[str, int]:
    """Turn valid quantities into ints, as ``model.quantity`` counts them."""
    return {name: quantity.parse(text, resource=name) for name, text in given.items()}


def queues_of(policy: FallbackPolicy) -> frozenset[str]:
    """Name the LocalQueues that Jobs must be submitted to: given, or the options' own."""
    if policy.spec.match.queues is not None:
        return frozenset(policy.spec.match.queues)
    return frozenset(option.queue for option in policy.spec.options if option.queue)


def sort_key(policy: FallbackPolicy) -> tuple[int, str]:
    """Order policies so that the one that applies comes first: priority down, then name."""
    return (-policy.spec.priority, policy.name)
