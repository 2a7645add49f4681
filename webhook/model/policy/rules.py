"""What a schema cannot say about our custom resources, by the model that each rule is for.

Each is kept by the API server, by its CEL in the CRD, and where there is none, by Python. Both are
made from the same facts where these are of a usual form, and random policies show that they agree.
A rule on a field whose type the schema cannot say has no CEL, as CEL cannot read it: it is kept by
Python alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, Protocol

from pydantic.alias_generators import to_snake

from webhook.model import quantity
from webhook.model.policy.patterns import ENV_NAME, LONGEST_LABEL, QUALIFIED_NAME

REQUIRED: Final = "FieldValueRequired"
FORBIDDEN: Final = "FieldValueForbidden"

_RESERVED: Final = ("kueue.x-k8s.io/", "kueue-fallback.dev/", "batch.kubernetes.io/")
"""Kueue's, ours, and those that the API server gives to the pods of Jobs itself."""


@dataclass(frozen=True, slots=True)
class Fact:
    """What holds of one object of a custom resource, or does not."""

    cel: str
    """Both forms see the object with its defaults filled in. Empty: CEL cannot read the field."""
    holds: Callable[[Any], bool]
    """The same of the model's instance, each of whose fields is valid."""

    def __or__(self, other: Fact) -> Fact:
        cel = f"({self.cel} || {other.cel})" if self.cel and other.cel else ""
        return Fact(cel, lambda it: self.holds(it) or other.holds(it))

    def __invert__(self) -> Fact:
        return Fact(self.cel and f"!({self.cel})", lambda it: not self.holds(it))


@dataclass(frozen=True, slots=True)
class Rule:
    """What must hold of each object of a kind, and what is said where it does not."""

    fact: Fact
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


def given(path: str) -> Fact:
    """Return that a field is there which has no default."""
    return Fact(_there(path), lambda it: _value(it, path) is not None)


def named(path: str) -> Fact:
    """Return that a name is there, which the schema refuses where it is empty."""
    return Fact(_there(path), lambda it: bool(_value(it, path)))


def filled(path: str) -> Fact:
    """Return that a text, a list or a map is not empty, as it is by default."""
    return Fact(f"({_there(path)} && size(self.{path}) > 0)", lambda it: bool(_value(it, path)))


def one_of(path: str, *values: str) -> Fact:
    """Return that a field has one of these values."""
    listed = "[" + ", ".join(map(quoted, values)) + "]"
    return Fact(
        f"({_there(path)} && self.{path} in {listed})", lambda it: _value(it, path) in values
    )


def _there(path: str) -> str:
    names = path.split(".")
    return " && ".join(f"has(self.{'.'.join(names[: end + 1])})" for end in range(len(names)))


def _value(it: Any, path: str) -> Any:
    for name in path.split("."):
        it = getattr(it, to_snake(name), None)
    return it


def _some_of(is_there: Callable[[str], Fact], *names: str, more: str = "") -> Rule:
    any_of = reduce(Fact.__or__, map(is_there, names))
    return Rule(any_of, f"{_alternatives(names)} must be given{more}", reason=REQUIRED)


def _not_beside(is_there: Fact, other: Fact, *, field: str, beside: str) -> Rule:
    return Rule(~is_there | ~other, f"may not be given beside {beside}", field, FORBIDDEN)


def _only_with(is_there: Fact, key: str, *values: str, field: str) -> Rule:
    message = f"may be given only with {key}: {_alternatives(values)}"
    return Rule(~is_there | one_of(key, *values), message, field, FORBIDDEN)


def _needed_with(is_there: Fact, key: str, *values: str, field: str) -> Rule:
    message = f"must be given with {key}: {_alternatives(values)}"
    return Rule(~one_of(key, *values) | is_there, message, field, REQUIRED)


