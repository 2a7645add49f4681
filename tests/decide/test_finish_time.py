"""The choice between options whose starts and runs are given."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import applicant, policy
from webhook.decide.strategies import Choice, choose
from webhook.decide.wishes import Wishes
from webhook.model.decision import Assessment, Fit, Rejection
from webhook.model.forecasts import Basis, Forecast, RunTime, Start
from webhook.model.reasons import Reason, Stayed
from webhook.model.words import span

STOPPED = Rejection(reason=Reason.STOPPED, detail="ClusterQueue cpu-cq has stopPolicy Hold")
DEFAULTS = policy()
SECONDS = st.floats(0.0, 1e5)


def forecast(start, run):
    begins = Start(seconds=start, low=start, high=start)
    if run is None:
        return Forecast(start=begins)
    runs = RunTime(seconds=run, low=run, high=run, basis=Basis.POLICY)
    return Forecast(start=begins, run=runs, finish=start + run)


def option(name, start=0.0, run=None, **rest):
    return Assessment(
        option=name,
        queue=f"{name}-lq",
        fit=Fit.FITS if start == 0.0 else Fit.WAITS,
        starts_now=start == 0.0,
        forecast=forecast(start, run),
        **rest,
    )


def worth(time="0s", percent=0):
    gain = {"time": time, "percent": percent}
    return policy(strategy={"type": "FinishTime", "finishTime": {"minimumGain": gain}})


def asking(rule, draw=0.0, probability=0.8, **wishes):
    return applicant(rule, draw=draw, wishes=Wishes(**wishes), probability=probability)


def taken(rule, *options, **rest):
    found = choose(asking(rule, **rest), options)
    return None if found.index is None else options[found.index].option


@pytest.mark.parametrize(
    ("gpu", "cpu", "expected"),
    [
        (129.9, 100.0, "gpu"),
        (130.0, 100.0, "cpu"),
        # Ten of a hundred seconds are not thirty; thirty of a thousand are not ten percent.
        (100.0, 90.0, "gpu"),
        (1000.0, 910.0, "gpu"),
        (1000.0, 900.0, "cpu"),
    ],
)
def test_by_default_leaving_must_gain_30_s_and_a_tenth(gpu, cpu, expected):
    assert taken(DEFAULTS, option("gpu", gpu - 20, 20.0), option("cpu", 0.0, cpu)) == expected


def test_a_third_option_must_be_worth_leaving_the_second_for():
    first = option("h100", 1000.0, 10.0)

    assert taken(DEFAULTS, first, option("a100", 80.0, 20.0), option("l40", 0.0, 80.0)) == "a100"
    assert taken(DEFAULTS, first, option("a100", 80.0, 20.0), option("l40", 0.0, 70.0)) == "l40"


def between(found, *, start=None, run=None):
    """The same option with ranges of its start or its run."""
    forecast = found.forecast
    if start is not None:
        forecast = replace(forecast, start=replace(forecast.start, low=start[0], high=start[1]))
    if run is not None:
        forecast = replace(forecast, run=replace(forecast.run, low=run[0], high=run[1]))
    return replace(found, forecast=forecast)


@pytest.mark.parametrize(
    ("gpu", "cpu", "expected"),
    [
        # 40 s sooner. The tenth percent lies 1.28 sigmas from the middle, the twentieth 0.84.
        (option("gpu", 80.0, 20.0), option("cpu", 40.0, 20.0), "cpu"),
        (between(option("gpu", 80.0, 20.0), start=(20.0, 80.0)), option("cpu", 40.0, 20.0), "cpu"),
        (between(option("gpu", 80.0, 20.0), start=(18.0, 80.0)), option("cpu", 40.0, 20.0), "gpu"),
        (option("gpu", 80.0, 20.0), between(option("cpu", 40.0, 20.0), start=(0.0, 100.0)), "cpu"),
        (option("gpu", 80.0, 20.0), between(option("cpu", 40.0, 20.0), start=(0.0, 102.0)), "gpu"),
        # That a preferred option may be late, or another early, speaks for leaving.
        (between(option("gpu", 80.0, 20.0), start=(80.0, 999.0)), option("cpu", 40.0, 20.0), "cpu"),
        (option("gpu", 80.0, 20.0), between(option("cpu", 40.0, 20.0), start=(0.0, 40.0)), "cpu"),
    ],
)
def test_leaving_must_be_a_gain_with_four_chances_of_five(gpu, cpu, expected):
    assert taken(worth("2s"), gpu, cpu) == expected


def test_how_likely_a_gain_must_be_is_a_setting():
    unsure = between(option("gpu", 80.0, 20.0), start=(20.0, 80.0)), option("cpu", 40.0, 20.0)

    assert taken(worth("2s"), *unsure, probability=0.8) == "cpu"
    assert taken(worth("2s"), *unsure, probability=0.81) == "gpu"


@pytest.mark.parametrize(
    ("gpu", "draw", "reason", "sentence"),
    [
        (
            between(option("gpu", 80.0, 20.0), start=(18.0, 80.0)),
            0.0,
            Stayed.UNSURE_GAIN,
            "sooner is not likely enough (79 %, 80 % needed)",
        ),
        (
            option("gpu", 69.0, 20.0),
            0.0,
            Stayed.SMALL_GAIN,
            "29s sooner is less than the minimum of 30s",
        ),
        (
            option("gpu", 71.0, 20.0),
            0.9,
            Stayed.NEAR_TIE,
            "31s sooner is a near tie with the minimum of 30s",
        ),
    ],
)
def test_why_a_sooner_option_is_not_taken_is_said_with_its_numbers(gpu, draw, reason, sentence):
    cpu = option("cpu", 40.0, 20.0)

    found = choose(asking(worth("30s", 10), draw=draw), (gpu, cpu))

    done = span(gpu.forecast.finish)
    said = f"stays in gpu-lq (gpu): done in {done}; cpu-lq would be done in 1m: {sentence}"
    passed = {1: Rejection(reason=reason, detail=sentence)}
    assert found == Choice(index=0, sentence=said, passed_over=passed)


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=2, max_size=4), st.floats(0.0, 0.99))
def test_no_option_is_sooner_than_the_one_taken_without_a_reason(times, draw):
    options = tuple(option(str(number), *each) for number, each in enumerate(times))

    found = choose(asking(DEFAULTS, draw=draw), options)

    finishes = [each.forecast.finish for each in options]
    sooner = {n for n, finish in enumerate(finishes) if finish < finishes[found.index]}
    assert set(found.passed_over) == sooner


def test_a_job_that_runs_long_in_one_option_does_so_in_the_other():
    gpu = between(option("gpu", 80.0, 20.0), run=(10.0, 40.0))

    same = between(option("cpu", 0.0, 60.0), run=(50.0, 80.0))
    assert taken(worth("2s"), gpu, same) == "cpu"
    slower = between(option("cpu", 0.0, 60.0), run=(30.0, 160.0))
    assert taken(worth("2s"), gpu, slower) == "gpu"


@pytest.mark.parametrize(
    ("start", "sentence"),
    [
        (
            Start(seconds=80.0, low=80.0, high=80.0, unseen=3),
            "nothing is known of how long 3 Jobs ahead run, so the first option is kept",
        ),
        (
            Start(seconds=80.0, low=80.0, high=80.0, unseen=1),
            "nothing is known of how long 1 Job ahead runs, so the first option is kept",
        ),
        (
            Start(seconds=80.0, low=80.0, high=80.0, unordered="fairSharing"),
            "who is served next cannot be foreseen (fairSharing), so the first option is kept",
        ),
    ],
)
def test_a_guess_is_no_reason_to_leave(start, sentence):
    gpu, cpu = option("gpu", 80.0, 20.0), option("cpu", 0.0, 20.0)
    guessed = replace(gpu, forecast=replace(gpu.forecast, start=start, finish=None))

    found = choose(asking(worth("2s")), [guessed, cpu])
    assert found.index == 0
    assert found.sentence == f"stays in gpu-lq (gpu): {sentence}"


def test_of_near_ties_a_part_is_taken():
    options = option("gpu", 80.0, 20.0), option("cpu", 0.0, 69.0)

    found = [taken(DEFAULTS, *options, draw=tenth / 10) for tenth in range(10)]

    # A second more than what is worth it, of the two seconds that count as near.
    assert found == ["cpu"] * 6 + ["gpu"] * 4


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=2, max_size=5), st.floats(0, 0.999))
def test_what_is_taken_is_never_later_than_what_was_preferred_to_it(found, draw):
    options = [option(f"o{number}", *each) for number, each in enumerate(found)]

    index = choose(asking(DEFAULTS, draw), options).index

    finishes = [item.forecast.finish for item in options]
    # Sums of floats: the difference may be a rounding error short of what is worth a move.
    assert all(finishes[index] <= finish - 30.0 + 1e-6 for finish in finishes[:index])


def test_the_first_that_starts_within_what_the_job_waits_is_taken():
    options = option("gpu", 60.0, 20.0), option("cpu", 0.0, 5.0)

    assert taken(DEFAULTS, *options, max_wait=60.0) == "gpu"
    assert taken(DEFAULTS, *options, max_wait=59.0) == "cpu"
    assert (
        taken(DEFAULTS, option("gpu", 9.0, 1.0), option("cpu", 8.0, 900.0), max_wait=0.0) == "gpu"
    )


def test_the_sentence_has_the_numbers():
    options = [
        option("gpu", 184.0, 20.0, pending=12),
        option("cpu", 0.0, 70.0),
        Assessment(option="spot", queue="spot-lq", rejection=STOPPED),
    ]

    assert choose(asking(DEFAULTS), options) == Choice(
        index=1,
        sentence="sent to cpu-lq (cpu): starts now, done in 1m10s; gpu-lq would be done in 3m24s "
        f"(12 ahead); spot-lq refused: {STOPPED.detail}",
    )


NO_FORECAST = Assessment(option="gpu", queue="gpu-lq", fit=Fit.WAITS)


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (NO_FORECAST, "no forecast of its queue is known yet"),
        (option("gpu", 10.0), "no run time is known yet"),
        (option("gpu"), "starts now; no run time is known yet"),
        (option("gpu", inf, 20.0), "when it would start cannot be foreseen"),
    ],
    ids=["no forecast", "no run time", "starts now", "never"],
)
def test_what_is_not_known_of_the_first_option_lets_it_stand(first, why):
    found = choose(asking(DEFAULTS), [first, option("cpu", 0.0, 70.0)])

    sentence = f"stays in gpu-lq (gpu): {why}, so the first option is kept"
    assert found == Choice(index=0, sentence=sentence)


def starting(name, start, run, **about):
    """An option whose start is as *about* says."""
    found = option(name, start, run)
    begins = replace(found.forecast.start, **about)
    return replace(found, forecast=replace(found.forecast, start=begins))


def test_a_job_may_preempt_where_it_was_submitted_to_but_is_sent_nowhere_to_do_so():
    unasked = applicant(DEFAULTS, submitted="")
    stays = choose(unasked, [starting("gpu", 1.0, 60.0, preempts=True), option("cpu", 0.0, 210.0)])
    sent = choose(
        unasked, [option("gpu", 9000.0, 60.0), starting("cpu", 1.0, 210.0, preempts=True)]
    )

    assert stays.sentence == (
        "sent to gpu-lq (gpu): may preempt, done in 1m1s; cpu-lq would be done in 3m30s"
    )
    assert sent.index == 0
