"""The fields of a scenario file as pydantic models, validated with a path for each error.

Parameters in it are replaced before. What objects, policies and templates mean is checked
elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from webhook.model.fields import FieldError, child, field_errors
from webhook.model.policy.custom_object import Strict as _Strict
from webhook.model.policy.patterns import DECIMAL, DURATION, FORMS, LABEL
from webhook.model.policy.spec import ReplicaServing

RATE: Final = r"^[0-9]{1,9}(\.[0-9]{1,9})?/[smh]$"

Name: TypeAlias = Annotated[str, Field(max_length=40, pattern=LABEL)]
"""Short enough to leave room for a number in a Job's name."""
Duration: TypeAlias = Annotated[str, Field(max_length=32, pattern=DURATION)]
Rate: TypeAlias = Annotated[str, Field(pattern=RATE)]
"""Jobs in a time: ``0.5/s``, ``120/h``."""
Count: TypeAlias = Annotated[int, Field(ge=1, le=10_000_000)]
Positive: TypeAlias = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Sigma: TypeAlias = Annotated[float, Field(ge=0, le=5, allow_inf_nan=False)]


def _require_one(given: object, names: tuple[str, ...]) -> None:
    present = [name for name in names if getattr(given, name) is not None]
    if len(present) != 1:
        raise ValueError(f"expected exactly one of {', '.join(map(to_camel, names))}")


class Holding(StrEnum):
    """How held Jobs are released."""

    PLANNED = "Planned"
    """By one plan for all, where there is room."""
    ALONE = "Alone"
    """Each at its own cheapest hour."""


class StrictSpec(_Strict):
    """One spelling of each field; a number may stand for a text."""

    model_config = ConfigDict(populate_by_name=False, coerce_numbers_to_str=True)


class Objects(StrictSpec):
    """Kubernetes objects, in files, written here, or both."""

    files: tuple[str, ...] = ()
    """YAML or JSON as kubectl prints or takes it; relative to the scenario's file."""
    objects: tuple[dict[str, Any], ...] = ()


class ClusterSpec(Objects):
    """A worker cluster behind MultiKueue, with its queues and flavors."""

    name: Annotated[str, Field(min_length=1)]
    """Name of its MultiKueueCluster."""
    watched: bool = True
    """Decisions know what is free and waits there; False: the manager's own quota alone."""


class RunTimeSpec(StrictSpec):
    """A true run time: one for all, or lognormal around a median."""

    median: Duration | None = None
    times: Positive | None = None
    """So many times the run time of `of`; without `of`, the one that comes with the arrival."""
    of: str | None = None
    """Another key of the same `runTimes`."""
    sigma: Sigma = 0.0
    """Standard deviation of the run time's natural logarithm; 0: no spread."""

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        _require_one(self, ("median", "times"))
        if self.of is not None and self.times is None:
            raise ValueError("expected times beside of")
        return self


def _spelled_out(value: Any) -> Any:
    return {"median": value} if isinstance(value, str) else value


RunTimes: TypeAlias = Annotated[
    dict[str, Annotated[RunTimeSpec, BeforeValidator(_spelled_out)]], Field(min_length=1)
]


class JobTemplate(StrictSpec):
    """A kind of Job: its manifest, and how long it really runs where."""

    file: str | None = None
    job: dict[str, Any] | None = None
    """A Job of any kind that is decided."""
    run_times: RunTimes
    """Run times by ResourceFlavor (several sorted and joined by commas), or by a policy's
    option."""
    deadline: Duration | None = None
    """Time from its creation: its annotation `deadline`."""
    value: Annotated[str, Field(max_length=16, pattern=DECIMAL)] | None = None
    """Money that an hour until it is done is worth: its annotation `value-of-time`."""
    user: Annotated[str, Field(min_length=1)] | None = None
    """Who creates it. Absent: unknown, so policies and options for some users do not apply."""
    groups: tuple[str, ...] = ()
    """The groups of this user."""
    said: Annotated[RunTimeSpec, BeforeValidator(_spelled_out)] | None = None
    """What its owner expects it to run in the first option: its annotation `run-time`. Like
    `runTimes`, and `of` names one of these."""

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        _require_one(self, ("file", "job"))
        if self.groups and self.user is None:
            raise ValueError("expected user beside groups")
        return self


