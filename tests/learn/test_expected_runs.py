"""What an expected run time rests on, and how wide its range is."""

from dataclasses import replace
from math import hypot, log

import pytest

from tests.builders import CPU_OPTION, GPU_OPTION, policy
from tests.learn.learned import learned
from webhook.learn.device_runs import Guess
from webhook.learn.expected_runs import Expecting, estimate
from webhook.model.forecasts import Basis, JobClass, OfSaid

CLASS = JobClass("k", "~c")
SLOWED = policy(
    GPU_OPTION,
    {**CPU_OPTION, "slowdown": 3.5},
    strategy={"finishTime": {"runTime": "5m"}},
)
GPU, CPU = SLOWED.spec.options


def expected(run_times=None, option=CPU, flavors="plain", **rest):
    given = {"policy": SLOWED, "first_flavors": "t4", **rest}
    return estimate(Expecting(run_times=run_times or {}, job_class=CLASS, **given), option, flavors)


def summary(found):
    return found and (pytest.approx(found.seconds), found.basis, found.runs)


def test_runs_of_the_class_on_these_flavors_stand_above_all_that_is_not_written_on_the_job():
    own = learned(70)
    others = {("k", "plain"): own, ("k", "t4"): learned(20), ("~c", "plain"): learned(90, 40)}

    assert expected(others) == own


def test_what_the_owner_wrote_beats_what_was_learned():
    known = {("k", "t4"): learned(20, 40), ("~c", "t4"): learned(30, 40)}

    found = expected(known, said=7200.0, option=GPU, flavors="t4")

    assert summary(found) == (7200, Basis.ANNOTATION, 0)


@pytest.mark.parametrize(
    ("known", "seconds", "runs"),
    [
        ({("k", "t4"): learned(20), ("k", "plain"): learned(100)}, 2500, 10),
        ({("~c", "t4"): learned(20, 9), ("~c", "plain"): learned(40, 3)}, 1000, 3),
        ({("k", "t4"): learned(20), ("k", "plain"): learned(100, 2)}, 1750, 0),
        ({("k", "plain"): learned(100)}, 1750, 0),
        ({("k", "t4"): learned(20)}, 1750, 0),
    ],
    ids=["class", "coarse class", "too few there", "nothing first", "nothing there"],
)
def test_elsewhere_it_takes_as_much_longer_as_runs_do_else_as_the_policy_says(known, seconds, runs):
    assert summary(expected(known, said=500.0)) == (seconds, Basis.ANNOTATION, runs)


def compared(seconds, times, runs=10.0):
    """Return learned runs that took so many times as long as their owners said."""
    of_said = OfSaid(log(times), 0.3, runs)
    return replace(learned(seconds), of_said=of_said)


@pytest.mark.parametrize(
    ("known", "seconds"),
    [
        ({("k", "plain"): compared(9, 14)}, 7000),
        ({("k", "plain"): compared(9, 14, 3.0), ("k", "t4"): learned(20, 10)}, 7000),
        ({("k", "plain"): compared(9, 14), ("k", "t4"): compared(20, 2)}, 3500),
        ({("k", "t4"): compared(20, 2)}, 1750),
        ({("~c", "plain"): compared(9, 14)}, 1750),
    ],
    ids=[
        "nothing first",
        "before what runs of any length tell",
        "owners are off in the first option, too",
        "nothing there",
        "of others",
    ],
)
def test_runs_anywhere_tell_how_much_longer_than_said_it_takes_there(known, seconds):
    found = expected(known, said=500.0)

    assert (found.seconds, found.basis) == (pytest.approx(seconds, rel=0.03), Basis.ANNOTATION)


def test_in_the_first_option_the_owner_is_believed():
    known = {("k", "t4"): compared(20, 4), ("k", "plain"): compared(20, 9)}

    assert expected(known, said=500.0, option=GPU, flavors="t4").seconds == 500


