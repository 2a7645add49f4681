"""What one option costs: money by its rates, and the power, electricity and carbon of its devices.

What is not known is None, and never 0: an option of which something is not known is not comparable
with others in that term.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import erfc, exp, expm1, inf, isnan, log, pi, sqrt
from typing import Final

from webhook.cost.device_shares import rate_of
from webhook.model.costs.devices import Device, DeviceUse
from webhook.model.costs.prices import HOUR, Cost, Curve, Prices
from webhook.model.forecasts import Forecast, RunTime
from webhook.model.quantity import Amounts, FlavorResource

_CPU: Final = "cpu"
_BYTES: Final = ("memory", "ephemeral-storage")
_GIBIBYTE: Final = 1 << 30
_WATTS_A_KILOWATT: Final = 1000.0
_LARGEST_EXPONENT: Final = 100.0
SIGMAS_IN_80_PERCENT: Final = 2.563
"""Between the tenth and the ninetieth percentile of a normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """When an option's quota is held and when its Job runs, in seconds since 1970."""

    reserved: float
    """When the Job begins to hold its quota."""
    begun: float
    """When its pods begin to run."""
    end: float


def span_of(forecast: Forecast, unix: float, factor: float = 1.0) -> Span | None:
    """Return when a Job is expected to hold quota and to run, if it is decided at *unix*.

    *factor*: how many times as long as undisturbed it runs, for being interrupted. None: its start
    or its run is not known, or it never starts.
    """
    start, run = forecast.start, forecast.run
    if run is None or not start.is_known or start.seconds == inf:
        return None
    reserved = unix + start.seconds
    begun = reserved + (forecast.delay.seconds if forecast.delay is not None else 0.0)
    return Span(reserved=reserved, begun=begun, end=begun + mean_seconds(run) * factor)


def mean_seconds(run: RunTime) -> float:
    """Return the mean of a run time, whose ``seconds`` are its median.

    Run times are taken to be lognormal: a few long ones cost more than as many short ones save.
    """
    if not 0 < run.low < run.high:
        return run.seconds
    sigma = log(run.high / run.low) / SIGMAS_IN_80_PERCENT
    return run.seconds * exp(sigma**2 / 2)


def interruption_factor(
    per_hour: float, seconds: float, *, checkpoint: float | None, restart: float
) -> float:
    """Return how many times as long as undisturbed a run takes that is interrupted now and then.

    Interruptions come independently, *per_hour*. From a checkpoint, one in *checkpoint* seconds,
    half of that is lost on average, and the *restart*, in seconds; without one, all is run again.
    """
    if checkpoint is not None:
        return 1 + per_hour * (checkpoint / 2 + restart) / HOUR
    expected = per_hour * seconds / HOUR
    if expected <= 0:
        return 1.0
    return expm1(min(expected, _LARGEST_EXPONENT)) / expected


def tardiness(slack: float, sigma: float) -> tuple[float, float]:
    """Return the expected time after a deadline, and the probability of being late.

    *slack* is the time from the expected finish to the deadline, *sigma* the standard deviation of
    the finish, which is taken to be normally distributed; all in seconds.
    """
    if sigma <= 0:
        return max(0.0, -slack), float(slack < 0)
    z = slack / sigma
    late = erfc(z / sqrt(2)) / 2
    density = exp(-(z**2) / 2) / sqrt(2 * pi)
    return max(0.0, sigma * (density - z * late)), late


def cost_of(usage: Amounts, prices: Prices, span: Span) -> Cost:
    """Return what *usage* costs during *span*.

    Amounts of *usage* are as in ``model.quantity``: cpu in milli, memory in bytes.
    """
    kilowatts = _kilowatts(usage, prices)
    return Cost(
        money=_money(usage, prices, span),
        kwh=None if kilowatts is None else kilowatts * (span.end - span.begun) / HOUR,
        electricity=_over(kilowatts, prices.electricity, span),
        carbon_grams=_over(kilowatts, prices.carbon, span),
    )


def metered(prices: Prices, use: DeviceUse | None) -> Prices:
    """Return prices with devices that take what runs of a class were measured to take.

    A slice takes its part of that. Where several share a device, who took what is not known.
    """
    if use is None or not use.watts:
        return prices
    devices = {
        flavor: replace(device, busy_watts=use.watts[device.name])
        if device.name in use.watts and device.replicas == 1
        else device
        for flavor, device in prices.devices.items()
    }
    return replace(prices, devices=devices)


def units(cell: FlavorResource, amount: int) -> float:
    """Return an amount in the units that rates are given for: cores, GiB, devices."""
    _, resource = cell
    if resource == _CPU:
        return amount / 1000
    return amount / _GIBIBYTE if resource in _BYTES else float(amount)


def one_unit(cell: FlavorResource) -> int:
    """Return the amount that is one core, one GiB or one device."""
    _, resource = cell
    if resource == _CPU:
        return 1000
    return _GIBIBYTE if resource in _BYTES else 1


def _money(usage: Amounts, prices: Prices, span: Span) -> float | None:
    """Sum up the rates of all that is used; what a priced flavor has no rate for costs nothing."""
    used = {flavor for (flavor, _), amount in usage.items() if amount}
    rates = {
        cell: rate for cell, amount in usage.items() if amount and (rate := rate_of(cell, prices))
    }
    unpriced = used - {flavor for flavor, _ in rates}
    # All rates, of which there may be hundreds, are looked through only where one may be missing.
    if not used or (unpriced and not unpriced <= {flavor for flavor, _ in prices.rates}):
        return None
    total = sum(
        units(cell, usage[cell]) * part * rate.over(span.reserved, span.end)
        for cell, (rate, part) in rates.items()
    )
    return None if isnan(total) else total


def _kilowatts(usage: Amounts, prices: Prices) -> float | None:
    """Return the power of what is used; None: that of a device is not known."""
    watts = 0.0
    for cell, amount in usage.items():
        flavor, resource = cell
        if resource == _CPU:
            watts += units(cell, amount) * prices.core_watts
        elif resource in _BYTES:
            watts += units(cell, amount) * prices.gibibyte_watts * (resource == "memory")
        elif amount and _counts_devices(resource):
            share = _share(prices.devices, flavor, resource)
            if share is None:
                return None
            watts += amount * share
    return watts * prices.overhead / _WATTS_A_KILOWATT


def _counts_devices(resource: str) -> bool:
    """Tell whether a resource is an extended one, which a vendor's domain begins."""
    return "/" in resource


def _share(devices: Mapping[str, Device], flavor: str, resource: str) -> float | None:
    """Return the watts of one unit of a resource: those of a device, or of its part of one."""
    device = devices.get(flavor)
    if device is None or device.busy_watts is None:
        return None
    if part := device.slice_of(resource):
        return device.busy_watts * part.compute / part.of
    return device.busy_watts / device.replicas


def _over(kilowatts: float | None, rate: Curve | None, span: Span) -> float | None:
    if kilowatts is None or rate is None:
        return None
    return kilowatts * rate.over(span.begun, span.end)
