import tracemalloc
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.learn.learners import RUNS, full_record, learned_from
from tests.learn.runs import begun, ended
from webhook.learn.estimates import RunTimeLearner
from webhook.learn.run_records import (
    ClassRecord,
    Run,
    pack_outcomes,
    pack_runs,
    unpack_runs,
)
from webhook.model.fields import EMPTY


def test_a_class_and_its_coarse_class_are_learned_by_flavors():
    found = learned_from([ended(seconds=70), ended("other", 1001, seconds=20), ended(flavors="p")])

    assert {place: each.runs for place, each in found.estimates().items()} == {
        ("k", "t4"): 1,
        ("k", "p"): 1,
        ("other", "t4"): 1,
        ("~c", "t4"): 2,
        ("~c", "p"): 1,
    }
    assert found.estimates()["k", "t4"].seconds == pytest.approx(70)


def test_what_did_not_change_stays_the_same_object():
    found = learned_from([ended(), ended("other", coarse="~d")])
    before = found.estimates()
    found.add(ended())
    same = found.estimates()
    found.add(ended(finished=2000))
    after = found.estimates()

    assert same is before
    assert after is not before
    assert after["other", "t4"] is before["other", "t4"]
    assert (before["k", "t4"].runs, after["k", "t4"].runs) == (1, 2)


def test_many_new_classes_are_learned_a_few_at_a_time():
    found = learned_from([ended(f"k{number}", coarse="~c") for number in range(5)])

    sizes = [len(found.estimates(at_once=4)) for _ in range(3)]

    assert sizes == [4, 6, 6]


def test_runs_on_one_flavor_tell_how_far_runs_on_another_spread():
    here = [ended(finished=1000 + n, flavors="p", seconds=70) for n in range(3)]
    there = [ended(finished=2000 + n, uid=n, seconds=20) for n in range(30)]
    found = learned_from(here)
    alone = found.estimates()["k", "p"]

    for run in there:
        found.add(run)

    known = found.estimates()["k", "p"]
    assert (known.seconds, known.runs) == (alone.seconds, alone.runs)
    assert known.high / known.low < 1.3
    assert alone.high / alone.low > 2


@given(RUNS.flatmap(lambda runs: st.tuples(st.just(runs), st.permutations(runs))))
def test_what_is_learned_does_not_depend_on_the_order_of_runs(both):
    runs, shuffled = both

    first, second = learned_from(runs), learned_from(shuffled)

    assert first.records == second.records
    assert first.estimates() == second.estimates()
    assert first.delays.starts(None) == second.delays.starts(None)
    assert first.delays.dispatches == second.delays.dispatches


@given(RUNS, RUNS)
def test_two_replicas_that_saw_different_runs_learn_the_same_from_one_another(one, other):
    mine, theirs = learned_from(one), learned_from(other)
    for key, record in theirs.records.items():
        mine.merge(key, record)

    whole = learned_from([*one, *other])
    assert mine.records == whole.records
    assert mine.estimates() == whole.estimates()
    assert mine.delays.starts(None) == whole.delays.starts(None)
    assert mine.delays.dispatches == whole.delays.dispatches


def test_changed_classes_are_listed_once():
    found = learned_from([ended(), ended("other")])

    assert found.take_changed() == {"k", "other"}
    found.add(ended())
    assert found.take_changed() == frozenset()


def test_beyond_the_bound_the_classes_that_ended_longest_ago_go():
    found = learned_from(
        [ended(f"k{number}", number, coarse=f"~{number % 60}") for number in range(1, 102)],
        most=100,
    )

    kept = {f"k{number}" for number in range(7, 102)}
    assert set(found.records) == kept
    assert {key for key, _ in found.estimates() if not key.startswith("~")} == kept
    # Classes 1 to 6 are gone, and so are the coarse classes that were theirs alone.
    assert {key for key, _ in found.estimates() if key.startswith("~")} == {
        f"~{number % 60}" for number in range(7, 102)
    }


def test_what_was_forgotten_is_not_taken_up_again():
    found = learned_from([ended(f"k{number}", number) for number in range(1, 102)], most=100)

    found.merge("k1", ended("k1", 1).record())
    found.merge("k102", ended("k102", 102).record())

    assert "k1" not in found.records
    assert "k102" in found.records


CLASSES = 800


@pytest.mark.parametrize(("is_said", "most"), [(False, 5e3), (True, 5.6e3)])
def test_each_class_costs_less_than_5_kb_and_a_little_more_with_what_owners_said(is_said, most):
    """So that 10,000 cost less than 50 MB; to trace all of them takes a minute."""
    tracemalloc.start()
    try:
        found = RunTimeLearner()
        for number in range(CLASSES):
            record = full_record(number)
            found.merge(f"{number:016x}", record if is_said else record._replace(said=EMPTY))
        estimates = found.estimates(at_once=None)
        starts = found.delays.starts(at_once=None)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (len(estimates), len(starts)) == (4 * CLASSES, 2 * CLASSES + 2)
    assert size < CLASSES * most


def test_a_run_in_a_worker_cluster_is_told_apart_and_counted_behind_the_manager():
    far = begun(cluster="far", ready=130, cluster_queue="")
    found = learned_from([ended(seconds=70, begun=far), ended(seconds=20, uid=2)])

    assert {place: each.runs for place, each in found.estimates().items()} == {
        ("k", "t4"): 2,
        ("k", "t4@far"): 1,
        ("~c", "t4"): 2,
        ("~c", "t4@far"): 1,
    }
    assert set(found.delays.starts(None)) == {
        (key, place) for key in ("k", "") for place in ("t4", "t4@far")
    }


def test_what_owners_said_of_a_few_runs_is_compared_with_these():
    said = [ended(finished=number, seconds=4 * number, said=number) for number in (9, 50, 700)]

    (run_time,) = (
        run_time for key, run_time in learned_from(said).estimates().items() if key == ("k", "t4")
    )

    assert run_time.of_said.middle == pytest.approx(log(4))
    assert run_time.of_said.sigma < 0.5
    assert run_time.of_said.runs == pytest.approx(3, abs=0.1)


def test_runs_of_which_nothing_was_said_or_that_failed_are_compared_with_nothing():
    runs = [ended(said=0), ended(finished=5, said=20, succeeded=False)]

    alone = learned_from(runs).estimates()["k", "t4"]
    far = learned_from([ended(said=20, cluster="far")]).estimates()["k", "t4@far"]

    assert alone.of_said is None
    assert far.of_said is not None


def test_of_the_newest_runs_alone_it_is_kept_what_was_said():
    record = learned_from([ended(finished=number, said=7) for number in range(30)]).records["k"]

    assert [run.finished for run in unpack_runs(record.said["t4"])] == list(range(24, 30))


def test_an_ended_workload_is_one_run_of_its_record():
    run = ended(finished=5, uid=6, seconds=7)

    assert run.record() == ClassRecord(
        coarse="~c",
        name="trainer",
        runs={"t4": pack_runs([Run(5, 6, 7)])},
        outcomes={("", ""): pack_outcomes([Run(5, 6)])},
    )
