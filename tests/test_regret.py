"""Who is sent away that would have been done sooner had it stayed; see ``tests.regret``."""

import pytest

from tests.regret import WORLDS, played

SEEDS = range(1, 6)
JOBS = 200
RIGHT_BEFORE = 120
"""Right departures in the plain world when newcomers stood last and middles decided."""


def departures(name):
    """Every group of Jobs in a world to its departures and to those of them that are wrong."""
    found = {}
    for seed in SEEDS:
        for case in played(WORLDS[name], seed, JOBS):
            leaves, wrong = found.get(case.group, (0, 0))
            found[case.group] = leaves + case.leaves, wrong + case.is_wrong
    return found


@pytest.mark.parametrize("name", [name for name in WORLDS if name != "one priority"])
def test_of_those_sent_away_at_most_one_in_twenty_would_have_been_done_sooner(name):
    found = departures(name)

    assert sum(leaves for leaves, _ in found.values()) > 0
    # One of few is no rate: where fewer than twenty leave, one may be wrong.
    too_many = {
        group: (leaves, wrong)
        for group, (leaves, wrong) in found.items()
        if wrong > max(0.05 * leaves, 1)
    }
    assert too_many == {}


def test_in_the_plain_world_most_right_departures_are_kept():
    leaves, wrong = departures("one priority")["a 0"]

    assert wrong <= 0.05 * leaves
    assert leaves - wrong >= 0.8 * RIGHT_BEFORE
