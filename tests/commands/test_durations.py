"""One way to write a duration, whichever command asks for it."""

import click
import pytest

from webhook.commands.kubectl import Duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0),
        ("250ms", 0.25),
        ("90m", 5400),
        ("1.5h", 5400),
        ("1h30m", 5400),
        ("1d", 86_400),
        ("2d12h", 216_000),
    ],
)
def test_a_duration_is_that_of_policies_with_days_before_it(text, seconds):
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "soon", "10", "d", "1h2d", "1.5d", "1d ", "-1h"])
def test_all_else_is_refused(text):
    with pytest.raises(click.BadParameter, match="expected a duration such as"):
        Duration().convert(text, None, None)
