"""Who starts when, as a picture: a row for each Job, from now to the last start."""

from math import inf

from tests.console import views
from tests.console.waiting import LINE, waiting
from webhook.console import page
from webhook.console.page_filters import Filters
from webhook.console.starts_picture import MOST_ROWS, starts_picture


def rendered(line, **filters):
    view = views.view(waiting=line, decisions=(views.decision(),))
    return page.render(view, "nonce", Filters(**filters))


def test_nobody_who_waits_is_no_picture():
    assert starts_picture(()) is None
    assert "No Job is pending." in rendered(())
    assert "Not known yet." in rendered(None)


def test_a_row_has_its_start_and_its_range_on_one_axis():
    found = starts_picture((waiting("a", seconds=60.0), waiting("b", seconds=160.0, position=2)))

    first, second = found.rows
    # The axis ends a quarter behind the last start, at 200 s.
    assert (first.at, first.low, first.width) == (30.0, 15.0, 30.0)
    assert (second.at, second.low, second.width) == (80.0, 40.0, 60.0)
    assert second.place == "2 of 3"
    assert [x for x, _ in found.ticks] == [0.0, 25.0, 50.0, 75.0, 100.0]
    assert found.ticks[0][1] == "now"


def test_one_that_never_starts_has_a_row_without_a_mark():
    (row,) = starts_picture((waiting("never", seconds=inf),)).rows

    assert (row.at, row.starts) == (None, "not foreseen")
    assert row.sentence == "starts not foreseen; there is never room for it as things are"


def test_of_many_the_first_are_shown_and_the_others_counted():
    many = tuple(waiting(f"j{n}", seconds=float(n)) for n in range(MOST_ROWS + 4))

    found = starts_picture(many)

    assert (len(found.rows), found.hidden) == (MOST_ROWS, "4 more Jobs")


def test_filters_hold_for_who_waits_too():
    assert "theirs" not in rendered(LINE, namespace="team")
    assert "</span>next" not in rendered(LINE, kind="RayJob")
    assert "rayjob/tune" in rendered(LINE, queue="cpu-cq")
    assert "No Job is pending that the filters match." in rendered(LINE, policy="nobody")


def test_a_guess_is_drawn_hollow():
    assert rendered((waiting("a", unseen=3),)).count("start guess") == 1
