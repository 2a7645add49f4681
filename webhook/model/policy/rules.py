"""What a schema cannot say about our custom resources, by the model that each rule is for.

Each rule stands here twice: in CEL, for the CRD, and in Python, for whoever has no API server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pydantic.alias_generators import to_snake

from webhook.model import quantity
from webhook.model.policy.patterns import ENV_NAME, LABEL, LONGEST_LABEL, QUALIFIED_NAME

REQUIRED: Final = "FieldValueRequired"
FORBIDDEN: Final = "FieldValueForbidden"

_RESERVED: Final = ("kueue.x-k8s.io/", "kueue-fallback.dev/", "batch.kubernetes.io/")
"""Kueue's, ours, and those that the API server gives to the pods of Jobs itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule on one object of a custom resource. Both forms see it with its defaults filled in."""

    cel: str
    holds: Callable[[Any], bool]
    """The same of the model's instance, each of whose fields is valid."""
    message: str
    field: str = ""
    """Where the mistake is, below the object: ``.name``."""
    reason: str = ""
    """The API server's for the mistake; empty: that the value is invalid."""
    offender_cel: str = ""
    """Names what breaks the rule, at the end of the message; and the same in Python."""
    offender: Callable[[Any], str] | None = None

    def text(self, value: object) -> str:
        return self.message if self.offender is None else f"{self.message}: {self.offender(value)}"


