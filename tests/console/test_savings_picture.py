"""Savings over time, and who gained and lost: whole steps, one scale, the extremes of many."""

from tests.console.worlds import UNIX, gains, hour
from webhook.console.savings_picture import (
    MOST_GAINERS,
    MOST_LOSERS,
    SAVED_HEIGHT,
    gain_rows,
    saved_over_time,
)

HOUR = 3600.0


def test_gains_stand_above_the_line_and_losses_below_on_one_scale():
    hours = (
        hour(0, gained_seconds=900.0, lost_seconds=0.0),
        hour(HOUR, gained_seconds=0.0, lost_seconds=300.0),
        hour(HOUR, "other", gained_seconds=300.0, lost_seconds=0.0),
    )

    found = saved_over_time(hours, UNIX)

    assert [(each.gained, each.lost) for each in found.columns] == [
        (SAVED_HEIGHT / 4, SAVED_HEIGHT / 4),
        (SAVED_HEIGHT * 3 / 4, 0.0),
    ]
    assert (found.base, found.step, found.peak) == (SAVED_HEIGHT * 3 / 4, "1h", "15m")
    assert found.sentence == "20m sooner, 5m later in 6h"
    assert found.columns[-1].sentence == "14:00: 15m sooner, 0s later"


def test_steps_are_longer_where_the_journal_goes_back_for_days():
    found = saved_over_time((hour(), hour(5 * 24 * HOUR)), UNIX)

    assert (found.step, len(found.columns)) == ("4h", 2)
    assert found.columns[0].x == 0.0


def test_where_something_was_carried_out_only_that_is_drawn():
    hoped = hour(is_enforced=False, gained_seconds=7200.0)

    both, alone = (saved_over_time(hours, UNIX) for hours in ((hour(), hoped), (hoped,)))

    assert (both.is_enforced, both.peak) == (True, "15m")
    assert (alone.is_enforced, alone.peak) == (False, "2h")
    assert saved_over_time((), UNIX) is None


def test_where_nothing_was_gained_the_line_is_empty():
    still = hour(gained_seconds=0.0, lost_seconds=0.0)

    assert saved_over_time((still,), UNIX).columns == ()


def test_who_gained_most_comes_first_and_who_lost_most_last():
    amounts = [100.0 * number for number in range(-5, 6)]
    found = gain_rows([gains(f"p{amount:.0f}", saved_seconds=amount) for amount in amounts])

    assert [row.policy for row in found.rows] == ["p500", "p400", "p300", "p-400", "p-500"]
    assert len(found.rows) == MOST_GAINERS + MOST_LOSERS
    assert (found.hidden, found.zero) == (6, 50.0)
    assert (found.rows[0].x, found.rows[0].width) == (50.0, 50.0)
    assert (found.rows[-1].x, found.rows[-1].width) == (0.0, 50.0)
    assert [row.is_lost for row in found.rows] == [False, False, False, True, True]


def test_where_nobody_lost_there_is_room_for_more_who_gained():
    found = gain_rows([gains(f"p{n}", saved_seconds=10.0 * n) for n in range(9)])

    assert [row.policy for row in found.rows] == ["p8", "p7", "p6", "p5", "p4"]
    assert found.zero == 0.0
