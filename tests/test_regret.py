"""Who is sent away that would have been done sooner had it stayed; see ``tests.regret``."""

import shlex

import pytest

from tests.conftest import FULL
from tests.regret import WORLDS, played

SEEDS = range(1, 11 if FULL else 4)
JOBS = 200
RIGHT = 95
"""Right departures in the plain world, with seeds 1 to 3; fewer are no gain of those that stay."""
FEWEST = 20
"""Departures of a group of which a rate can be told."""


def departures(name):
    """Every group of Jobs in a world to its departures and to those of them that are wrong."""
    found = {}
    for seed in SEEDS:
        for case in played(WORLDS[name], seed, JOBS):
            leaves, wrong = found.get(case.group, (0, 0))
            found[case.group] = leaves + case.leaves, wrong + case.is_wrong
    return found


@pytest.mark.parametrize("name", WORLDS)
def test_of_those_sent_away_at_most_one_in_twenty_would_have_been_done_sooner(name, request):
    found = departures(name)

    # Of few Jobs there is no rate of their own: they count with all others of their world.
    found["all"] = tuple(map(sum, zip(*found.values(), strict=True)))
    judged = {group: of for group, of in found.items() if of[0] >= FEWEST}
    assert "all" in judged
    wrong = {group: of for group, of in judged.items() if of[1] > 0.05 * of[0]}
    again = f"{'FULL=1 ' if FULL else ''}pytest {shlex.quote(request.node.nodeid)}"
    assert wrong == {}, f"seeds {[*SEEDS]}; again: {again}"
    if name == "one priority":
        assert found["all"][0] - found["all"][1] >= 0.8 * RIGHT