def _alternatives(words: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


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
        Fact(f"!has({here}) || {here}.all(k, {cel})", lambda value: not bad(value)),
        message,
        f".{name}",
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
    both = f"has(self.requests) && has(self.limits) && '{resource}' in self.requests"
    is_kept = Fact(
        f"!({both} && '{resource}' in self.limits) || "
        f"type({request}) != int && !isQuantity({request}) || "
        f"!({_quantity_cel(request)}).isGreaterThan({_quantity_cel(limit)})",
        lambda it: not _exceeds(it.requests.get(resource), it.limits.get(resource)),
    )
    return Rule(is_kept, f"{resource}: above the limit given beside it", ".requests")


def _quantity_cel(value: str) -> str:
    return f"type({value}) == int ? quantity('0').add({value}) : quantity({value})"


def _exceeds(request: str | None, limit: str | None) -> bool:
    if request is None or limit is None:
        return False
    return quantity.exact(request) > quantity.exact(limit)


SERVICES: Final = ("Deployment", "LeaderWorkerSet", "StatefulSet")
"""Kinds that may say how many requests they serve, by which what they cost can be compared."""
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
    *SERVICES,
)
"""Kinds whose Jobs have pod sets whose number of replicas an option may change."""
_POLICY = (
    Rule(
        Fact("self.metadata.name != 'none'", lambda policy: policy.metadata.name != "none"),
        "metadata.name: none is reserved; a Job that names it opts out",
    ),
)

_LONGEST_TEAMS_NAME: Final = 63
"""Characters, as each decision carries the name behind that of its namespace."""
_TEAM_POLICY = (
    Rule(
        Fact(
            f"size(self.metadata.name) <= {_LONGEST_TEAMS_NAME}",
            lambda policy: len(policy.metadata.name) <= _LONGEST_TEAMS_NAME,
        ),
        f"metadata.name: longer than {_LONGEST_TEAMS_NAME} characters",
    ),
)

_TEAMS_TELLING: Final = ("jobSelector", "maxRequests", "minRequests")
_TELLING: Final = (*_TEAMS_TELLING, "args", "env", "users", "groups", "priorityClasses")
"""Fields of a match that say for which of a queue's Jobs it is."""


def _match(telling: tuple[str, ...]) -> tuple[Rule, ...]:
    return (
        _some_of(given, *telling, more="; jobSelector: {} means every Job"),
        resource_names("maxRequests"),
        resource_names("minRequests"),
    )


_TEAM_MATCH = (
    *_match(_TEAMS_TELLING),
    Rule(
        Fact(
            "!has(self.queues) || self.queues.all(queue, queue != '')",
            lambda match: match.queues is None or "" not in match.queues,
        ),
        "a team may not choose Jobs that name no queue",
        ".queues",
        FORBIDDEN,
    ),
)

_VALUE = (
    _some_of(given, "atMost", "atLeast", "equals"),
    _not_beside(
        given("equals"),
        given("atMost") | given("atLeast"),
        field=".equals",
        beside="atMost or atLeast",
    ),
    Rule(
        Fact(
            "!has(self.atMost) || !has(self.atLeast) || self.atLeast <= self.atMost",
            lambda it: it.at_most is None or it.at_least is None or it.at_least <= it.at_most,
        ),
        "above atMost, so that no value is both",
        ".atLeast",
    ),
)

_NEEDS_VALUES = one_of("operator", "In", "NotIn")
_EXPRESSION = (
    Rule(
        ~_NEEDS_VALUES | filled("values"),
        "operators In and NotIn need at least one",
        ".values",
        REQUIRED,
    ),
    Rule(
        _NEEDS_VALUES | ~filled("values"),
        "operators Exists and DoesNotExist take none",
        ".values",
        FORBIDDEN,
    ),
)


def _not_none(name: str) -> Rule:
    return Rule(
        Fact(f"{name.format('self')} != 'none'", lambda option: option_name(option) != "none"),
        "none is reserved for Jobs left as submitted; give another name",
        ".name",
    )


