"""Who starts when, as a picture: a row for each Job, from now to the last start."""

from tests.console.waiting import waiting
from webhook.console.starts_picture import starts_picture


def test_a_row_has_its_start_and_its_range_on_one_axis():
    found = starts_picture((waiting("a", seconds=60.0), waiting("b", seconds=160.0, position=2)))

    first, second = found.rows
    # The axis ends a quarter behind the last start, at 200 s.
    assert (first.at, first.low, first.width) == (30.0, 15.0, 30.0)
    assert (second.at, second.low, second.width) == (80.0, 40.0, 60.0)
    assert second.place == "2 of 3"
    assert [x for x, _ in found.ticks] == [0.0, 25.0, 50.0, 75.0, 100.0]
    assert found.ticks[0][1] == "now"
