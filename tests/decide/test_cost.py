"""The choice by what options cost, and the terms of a cost."""

from __future__ import annotations

import json
from dataclasses import replace
from math import exp, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import applicant, policy
from tests.decide.decisions import annotation
from webhook.commands.decision_table import table
from webhook.decide import decision_record
from webhook.decide.objective import first_hour, stakes_of, weigh
from webhook.decide.strategies import choose
from webhook.decide.wishes import Wishes
from webhook.model.costs.prices import HOUR, NO_PRICES, Cost, Place, Prices, Stakes, curve
from webhook.model.decision import Assessment, Decided, Decision, Fit
from webhook.model.forecasts import Basis, Forecast, RunTime, Start
from webhook.model.policy.fallback_policy import Mode
from webhook.model.policy.strategy import Lateness, LeastCost

TERMS = ("money", "electricity", "carbon", "time", "lateness", "congestion", "transfer")
GPU = ("gpu", "nvidia.com/gpu")
AMOUNTS = st.floats(0.0, 1e4)
OPTIONS = [
    {"name": "gpu", "queue": "gpu-lq"},
    {"name": "mid", "queue": "mid-lq"},
    {"name": "cpu", "queue": "cpu-lq"},
]


def by_cost(**saving):
    strategy = {"type": "Cost", "cost": {"minimumSaving": {"amount": "0", "percent": 0, **saving}}}
    return policy(options=OPTIONS, strategy=strategy)


def option(name, start=0.0, run=HOUR, cost=None, **run_time):
    begins = Start(seconds=start, low=start, high=start)
    runs = RunTime(**{"seconds": run, "low": run, "high": run, "basis": Basis.POLICY, **run_time})
    forecast = Forecast(start=begins, run=runs, finish=start + run)
    return Assessment(option=name, queue=f"{name}-lq", fit=Fit.WAITS, forecast=forecast, cost=cost)


def taken(rule, *options, **asking):
    found = choose(applicant(rule, draw=0.0, **asking), options)
    return None if found.index is None else options[found.index].option


@pytest.mark.parametrize(
    ("saving", "mid", "expected"),
    [
        ({"percent": 10}, 9.0, "mid"),
        ({"percent": 10}, 9.1, "gpu"),
        ({"amount": "2"}, 8.0, "mid"),
        ({"amount": "2"}, 8.1, "gpu"),
        # At least both.
        ({"amount": "0.5", "percent": 20}, 9.0, "gpu"),
        ({}, 10.0, "gpu"),
    ],
)
def test_leaving_must_save_the_amount_and_the_part(saving, mid, expected):
    options = option("gpu", cost=Cost(time=10.0)), option("mid", cost=Cost(time=mid))

    assert taken(by_cost(**saving), *options) == expected


def test_what_saves_hardly_more_than_the_minimum_is_taken_by_some_of_many():
    options = option("gpu", cost=Cost(time=10.0)), option("mid", cost=Cost(time=8.9))

    assert taken(by_cost(percent=10), *options) == "mid"
    found = choose(applicant(by_cost(percent=10), draw=0.9), options)
    assert found.index == 0


@given(st.lists(st.tuples(*[AMOUNTS] * len(TERMS)), min_size=1, max_size=3))
def test_the_more_expensive_of_two_is_never_preferred_to_an_earlier_one(rows):
    options = [
        option(entry["name"], cost=Cost(**dict(zip(TERMS, row, strict=True))))
        for entry, row in zip(OPTIONS, rows, strict=False)
    ]

    name = taken(by_cost(percent=5), *options)

    totals = {found.option: found.cost.total for found in options}
    names = list(totals)
    assert all(totals[name] <= totals[earlier] for earlier in names[: names.index(name)])


def flat(value):
    return curve({0.0: value}, 1000 * HOUR)


def place(rate=None, congestion=0.0, **prices):
    rates = {} if rate is None else {GPU: flat(rate)}
    given = Prices(rates=rates, **prices) if rates or prices else NO_PRICES
    return Place(usage={GPU: 1}, prices=given, congestion={GPU: congestion})


def costed(*entries, rules=None, **wishes):
    """Weigh options, each with its place."""
    options, places = zip(*entries, strict=True)
    rules, wished = rules or LeastCost(time_value="2"), Wishes(**wishes)
    stakes = stakes_of(rules, wished, first_hour(places, rules, 0.0))
    for each, where in entries:
        each.place = where
    weigh(options, stakes, wished, 0.0)
    return options


