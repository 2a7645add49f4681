"""How long AdmissionChecks take: of those that passed them, and of those that wait."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.learn.dispatches import Dispatches, WaitingDispatches
from webhook.learn.run_records import Run, pack_runs
from webhook.model.forecasts import Dispatch

KEYS = st.integers(0, 4).map(lambda number: ("team", f"w{number}"))
STEPS = st.lists(st.tuples(KEYS, st.none() | st.integers(1, 20)), max_size=200)


def counts(**reserved):
    found = WaitingDispatches()
    for name, since in reserved.items():
        found.add(("team", name), since)
    return found


def look(dispatches, found, *, seconds=(), clock=0.0, at=100):
    """Look at ``gpu-cq``; runs of *seconds* passed their checks at *at*."""
    runs = pack_runs(Run(at, uid, each) for uid, each in enumerate(seconds))
    return dispatches.step(
        {"gpu-cq": found},
        {"gpu-cq": runs},
        recounted={"gpu-cq"},
        dispatched={"gpu-cq"} if seconds else (),
        clock=clock,
    )


@given(STEPS, st.lists(st.integers(0, 20), max_size=3).map(sorted))
def test_the_oldest_is_found_whatever_came_and_went(steps, passed):
    waiting, there = WaitingDispatches(), {}

    for key, since in steps:
        waiting.remove(key)
        there.pop(key, None)
        if since is not None:
            waiting.add(key, since)
            there[key] = since

    for each in passed:
        assert waiting.oldest(each) == min((s for s in there.values() if s >= each), default=0)


def test_those_that_passed_tell_how_long_it_takes():
    found = look(Dispatches(), counts(), seconds=(12, 12, 12))["gpu-cq"]

    assert (found.learned.seconds, found.learned.runs) == (pytest.approx(12), 3)
    assert (found.least, found.waiting_since) == (12, None)


def test_the_one_that_waits_longest_is_told_on_the_clock_of_the_state():
    found = look(Dispatches(), counts(w1=970, w2=950), clock=-900.0)

    assert found == {"gpu-cq": Dispatch(waiting_since=50.0)}


def test_who_was_overtaken_is_not_told():
    found = look(Dispatches(), counts(w1=80), seconds=(10,), at=100)

    assert found["gpu-cq"].waiting_since is None


def test_who_got_quota_with_the_last_that_passed_still_waits():
    found = look(Dispatches(), counts(w1=90), seconds=(10,), at=100)

    assert found["gpu-cq"].waiting_since == 90.0


def test_what_did_not_change_stays_the_same_object_though_clocks_drift():
    dispatches, found = Dispatches(), counts(w1=90)
    before = look(dispatches, found, clock=0.0)

    assert look(dispatches, found, clock=0.001) is before


def test_nothing_is_told_of_a_queue_where_nobody_waits_any_more():
    dispatches, found = Dispatches(), counts(w1=90)
    look(dispatches, found)
    found.remove(("team", "w1"))

    assert look(dispatches, found) == {}