@pytest.mark.parametrize(
    ("times", "least", "most"), [(3.5, 3.49, 3.51), (4.5, 3.5, 4.1), (14, 12, 14)]
)
def test_a_single_run_counts_the_more_the_further_off_the_slowdown_is(times, least, most):
    found = expected({("k", "plain"): compared(9, times, 1.0)}, said=500.0)

    assert least < found.seconds / 500 < most
    assert found.runs == 1


def test_without_a_slowdown_one_run_is_enough():
    silent = policy(GPU_OPTION, CPU_OPTION)
    known = {("k", "plain"): compared(9, 14, 1.0)}

    found = expected(known, policy=silent, option=silent.spec.options[1], said=500.0)

    assert found.seconds == pytest.approx(7000)


def test_a_slowdown_is_half_as_wrong_as_those_of_other_options_were():
    known = {("k", "l4"): compared(9, 8)}

    found = expected(known, said=500.0, slowdowns=(("plain", 3.5), ("l4", 2.0)))

    assert found.seconds == pytest.approx(1750 * 2)


def test_many_runs_tell_more_exactly_how_much_longer_it_takes():
    few = {("k", "t4"): learned(20, 3), ("k", "plain"): learned(100, 3)}
    many = {("k", "t4"): learned(20, 300), ("k", "plain"): learned(100, 300)}

    first, vague, exact = (
        expected(said=500.0, option=GPU, flavors="t4"),
        expected(few, said=500.0),
        expected(many, said=500.0),
    )

    assert first.high / first.low < exact.high / exact.low < vague.high / vague.low


@pytest.mark.parametrize(("ready", "seconds"), [(10, 4500), (None, 2500)])
def test_what_pods_took_to_be_ready_is_taken_off_both_or_neither(ready, seconds):
    known = {("k", "t4"): learned(20), ("k", "plain"): learned(100)}
    starts = {("k", "plain"): learned(10)}
    if ready:
        starts["k", "t4"] = learned(ready)

    assert expected(known, said=500.0, start_delays=starts).seconds == pytest.approx(seconds)


def test_runs_in_the_first_option_are_slowed_down():
    found = expected({("k", "t4"): learned(20)})

    assert summary(found) == (70, Basis.SLOWDOWN, 10)
    assert found.high / found.seconds > 1.5


@pytest.mark.parametrize(
    ("ready", "count", "seconds"),
    [(40, 3, 70), (40, 2, 210), (56, 3, 210), (None, 0, 210)],
    ids=["learned", "too few", "hardly any run is left", "not known"],
)
def test_what_pods_took_to_be_ready_is_not_slowed_down(ready, count, seconds):
    starts = {("k", "t4"): learned(ready, count)} if ready else {}

    found = expected({("k", "t4"): learned(60)}, start_delays=starts)

    assert summary(found) == (seconds, Basis.SLOWDOWN, 10)


def test_without_any_run_the_job_speaks_then_the_policy():
    assert summary(expected(said=20.0)) == (70, Basis.ANNOTATION, 0)
    assert summary(expected(said=20.0, option=GPU, flavors="t4")) == (20, Basis.ANNOTATION, 0)
    assert summary(expected()) == (1050, Basis.POLICY, 0)
    assert summary(expected(option=GPU, flavors="t4")) == (300, Basis.POLICY, 0)


def test_nothing_is_made_up():
    silent = policy(GPU_OPTION, CPU_OPTION)
    gpu, cpu = silent.spec.options
    known = {("k", "t4"): learned(20)}

    assert expected(policy=silent, option=gpu, flavors="t4") is None
    assert expected(policy=silent, option=cpu) is None
    assert expected(known, policy=silent, option=cpu, said=20.0) is None
    assert expected({("k", "plain"): learned(70)}, policy=silent, option=cpu, said=20.0) is None
    assert summary(expected({("k", "plain"): learned(70)}, policy=silent, option=cpu)) == (
        70,
        Basis.LEARNED,
        10,
    )


