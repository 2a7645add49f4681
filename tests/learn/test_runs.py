import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.learn.runs import ended
from webhook.learn.run_records import (
    MOST_RUNS,
    ClassRecord,
    Run,
    merged,
    pack_runs,
    unpack_outcomes,
    unpack_runs,
)

ENDED = st.builds(
    ended,
    st.just("k"),
    st.integers(0, 60),
    uid=st.integers(0, 3),
    seconds=st.integers(0, 5),
    succeeded=st.booleans(),
    coarse=st.sampled_from(["~c", "~d"]),
    name=st.sampled_from(["trainer", "trainer fast"]),
    flavors=st.sampled_from(["t4", "plain", "plain,t4"]),
    policy=st.sampled_from(["", "light"]),
    option=st.sampled_from(["gpu", "cpu"]),
    generation=st.integers(1, 2),
)
RECORDS = st.lists(ENDED, max_size=80)


def record_of(runs):
    found = ClassRecord()
    for run in runs:
        found = merged(found, run.record())
    return found


@given(RECORDS, RECORDS)
def test_records_merge_to_what_all_their_runs_make(one, other):
    whole = record_of([*one, *other])

    assert merged(record_of(one), record_of(other)) == whole
    assert merged(record_of(other), record_of(one)) == whole


def test_the_newest_runs_are_kept():
    found = record_of([ended("k", second) for second in range(100)])

    kept = unpack_runs(found.runs["t4"])
    assert len(kept) == MOST_RUNS
    assert (kept[0].finished, kept[-1].finished) == (60, 99)


def test_failed_runs_are_kept_apart():
    found = record_of([ended("k", 1), ended("k", 2, succeeded=False, policy="light", option="cpu")])

    assert unpack_runs(found.runs["t4"]) == (Run(1, 1, 60),)
    assert unpack_runs(found.failed["t4"]) == (Run(2, 1, 60),)
    assert found.last == 2


def test_of_outcomes_three_failures_and_the_newest_success_are_kept():
    where = {"policy": "light", "option": "cpu", "generation": 4}
    found = record_of(
        [
            *(ended("k", second, succeeded=False, **where) for second in (1, 2, 3, 4, 5)),
            *(ended("k", second, **where) for second in (1, 2)),
        ]
    )

    assert unpack_outcomes(found.outcomes["light", "cpu"]) == (
        Run(2, 1, generation=4),
        Run(3, 1, generation=4, succeeded=False),
        Run(4, 1, generation=4, succeeded=False),
        Run(5, 1, generation=4, succeeded=False),
    )


def test_of_many_flavors_the_newest_are_kept():
    found = record_of([ended("k", second, flavors=f"f{second}") for second in range(20)])

    assert sorted(found.runs) == sorted(f"f{second}" for second in range(12, 20))


def test_what_was_cut_off_is_refused():
    packed = pack_runs([Run(1, 2, 3)])

    with pytest.raises(ValueError, match="expected a multiple of 10 bytes, got 9"):
        unpack_runs(packed[:-1])