def test_time_is_worth_money_until_the_job_is_done():
    (found,) = costed((option("gpu", start=HOUR), place()))

    stakes = Stakes(time_value=2, late_hour=8, late_fixed=0, carbon_price=0)
    expected = Cost(time=4.0, lateness=0.0, congestion=0.0, transfer=0.0, stakes=stakes)
    assert found.cost == expected


def test_the_mean_run_counts_and_not_its_median():
    certain, wide = costed(
        (option("gpu"), place()), (option("cpu", low=HOUR / 2, high=HOUR * 2), place())
    )

    sigma = 2 * 0.6931471805599453 / 2.563
    assert wide.cost.time == pytest.approx(certain.cost.time * exp(sigma**2 / 2))


def test_what_others_wait_for_is_charged_while_the_job_runs():
    (found,) = costed((option("gpu", start=HOUR, run=2 * HOUR), place(congestion=1.5)))

    assert found.cost.congestion == pytest.approx(3.0)


def test_data_that_is_not_there_is_brought_for_money():
    here = place(transfer=0.1, holds=frozenset({"imagenet"}))
    away = place(transfer=0.1)

    found = costed(
        (option("gpu"), here), (option("cpu"), away), data=(("imagenet", 120.0), ("new", 10.0))
    )

    assert [each.cost.transfer for each in found] == pytest.approx([1.0, 13.0])


def test_data_that_others_have_brought_of_late_is_likely_there():
    often = replace(place(transfer=0.1), warm=0.8)

    (found,) = costed((option("gpu"), often), data=(("new", 10.0),))

    assert found.cost.transfer == pytest.approx(0.2)


def test_an_hour_of_the_first_option_is_the_value_of_time_where_none_is_given():
    first, second = costed(
        (option("gpu"), place(3.0)), (option("cpu"), place(1.0)), rules=LeastCost()
    )

    assert (first.cost.time, second.cost.time) == pytest.approx((3.0, 3.0))


def test_a_job_that_runs_from_scratch_again_takes_longer_where_it_is_interrupted():
    (found,) = costed((option("gpu"), place(interruptions={"gpu": 0.5})))

    assert found.cost.time == pytest.approx(2 * (exp(0.5) - 1) / 0.5)


def test_with_checkpoints_half_of_one_is_lost_each_time():
    (found,) = costed((option("gpu"), place(interruptions={"gpu": 0.5})), checkpoint=600.0)

    assert found.cost.time == pytest.approx(2 * (1 + 0.5 * 300 / HOUR))


@pytest.mark.parametrize(
    ("wishes", "rules", "expected"),
    [
        ({}, {}, Stakes(time_value=2, late_hour=8, late_fixed=0, carbon_price=0)),
        (
            {"value_of_time": 5.0},
            {},
            Stakes(time_value=5, late_hour=20, late_fixed=0, carbon_price=0),
        ),
        (
            {"value_of_time": 21.0},
            {},
            Stakes(
                time_value=20,
                late_hour=80,
                late_fixed=0,
                carbon_price=0,
                capped=("value-of-time is capped at 20",),
            ),
        ),
        (
            {"lateness": 51.0},
            {"lateness": Lateness(per_hour="5", fixed="3"), "carbon_price": "0.1"},
            Stakes(
                time_value=2,
                late_hour=50,
                late_fixed=3,
                carbon_price=0.1,
                capped=("lateness is capped at 50",),
            ),
        ),
    ],
)
def test_a_job_may_raise_what_its_policy_gives_ten_times(wishes, rules, expected):
    assert stakes_of(LeastCost(time_value="2", **rules), Wishes(**wishes), 7.0) == expected


def test_what_is_not_known_of_one_option_counts_in_none_and_that_is_said():
    known = Cost(money=1.0, kwh=2.0, electricity=0.3, carbon_grams=800.0)
    rules = LeastCost(time_value="2", carbon_price="10")
    without_power = replace(known, kwh=None, electricity=None, carbon_grams=None)

    first, second = costed(
        (option("gpu", cost=known), place()),
        (option("cpu", cost=without_power), place()),
        rules=rules,
    )

    said = ("the power of cpu is not known, so electricity and carbon are left out",)
    assert (first.cost.electricity, first.cost.carbon, first.cost.money) == (None, None, 1.0)
    assert first.cost.carbon_grams == 800.0
    assert first.cost.said == second.cost.said == said
    assert first.cost.total == second.cost.total == 3.0


