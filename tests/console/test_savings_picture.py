"""Savings over time, and who gained and lost: whole steps, one scale, the extremes of many."""

from tests.console.worlds import UNIX, hour
from webhook.console.savings_picture import (
    SAVED_HEIGHT,
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
