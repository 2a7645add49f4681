import pytest

from webhook.decide.wishes import NONE, Wishes, read_wishes
from webhook.model.fields import FieldError

CREATED = 1795240800.0
"""2026-11-21T06:00:00Z"""


def read(**annotations):
    found = {f"kueue-fallback.dev/{name.replace('_', '-')}": v for name, v in annotations.items()}
    return read_wishes(found, CREATED)


def test_a_job_that_says_nothing_wishes_nothing():
    assert read() == read_wishes({"example.com/deadline": "soon"}, CREATED) == NONE


def test_wishes_are_read_in_seconds():
    found = read(max_slowdown="3", deadline="45m", max_wait="10m", run_time="1h30m")

    assert found == Wishes(max_slowdown=3.0, deadline=2700.0, max_wait=600.0, run_time=5400.0)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("2026-11-21T06:00:40Z", 40.0),
        ("2026-11-21T08:00:00+02:00", 0.0),
        ("2026-11-21T05:59:00Z", -60.0),
        ("2026-11-21T06:01:00", 60.0),
        ("90s", 90.0),
    ],
)
def test_a_deadline_is_a_moment_or_a_time_from_the_creation_on(written, seconds):
    assert read(deadline=written).deadline == seconds


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("max-slowdown", "fast", 'a number of at least 1 such as "3"'),
        ("max-slowdown", "0.5", 'a number of at least 1 such as "3"'),
        ("max-slowdown", "nan", 'a number of at least 1 such as "3"'),
        ("max-slowdown", "inf", 'a number of at least 1 such as "3"'),
        ("deadline", "tomorrow", "a time such as 2026-12-01T08:00:00Z, or a duration such as 45m"),
        ("max-wait", "10", "a duration such as 90s or 1h30m"),
        ("run-time", "", "a duration such as 90s or 1h30m"),
        ("run-time", "0s", "a duration above 0"),
        ("run-time", "1h" * 17, "a duration such as 90s or 1h30m"),
    ],
)
def test_what_cannot_be_read_is_named_with_what_was_expected(name, value, expected):
    with pytest.raises(FieldError) as caught:
        read(**{name: value})

    path = f"metadata.annotations[kueue-fallback.dev/{name}]"
    assert str(caught.value) == f"{path}: expected {expected}, got {value!r}"