@given(
    st.lists(
        st.tuples(*[st.one_of(st.none(), AMOUNTS)] * 4, st.floats(1.0, 1e5), AMOUNTS),
        min_size=1,
        max_size=3,
    ),
    AMOUNTS,
    st.one_of(st.none(), st.floats(-1e5, 1e5)),
)
def test_a_total_is_the_sum_of_its_terms_and_all_options_have_the_same_terms(rows, price, deadline):
    entries = [
        (
            option(
                entry["name"],
                run=run,
                cost=Cost(money=money, kwh=kwh, electricity=paid, carbon_grams=grams),
            ),
            place(congestion=scarce),
        )
        for entry, (money, kwh, paid, grams, run, scarce) in zip(OPTIONS, rows, strict=False)
    ]

    found = costed(
        *entries,
        rules=LeastCost(time_value="2", carbon_price=str(round(price, 3))),
        deadline=deadline,
    )

    terms = [{term: getattr(each.cost, term) for term in TERMS} for each in found]
    assert len({tuple(t for t in TERMS if row[t] is None) for row in terms}) == 1
    for each, row in zip(found, terms, strict=True):
        known = [amount for amount in row.values() if amount is not None]
        assert each.cost.total == pytest.approx(sum(known))
        assert all(0 <= amount < inf for amount in known)


def decided(*options):
    return Decision(
        id="a-1",
        time="2026-11-21T06:00:00Z",
        policy="tiers",
        mode=Mode.ENFORCE,
        option=options[0].option,
        left_alone=None,
        reason="sent to gpu-lq (gpu)",
        from_queue="gpu-lq",
        state_age_seconds=0.0,
        options=options,
    )


ALL_TERMS = Cost(
    money=123.456,
    kwh=0.0123456,
    electricity=0.0345678,
    carbon_grams=1234.56,
    carbon=0.5,
    time=0.0567891,
    lateness=0.0678912,
    congestion=0.0789123,
    transfer=0.0891234,
)


@pytest.mark.parametrize("cost", [ALL_TERMS, replace(ALL_TERMS, lateness=0.0, transfer=0.0)])
def test_eight_options_with_all_terms_make_the_annotation_at_most_a_kilobyte_longer(cost):
    names = [f"option-{number}" for number in range(8)]

    without = annotation(decided(*map(option, names)))
    whole = annotation(decided(*(option(name, cost=cost) for name in names)))

    assert len(whole) - len(without) <= 1024
    costs = [each["cost"] for each in json.loads(whole)["options"]]
    assert all("total" in each for each in costs)
    assert costs[0] == decision_record.cost_json(cost)


def test_each_term_is_recorded_with_three_digits_that_count():
    record = json.loads(annotation(decided(option("gpu", cost=ALL_TERMS))))

    assert record["options"][0]["cost"] == {
        "money": 123,
        "electricity": 0.0346,
        "carbonGrams": 1230,
        "kWh": 0.0123,
        "time": 0.0568,
        "lateness": 0.0679,
        "congestion": 0.0789,
        "transfer": 0.0891,
        "total": 124,
    }


def test_a_chance_of_lateness_that_is_next_to_nothing_is_recorded_as_nothing():
    cost = Cost(money=6.8, time=0.567, lateness=1.83e-63)

    record = json.loads(annotation(decided(option("gpu", cost=cost))))

    assert record["options"][0]["cost"]["lateness"] == 0


def test_explain_shows_the_terms_beside_start_and_finish():
    first = Cost(money=2.36, electricity=0.21, carbon_grams=140.0, time=0.86, lateness=0.0)
    second = replace(
        first, money=1.10, carbon_grams=131.0, time=1.48, lateness=0.02, congestion=0.0
    )
    found = decided(
        option("h100", start=540.0, run=2040.0, cost=replace(first, congestion=1.1)),
        option("l40s", run=4440.0, cost=second),
    )

    lines = map(str, table(Decided(decision=found), width=160)[2:])

    why = "run: the policy; price x1.5 for congestion"
    assert [" ".join(line.split()) for line in lines] == [
        "OPTION QUEUE STARTS DONE RATES POWER CO2 LATE TIME CONGESTION TOTAL WHY",
        f"> h100 h100-lq in 9m in 43m 2.36 0.21 140 g 0 0.86 1.1 4.53 {why}",
        "l40s l40s-lq now in 1h14m 1.1 0.21 131 g 0.02 1.48 0 2.81 run: the policy",
    ]