_TEAM_OPTION = (
    Rule(named("queue"), "expected, but not there", ".queue", REQUIRED),
    _not_none(_TEAMS_OWN_NAME),
)
_OPTION = (
    _some_of(named, "queue", "clusterQueue"),
    _not_beside(named("clusterQueue"), named("queue"), field=".clusterQueue", beside="queue"),
    _not_beside(
        filled("priorityClass"),
        filled("guests.priorityClass"),
        field=".priorityClass",
        beside="guests.priorityClass",
    ),
    _not_none(_OWN_NAME),
    Rule(
        named("name")
        | ~named("clusterQueue")
        | Fact(
            f"size(self.clusterQueue) <= {LONGEST_LABEL}",
            lambda option: len(option.cluster_queue) <= LONGEST_LABEL,
        ),
        f"must be given if the ClusterQueue's is longer than {LONGEST_LABEL} characters",
        ".name",
        REQUIRED,
    ),
)

_TEAM_ADAPTATION = (
    _only_with(filled("perRemoved"), "accelerator", "Remove", field=".perRemoved"),
    resource_names("perRemoved"),
    _only_with(filled("by"), "accelerator", "Replace", field=".by"),
    _needed_with(filled("by"), "accelerator", "Replace", field=".by"),
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
    Rule(
        Fact("", lambda it: it.pod_sets is None or set(it.given_replicas) <= set(it.pod_sets)),
        "may only be given for those in podSets",
        ".replicas",
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
        filled("key") | one_of("operator", "Exists"),
        "must be Exists when key is empty, which means every taint",
        ".operator",
    ),
    Rule(
        ~filled("value") | one_of("operator", "Equal"),
        "must be empty when operator is Exists",
        ".value",
    ),
    Rule(
        ~given("tolerationSeconds") | one_of("effect", "NoExecute"),
        "must be NoExecute when tolerationSeconds is given",
        ".effect",
    ),
)

_LEVELS: Final = ("Auto", "Required", "Preferred")
"""Modes of a topology that mean a level."""

_TOPOLOGY = (
    _needed_with(filled("level"), "mode", *_LEVELS, field=".level"),
    _only_with(filled("level"), "mode", *_LEVELS, field=".level"),
)


def _not_zero(name: str, more: str = "") -> Rule:
    """Demand that a duration, if it is given, be longer than zero."""

    def is_longer(it: Any) -> bool:
        duration = _value(it, name)
        return duration is None or bool(duration.strip("0.hms"))

    fact = Fact(f"!has(self.{name}) || self.{name}.matches('[1-9]')", is_longer)
    return Rule(fact, f"must be longer than zero{more}", f".{name}")


_RUN_TIME = (_not_zero("runTime", "; leave it out when it is not known"),)


def _at_least_one(name: str, why: str) -> Rule:
    """Demand that a number be 1 or more."""
    here = f"self.{name}"
    fact = Fact(
        # What is no quantity the schema refuses; the rule would add that it failed.
        f"type({here}) != int && !isQuantity({here}) || "
        f"!({_quantity_cel(here)}).isLessThan(quantity('1'))",
        lambda it: quantity.exact(_value(it, name)) >= 1,
    )
    return Rule(fact, f"below 1: {why}", f".{name}")


def _above_zero(name: str, why: str) -> Rule:
    """Demand that a number be above 0."""
    here = f"self.{name}"
    fact = Fact(
        f"type({here}) == int ? {here} > 0 : {here}.matches('[1-9]')",
        lambda it: quantity.exact(_value(it, name)) > 0,
    )
    return Rule(fact, f"not above 0: {why}", f".{name}")


_ANY_STRATEGY = (
    _only_with(given("finishTime"), "type", "FinishTime", field=".finishTime"),
    _only_with(given("threshold"), "type", "Threshold", field=".threshold"),
    _needed_with(given("threshold"), "type", "Threshold", field=".threshold"),
)
_STRATEGY = (*_ANY_STRATEGY, _only_with(given("cost"), "type", "Cost", field=".cost"))
_TEAM_STRATEGY = (
    *_ANY_STRATEGY,
    Rule(
        ~one_of("type", "Cost"),
        "a team may not choose Cost: scarce resources have one price for all",
        ".type",
        FORBIDDEN,
    ),
)

