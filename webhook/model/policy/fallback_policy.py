"""FallbackPolicy: read at one border into a frozen value, or refused with every mistake.

Its models are the one source of the CRD's schema, too.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

from webhook.model import quantity
from webhook.model.fields import FieldError, child
from webhook.model.pods import Expression, Operator, Selector
from webhook.model.policy.custom_object import (
    Conditions,
    CustomObject,
    Metadata,
    NamespaceName,
    PolicyError,
    Strict,
    Structural,
    read_object,
)
from webhook.model.policy.rules import TEAM_RULES, option_name
from webhook.model.policy.spec import (
    Accelerator,
    Adaptation,
    Affinity,
    LabelSelector,
    Match,
    Mode,
    NodeSelectorChanges,
    Only,
    Option,
    Reconsider,
    ResourceChanges,
    Spec,
    TolerationChanges,
    TolerationMatch,
    TolerationSpec,
    TopologyChanges,
    TopologyMode,
    ValueMatch,
)
from webhook.model.policy.strategy import (
    FinishTime,
    Strategy,
    StrategyType,
    ThresholdRule,
)

__all__ = [
    "GROUP",
    "KIND",
    "TEAM_KIND",
    "VERSION",
    "Accelerator",
    "Adaptation",
    "Affinity",
    "FallbackPolicy",
    "FinishTime",
    "LabelSelector",
    "Match",
    "Mode",
    "NodeSelectorChanges",
    "Only",
    "Option",
    "PolicyError",
    "Reconsider",
    "ResourceChanges",
    "Spec",
    "Strategy",
    "StrategyType",
    "ThresholdRule",
    "TolerationChanges",
    "TolerationMatch",
    "TolerationSpec",
    "TopologyChanges",
    "TopologyMode",
    "ValueMatch",
    "read_policy",
    "read_team_policy",
]


GROUP: Final = "kueue-fallback.dev"
VERSION: Final = "v1alpha1"
KIND: Final = "FallbackPolicy"
TEAM_KIND: Final = "TeamFallbackPolicy"


class FallbackPolicy(Strict):
    """A valid policy. ``generation`` is the object's, for its status."""

    name: str
    """Of a team's ``NAMESPACE/NAME``, which no other policy can have for a name."""
    namespace: str = ""
    """The only one whose Jobs a team's policy is for; empty: it is no team's."""
    generation: int = 0
    spec: Spec
    restrained: str = ""
    """Why it only observes where its object says Enforce; empty: its mode is its own."""


class PolicyStatus(Structural):
    """What the controller found out about the policy."""

    conditions: Conditions = ()
    """Ready: every option can be taken, as far as is known now. KueueTested: decisions are tested
    with this version and configuration of Kueue. Reviewed: False for an hour after Jobs that the
    policy matches were created without a review."""


class PolicyObject(CustomObject):
    spec: Spec
    status: PolicyStatus | None = None


def read_policy(source: Mapping[str, Any]) -> FallbackPolicy:
    """Read a policy as ``read_object`` does, and name its options."""
    return _with_named_options(read_object(PolicyObject, source))


def _with_named_options(policy: PolicyObject) -> FallbackPolicy:
    options = tuple(
        option.model_copy(update={"name": option_name(option)}) for option in policy.spec.options
    )
    return FallbackPolicy(
        name=policy.metadata.name,
        generation=policy.metadata.generation,
        spec=policy.spec.model_copy(update={"options": options}),
    )


class TeamMetadata(Metadata):
    namespace: NamespaceName


class TeamPolicyObject(PolicyObject):
    metadata: TeamMetadata


_LONGEST_OF_TEAM: Final = 32_768
"""Characters of a team's spec as JSON; one with four options has some 2,000."""
Fields: TypeAlias = "Mapping[str, Fields | None]"
TEAM_FIELDS: Final[Fields] = {
    **dict.fromkeys(("mode", "priority", "message", "warn")),
    "match": dict.fromkeys(("kinds", "jobSelector", "maxRequests", "minRequests", "queues")),
    "options": {
        **dict.fromkeys(("name", "queue", "slowdown", "startDelay", "maxWait")),
        "adaptation": dict.fromkeys(("accelerator", "by", "perRemoved", "containers", "resources")),
    },
    "strategy": dict.fromkeys(("type", "finishTime", "threshold")),
}
"""What a team may say: the fields of a spec, and those of what is below; None: all of these.

None lets a policy's author act on more than what Jobs of the namespace ask for.
"""