Weights: TypeAlias = Annotated[dict[str, Positive], Field(min_length=1)]
Turns: TypeAlias = Annotated[tuple[str, ...], Field(min_length=1)]


class _Generated(StrictSpec):
    start: Duration = "0s"
    """Time of the first one, from the scenario's start."""
    jobs: Annotated[
        Annotated[Turns, Tag("<list>")] | Annotated[Weights, Tag("<map>")],
        Discriminator(lambda given: "<map>" if isinstance(given, dict) else "<list>"),
    ]
    """A list is taken in turn, a map is drawn from by weight."""


class Every(_Generated):
    interval: Duration
    count: Count


class Burst(_Generated):
    count: Count
    gap: Duration = "0s"
    """Between two Jobs."""


Parts: TypeAlias = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]


ByHour: TypeAlias = Annotated[tuple[Parts, ...], Field(min_length=24, max_length=24)]
"""Parts of a rate in the hours of a day, from the scenario's start on."""


class Poisson(_Generated):
    rate: Rate
    duration: Duration
    by_hour: ByHour | None = None
    """The rate in each hour of a day, in parts of `rate`, from the scenario's start on."""


class ConditionSpec(StrictSpec):
    """What a row must be: all that is given must hold."""

    column: str
    equals: str | None = None
    one_of: tuple[str, ...] | None = None
    at_least: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if (self.equals, self.one_of, self.at_least, self.at_most) == (None,) * 4:
            raise ValueError("expected at least one of equals, oneOf, atLeast, atMost")
        return self


class RowJob(StrictSpec):
    """Rows that meet all conditions are this Job; the first of the list that holds counts."""

    job: str
    when: tuple[ConditionSpec, ...] = ()


Unit: TypeAlias = Literal["milliseconds", "seconds", "minutes", "hours"]


class Columns(StrictSpec):
    """Which column says what."""

    arrival: str
    run_time: str | None = None
    """Absent: the Job's `runTimes` say all, unless `end` does."""
    begin: str | None = None
    """When the Job began to run, as `arrivalFormat` writes it; absent: when it arrived."""
    end: str | None = None
    """When it ended: it ran from `begin` until then. Either this or `runTime`."""
    priority: str | None = None
    """Names of WorkloadPriorityClasses; where it is empty, as for those below, the Job's own."""
    queue: str | None = None
    """Names of LocalQueues."""
    deadline: str | None = None
    """Time from the arrival to the deadline, in `runTimeUnit`; where it is empty the Job's own."""
    requests: dict[str, str] = Field(default_factory=dict)
    """Resource to the column with what each pod asks for, as `500m` or `16Gi`."""

    @model_validator(mode="after")
    def _says_runs_once(self) -> Self:
        if self.end is not None and self.run_time is not None:
            raise ValueError("expected runTime or end, not both")
        if self.begin is not None and self.end is None:
            raise ValueError("expected end beside begin")
        return self


class Csv(StrictSpec):
    """Arrivals from a file with a header line."""

    file: str
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    columns: Columns
    arrival_format: str = "iso"
    """`iso`, a unit (numbers since any origin), or as strptime takes it: `%Y-%m-%d %H:%M:%S`."""
    run_time_unit: Unit = "seconds"
    where: tuple[ConditionSpec, ...] = ()
    """Only rows that meet all."""
    jobs: Annotated[tuple[RowJob, ...], Field(min_length=1)]
    """Rows that none takes are left out."""
    time_scale: Positive = 1.0
    """Multiplies the times between arrivals: 0.5 lets them come twice as fast."""
    limit: Count | None = None
    """At most so many Jobs, the first by arrival."""
    start: Duration = "0s"
    """Time of the first one, from the scenario's start."""