def test_the_coarse_class_stands_in_with_a_wider_range():
    found = expected({("~c", "plain"): learned(90, 40)})

    assert summary(found) == (90, Basis.LEARNED, 40)
    assert found.high / found.low > 1.5**2


@pytest.mark.parametrize(("runs", "seconds"), [(2, 1050), (3, 90)])
def test_a_few_runs_of_others_do_not_overrule_what_is_said(runs, seconds):
    assert expected({("~c", "plain"): learned(90, runs)}).seconds == pytest.approx(seconds)


@pytest.mark.parametrize(("runs", "seconds"), [(2, 1050), (3, 70)])
def test_a_few_runs_of_others_in_the_first_option_do_not_either(runs, seconds):
    assert expected({("~c", "t4"): learned(20, runs)}).seconds == pytest.approx(seconds)


def test_a_few_runs_of_others_are_better_than_nothing():
    silent = policy(GPU_OPTION, {**CPU_OPTION, "slowdown": 3.5})

    found = expected({("~c", "t4"): learned(20, 2)}, policy=silent, option=silent.spec.options[1])

    assert summary(found) == (70, Basis.SLOWDOWN, 2)


def test_the_coarse_class_tells_how_much_slower_others_are():
    known = {
        ("k", "t4"): learned(50),
        ("~c", "t4"): learned(20, 40),
        ("~c", "plain"): learned(70, 40),
    }

    assert summary(expected(known)) == (175, Basis.LEARNED, 40)


def test_one_run_of_the_class_outweighs_a_coarse_class_that_varies():
    vague = {("k", "plain"): learned(20, 1, width=3), ("~c", "plain"): learned(90, 40, width=8)}
    exact = {("k", "plain"): learned(20, 1, width=3), ("~c", "plain"): learned(90, 40, width=1.01)}

    near, far = expected(vague), expected(exact)

    assert 20 < near.seconds < 27
    assert near.seconds < far.seconds < 60
    assert (near.runs, far.runs) == (1, 1)
    assert near.high / near.low > 3


def test_the_only_run_of_its_coarse_class_is_not_counted_twice():
    only = learned(20, 1, width=3)

    assert expected({("k", "plain"): only, ("~c", "plain"): only}) == only


def test_on_the_first_options_flavors_no_slowdown_is_needed():
    known = {("k", "t4"): learned(20)}
    other_queue = policy(GPU_OPTION, {"queue": "other-lq"})

    found = expected(known, policy=other_queue, option=other_queue.spec.options[1], flavors="t4")
    assert found == learned(20)


UNSAID = policy(GPU_OPTION, CPU_OPTION, strategy={"finishTime": {"runTime": "5m"}})
PRIOR = Guess(2.0, 0.55)


def guessed(known, rule=UNSAID, **rest):
    return expected(known, policy=rule, option=rule.spec.options[1], prior=PRIOR, **rest)


def test_the_speed_of_devices_tells_where_nothing_better_is_known():
    found = guessed({})

    assert summary(found) == (600, Basis.PROFILE, 0)
    # The policy's own uncertainty and the guess's, both of them.
    assert log(found.high / found.seconds) == pytest.approx(1.2816 * hypot(0.4, 0.55))


@pytest.mark.parametrize(
    ("known", "rest", "basis", "seconds"),
    [
        # One run of the class there, and what the policy or the Job says, are better.
        ({("k", "plain"): learned(100, 1)}, {}, Basis.LEARNED, 100),
        ({}, {"rule": SLOWED}, Basis.POLICY, 1050),
        ({}, {"said": 70.0}, Basis.PROFILE, 140),
        ({("k", "t4"): learned(20)}, {}, Basis.PROFILE, 40),
        # A few runs of others are worse.
        ({("~c", "plain"): learned(90, 2)}, {}, Basis.PROFILE, 600),
    ],
)
def test_a_guess_comes_after_what_is_said_and_before_hearsay(known, rest, basis, seconds):
    found = guessed(known, **rest)

    assert (found.basis, found.seconds) == (basis, pytest.approx(seconds))