def read_team_policy(source: Mapping[str, Any]) -> FallbackPolicy:
    """Read a team's policy as ``read_policy`` does; it says less, and means the same by it.

    Raises:
        PolicyError: it breaks a rule, or is so large that many would fill the memory.

    """
    spec, beyond = source.get("spec"), list[FieldError]()
    if len(json.dumps(spec)) > _LONGEST_OF_TEAM:
        too_long = FieldError("spec", f"more than {_LONGEST_OF_TEAM} characters as JSON")
        raise PolicyError((too_long,))
    own = {**source, "spec": _within(spec, TEAM_FIELDS, "spec", beyond)}
    try:
        policy = read_object(TeamPolicyObject, own, TEAM_RULES)
    except PolicyError as error:
        raise PolicyError((*beyond, *error.errors)) from error
    if beyond:
        raise PolicyError(tuple(beyond))
    namespace = policy.metadata.namespace
    name = f"{namespace}/{policy.metadata.name}"
    return _with_named_options(policy).model_copy(update={"name": name, "namespace": namespace})


def _within(given: Any, fields: Fields | None, path: str, beyond: list[FieldError]) -> Any:
    """Return what of *given* is in the *fields*; add to *beyond* what is not."""
    if fields is not None and isinstance(given, list):
        items = enumerate(given)
        return [_within(item, fields, child(path, index), beyond) for index, item in items]
    if fields is None or not isinstance(given, dict):
        return given
    beyond += (FieldError(child(path, key), "no such field") for key in given if key not in fields)
    return {
        key: _within(value, fields[key], child(path, key), beyond)
        for key, value in given.items()
        if key in fields
    }


READ_BY_KIND: Final[Mapping[str, Callable[[Mapping[str, Any]], FallbackPolicy]]] = {
    KIND: read_policy,
    TEAM_KIND: read_team_policy,
}
"""Kind to what reads its objects, for those that say their kind."""


_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|h|m|s)")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def selector(given: LabelSelector | None, default: Selector) -> Selector:
    """Turn a policy's label selector into one that matches; *default* stands for an absent one."""
    if given is None:
        return default
    return Selector(
        labels=given.match_labels,
        expressions=tuple(
            Expression(
                key=requirement.key,
                operator=Operator(requirement.operator),
                values=requirement.values,
            )
            for requirement in given.match_expressions
        ),
    )


@lru_cache
def seconds(duration: str) -> float:
    """Return a valid duration, such as ``1h30m``, in seconds."""
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(duration))


def amounts(given: Mapping[str, str]) -> Mapping[str, int]:
    """Turn valid quantities into ints, as ``model.quantity`` counts them."""
    return {name: quantity.parse(text, resource=name) for name, text in given.items()}


def queues_of(policy: FallbackPolicy) -> frozenset[str]:
    """Return the LocalQueues whose Jobs a policy matches: those given, or those of its options."""
    if policy.spec.match.queues is not None:
        return frozenset(policy.spec.match.queues)
    return frozenset(option.queue for option in policy.spec.options if option.queue)


def sort_key(policy: FallbackPolicy) -> tuple[str, int, str]:
    """Order policies so that the one that applies comes first: priority down, then name.

    Those of teams come last, one namespace after the other.
    """
    return (policy.namespace, -policy.spec.priority, policy.name)


MOST_OF_TEAM: Final = 16
"""Policies of one namespace; who may write them there may not take everybody's memory."""
MOST_OF_TEAMS: Final = 1000
"""Policies of all namespaces, for the same reason."""


def in_order(policies: Iterable[FallbackPolicy]) -> tuple[FallbackPolicy, ...]:
    """Sort policies as they apply; of a namespace's own, those beyond the limit are left out."""
    counts: Counter[str] = Counter()
    kept = []
    for policy in sorted(policies, key=sort_key):
        counts[policy.namespace] += 1
        if not policy.namespace or counts[policy.namespace] <= MOST_OF_TEAM:
            kept.append(policy)
    return tuple(kept)
