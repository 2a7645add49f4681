"""No hold is longer than what the Job and its policy allow, and each saves what it must."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import applicant
from webhook.decide.holding import hold_of, latest_start
from webhook.decide.wishes import Wishes
from webhook.model.costs.prices import Place, Prices, curve
from webhook.model.forecasts import Basis, Forecast, RunTime, Start
from webhook.model.policy.strategy import HoldRules

NOW, HOUR = 1_795_240_800.0, 3600.0
GPU = ("gpu", "nvidia.com/gpu")


def waiting(*prices, run=HOUR, high=1.5, starts=0.0, longest="12h", percent=10, **wishes):
    """Return what may be held: a Job that may wait, with a price for each hour from now on."""
    steps = {NOW + hour * HOUR: price for hour, price in enumerate(prices)}
    rates = {GPU: curve(steps, NOW + len(prices) * HOUR)}
    runs = RunTime(seconds=run, low=run / high, high=run * high, basis=Basis.LEARNED, runs=9)
    rules = {"longest": longest, "minimumSaving": {"percent": percent}}
    start = Start(seconds=starts, low=starts, high=starts)
    return {
        "applicant": applicant(wishes=Wishes(**wishes), unix=NOW),
        "forecast": Forecast(start=start, run=runs),
        "place": Place(usage={GPU: 1}, prices=Prices(rates=rates), congestion={}),
        "rules": HoldRules.model_validate(rules, by_alias=True),
    }


def held(case):
    return hold_of(**case, carbon_price=0.0)


DIP = (3.0, 3.0, 3.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0)


def test_the_cheapest_start_is_the_earliest_of_the_hold_of():
    hold = held(waiting(*DIP, deadline=10 * HOUR))

    assert (hold.until - NOW) / HOUR == 3.0
    assert hold.saves == pytest.approx(2 / 3 * hold.of)


@pytest.mark.parametrize(
    ("job", "hours"),
    [
        (waiting(*DIP, deadline=10 * HOUR), 10 - 1.5 - 1 / 6),
        (waiting(*DIP, deadline=100 * HOUR), 12.0),
        (waiting(*DIP, deadline=100 * HOUR, hold=2 * HOUR), 2.0),
        (waiting(*DIP, run=20 * HOUR, deadline=40 * HOUR), 40 - 30 - 3),
        (waiting(*DIP, deadline=HOUR), 1 - 1.5 - 1 / 6),
    ],
    ids=["deadline", "longest", "its own word", "a tenth in reserve", "too late already"],
)
def test_the_latest_start_leaves_time_for_a_long_run_and_a_reserve(job, hours):
    latest = latest_start(job["applicant"], job["forecast"], job["rules"])

    assert (latest - NOW) / HOUR == pytest.approx(hours)


FULL = {"starts": 3 * HOUR, "hold": 6 * HOUR}


def test_a_job_that_would_wait_anyway_is_compared_from_its_start_on_and_held_until_room():
    hold = held(waiting(*DIP, **FULL))

    assert (hold.until, hold.latest, hold.saves) == (NOW, NOW + 6 * HOUR, 0.0)


@pytest.mark.parametrize("changes", [{"starts": 0.0}, {"starts": 7 * HOUR}, {"hold": HOUR}])
def test_only_a_job_that_would_wait_and_not_too_long_is_held_until_room(changes):
    assert held(waiting(*[1.0] * 12, **FULL)) is not None
    assert held(waiting(*[1.0] * 12, **{**FULL, **changes})) is None


@given(
    prices=st.lists(st.floats(0.01, 50.0), min_size=14, max_size=30),
    deadline=st.floats(0.1, 40.0),
    hold=st.none() | st.floats(0.1, 40.0),
    run=st.floats(0.05, 9.0),
    percent=st.integers(0, 60),
)
def test_every_hold_ends_in_time_and_saves_enough(prices, deadline, hold, run, percent):
    wishes = {"deadline": deadline * HOUR, "hold": None if hold is None else hold * HOUR}
    job = waiting(*prices, run=run * HOUR, percent=percent, **wishes)

    found = held(job)

    if found is not None:
        assert NOW < found.until <= found.latest <= NOW + 12 * HOUR
        assert found.latest + 1.5 * run * HOUR + 600 <= NOW + deadline * HOUR + 1e-3
        assert hold is None or found.latest <= NOW + hold * HOUR
        assert found.saves > 0
        assert found.saves >= found.of * percent / 100
