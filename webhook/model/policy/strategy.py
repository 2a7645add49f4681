"""How a policy chooses among the options that a Job has."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import (
    Field,
)

from webhook.model.policy.field_types import (
    ATOMIC,
    FILLED,
    Decimal,
    Duration,
    OptionName,
    Structural,
)


class StrategyType(StrEnum):
    COST = "Cost"
    FINISH_TIME = "FinishTime"
    THRESHOLD = "Threshold"


Percent = Annotated[int, Field(strict=True, ge=0, le=100)]


class Gain(Structural):
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


class FinishTime(Structural):
    """Take the option that is expected to finish the Job first."""

    minimum_gain: Gain = Field(default_factory=Gain, json_schema_extra=FILLED)
    """Leave a more preferred option only for at least both."""
    run_time: Duration | None = None
    """Expected run time in the first option before any run was seen; absent: unknown."""


class Saving(Structural):
    """What leaving a more preferred option must save: at least both."""

    amount: Decimal = "0"
    """At least this much money."""
    percent: Percent = 10
    """At least this part of what the preferred option costs in all."""


class MoveSaving(Saving):
    """What a move of a pending Job must save: at least both."""

    percent: Percent = 20
    """At least this part of what the Job costs in all where it is."""


class LatenessWeight(Structural):
    """How the price of lateness follows what Jobs with a deadline meet."""

    most: Decimal = "4"
    """At most so many times the price."""
    target: Percent = 5
    """This percentage of Jobs may end late; with more the price rises, with fewer it falls."""


class Lateness(Structural):
    """Money for being done after the Job's annotation `deadline`."""

    per_hour: Decimal | None = None
    """Money for each hour after it. Absent: four times `timeValue`."""
    fixed: Decimal = "0"
    """Money for being late at all."""
    adapt: LatenessWeight | None = None
    """Follow the share of late Jobs. Absent: the price stays as it is; beside a congestion price
    nothing was gained by it in simulations."""


class CongestionType(StrEnum):
    ADAPTIVE = "Adaptive"
    NONE = "None"


class Congestion(Structural):
    """A price for what is scarce, which rises while Jobs wait for it, and falls while they do not.

    It is charged in decisions, to nobody.
    """

    type: CongestionType = CongestionType.ADAPTIVE
    """Adaptive: the leading controller changes it each minute. None: there is none."""
    most: Decimal = "5"
    """At most so many times the rate of what is scarce."""
    wait: Duration = "5m"
    """It rises while Jobs are expected to wait for longer, and falls while for less than half."""


class HoldRules(Structural):
    """Keep Jobs that may wait from admission until a cheaper hour."""

    longest: Duration = "12h"
    """At most so long, whatever a Job allows."""
    minimum_saving: Saving = Field(default_factory=Saving, json_schema_extra=FILLED)
    """What it must save of rates, electricity and CO2: at least both."""
    jobs: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 200
    """While we hold so many Jobs in the cluster, no further one is held."""


class LeastCost(Structural):
    """Take the option with the least expected cost: money, energy, time, lateness, congestion."""

    time_value: Decimal | None = None
    """Money that an hour until the Job is done is worth. Absent: what an hour of the first option
    costs, or 1 where that is nothing."""
    lateness: Lateness = Field(default_factory=Lateness, json_schema_extra=FILLED)
    """What being late costs, for Jobs with a deadline."""
    carbon_price: Decimal = "0"
    """Money for a kilogram of CO2."""
    congestion: Congestion = Field(default_factory=Congestion, json_schema_extra=FILLED)
    """A price for what is scarce."""
    minimum_saving: Saving = Field(default_factory=Saving, json_schema_extra=FILLED)
    """Leave a more preferred option only for at least both; for twice as much where the run there
    is a guess by the devices' speed."""
    trial: Annotated[int, Field(strict=True, ge=0, le=1_000)] = 1
    """At most so many Jobs of a class are sent to an option on such a guess until one of them has
    ended there; 0: none is."""
    run_time: Duration | None = None
    """Expected run time in the first option before any run was seen; absent: unknown."""
    hold: HoldRules | None = None
    """Hold Jobs with a deadline, or that ask for it, until a cheaper hour. Absent: none is held."""


_DEFAULTS: Final = LeastCost()


class ThresholdRule(Structural):
    """When one option is taken.

    It fits and fewer than `andReservingBelow` Workloads have quota reserved in its queue, or fewer
    than `orPendingBelow` are pending there.
    """

    option: OptionName
    """Name of the option."""
    or_pending_below: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = None
    """Take it also when fewer Workloads than this are pending in its queue."""
    and_reserving_below: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = None
    """Take it only while fewer Workloads than this have quota reserved in its queue."""


class Strategy(Structural):
    """How an option is chosen. Only the block of the type in use may be given."""

    type: StrategyType = StrategyType.FINISH_TIME
    """FinishTime: the earliest expected finish. Cost: the least expected cost. Threshold: counts
    and quotas alone."""
    finish_time: FinishTime | None = None
    """For type FinishTime."""
    cost: LeastCost | None = None
    """For type Cost."""
    threshold: (
        Annotated[
            tuple[ThresholdRule, ...], Field(min_length=1, max_length=8, json_schema_extra=ATOMIC)
        ]
        | None
    ) = None
    """For type Threshold: rules in order; when none holds, the first option is taken."""

    @property
    def forecasts(self) -> bool:
        """Return whether starts and finishes must be known to decide by it."""
        return self.type is not StrategyType.THRESHOLD

    @property
    def least_cost(self) -> LeastCost | None:
        """Return how costs are compared, with defaults; None: they are not."""
        return (self.cost or _DEFAULTS) if self.type is StrategyType.COST else None

    @property
    def run_time(self) -> str | None:
        """Return the expected run time in the first option that the policy gives; None: none."""
        settings = self.finish_time or self.cost
        return settings.run_time if settings is not None else None
