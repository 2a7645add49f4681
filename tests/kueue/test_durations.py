from __future__ import annotations

import pytest

from webhook.kueue.durations import Durations, remaining
from webhook.model.forecasts import Basis, RunTime


def run_time(seconds=100.0, *, factor=1.0, runs=0, basis=Basis.POLICY):
    return RunTime(
        seconds=seconds, low=seconds / factor, high=seconds * factor, runs=runs, basis=basis
    )


def test_a_run_time_that_is_exact_leaves_what_has_not_passed():
    assert remaining(run_time()) == (100.0, 0.0)
    assert remaining(run_time(), 30.0) == (70.0, 0.0)


@pytest.mark.parametrize("factor", [1.0, 1.3, 4.0])
@pytest.mark.parametrize("elapsed", [100.0, 200.0, 10_000.0, 1e9])
def test_a_run_that_takes_longer_than_expected_is_never_expected_to_end_at_once(factor, elapsed):
    seconds, spread = remaining(run_time(factor=factor), elapsed)

    assert seconds >= 0.05 * elapsed
    assert spread > 0.0


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_an_overdue_run_is_expected_to_take_as_long_again(factor):
    run = run_time(factor=factor)

    assert remaining(run, 201.0 * factor)[0] == 201.0 * factor
    assert remaining(run, 199.0 * factor)[0] < 150.0 * factor


def test_no_more_is_left_of_a_run_before_it_is_overdue_than_after():
    run = run_time(factor=100.0)

    (before, _), (after, _) = remaining(run, 19_999.0), remaining(run, 20_001.0)

    assert 20_001.0 < before < after


def test_a_run_of_which_nothing_is_expected_may_end_at_any_moment():
    assert remaining(run_time(0.0), 3_600.0)[0] == 180.0


def test_what_is_left_after_a_part_is_more_than_the_rest_where_the_run_time_is_not_sure():
    sure, unsure = remaining(run_time(factor=1.01), 90.0), remaining(run_time(factor=3.0), 90.0)

    assert sure[0] == pytest.approx(10.0, abs=0.1)
    assert unsure[0] > 40.0


def test_the_middle_of_many_runs_lies_below_their_mean():
    few = run_time(factor=2.0, runs=9, basis=Basis.LEARNED)
    many = run_time(factor=2.0, runs=10, basis=Basis.LEARNED)

    assert remaining(few)[0] == pytest.approx(100.0)
    assert remaining(many)[0] == pytest.approx(115.75, abs=0.01)


def test_an_unknown_run_time_goes_by_the_known_ones_of_its_queue_with_a_wide_range():
    known = {"a": run_time(10.0), "b": run_time(30.0), "c": run_time(50.0)}
    durations = Durations(lambda name, _: known.get(name), 600.0)
    for name in ("a", "b", "c", "new"):
        durations.learn("gpu-cq", name, "t4")
    durations.learn("cpu-cq", "new", "any")

    in_gpu, in_cpu = (durations.whole(name, "new", "t4") for name in ("gpu-cq", "cpu-cq"))

    assert (round(in_gpu[0]), round(in_cpu[0])) == (30, 600)
    assert in_gpu[1] > 30.0
    assert durations.unknown == {"gpu-cq", "cpu-cq"}


def test_what_some_say_of_their_own_runs_is_no_guess_for_others():
    stated = RunTime(
        seconds=10.0, low=10.0, high=10.0, basis=Basis.ANNOTATION, known_in=frozenset({"team"})
    )
    durations = Durations(lambda name, _: {"said": stated}.get(name), 600.0)

    known = [durations.learn("gpu-cq", name, "t4") for name in ("said", "new")]

    assert known == [False, False]
    assert round(durations.whole("gpu-cq", "said", "t4")[0]) == 10
    assert round(durations.whole("gpu-cq", "new", "t4")[0]) == 600
    assert durations.known_in("gpu-cq", "said", ("t4",)) == {"team"}
    assert durations.known_in("gpu-cq", "new", ("t4",)) == set()
    # Who comes with such a run time changes what is not known to all.
    assert not Durations(lambda *_: stated, 600.0).is_settled("gpu-cq", "said", "t4")


@pytest.mark.parametrize(
    ("runs", "basis", "seconds"),
    [
        (8, Basis.LEARNED, (8 * 100.0 + 2 * 4 * 600.0) / 12),
        (0, Basis.POLICY, (100.0 + 2 * 4 * 600.0) / 5),
        (0, None, (600.0 + 2 * 4 * 4801.0) / 5),
    ],
    ids=["learned", "stated", "not known"],
)
def test_an_overdue_run_is_one_more_of_its_class_that_takes_twice_as_long_as_it_has(
    runs, basis, seconds
):
    known = run_time(runs=runs, basis=basis) if basis is not None else None
    durations = Durations(lambda name, _: known if name == "long" else None, 600.0)
    durations.learn("gpu-cq", "long", "t4")
    elapsed = 600.0 if known else 4801.0

    durations.observe("gpu-cq", "long", "t4", elapsed=elapsed, count=4)
    durations.observe("gpu-cq", "long", "t4", elapsed=190.0, count=4)

    assert durations.whole("gpu-cq", "long", "t4")[0] == pytest.approx(seconds)
    assert durations.whole("gpu-cq", "long", "l40s")[0] == (100.0 if known else 600.0)
    assert durations.left("gpu-cq", "long", "t4", elapsed=10.0)[0] == pytest.approx(
        90.0 if known else 590.3, abs=0.1
    )
