from math import exp, inf, log, pi, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cost.tariffs import profile
from webhook.cost.terms import (
    Span,
    cost_of,
    interruption_factor,
    mean_seconds,
    metered,
    span_of,
    tardiness,
)
from webhook.model.costs.devices import DeviceUse
from webhook.model.costs.prices import HOUR, Cost, Prices, curve
from webhook.model.forecasts import Basis, Delay, Forecast, RunTime, Start

GIB = 1 << 30
SPAN = Span(reserved=0.0, begun=HOUR, end=3 * HOUR)


def flat(value):
    return curve({0.0: value}, 100 * HOUR)


def gpu_prices(**changes):
    return Prices(
        rates={("gpu", "nvidia.com/gpu"): flat(2.0)},
        devices={"gpu": profile(flavors=["gpu"], watts={"maximum": 400, "busy": 300}).device},
        **changes,
    )


def test_money_is_paid_from_the_reservation_on_and_power_from_the_run_on():
    usage = {("gpu", "nvidia.com/gpu"): 2}
    prices = gpu_prices(electricity=flat(0.5), carbon=flat(400.0), overhead=1.5)

    found = cost_of(usage, prices, SPAN)

    kwh = 2 * 0.3 * 1.5 * 2
    assert found == Cost(
        money=2 * 2.0 * 3,
        kwh=pytest.approx(kwh),
        electricity=pytest.approx(kwh * 0.5),
        carbon_grams=pytest.approx(kwh * 400),
    )
    assert found.total == pytest.approx(12 + kwh * 0.5)


def test_cores_and_memory_take_power_and_cost_by_core_and_gib():
    usage = {("cpu", "cpu"): 4000, ("cpu", "memory"): 8 * GIB}
    prices = Prices(rates={("cpu", "cpu"): flat(0.1), ("cpu", "memory"): flat(0.01)})

    found = cost_of(usage, prices, SPAN)

    assert found.money == pytest.approx(3 * (4 * 0.1 + 8 * 0.01))
    assert found.kwh == pytest.approx(2 * (4 * 4 + 8 * 0.4) / 1000)
    assert (found.electricity, found.carbon_grams) == (None, None)


def test_what_runs_of_a_class_were_measured_to_take_stands_for_the_data_sheet_s_watts():
    usage = {("gpu", "nvidia.com/gpu"): 1}
    prices = gpu_prices()
    name = prices.devices["gpu"].name

    def kwh(watts):
        use = DeviceUse(runs=5, peak=1, need=None, watts=watts)
        return cost_of(usage, metered(prices, use), SPAN).kwh

    assert kwh({name: 150.0}) == pytest.approx(0.15 * 2)
    assert kwh({"another": 150.0}) == kwh({}) == pytest.approx(0.3 * 2)
    assert metered(prices, None) is prices


@pytest.mark.parametrize(
    "devices",
    [
        pytest.param({}, id="no device"),
        pytest.param(
            {"gpu": profile(flavors=["gpu"], memory="16Gi").device}, id="no watts of the device"
        ),
    ],
)
def test_the_power_of_a_device_that_is_not_known_is_unknown_and_not_nothing(devices):
    usage = {("gpu", "nvidia.com/gpu"): 1, ("gpu", "cpu"): 1000}
    prices = Prices(electricity=flat(1.0), carbon=flat(1.0), devices=devices)

    assert cost_of(usage, prices, SPAN) == Cost()


def test_the_money_of_a_flavor_without_any_rate_is_unknown():
    usage = {("gpu", "nvidia.com/gpu"): 1, ("cpu", "cpu"): 1000}

    assert cost_of(usage, gpu_prices(), SPAN).money is None


def test_what_a_priced_flavor_has_no_rate_for_costs_nothing():
    usage = {("gpu", "nvidia.com/gpu"): 1, ("gpu", "cpu"): 1000}

    assert cost_of(usage, gpu_prices(), SPAN).money == 6.0


