"""Who is sent away that would have been done sooner had it stayed; see ``tests.regret``."""

import pytest

from tests.conftest import FULL
from tests.regret import WORLDS, played

PLAIN_SEEDS = range(1, 6)
SEEDS = range(1, 11) if FULL else PLAIN_SEEDS
JOBS = 200
RIGHT_BEFORE = 120
"""Right departures in the plain world when newcomers stood last and middles decided,
with ``PLAIN_SEEDS``."""
FEWEST = 20
"""Departures of a group of which a rate can be told."""


def departures(name, seeds=SEEDS):
    """Every group of Jobs in a world to its departures and to those of them that are wrong."""
    found = {}
    for seed in seeds:
        for case in played(WORLDS[name], seed, JOBS):
            leaves, wrong = found.get(case.group, (0, 0))
            found[case.group] = leaves + case.leaves, wrong + case.is_wrong
    return found


@pytest.mark.parametrize("name", [name for name in WORLDS if name != "one priority"])
def test_of_those_sent_away_at_most_one_in_twenty_would_have_been_done_sooner(name):
    found = departures(name)

    # Of few Jobs there is no rate of their own: they count with all others of their world.
    found["all"] = tuple(map(sum, zip(*found.values(), strict=True)))
    judged = {group: of for group, of in found.items() if of[0] >= FEWEST}
    assert "all" in judged
    assert {group: of for group, of in judged.items() if of[1] > 0.05 * of[0]} == {}


def test_in_the_plain_world_most_right_departures_are_kept():
    leaves, wrong = departures("one priority", seeds=PLAIN_SEEDS)["a 0"]

    assert wrong <= 0.05 * leaves
    assert leaves - wrong >= 0.8 * RIGHT_BEFORE