class ArrivalsSpec(StrictSpec):
    """One Job at a time, or one way in which many come."""

    at: Duration | None = None
    job: str | None = None
    run_time: Duration | None = None
    """What `times` without `of` multiplies."""
    every: Every | None = None
    burst: Burst | None = None
    poisson: Poisson | None = None
    csv: Csv | None = None

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        _require_one(self, ("at", "every", "burst", "poisson", "csv"))
        if (self.at is None) != (self.job is None):
            raise ValueError("expected at and job together")
        if self.run_time is not None and self.at is None:
            raise ValueError("expected runTime beside at alone")
        return self


def _kind_of_curve(given: object) -> str:
    is_by_rate = isinstance(given, (list, tuple)) and any(isinstance(each, dict) for each in given)
    return "<rates>" if is_by_rate else "<parts>"


class RateFrom(StrictSpec):
    """How many requests a second come from an hour of the day on."""

    hour: Annotated[int, Field(ge=0, le=23)]
    rate: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class ServiceSpec(StrictSpec):
    """A service: its manifest, the requests that it gets, and what its replicas really do."""

    file: str | None = None
    service: dict[str, Any] | None = None
    """A Deployment or a LeaderWorkerSet, with the annotations `request-rate` and
    `target-latency`."""
    created: Duration = "0s"
    lasts: Duration = "24h"
    """For how long it is there."""
    startup: Duration = "0s"
    """For how long a replica has quota until it serves."""
    curve: (
        Annotated[
            Annotated[ByHour, Tag("<parts>")]
            | Annotated[tuple[RateFrom, ...], Field(min_length=1), Tag("<rates>")],
            Discriminator(_kind_of_curve),
        ]
        | None
    ) = None
    """Its requests by the hours of a day, from the scenario's start on: 24 parts of the stated
    rate, or rates. Absent: the stated rate at all hours."""
    sigma: Sigma = 0.0
    """Standard deviation of the natural logarithm of each hour's rate; 0: no spread."""
    serves: Annotated[dict[str, ReplicaServing], Field(min_length=1)]
    """What one replica really does, by ResourceFlavor (several sorted and joined by commas), or by
    a policy's option."""

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        _require_one(self, ("file", "service"))
        return self


Scalar: TypeAlias = str | int | float | bool | None
Parameter: TypeAlias = Scalar | list[Scalar]


class ScenarioSpec(StrictSpec):
    """A whole file."""

    name: Annotated[str, Field(min_length=1, max_length=80)]
    parameters: dict[str, Parameter] = Field(default_factory=dict)
    """Defaults for `${NAME}`; null: must be set on the command line."""
    cluster: Objects
    clusters: tuple[ClusterSpec, ...] = ()
    """Those behind MultiKueue; absent: what has quota in `cluster` runs."""
    policies: Objects = Field(default_factory=Objects)
    """Absent: those in the cluster's files."""
    start: Annotated[str, Field(max_length=40)] | None = None
    """When it starts, as `2026-01-05T00:00Z`; needed with tariffs, which are by the clock."""
    tariffs: Objects = Field(default_factory=Objects)
    """Tariffs, for what hours cost; those in the cluster's files count, too. ConfigMaps among them
    have the series that they name."""
    billed: Objects = Field(default_factory=Objects)
    """Tariffs likewise, by which Jobs are billed in the results; absent: `tariffs`, which is what
    decisions know."""
    holding: Holding = Holding.PLANNED
    """How held Jobs are released: `Alone`, each at its own cheapest hour, is for comparing."""
    accelerators: Objects = Field(default_factory=Objects)
    """AcceleratorProfiles likewise, for what devices draw."""
    overhead: Duration = "0s"
    """Time for which every Job holds quota beyond its run time: its pods start and end, and the
    next Job is admitted."""
    jobs: dict[Name, JobTemplate] = Field(default_factory=dict)
    arrivals: tuple[ArrivalsSpec, ...] = ()
    services: dict[Name, ServiceSpec] = Field(default_factory=dict)
    """Services that need quota, beside the Jobs if there are any."""

    @model_validator(mode="after")
    def _can_be_played(self) -> Self:
        if not (self.services or (self.jobs and self.arrivals)):
            raise ValueError("expected jobs and their arrivals, or services")
        if self.services and self.clusters:
            raise ValueError("expected no clusters beside services: they are played in one cluster")
        if both := self.services.keys() & self.jobs.keys():
            raise ValueError(f"expected one {min(both)}, found a Job and a service of this name")
        return self


