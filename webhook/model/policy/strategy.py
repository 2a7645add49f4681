"""How a policy chooses among the options that a Job has."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import (
    Field,
)

from webhook.model.policy.custom_object import (
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
    """The least gain for which a more preferred option is left. Both parts must hold."""

    time: Duration = "30s"
    """The Job must finish earlier by at least this time."""
    percent: Percent = 10
    """The Job must finish earlier by at least this percentage of the expected time."""


class MoveGain(Gain):
    """The least gain for which a pending Job is moved. Both parts must hold."""

    time: Duration = "60s"
    """The Job must finish earlier by at least this time."""
    percent: Percent = 20
    """The Job must finish earlier by at least this percentage of the expected time."""


class FinishTime(Structural):
    """Take the option that is expected to finish the Job first."""

    minimum_gain: Gain = Field(default_factory=Gain, json_schema_extra=FILLED)
    """The least gain for which a more preferred option is left. Both parts must hold."""
    run_time: Duration | None = None
    """Expected run time in the first option, until runs were seen. Absent: unknown."""


class Saving(Structural):
    """The least saving for which a more preferred option is left. Both parts must hold."""

    amount: Decimal = "0"
    """The saving must be at least this much money."""
    percent: Percent = 10
    """The saving must be at least this percentage of the total cost of the preferred option."""


class MoveSaving(Saving):
    """The least saving for which a pending Job is moved. Both parts must hold."""

    percent: Percent = 20
    """The saving must be at least this percentage of the total cost of the Job in its current
    option."""


class LatenessWeight(Structural):
    """How the price of lateness follows the share of late Jobs."""

    most: Decimal = "4"
    """The highest price, as a multiple of the policy's price."""
    target: Percent = 5
    """The percentage of Jobs that may end late. The price rises if more do, and falls if fewer
    do."""


class Lateness(Structural):
    """The price of finishing after the Job's annotation `deadline`."""

    per_hour: Decimal | None = None
    """Money for each hour after the deadline. Absent: four times `timeValue`."""
    fixed: Decimal = "0"
    """Money for being late at all."""
    adapt: LatenessWeight | None = None
    """Change the price with the share of late Jobs. Absent: the price is fixed. In simulations this
    gained nothing, with a congestion price or without."""


class CongestionType(StrEnum):
    ADAPTIVE = "Adaptive"
    NONE = "None"


class Congestion(Structural):
    """A price for scarce resources. It rises while Jobs wait for them, and falls while none do.

    It counts in decisions only; nobody is charged.
    """

    type: CongestionType = CongestionType.ADAPTIVE
    """Adaptive: the leading controller changes the price each minute. None: there is no price."""
    most: Decimal = "5"
    """The highest price, as a multiple of the resource's rate."""
    wait: Duration = "5m"
    """The price rises while the expected wait is longer than this, and falls while it is less than
    half of this."""


class HoldRules(Structural):
    """Hold Jobs that may wait until a cheaper hour, or until there is room."""

    longest: Duration = "12h"
    """The longest hold, whatever a Job allows."""
    minimum_saving: Saving = Field(default_factory=Saving, json_schema_extra=FILLED)
    """The least saving in rates, electricity and CO2 for which a Job is held until a later hour.
    Both parts must hold."""
    jobs: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 200
    """The most Jobs held in the cluster at once. A namespace holds at most half of what the others
    leave."""


class LeastCost(Structural):
    """Take the option with the least expected cost: money, energy, time, lateness, congestion."""

    time_value: Decimal | None = None
    """What one hour of waiting or running is worth, in money. Absent: the cost of one hour in the
    first option, or 1 if that is zero."""
    lateness: Lateness = Field(default_factory=Lateness, json_schema_extra=FILLED)
    """What lateness costs, for Jobs with a deadline."""
    carbon_price: Decimal = "0"
    """Money for a kilogram of CO2."""
    congestion: Congestion = Field(default_factory=Congestion, json_schema_extra=FILLED)
    """A price for scarce resources. It counts in decisions only; nobody is charged."""
    minimum_saving: Saving = Field(default_factory=Saving, json_schema_extra=FILLED)
    """The least saving for which a more preferred option is left. Both parts must hold. It is
    doubled if the run time there is a guess from the speed of the devices."""
    trial: Annotated[int, Field(strict=True, ge=0, le=1_000)] = 1
    """The most Jobs of a class that are sent to an option on such a guess, until one of them has
    ended there. 0: none."""
    run_time: Duration | None = None
    """Expected run time in the first option, until runs were seen. Absent: unknown."""
    hold: HoldRules | None = None
    """Hold Jobs until a cheaper hour, and while their queue is full, if they have a deadline or
    ask for it. Absent: no Job is held."""


_DEFAULTS: Final = LeastCost()


class ThresholdRule(Structural):
    """When one option is taken.

    The option fits and fewer than `andReservingBelow` Workloads have reserved quota in its queue,
    or fewer than `orPendingBelow` are pending there.
    """

    option: OptionName
    """Name of the option."""
    or_pending_below: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = None
    """Also take the option if fewer Workloads than this are pending in its queue."""
    and_reserving_below: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = None
    """Take the option only if fewer Workloads than this have reserved quota in its queue."""


class Strategy(Structural):
    """How an option is chosen. Give only the block of the type in use."""

    type: StrategyType = StrategyType.FINISH_TIME
    """FinishTime: the earliest expected finish. Cost: the least expected cost; not for teams.
    Threshold: rules on counts and quota only."""
    finish_time: FinishTime | None = None
    """Settings for type FinishTime."""
    threshold: (
        Annotated[
            tuple[ThresholdRule, ...], Field(min_length=1, max_length=8, json_schema_extra=ATOMIC)
        ]
        | None
    ) = None
    """Rules for type Threshold, in order. If none holds, the first option is taken."""

    cost: LeastCost | None = None
    """Settings for type Cost."""

    @property
    def forecasts(self) -> bool:
        """Return whether starts and finishes must be known to decide by it."""
        return self.type is not StrategyType.THRESHOLD

    @property
    def least_cost(self) -> LeastCost | None:
        """Return how costs are compared, with defaults; None: they are not."""
        return (self.cost or _DEFAULTS) if self.type is StrategyType.COST else None

    @property
    def hold(self) -> HoldRules | None:
        """Return by which rules Jobs are held until a cheaper hour; None: none is held."""
        return self.least_cost.hold if self.least_cost is not None else None

    @property
    def run_time(self) -> str | None:
        """Return the expected run time in the first option that the policy gives; None: none."""
        settings = self.finish_time or self.cost
        return settings.run_time if settings is not None else None