def test_a_slice_takes_its_part_of_the_power_and_a_shared_device_its_share():
    sliced = profile(
        flavors=["gpu"],
        watts={"maximum": 700, "busy": 700},
        slices=[{"resource": "nvidia.com/mig-2g.20gb", "memory": "20Gi", "compute": 2, "of": 7}],
    ).device
    shared = profile(flavors=["gpu"], watts={"maximum": 400, "busy": 400}, replicas=4).device

    slices = cost_of({("gpu", "nvidia.com/mig-2g.20gb"): 1}, Prices(devices={"gpu": sliced}), SPAN)
    shares = cost_of({("gpu", "nvidia.com/gpu"): 1}, Prices(devices={"gpu": shared}), SPAN)

    assert (slices.kwh, shares.kwh) == (pytest.approx(0.4), pytest.approx(0.2))


def run(seconds, low, high):
    return RunTime(seconds=seconds, low=low, high=high, basis=Basis.LEARNED, runs=3)


def test_the_mean_of_a_run_is_above_its_median_by_how_much_runs_differ():
    sigma = log(4) / 2.563

    assert mean_seconds(run(100, 50, 200)) == pytest.approx(100 * exp(sigma**2 / 2))
    assert mean_seconds(run(100, 100, 100)) == 100


def test_a_job_holds_quota_from_its_start_and_runs_after_its_delay():
    forecast = Forecast(
        start=Start(seconds=60.0, low=60.0, high=60.0),
        delay=Delay(seconds=30.0, low=30.0, high=30.0, by="pods ready"),
        run=run(100, 100, 100),
    )

    assert span_of(forecast, 1000.0) == Span(reserved=1060.0, begun=1090.0, end=1190.0)


@pytest.mark.parametrize(
    "forecast",
    [
        Forecast(start=Start(seconds=0.0, low=0.0, high=0.0)),
        Forecast(start=Start(seconds=5.0, low=0.0, high=9.0, unseen=2), run=run(1, 1, 1)),
        Forecast(start=Start(seconds=float("inf"), low=0.0, high=9.0), run=run(1, 1, 1)),
    ],
    ids=["no run time", "no known start", "never"],
)
def test_without_a_known_start_and_run_nothing_is_said(forecast):
    assert span_of(forecast, 0.0) is None


@given(st.floats(-1e4, 1e4), st.floats(1.0, 1e4))
def test_expected_tardiness_is_what_adding_up_all_finishes_gives(slack, sigma):
    late, probability = tardiness(slack, sigma)

    steps = 4000
    width = 16 * sigma / steps
    finishes = [-8 * sigma + (step + 0.5) * width for step in range(steps)]
    weights = [exp(-((x / sigma) ** 2) / 2) / (sigma * sqrt(2 * pi)) * width for x in finishes]
    summed = sum(max(0.0, x - slack) * w for x, w in zip(finishes, weights, strict=True))
    assert late == pytest.approx(summed, abs=sigma * 1e-5)
    share = sum(w for x, w in zip(finishes, weights, strict=True) if x > slack)
    assert probability == pytest.approx(share, abs=2e-3)


@pytest.mark.parametrize(("slack", "expected"), [(10.0, (0.0, 0.0)), (-10.0, (10.0, 1.0))])
def test_a_finish_that_is_certain_is_late_or_not(slack, expected):
    assert tardiness(slack, 0.0) == expected


@pytest.mark.parametrize(
    ("per_hour", "seconds", "expected"),
    [(0.0, HOUR, 1.0), (0.05, HOUR, (exp(0.05) - 1) / 0.05), (1.0, 4 * HOUR, (exp(4) - 1) / 4)],
)
def test_a_run_that_begins_anew_takes_longer_the_longer_it_is(per_hour, seconds, expected):
    found = interruption_factor(per_hour, seconds, checkpoint=None, restart=60.0)

    assert found == pytest.approx(expected)


def test_from_a_checkpoint_half_of_one_and_the_restart_are_lost():
    found = interruption_factor(0.5, 99 * HOUR, checkpoint=600.0, restart=60.0)

    assert found == pytest.approx(1 + 0.5 * (300 + 60) / HOUR)


def test_interruptions_without_end_are_still_a_number():
    assert interruption_factor(20.0, 1e6, checkpoint=None, restart=0.0) < inf
