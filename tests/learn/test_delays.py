"""What goes by before a run, and what of it a policy's word stands for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import GPU_OPTION, policy
from tests.learn.learned import learned
from webhook.learn import expected_runs
from webhook.model.forecasts import Basis, Delay, Dispatch, Forecast, JobClass, RunTime, Start
from webhook.model.policy.spec import Option

CLASS = JobClass("k", "~c")
(OPTION,) = policy({**GPU_OPTION, "startDelay": "40s"}).spec.options
BELIEVED = RunTime(seconds=60, low=40, high=90, basis=Basis.POLICY)
QUICK = learned(12, 9)


def spans(delay):
    return delay and (delay.seconds, delay.low, delay.high)


def exactly(seconds, by="x"):
    return Delay(seconds=seconds, low=seconds, high=seconds, by=by)


def test_of_a_queue_where_nobody_was_or_is_nothing_is_expected():
    assert expected_runs.dispatch(None, 0.0) is None


def test_a_dispatch_takes_as_long_as_it_took_of_late():
    found = expected_runs.dispatch(Dispatch(learned=QUICK), 0.0)

    assert spans(found) == (12, 8, 18)
    assert found.by == "dispatched in 12s, from 9 of late"


def test_one_that_waits_no_longer_than_usual_changes_nothing():
    found = expected_runs.dispatch(Dispatch(learned=QUICK, waiting_since=95.0), 100.0)

    assert found == expected_runs.dispatch(Dispatch(learned=QUICK), 0.0)


def test_it_takes_no_less_than_somebody_has_waited():
    found = expected_runs.dispatch(Dispatch(learned=QUICK, waiting_since=-200.0), 100.0)

    assert spans(found) == (300, 300, pytest.approx(647, abs=1))
    assert found.by == "dispatched in 12s, from 9 of late, but one has waited 5m"


def test_where_nobody_was_dispatched_those_who_wait_are_all_that_is_known():
    found = expected_runs.dispatch(Dispatch(waiting_since=40.0), 100.0)

    assert spans(found) == (60, 60, pytest.approx(129, abs=1))
    assert found.by == "one has waited 1m to be dispatched"


@given(st.none() | st.floats(-1e6, 1e6), st.floats(0.0, 1e6), st.booleans())
def test_whoever_waits_the_range_is_one_and_holds_what_is_expected(since, now, is_known):
    found = expected_runs.dispatch(
        Dispatch(learned=QUICK if is_known else None, waiting_since=since), now
    )

    assert 0.0 <= found.low <= found.seconds <= found.high
    assert found.seconds >= (0.0 if since is None else now - since)


def way(found, said="1m"):
    delay = expected_runs.transfer(found, Option(name="remote", queue="remote-lq", startDelay=said))
    return delay and (delay.seconds, delay.by)


def test_the_way_to_a_cluster_is_the_shortest_of_late():
    assert way(Dispatch(learned=QUICK, least=3)) == (3.0, "dispatched in 3s at best")
    assert way(Dispatch(learned=QUICK)) is None
    assert way(Dispatch(waiting_since=0.0)) is None
    assert way(None) is None


def test_the_way_to_a_cluster_is_no_longer_than_the_policy_says():
    assert way(Dispatch(learned=QUICK, least=60), "5s") == (5.0, "dispatched in 5s at best")
    assert way(Dispatch(learned=QUICK, least=60), "0s") is None


def test_a_start_and_a_delay_add_up_and_vary_independently():
    start = Start(seconds=100.0, low=70.0, high=140.0, uncertain=("depth",))

    found = expected_runs.later(start, Delay(seconds=60.0, low=20.0, high=90.0, by="x"))

    assert found == Start(seconds=160.0, low=110.0, high=210.0, uncertain=("depth",))
    assert expected_runs.later(start, None) is start


def test_what_never_starts_is_not_delayed():
    never = Start(seconds=float("inf"), low=float("inf"), high=float("inf"))

    assert expected_runs.later(never, exactly(5.0)) is never


def test_pods_of_the_class_tell_before_those_of_others_if_there_are_three():
    own, others = learned(20, 3), learned(5, 10)
    few = learned(20, 2)

    assert (
        spans(expected_runs.start_up({("k", "t4"): own, ("", "t4"): others}, CLASS, "t4"))[0] == 20
    )
    assert (
        spans(expected_runs.start_up({("k", "t4"): few, ("", "t4"): others}, CLASS, "t4"))[0] == 5
    )
    assert expected_runs.start_up({("k", "t4"): few, ("", "plain"): others}, CLASS, "t4") is None


def before_run(run=BELIEVED, *, on_way=None, started=None):
    return expected_runs.before_run(OPTION, run, on_way=on_way, started=started)


def test_a_learned_run_has_its_start_in_it():
    assert before_run(learned(70), started=exactly(5.0)) is None


def test_what_the_policy_says_stands_until_it_is_learned():
    assert before_run() == exactly(40.0, "40s by the policy's startDelay")
    assert before_run(None) == exactly(40.0, "40s by the policy's startDelay")
    assert before_run(started=exactly(5.0)) == exactly(5.0)


@pytest.mark.parametrize(("way", "left"), [(12.0, 28.0), (40.0, None), (300.0, None)])
def test_what_the_policy_says_contains_the_way_there(way, left):
    found = before_run(on_way=exactly(way))

    assert (found and found.seconds) == left


def test_two_delays_are_told_together():
    one = Delay(seconds=10.0, low=7.0, high=14.0, by="a")
    other = Delay(seconds=5.0, low=1.0, high=8.0, by="b")

    assert expected_runs.added(one, other) == Delay(seconds=15.0, low=10.0, high=20.0, by="a; b")
    assert (expected_runs.added(None, one), expected_runs.added(one, None)) == (one, one)
    assert expected_runs.added(None, None) is None


def test_quota_is_held_from_the_dispatch_to_the_end():
    start = Start(seconds=7.0, low=7.0, high=7.0)
    sent = Delay(seconds=12.0, low=9.0, high=16.0, by="a")
    ready = Delay(seconds=40.0, low=36.0, high=43.0, by="b")
    forecast = Forecast(start=start, dispatch=sent, delay=ready, run=BELIEVED)

    found = expected_runs.lasting(forecast)

    assert (found.seconds, found.basis) == (112, Basis.POLICY)
    assert (found.low, found.high) == (pytest.approx(91.4, abs=0.1), pytest.approx(142.4, abs=0.1))
    assert expected_runs.lasting(Forecast(start=start, run=BELIEVED)) is BELIEVED
    assert expected_runs.lasting(Forecast(start=start)) is None
    assert expected_runs.lasting(None) is None