class ScenarioError(ValueError):
    """A scenario, or what it is replayed with, is wrong: every mistake found, with its path."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__(tuple(errors))
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "\n".join(map(str, self.errors))


def validated(source: Mapping[str, Any]) -> ScenarioSpec:
    """Validate a document.

    Raises:
        ScenarioError: with every mistake.

    """
    try:
        return ScenarioSpec.model_validate(source)
    except ValidationError as error:
        raise ScenarioError(field_errors(error, _FORMS)) from error


_FORMS: Final = {**FORMS, RATE: "a rate such as 0.5/s or 120/h"}


_REFERENCE = re.compile(r"\$(\$?)\{([^{}]*)\}")


def assignments(given: Sequence[str]) -> Mapping[str, Parameter]:
    """Parse ``NAME=VALUE`` words; a number becomes one, and ``[a, b]`` a list.

    Raises:
        FieldError: a word has no ``=``, or names a parameter again.

    """
    values: dict[str, Parameter] = {}
    for word in given:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise FieldError(f"--set {word}", "expected NAME=VALUE")
        if name in values:
            raise FieldError(f"--set {word}", f"{name} is set twice")
        values[name] = _value(value)
    return values


def _value(text: str) -> Parameter:
    if text.startswith("[") and text.endswith("]"):
        return [_scalar(entry.strip()) for entry in text[1:-1].split(",") if entry.strip()]
    return _scalar(text)


def _scalar(text: str) -> Scalar:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def fill(source: Mapping[str, Any], given: Mapping[str, Parameter]) -> Mapping[str, Any]:
    """Replace the parameters by their values; ``$${`` becomes ``${`` itself.

    Raises:
        FieldError: a parameter is unknown, has no value, or is not used.

    """
    declared = source.get("parameters")
    if not isinstance(declared, dict):
        declared = {}
    for name in given:
        if name not in declared:
            known = ", ".join(map(str, declared)) or "none"
            raise FieldError(f"--set {name}", f"no such parameter; the scenario has {known}")
    values = {**declared, **given}
    for name, value in values.items():
        if value is None:
            raise FieldError(f"parameters.{name}", f"no value; give it with --set {name}=VALUE")
    filler = _Filler(values)
    rest = {key: value for key, value in source.items() if key != "parameters"}
    filled = filler.fill(rest, "")
    for name in values:
        if name not in filler.used:
            raise FieldError(f"parameters.{name}", f"not used: ${{{name}}} stands nowhere")
    return {**filled, "parameters": values} if values else dict(filled)


class _Filler:
    """Walks a document and records which parameters it uses."""

    def __init__(self, values: Mapping[str, Parameter]) -> None:
        self._values = values
        self.used: set[str] = set()

    def fill(self, value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {key: self.fill(nested, child(path, str(key))) for key, nested in value.items()}
        if isinstance(value, list):
            return [self.fill(entry, f"{path}[{index}]") for index, entry in enumerate(value)]
        return self._text(value, path) if isinstance(value, str) else value

    def _text(self, text: str, path: str) -> Any:
        whole = _REFERENCE.fullmatch(text)
        if whole and not whole[1]:
            return self._named(whole[2], path)
        return _REFERENCE.sub(
            lambda reference: (
                reference[0][1:] if reference[1] else self._within(reference[2], path)
            ),
            text,
        )

    def _within(self, name: str, path: str) -> str:
        value = self._named(name, path)
        if isinstance(value, list):
            raise FieldError(path, f"${{{name}}} is a list: it cannot be part of a text")
        return str(value)

    def _named(self, name: str, path: str) -> Parameter:
        if name not in self._values:
            known = ", ".join(map(str, self._values)) or "none"
            message = f"no parameter {name}; there is {known} ($${{{name}}} is the text itself)"
            raise FieldError(path, message)
        self.used.add(name)
        return self._values[name]
