"""How long runs took to begin, over all classes."""

import pytest

from tests.learn.runs import begun
from webhook.learn import estimates
from webhook.learn.estimates import OF_ALL, RunTimeLearner
from webhook.learn.run_records import MOST_BEGUN, Run, unpack_runs


def learned_from(*runs, most=10_000):
    found = RunTimeLearner(most)
    for run in runs:
        found.begin(run)
    return found


def test_pods_are_ready_as_late_as_they_were_in_any_class():
    found = learned_from(
        *(begun("k", ready=110, uid=uid) for uid in range(3)),
        begun("other", ready=110, uid=9),
        begun("other", ready=105, flavors="plain"),
    ).delays.starts(None)

    assert {place: (each.seconds, each.runs) for place, each in found.items()} == {
        ("k", "t4"): (pytest.approx(10), 3),
        ("other", "t4"): (pytest.approx(10), 1),
        ("other", "plain"): (pytest.approx(5), 1),
        (OF_ALL, "t4"): (pytest.approx(10), 4),
        (OF_ALL, "plain"): (pytest.approx(5), 1),
    }


def test_what_did_not_change_stays_the_same_object():
    runs = learned_from(begun("k", ready=110))
    before = runs.delays.starts(None)
    runs.begin(begun(ready=110))

    assert runs.delays.starts(None) is before


def test_one_that_is_not_ready_yet_tells_nothing_of_starts():
    runs = learned_from(begun("k", reserved=90))

    assert runs.delays.starts(None) == {}
    assert unpack_runs(runs.delays.dispatches["gpu-cq"]) == (Run(100, 1, 10),)


def test_the_newest_dispatches_of_all_classes_are_kept():
    runs = learned_from(
        *(begun(f"k{at % 7}", reserved=at, admitted=at + 5) for at in range(1, 2 * MOST_BEGUN))
    )

    kept = unpack_runs(runs.delays.dispatches["gpu-cq"])

    assert [run.finished for run in kept] == list(range(MOST_BEGUN + 5, 2 * MOST_BEGUN + 5))
    assert runs.delays.take_dispatched() == {"gpu-cq"}
    assert runs.delays.take_dispatched() == frozenset()


def test_classes_that_are_forgotten_leave_what_they_told_of_the_place():
    runs = learned_from(
        *(begun(f"k{at}", ready=at + 10, admitted=at) for at in range(1, 102)), most=100
    )

    found = runs.delays.starts(None)

    assert {key for key, _ in found} == {OF_ALL, *(f"k{at}" for at in range(7, 102))}
    assert found[OF_ALL, "t4"].runs == MOST_BEGUN


def test_places_are_bounded(monkeypatch):
    monkeypatch.setattr(estimates, "MOST_PLACES", 2)

    runs = learned_from(
        *(begun(f"k{at}", reserved=90, cluster_queue=f"cq-{at}") for at in range(4))
    )

    assert list(runs.delays.dispatches) == ["cq-2", "cq-3"]
