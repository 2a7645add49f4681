"""What a picture is drawn from."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.simulate import plot
from webhook.simulate.results import JobResult, LostRun, Result

SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=30)


def job(name, start, finish, queue="gpu"):
    return JobResult(
        name=name,
        template="work",
        arrival=0.0,
        submitted="gpu",
        queue=queue,
        start=start,
        finish=finish,
    )


@given(SPANS)
def test_no_two_jobs_share_a_line_at_one_time_and_no_line_is_left_empty(spans):
    jobs = [job(str(n), float(start), float(start + run)) for n, (start, run) in enumerate(spans)]

    found = plot.lanes(jobs)

    most = max((sum(s <= t < s + r for s, r in spans) for t, _ in spans), default=0)
    assert {lane for lane, _ in found} == set(range(most))
    for lane, one in found:
        for other_lane, other in found:
            if one is not other and lane == other_lane:
                assert one.finish <= other.start or other.finish <= one.start


@pytest.mark.parametrize(
    ("makespan", "labels", "unit"),
    [
        (0.0, ["0"], "seconds"),
        (17.0, ["0", "2", "4", "6", "8", "10", "12", "14", "16"], "seconds"),
        (181.0, ["0", "1", "2", "3"], "minutes"),
        (61_900.0, ["0", "2", "4", "6", "8", "10", "12", "14", "16"], "hours"),
        (33 * 86_400.0, ["0", "5", "10", "15", "20", "25", "30"], "days"),
    ],
)
def test_an_axis_has_a_few_round_times(makespan, labels, unit):
    ticks, found = plot.ticks_of(makespan)

    assert [label for _, label in ticks] == labels
    assert found == unit


def test_a_run_that_a_preemption_ended_is_drawn_paler_where_it_was(tmp_path):
    moved = replace(job("a", 5.0, 9.0, "cpu"), lost=(LostRun("gpu", 1.0, 4.0),))
    pictures = []
    for number, one in enumerate((moved, replace(moved, lost=()))):
        path = tmp_path / f"{number}.svg"
        plot.draw([Result(strategy="static", jobs=(one,))], str(path), title="x")
        pictures.append(path.read_text().count("opacity: 0.4"))

    assert pictures == [1, 0]


def test_each_cluster_behind_a_queue_has_a_place_of_its_own():
    jobs = [
        replace(job("1", 0.0, 1.0), cluster="b"),
        replace(job("2", 0.0, 1.0), cluster="a"),
        job("3", 0.0, 1.0, queue="cpu"),
    ]

    found = plot.queues([Result(strategy="static", jobs=tuple(jobs))])

    assert found == [("gpu", "a"), ("gpu", "b"), ("cpu", "")]


def test_warm_colours_mean_moved_whatever_else_is_drawn():
    stayed, moved = job("a", 0.0, 1.0), job("b", 0.0, 1.0, queue="cpu")
    other = replace(stayed, template="other")

    one = plot.colours_of([moved, stayed])
    both = plot.colours_of([stayed, other, moved])

    assert one == {"work": plot.STAYED_COLOURS[0], "work, ": plot.MOVED_COLOURS[0]}
    assert both == {
        "other": plot.STAYED_COLOURS[0],
        "work": plot.STAYED_COLOURS[1],
        "work, ": plot.MOVED_COLOURS[0],
    }
    assert not set(plot.STAYED_COLOURS) & {*plot.MOVED_COLOURS, plot.WAITING_COLOUR}