def quoted(text: str) -> str:
    """Write *text* as a CEL string."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def for_keys(name: str, *, cel: str, good: Callable[[str], bool], message: str) -> Rule:
    """Demand of each key ``k`` of the map *name* that it be good."""
    here = f"self.{name}"
    attribute = to_snake(name)

    def bad(value: object) -> list[str]:
        return sorted(key for key in getattr(value, attribute) or () if not good(key))

    return Rule(
        cel=f"!has({here}) || {here}.all(k, {cel})",
        holds=lambda value: not bad(value),
        message=message,
        field=f".{name}",
        offender_cel=f"{here}.filter(k, !({cel}))[0]",
        offender=lambda value: bad(value)[0],
    )


def resource_names(name: str) -> Rule:
    return _matching(name, QUALIFIED_NAME, 316, "not the name of a resource")


def label_keys(name: str) -> Rule:
    return _matching(name, QUALIFIED_NAME, 316, "not a valid key")


def env_names(name: str) -> Rule:
    return _matching(name, ENV_NAME, 253, "not the name of an environment variable")


def free_keys(name: str) -> Rule:
    """Demand that no key be one that belongs to Kueue, to us or to the API server."""
    return for_keys(
        name,
        cel=" && ".join(f"!k.startsWith({quoted(prefix)})" for prefix in _RESERVED),
        good=lambda key: not key.startswith(_RESERVED),
        message="reserved, so an option may not set it",
    )


def _matching(name: str, pattern: str, length: int, message: str) -> Rule:
    compiled = re.compile(pattern.removesuffix("$") + r"\Z")
    return for_keys(
        name,
        cel=f"size(k) <= {length} && k.matches({quoted(pattern)})",
        good=lambda key: len(key) <= length and compiled.match(key) is not None,
        message=message,
    )


class _Named(Protocol):
    """What an option's name is told by."""

    @property
    def name(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def cluster_queue(self) -> str: ...


def option_name(option: _Named) -> str:
    """Tell an option's name: its own, or its queue's."""
    return option.name or option.queue or option.cluster_queue


_OWN_NAME: Final = (
    "(has({0}.name) ? {0}.name : has({0}.queue) ? {0}.queue : "
    "has({0}.clusterQueue) ? {0}.clusterQueue : '')"
)
_TEAMS_OWN_NAME: Final = "(has({0}.name) ? {0}.name : has({0}.queue) ? {0}.queue : '')"
"""An option's name in CEL; and a team's, which has no ClusterQueue."""


def _names(options: Iterable[_Named]) -> list[str]:
    return [option_name(option) for option in options]


def _above_limit(resource: str) -> Rule:
    """Demand that a request be no greater than the limit given beside it.

    One resource a rule, and no conversion to text: before Kubernetes 1.34 the API server takes each
    of these values for 3 MB long and would refuse a rule that reads more of them as too costly. For
    the same reason the limit is not checked first: one that is no quantity, which the schema
    refuses, makes the API server add a line that the rule failed.
    """
    request, limit = f"self.requests['{resource}']", f"self.limits['{resource}']"
    given = f"has(self.requests) && has(self.limits) && '{resource}' in self.requests"
    return Rule(
        cel=f"!({given} && '{resource}' in self.limits) || "
        f"type({request}) != int && !isQuantity({request}) || "
        f"!({_quantity_cel(request)}).isGreaterThan({_quantity_cel(limit)})",
        holds=lambda it: not _exceeds(it.requests.get(resource), it.limits.get(resource)),
        message=f"{resource}: above the limit given beside it",
        field=".requests",
    )


def _quantity_cel(value: str) -> str:
    return f"type({value}) == int ? quantity('0').add({value}) : quantity({value})"


def _exceeds(request: str | None, limit: str | None) -> bool:
    if request is None or limit is None:
        return False
    return quantity.exact(request) > quantity.exact(limit)


_LISTS: Final = ("In", "NotIn")

SCALED_KINDS: Final = (
    "JAXJob",
    "JobSet",
    "MPIJob",
    "PaddleJob",
    "PyTorchJob",
    "RayCluster",
    "RayJob",
    "TFJob",
    "XGBoostJob",
)
"""Kinds whose Jobs have pod sets whose number of replicas an option may change."""
_POLICY = (
    Rule(
        cel="self.metadata.name != 'none'",
        holds=lambda policy: policy.metadata.name != "none",
        message="metadata.name: none is reserved; a Job that names it opts out",
    ),
)

_LONGEST_TEAMS_NAME: Final = 63
"""Characters, as each decision carries the name behind that of its namespace."""
_TEAM_POLICY = (
    Rule(
        cel=f"size(self.metadata.name) <= {_LONGEST_TEAMS_NAME}",
        holds=lambda policy: len(policy.metadata.name) <= _LONGEST_TEAMS_NAME,
        message=f"metadata.name: longer than {_LONGEST_TEAMS_NAME} characters",
    ),
)

_TEAMS_TELLING: Final = ("jobSelector", "maxRequests", "minRequests")
_TELLING: Final = (*_TEAMS_TELLING, "args", "env", "users", "groups", "priorityClasses")
"""Fields of a match that say for which of a queue's Jobs it is."""


def _match(telling: tuple[str, ...]) -> tuple[Rule, ...]:
    return (
        Rule(
            cel=" || ".join(f"has(self.{name})" for name in telling),
            holds=lambda match: any(getattr(match, to_snake(name)) is not None for name in telling),
            message=f"{', '.join(telling[:-1])} or {telling[-1]} must be given; "
            "jobSelector: {} means every Job",
            reason=REQUIRED,
        ),
        resource_names("maxRequests"),
        resource_names("minRequests"),
    )


_TEAM_MATCH = (
    *_match(_TEAMS_TELLING),
    Rule(
        cel="!has(self.queues) || self.queues.all(queue, queue != '')",
        holds=lambda match: match.queues is None or "" not in match.queues,
        message="a team may not choose Jobs that name no queue",
        field=".queues",
        reason=FORBIDDEN,
    ),
)

_VALUE = (
    Rule(
        cel="has(self.atMost) || has(self.atLeast) || has(self.equals)",
        holds=lambda it: (it.at_most, it.at_least, it.equals) != (None, None, None),
        message="atMost, atLeast or equals must be given",
        reason=REQUIRED,
    ),
    Rule(
        cel="!has(self.equals) || !has(self.atMost) && !has(self.atLeast)",
        holds=lambda it: it.equals is None or (it.at_most, it.at_least) == (None, None),
        message="may not be given beside atMost or atLeast",
        field=".equals",
        reason=FORBIDDEN,
    ),
    Rule(
        cel="!has(self.atMost) || !has(self.atLeast) || self.atLeast <= self.atMost",
        holds=lambda it: it.at_most is None or it.at_least is None or it.at_least <= it.at_most,
        message="above atMost, so that no value is both",
        field=".atLeast",
    ),
)

_EXPRESSION = (
    Rule(
        cel="!(self.operator in ['In', 'NotIn']) || has(self.values) && size(self.values) > 0",
        holds=lambda it: it.operator not in _LISTS or bool(it.values),
        message="operators In and NotIn need at least one",
        field=".values",
        reason=REQUIRED,
    ),
    Rule(
        cel="self.operator in ['In', 'NotIn'] || !has(self.values) || size(self.values) == 0",
        holds=lambda it: it.operator in _LISTS or not it.values,
        message="operators Exists and DoesNotExist take none",
        field=".values",
        reason=FORBIDDEN,
    ),
)


def _not_none(name: str) -> Rule:
    return Rule(
        cel=f"{name.format('self')} != 'none'",
        holds=lambda option: option_name(option) != "none",
        message="none is reserved for Jobs left as submitted; give another name",
        field=".name",
    )


_TEAM_OPTION = (
    Rule(
        cel="has(self.queue)",
        holds=lambda option: bool(option.queue),
        message="expected, but not there",
        field=".queue",
        reason=REQUIRED,
    ),
    _not_none(_TEAMS_OWN_NAME),
)
_OPTION = (
    Rule(
        cel="has(self.queue) || has(self.clusterQueue)",
        holds=lambda option: bool(option.queue or option.cluster_queue),
        message="queue or clusterQueue must be given",
        reason=REQUIRED,
    ),
    Rule(
        cel="!has(self.queue) || !has(self.clusterQueue)",
        holds=lambda option: not (option.queue and option.cluster_queue),
        message="may not be given beside queue",
        field=".clusterQueue",
        reason=FORBIDDEN,
    ),
    Rule(
        cel="!has(self.priorityClass) || self.priorityClass == '' || !has(self.guests) || "
        "self.guests.priorityClass == ''",
        holds=lambda it: not (it.priority_class and it.guests and it.guests.priority_class),
        message="may not be given beside guests.priorityClass",
        field=".priorityClass",
        reason=FORBIDDEN,
    ),
    _not_none(_OWN_NAME),
    Rule(
        cel="has(self.name) || !has(self.clusterQueue) || "
        f"size(self.clusterQueue) <= {LONGEST_LABEL}",
        holds=lambda option: bool(option.name) or len(option.cluster_queue) <= LONGEST_LABEL,
        message=f"must be given if the ClusterQueue's is longer than {LONGEST_LABEL} characters",
        field=".name",
        reason=REQUIRED,
    ),
)

_TEAM_ADAPTATION = (
    Rule(
        cel="!has(self.perRemoved) || size(self.perRemoved) == 0 || self.accelerator == 'Remove'",
        holds=lambda it: not it.per_removed or it.accelerator == "Remove",
        message="may be given only with accelerator: Remove",
        field=".perRemoved",
        reason=FORBIDDEN,
    ),
    resource_names("perRemoved"),
    Rule(
        cel="!has(self.by) || size(self.by) == 0 || self.accelerator == 'Replace'",
        holds=lambda it: not it.by or it.accelerator == "Replace",
        message="may be given only with accelerator: Replace",
        field=".by",
        reason=FORBIDDEN,
    ),
    Rule(
        cel="self.accelerator != 'Replace' || has(self.by) && size(self.by) > 0",
        holds=lambda it: it.accelerator != "Replace" or bool(it.by),
        message="must be given with accelerator: Replace",
        field=".by",
        reason=REQUIRED,
    ),
    resource_names("by"),
    for_keys(
        "by",
        cel="k.contains('/')",
        good=lambda key: "/" in key,
        message="not an extended resource, so it counts no devices",
    ),
)
_ADAPTATION = (
    *_TEAM_ADAPTATION,
    _matching("replicas", LABEL, LONGEST_LABEL, "not the name of a pod set"),
    Rule(
        cel="!has(self.replicas) || !has(self.podSets) || self.replicas.all(k, k in self.podSets)",
        holds=lambda it: it.pod_sets is None or set(it.replicas) <= set(it.pod_sets),
        message="may only be given for those in podSets",
        field=".replicas",
    ),
    env_names("env"),
    label_keys("labels"),
    free_keys("labels"),
    label_keys("annotations"),
    free_keys("annotations"),
)

_RESOURCES = (
    resource_names("requests"),
    resource_names("limits"),
    _above_limit("cpu"),
    _above_limit("memory"),
    _above_limit("ephemeral-storage"),
)

# The API server's own rules for a pod's tolerations (core validation, validateTolerations).
_TOLERATION = (
    Rule(
        cel="has(self.key) && self.key != '' || self.operator == 'Exists'",
        holds=lambda it: bool(it.key) or it.operator == "Exists",
        message="must be Exists when key is empty, which means every taint",
        field=".operator",
    ),
    Rule(
        cel="!has(self.value) || self.value == '' || self.operator == 'Equal'",
        holds=lambda it: not it.value or it.operator == "Equal",
        message="must be empty when operator is Exists",
        field=".value",
    ),
    Rule(
        cel="!has(self.tolerationSeconds) || has(self.effect) && self.effect == 'NoExecute'",
        holds=lambda it: it.toleration_seconds is None or it.effect == "NoExecute",
        message="must be NoExecute when tolerationSeconds is given",
        field=".effect",
    ),
)

_LEVELS: Final = ("Auto", "Required", "Preferred")
"""Modes of a topology that mean a level."""

_TOPOLOGY = (
    Rule(
        cel=f"!(self.mode in {list(_LEVELS)}) || has(self.level) && self.level != ''",
        holds=lambda it: it.mode not in _LEVELS or bool(it.level),
        message="must be given with mode: Auto, Required or Preferred",
        field=".level",
        reason=REQUIRED,
    ),
    Rule(
        cel=f"!has(self.level) || self.level == '' || self.mode in {list(_LEVELS)}",
        holds=lambda it: not it.level or it.mode in _LEVELS,
        message="may be given only with mode: Auto, Required or Preferred",
        field=".level",
        reason=FORBIDDEN,
    ),
)

_RUN_TIME = (
    Rule(
        cel="!has(self.runTime) || self.runTime.matches('[1-9]')",
        holds=lambda it: it.run_time is None or bool(it.run_time.strip("0.hms")),
        message="must be longer than zero; leave it out when it is not known",
        field=".runTime",
    ),
)

_CONGESTION = (
    Rule(
        cel="self.wait.matches('[1-9]')",
        holds=lambda it: bool(it.wait.strip("0.hms")),
        message="must be longer than zero",
        field=".wait",
    ),
)

_LATENESS_WEIGHT = (
    Rule(
        cel=f"!({_quantity_cel('self.most')}).isLessThan(quantity('1'))",
        holds=lambda it: quantity.exact(it.most) >= 1,
        message="below 1: the price never falls below what the policy gives",
        field=".most",
    ),
)

_ANY_STRATEGY = (
    Rule(
        cel="!has(self.finishTime) || self.type == 'FinishTime'",
        holds=lambda it: it.finish_time is None or it.type == "FinishTime",
        message="may be given only with type: FinishTime",
        field=".finishTime",
        reason=FORBIDDEN,
    ),
    Rule(
        cel="!has(self.threshold) || self.type == 'Threshold'",
        holds=lambda it: it.threshold is None or it.type == "Threshold",
        message="may be given only with type: Threshold",
        field=".threshold",
        reason=FORBIDDEN,
    ),
    Rule(
        cel="has(self.threshold) || self.type != 'Threshold'",
        holds=lambda it: it.threshold is not None or it.type != "Threshold",
        message="must be given with type: Threshold",
        field=".threshold",
        reason=REQUIRED,
    ),
)
_STRATEGY = (
    *_ANY_STRATEGY,
    Rule(
        cel="!has(self.cost) || self.type == 'Cost'",
        holds=lambda it: it.cost is None or it.type == "Cost",
        message="may be given only with type: Cost",
        field=".cost",
        reason=FORBIDDEN,
    ),
)
_TEAM_STRATEGY = (
    *_ANY_STRATEGY,
    Rule(
        cel="self.type != 'Cost'",
        holds=lambda it: it.type != "Cost",
        message="a team may not choose Cost: scarce resources have one price for all",
        field=".type",
        reason=FORBIDDEN,
    ),
)

ENDLESS: Final = ("Deployment", "LeaderWorkerSet", "RayCluster", "StatefulSet")
"""Kinds that never end by themselves, so that no finish of theirs can be expected."""
_ENDLESS_CEL = "[" + ", ".join(map(quoted, ENDLESS)) + "]"


def _spec(name: str) -> tuple[Rule, ...]:
    """Return the rules on any spec; *name* is an option's name in CEL."""
    return (
        Rule(
            cel="self.strategy.type == 'Threshold' || "
            f"self.match.kinds.all(k, !(k in {_ENDLESS_CEL}))",
            holds=lambda spec: not spec.strategy.forecasts or not _endless(spec),
            message="never ends, so it has no finish to expect; it needs strategy.type: Threshold",
            field=".match.kinds",
            offender_cel=f"self.match.kinds.filter(k, k in {_ENDLESS_CEL})[0]",
            offender=lambda spec: _endless(spec)[0],
        ),
        Rule(
            cel="self.strategy.type != 'Threshold' || self.options.all(o, !has(o.maxWait))",
            holds=lambda spec: (
                spec.strategy.forecasts or all(option.max_wait is None for option in spec.options)
            ),
            message="maxWait may not be given with strategy.type: Threshold, which knows no starts",
            field=".options",
            reason=FORBIDDEN,
        ),
        Rule(
            cel="self.options.all(a, self.options.exists_one(b, "
            f"{name.format('b')} == {name.format('a')}))",
            holds=lambda spec: len(set(_names(spec.options))) == len(spec.options),
            message="names of options must be unique; an option without a name has its queue's",
            field=".options",
        ),
        Rule(
            cel="size(self.options) == 0 || !has(self.options[0].slowdown) || "
            "self.options[0].slowdown == 1.0",
            holds=lambda spec: spec.options[0].slowdown in (None, 1),
            message="slowdown is relative to the first option, so it must be 1 there",
            field=".options",
        ),
        Rule(
            cel="!has(self.strategy.threshold) || self.strategy.threshold.all(r, "
            f"self.options.exists(o, {name.format('o')} == r.option))",
            holds=lambda spec: all(
                rule.option in _names(spec.options) for rule in spec.strategy.threshold or ()
            ),
            message="each rule must name an option of this policy",
            field=".strategy.threshold",
        ),
    )


_SPEC = (
    Rule(
        cel="!self.options.exists(o, has(o.adaptation) && has(o.adaptation.replicas) && "
        "size(o.adaptation.replicas) > 0)"
        f" || self.match.kinds.all(k, k in {list(SCALED_KINDS)})",
        holds=lambda spec: (
            not any(option.adaptation.replicas for option in spec.options)
            or set(spec.match.kinds) <= set(SCALED_KINDS)
        ),
        message=f"replicas may be set only if match.kinds names no kinds but "
        f"{', '.join(SCALED_KINDS)}",
        field=".options",
        reason=FORBIDDEN,
    ),
    Rule(
        cel="!has(self.reconsider) || !has(self.reconsider.minimumSaving) || "
        "self.strategy.type == 'Cost'",
        holds=lambda spec: (
            spec.reconsider is None
            or spec.reconsider.minimum_saving is None
            or spec.strategy.type == "Cost"
        ),
        message="minimumSaving may be given only with strategy.type: Cost",
        field=".reconsider",
        reason=FORBIDDEN,
    ),
    *_spec(_OWN_NAME),
)


def _at_most(field: str, other: str, message: str) -> Rule:
    """Demand that one number, if both are given, be no greater than another beside it."""
    lower, upper = f"self.{field}", f"self.{other}"
    return Rule(
        cel=f"!has({lower}) || !has({upper}) || "
        f"({_quantity_cel(lower)}).compareTo({_quantity_cel(upper)}) <= 0",
        holds=lambda it: _is_at_most(getattr(it, field), getattr(it, other)),
        message=message,
        field=f".{field}",
    )


def _is_at_most(lower: str | None, upper: str | None) -> bool:
    return lower is None or upper is None or quantity.exact(lower) <= quantity.exact(upper)


_WATTS = (
    _at_most("busy", "maximum", "above maximum"),
    _at_most("idle", "maximum", "above maximum"),
    _at_most("idle", "busy", "above busy"),
)

_PROFILE = (
    Rule(
        cel="has(self.flavors) && size(self.flavors) > 0 || "
        "has(self.nodeLabels) && size(self.nodeLabels) > 0",
        holds=lambda it: bool(it.flavors or it.node_labels),
        message="flavors or nodeLabels must be given",
        reason=REQUIRED,
    ),
    label_keys("nodeLabels"),
)

_SLICE = (
    Rule(
        cel="self.compute <= self.of",
        holds=lambda it: it.compute <= it.of,
        message="above the number that the whole device has",
        field=".compute",
    ),
)

_WHEN = (
    Rule(
        cel="!has(self.from) || !has(self.until) || self.from <= self.until",
        holds=lambda it: it.from_date is None or it.until is None or it.from_date <= it.until,
        message="before the first day",
        field=".until",
    ),
    Rule(
        cel="!has(self.hours) || self.hours.split('-')[0] != self.hours.split('-')[1]",
        holds=lambda it: it.hours is None or it.hours[:5] != it.hours[6:],
        message="ends when it begins; leave it out to mean the whole day",
        field=".hours",
    ),
)

_UNCONDITIONAL_CEL = "!has({0}.months) && !has({0}.days) && !has({0}.hours) && !has({0}.from)"


def _first_is_always(name: str) -> Rule:
    first = f"self.{name}[0]"
    never_limited = _UNCONDITIONAL_CEL.format(first) + f" && !has({first}.until)"
    return Rule(
        cel=f"!has(self.{name}) || size(self.{name}) == 0 || {never_limited}",
        holds=lambda it: not getattr(it, name) or getattr(it, name)[0].always,
        message="the first entry must always apply, so that there is a value at any time",
        field=f".{name}",
    )


_TARIFF = (
    _first_is_always("electricity"),
    _first_is_always("carbon"),
    Rule(
        # What is no quantity the schema refuses; the rule would add that it failed.
        cel="type(self.overhead) != int && !isQuantity(self.overhead) || "
        f"!({_quantity_cel('self.overhead')}).isLessThan(quantity('1'))",
        holds=lambda it: quantity.exact(it.overhead) >= 1,
        message="below 1: the building cannot take less than its machines",
        field=".overhead",
    ),
)


def _endless(spec: Any) -> list[str]:
    return [kind for kind in spec.match.kinds if kind in ENDLESS]


RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "PolicyObject": _POLICY,
    "Spec": _SPEC,
    "Match": _match(_TELLING),
    "ArgMatch": _VALUE,
    "EnvMatch": _VALUE,
    "LabelSelector": (label_keys("matchLabels"),),
    "SelectorExpression": _EXPRESSION,
    "Option": _OPTION,
    "Adaptation": _ADAPTATION,
    "ResourceChanges": _RESOURCES,
    "NodeSelectorChanges": (label_keys("set"),),
    "TolerationSpec": _TOLERATION,
    "TopologyChanges": _TOPOLOGY,
    "Strategy": _STRATEGY,
    "FinishTime": _RUN_TIME,
    "LeastCost": _RUN_TIME,
    "Congestion": _CONGESTION,
    "LatenessWeight": _LATENESS_WEIGHT,
    "AcceleratorProfileSpec": _PROFILE,
    "WattsSpec": _WATTS,
    "SliceSpec": _SLICE,
    "RateEntry": (*_WHEN, resource_names("resources")),
    "PriceEntry": _WHEN,
    "CarbonEntry": _WHEN,
    "TariffSpec": _TARIFF,
}
"""The rules on each model, but where ``TEAM_RULES`` replace them."""

TEAM_RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    **RULES,
    "TeamPolicyObject": _TEAM_POLICY,
    "Spec": _spec(_TEAMS_OWN_NAME),
    "Match": _TEAM_MATCH,
    "Option": _TEAM_OPTION,
    "Adaptation": _TEAM_ADAPTATION,
    "Strategy": _TEAM_STRATEGY,
}
"""The rules of a team's policy; none reads a field that teams do not have (``TEAM_FIELDS``)."""