ENDLESS: Final = ("RayCluster", *SERVICES)
"""Kinds that never end by themselves, so that no finish of theirs can be expected."""


_BY_COUNTS: Final = one_of("strategy.type", "Threshold")
_BY_COST: Final = one_of("strategy.type", "Cost")


def _listed_cel(kinds: Iterable[str]) -> str:
    return "[" + ", ".join(map(quoted, kinds)) + "]"


def _has_none_of(kinds: tuple[str, ...]) -> Fact:
    """Return that a policy is for none of these kinds."""
    return Fact(
        f"self.match.kinds.all(k, !(k in {_listed_cel(kinds)}))",
        lambda spec: not set(kinds) & set(spec.match.kinds),
    )


def _spec(name: str) -> tuple[Rule, ...]:
    """Return the rules on any spec; *name* is an option's name in CEL."""
    return (
        Rule(
            _BY_COUNTS | _BY_COST | _has_none_of(ENDLESS),
            "never ends, so it has no finish to expect; it needs strategy.type: Threshold, "
            "or Cost for a service",
            ".match.kinds",
            offender_cel=f"self.match.kinds.filter(k, k in {_listed_cel(ENDLESS)})[0]",
            offender=lambda spec: next(kind for kind in spec.match.kinds if kind in ENDLESS),
        ),
        Rule(
            ~_BY_COST | _has_none_of(("RayCluster",)),
            "RayCluster never ends and serves nobody; it needs strategy.type: Threshold",
            ".match.kinds",
        ),
        Rule(
            ~_BY_COUNTS
            | Fact(
                "self.options.all(o, !has(o.maxWait))",
                lambda spec: all(option.max_wait is None for option in spec.options),
            ),
            "maxWait may not be given with strategy.type: Threshold, which knows no starts",
            ".options",
            FORBIDDEN,
        ),
        Rule(
            Fact(
                "self.options.all(a, self.options.exists_one(b, "
                f"{name.format('b')} == {name.format('a')}))",
                lambda spec: len(set(_names(spec.options))) == len(spec.options),
            ),
            "names of options must be unique; an option without a name has its queue's",
            ".options",
        ),
        Rule(
            Fact(
                "size(self.options) == 0 || !has(self.options[0].slowdown) || "
                "self.options[0].slowdown == 1.0",
                lambda spec: spec.options[0].slowdown in (None, 1),
            ),
            "slowdown is relative to the first option, so it must be 1 there",
            ".options",
        ),
        Rule(
            ~given("strategy.threshold")
            | Fact(
                "self.strategy.threshold.all(r, "
                f"self.options.exists(o, {name.format('o')} == r.option))",
                lambda spec: (
                    {rule.option for rule in spec.strategy.threshold} <= set(_names(spec.options))
                ),
            ),
            "each rule must name an option of this policy",
            ".strategy.threshold",
        ),
    )


