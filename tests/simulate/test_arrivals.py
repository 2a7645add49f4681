"""Generated arrivals: for any of them the same holds."""

import statistics
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulate import files
from webhook.simulate.arrivals import generate, per_second
from webhook.simulate.scenario import Submission
from webhook.simulate.scenario_spec import ArrivalsSpec

DURATIONS = st.integers(0, 5000).map(lambda n: f"{n}ms")
JOBS = st.one_of(
    st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4),
    st.dictionaries(st.sampled_from(["a", "b"]), st.floats(0.1, 10), min_size=1),
)
EVERY = st.fixed_dictionaries(
    {"interval": DURATIONS, "count": st.integers(1, 50), "jobs": JOBS, "start": DURATIONS}
).map(lambda spec: {"every": spec})
BURST = st.fixed_dictionaries({"gap": DURATIONS, "count": st.integers(1, 50), "jobs": JOBS}).map(
    lambda spec: {"burst": spec}
)
POISSON = st.fixed_dictionaries(
    {
        "rate": st.integers(0, 200).map(lambda n: f"{n}/m"),
        "duration": DURATIONS,
        "jobs": JOBS,
        "start": DURATIONS,
    }
).map(lambda spec: {"poisson": spec})
ENTRIES = st.one_of(EVERY, BURST, POISSON)


def comings(source, seed=0):
    return list(generate(ArrivalsSpec.model_validate(source), Random(seed)))


@given(ENTRIES, st.integers())
def test_they_ascend_and_are_the_same_for_a_seed(source, seed):
    found = comings(source, seed)

    assert found == sorted(found, key=lambda each: each.at)
    assert found == comings(source, seed)


@given(st.one_of(EVERY, BURST), st.integers())
def test_there_are_as_many_as_asked_for(source, seed):
    (spec,) = source.values()

    assert len(comings(source, seed)) == spec["count"]


@given(POISSON, st.integers())
def test_random_ones_stay_within_their_time(source, seed):
    start, duration = (float(source["poisson"][key][:-2]) / 1000 for key in ("start", "duration"))

    assert all(start < each.at < start + duration for each in comings(source, seed))


def test_random_ones_come_as_often_as_asked_for():
    source = {"poisson": {"rate": "120/h", "duration": "100h", "jobs": ["a"]}}

    counts = [len(comings(source, seed)) for seed in range(10)]

    assert statistics.mean(counts) == pytest.approx(12_000, rel=0.02)


def test_a_list_is_taken_in_turn_and_a_map_by_weight():
    in_turn = comings({"burst": {"count": 5, "jobs": ["a", "b"]}})
    by_weight = comings({"burst": {"count": 1000, "jobs": {"a": 3, "b": 1}}})

    assert [each.template for each in in_turn] == ["a", "b", "a", "b", "a"]
    assert [each.template for each in by_weight].count("a") == pytest.approx(750, abs=60)


def test_one_that_is_written_out_may_say_how_long_it_runs():
    source = {"at": "1m30s", "job": "a", "runTime": "20s"}

    assert comings(source) == [Submission(at=90.0, template="a", given_seconds=20.0)]


@pytest.mark.parametrize(("rate", "value"), [("0.5/s", 0.5), ("30/m", 0.5), ("1800/h", 0.5)])
def test_a_rate_is_read_in_jobs_a_second(rate, value):
    assert per_second(rate) == value


def test_a_change_to_one_entry_leaves_the_others_as_they_were():
    drawn = {"poisson": {"rate": "1/s", "duration": "60s", "jobs": ["work"]}}
    alone = files.read(files.changed(["arrivals"], [drawn]))
    burst = {"burst": {"start": "100s", "count": 9, "jobs": ["work"]}}
    both = files.read(files.changed(["arrivals"], [drawn, burst]))

    assert both.submissions[: len(alone.submissions)] == alone.submissions
