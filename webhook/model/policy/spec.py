"""A FallbackPolicy's spec: which Jobs it is for, the options they have, and how one is chosen."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from webhook.model.policy.policy_adaptation import ATOMIC, FILLED, UNIQUE, Adaptation
from webhook.model.policy.policy_fields import (
    Amounts,
    Duration,
    Key,
    Labels,
    LabelValue,
    ObjectName,
    ObjectOrNone,
    OptionName,
    QueueName,
    QueueOrNone,
    Strict,
)


class Mode(StrEnum):
    OBSERVE = "Observe"
    ADVISE = "Advise"
    ENFORCE = "Enforce"


class SelectorExpression(Strict):
    """One requirement on labels; all must hold."""

    key: Key
    """Label key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label's value relates to `values`."""
    values: Annotated[tuple[LabelValue, ...], Field(max_length=32, json_schema_extra=ATOMIC)] = ()
    """For In and NotIn at least one; for Exists and DoesNotExist none."""


class LabelSelector(Strict):
    """A label selector: all that is given must hold, and `{}` selects everything."""

    match_labels: Labels = Field(default_factory=dict)
    """Labels that must have exactly these values."""
    match_expressions: Annotated[
        tuple[SelectorExpression, ...], Field(max_length=16, json_schema_extra=ATOMIC)
    ] = ()
    """Requirements on labels."""


class Match(Strict):
    """Which Jobs this policy is for: all that is given must hold.

    `jobSelector` or `maxRequests` must be given; `jobSelector: {}` says every Job.
    """

    namespace_selector: LabelSelector | None = None
    """Namespaces, by their labels. Absent: all but system namespaces and our own."""
    job_selector: LabelSelector | None = None
    """Jobs, by their own labels; `{}` means every Job."""
    max_requests: Amounts | None = None
    """Only Jobs that ask for at most this in all, such as `nvidia.com/gpu: 1`."""
    queues: (
        Annotated[
            tuple[QueueOrNone, ...], Field(min_length=1, max_length=32, json_schema_extra=UNIQUE)
        ]
        | None
    ) = None
    """Only Jobs submitted to one of these LocalQueues; "" stands for Jobs that name no queue.
    Absent: the queues of the options."""
    without_queue: bool = False
    """Also Jobs that name no queue, in namespaces without a LocalQueue `default`."""


class Guests(Strict):
    """Limits on the Jobs that this policy sends to an option's queue."""

    max_jobs: Annotated[int, Field(ge=1, le=1_000_000)]
    """At most so many Jobs of this policy there at once from one namespace, or from all those that
    share (`sharedNamespaces`), pending or reserving quota."""
    priority_class: ObjectOrNone = ""
    """WorkloadPriorityClass that they get; empty: unchanged."""


class Option(Strict):
    """One way to run the Job: a LocalQueue of its namespace and an adaptation."""

    name: OptionName = ""
    """Name of the option, unique in the policy: a label on the Job and its pods. Absent: the
    queue's name."""
    queue: QueueName = ""
    """A LocalQueue of the Job's namespace. Either this or `clusterQueue`."""
    cluster_queue: ObjectName = ""
    """A ClusterQueue: the one LocalQueue of the Job's namespace that points to it."""
    slowdown: Annotated[float, Field(gt=0, le=1000)] | None = None
    """Expected run time relative to the first option's, until enough runs were seen. Absent: not
    known until then."""
    start_delay: Duration = "0s"
    """Expected time from the reservation of quota to running pods: AdmissionChecks, the way to a
    worker cluster, node start-up, image pull. What of it is learned takes its place."""
    guests: Guests | None = None
    """Limits on the Jobs that this policy sends here. Absent: none."""
    adaptation: Adaptation = Field(default_factory=Adaptation)
    """What this option changes in the pod template. Absent: nothing but the queue."""


class StrategyType(StrEnum):
    FINISH_TIME = "FinishTime"
    THRESHOLD = "Threshold"


Percent = Annotated[int, Field(ge=0, le=100)]


class Gain(Strict):
    """What leaving a more preferred option must gain: at least both."""

    time: Duration = "30s"
    """Earlier by at least this time."""
    percent: Percent = 10
    """Earlier by at least this part of the expected time."""


class MoveGain(Gain):
    """What a move of a pending Job must gain: at least both."""

    time: Duration = "60s"
    """Earlier by at least this time."""
    percent: Percent = 20
    """Earlier by at least this part of the expected time."""


class FinishTime(Strict):
    """Take the option that is expected to finish the Job first."""

    minimum_gain: Gain = Field(default_factory=Gain, json_schema_extra=FILLED)
    """Leave a more preferred option only for at least both."""
    run_time: Duration | None = None
    """Expected run time in the first option before any run was seen; absent: unknown."""


class ThresholdRule(Strict):
    """When one option is taken.

    It fits and fewer than `andReservingBelow` Workloads have quota reserved in its queue, or fewer
    than `orPendingBelow` are pending there.
    """

    option: OptionName
    """Name of the option."""
    or_pending_below: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Take it also when fewer Workloads than this are pending in its queue."""
    and_reserving_below: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Take it only while fewer Workloads than this have quota reserved in its queue."""


class Strategy(Strict):
    """How an option is chosen. Only the block of the type in use may be given."""

    type: StrategyType = StrategyType.FINISH_TIME
    """FinishTime: the earliest expected finish. Threshold: counts and quotas alone."""
    finish_time: FinishTime | None = None
    """For type FinishTime."""
    threshold: (
        Annotated[
            tuple[ThresholdRule, ...], Field(min_length=1, max_length=8, json_schema_extra=ATOMIC)
        ]
        | None
    ) = None
    """For type Threshold: rules in order; when none holds, the first option is taken."""


class Reconsider(Strict):
    """When the decision is revisited while the Job is pending."""

    after: Duration = "30s"
    """How long a Job stays where it is before it may be moved."""
    minimum_gain: MoveGain = Field(default_factory=MoveGain, json_schema_extra=FILLED)
    """Move only for at least both."""
    max_moves: Annotated[int, Field(ge=1, le=100)] = 2
    """At most so many moves of one Job."""
    adopt: bool = False
    """Also look at matching pending Jobs that have no decision yet."""


class Spec(Strict):
    """Which Jobs may run where, and how one place is chosen."""

    mode: Mode = Mode.OBSERVE
    """Observe: decide, count and log, touch nothing. Advise: also warn and annotate. Enforce:
    also change the Job."""
    priority: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] = 0
    """Where several policies match, the highest applies, then the first by name."""
    match: Match
    """Which Jobs this policy is for."""
    job_class_label: Key | None = None
    """Label of the Jobs whose value tells which of them run alike. Absent, and for Jobs without it:
    Jobs with the same images, commands, arguments and requests do."""
    shared_namespaces: LabelSelector | None = None
    """Namespaces, by their labels, whose Jobs of this policy learn from one another: run times,
    failures and the count of guests are theirs together; `{}` means all. Absent: each namespace
    has its own."""
    options: Annotated[
        tuple[Option, ...], Field(min_length=1, max_length=8, json_schema_extra=ATOMIC)
    ]
    """Ways to run the Job, the most preferred first."""
    strategy: Strategy = Field(default_factory=Strategy, json_schema_extra=FILLED)
    """How an option is chosen."""
    reconsider: Reconsider | None = None
    """When the decision is revisited while the Job is pending. Absent: only a person may move it.
    Environment variables that differ between the options are then read from annotations of the
    pod template, whichever option is taken. A Job that lacks a variable which only some options
    set is not moved."""