_HAS_AUTO = Fact(
    "", lambda spec: any(option.adaptation.replicas == "Auto" for option in spec.options)
)
_SERVES_NOBODY = Fact(
    "!has(self.serving) && !has(self.autoscale) && !self.options.exists(o, has(o.serving))",
    lambda spec: (
        spec.serving is None
        and spec.autoscale is None
        and all(option.serving is None for option in spec.options)
    ),
)
_SPEC = (
    Rule(
        _BY_COST | _SERVES_NOBODY,
        "serving and autoscale may be given only with strategy.type: Cost",
        ".strategy.type",
        FORBIDDEN,
    ),
    Rule(
        _BY_COST | ~_HAS_AUTO,
        "replicas Auto may be given only with strategy.type: Cost",
        ".strategy.type",
        FORBIDDEN,
    ),
    Rule(
        ~_HAS_AUTO
        | Fact(
            f"self.match.kinds.all(k, k in {_listed_cel(SERVICES)})",
            lambda spec: set(spec.match.kinds) <= set(SERVICES),
        ),
        f"replicas Auto may be set only if match.kinds names no kinds but {', '.join(SERVICES)}",
        ".options",
        FORBIDDEN,
    ),
    Rule(
        Fact("", lambda spec: not any(option.adaptation.replicas for option in spec.options))
        | Fact(
            f"self.match.kinds.all(k, k in {list(SCALED_KINDS)})",
            lambda spec: set(spec.match.kinds) <= set(SCALED_KINDS),
        ),
        f"replicas may be set only if match.kinds names no kinds but {', '.join(SCALED_KINDS)}",
        ".options",
        FORBIDDEN,
    ),
    Rule(
        ~given("reconsider.minimumSaving") | one_of("strategy.type", "Cost"),
        "minimumSaving may be given only with strategy.type: Cost",
        ".reconsider",
        FORBIDDEN,
    ),
    *_spec(_OWN_NAME),
)


def _at_most(field: str, other: str, message: str) -> Rule:
    """Demand that one number, if both are given, be no greater than another beside it."""
    lower, upper = f"self.{field}", f"self.{other}"
    fact = Fact(
        f"!has({lower}) || !has({upper}) || "
        f"({_quantity_cel(lower)}).compareTo({_quantity_cel(upper)}) <= 0",
        lambda it: _is_at_most(getattr(it, field), getattr(it, other)),
    )
    return Rule(fact, message, f".{field}")


def _is_at_most(lower: str | None, upper: str | None) -> bool:
    return lower is None or upper is None or quantity.exact(lower) <= quantity.exact(upper)


_WATTS = (
    _at_most("busy", "maximum", "above maximum"),
    _at_most("idle", "maximum", "above maximum"),
    _at_most("idle", "busy", "above busy"),
)

_PROFILE = (_some_of(filled, "flavors", "nodeLabels"), label_keys("nodeLabels"))

_SLICE = (
    Rule(
        Fact("self.compute <= self.of", lambda it: it.compute <= it.of),
        "above the number that the whole device has",
        ".compute",
    ),
)

_WHEN = (
    Rule(
        Fact(
            "!has(self.from) || !has(self.until) || self.from <= self.until",
            lambda it: it.from_date is None or it.until is None or it.from_date <= it.until,
        ),
        "before the first day",
        ".until",
    ),
    Rule(
        Fact(
            "!has(self.hours) || self.hours.split('-')[0] != self.hours.split('-')[1]",
            lambda it: it.hours is None or it.hours[:5] != it.hours[6:],
        ),
        "ends when it begins; leave it out to mean the whole day",
        ".hours",
    ),
)

_UNCONDITIONAL_CEL = "!has({0}.months) && !has({0}.days) && !has({0}.hours) && !has({0}.from)"


def _first_is_always(name: str) -> Rule:
    first = f"self.{name}[0]"
    never_limited = f"({_UNCONDITIONAL_CEL.format(first)} && !has({first}.until))"
    return Rule(
        ~filled(name) | Fact(never_limited, lambda it: _value(it, name)[0].always),
        "the first entry must always apply, so that there is a value at any time",
        f".{name}",
    )


_TARIFF = (
    _first_is_always("electricity"),
    _first_is_always("carbon"),
    _at_least_one("overhead", "the building cannot take less than its machines"),
)


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
    "ReplicaServing": (
        _above_zero("requestsPerSecond", "a replica that answers nothing serves nobody"),
        _not_zero("latency"),
    ),
    "Reconsider": (_not_zero("horizon"), _not_zero("readyWithin")),
    "Congestion": (_not_zero("wait"),),
    "LatenessWeight": (_at_least_one("most", "the price never falls below what the policy gives"),),
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
