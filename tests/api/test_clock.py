"""A clock that differs from the API server's is told, and one that is a little slow is not."""

from email.utils import formatdate

import pytest

from webhook.api.clock import ClockOffset

NOW = 1_796_000_000.0
AHEAD = (
    "this machine's clock is 1h ahead of the API server's, so waits, starts and deadlines are told"
    " wrong by that"
)


@pytest.mark.parametrize(
    ("date", "sent", "received", "expected"),
    [
        (formatdate(NOW, usegmt=True), NOW, NOW + 0.1, 0.0),
        (formatdate(NOW, usegmt=True), NOW + 0.9, NOW + 0.99, 0.0),
        (formatdate(NOW, usegmt=True), NOW - 5, NOW + 30, 0.0),
        (formatdate(NOW, usegmt=True), NOW + 3600, NOW + 3605, 3599.0),
        (formatdate(NOW, usegmt=True), NOW - 3605, NOW - 3600, -3600.0),
        ("no date", NOW, NOW, 0.0),
        (None, NOW, NOW, 0.0),
    ],
)
def test_the_offset_is_the_least_that_the_answers_date_allows(date, sent, received, expected):
    clock = ClockOffset()

    clock.note(date, sent=sent, received=received)

    assert clock.seconds == expected


def test_a_difference_is_news_once_and_so_is_its_end():
    clock = ClockOffset()
    told = [clock.news()]
    for ahead in (3601.0, 3601.0, 30.0):
        at = NOW + ahead
        clock.note(formatdate(NOW, usegmt=True), sent=at, received=at)
        told.append(clock.news())

    assert told == [(), (AHEAD,), (), ("the clock agrees with the API server's again",)]
