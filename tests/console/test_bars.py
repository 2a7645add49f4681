import pytest

from tests.console import views
from webhook.console.page import BarPart, bar


@pytest.mark.parametrize(
    ("values", "parts", "sentence"),
    [
        (
            {"nominal": 8, "reserved": 6},
            [("own", 0, 75), ("free", 75, 25)],
            "6 of 8 reserved, nothing borrowed; for a newcomer 2 free",
        ),
        (
            {"nominal": 8, "reserved": 10, "available": 6},
            [("own", 0, 50), ("borrowed", 50, 12.5), ("free", 62.5, 37.5)],
            "8 of 8 reserved, 2 borrowed; for a newcomer 6 free, 6 by borrowing",
        ),
        (
            # The rest of the quota is lent to others.
            {"nominal": 8, "reserved": 2, "available": 2},
            [("own", 0, 25), ("free", 25, 25)],
            "2 of 8 reserved, nothing borrowed; for a newcomer 2 free",
        ),
        (
            # Lowered below what was reserved.
            {"nominal": 0, "reserved": 0, "available": -3},
            [],
            "0 of 0 reserved, nothing borrowed; for a newcomer 0 free",
        ),
    ],
)
def test_a_bar_shows_what_is_reserved_borrowed_and_free(values, parts, sentence):
    drawn = bar(views.cell(**values))

    assert drawn.parts == tuple(BarPart(kind=kind, x=x, width=width) for kind, x, width in parts)
    assert drawn.sentence == sentence


def test_amounts_are_in_the_units_of_the_resource():
    drawn = bar(views.cell(resource="cpu", nominal=64_000, reserved=500))

    assert (drawn.used, drawn.free) == ("0.5 of 64", "63.5 free")
