"""Agreement with Kueue over time: who starts, in which order, who is preempted, and when.

A disagreement prints its seed; ``AGREEMENT_WORLDS=17,40-45`` plays those worlds alone.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hack.controlplane import ControlPlane, Options
from tests.e2e.timed_judge import Judgement, judge
from tests.e2e.timed_player import Course, play
from tests.e2e.timed_worlds import FAIR_SHARING, USAGE_BASED, TimedWorld, make_world

pytestmark = pytest.mark.xdist_group("own-plane")

WORLDS = 25
"""About five minutes on two cores; `make verify` plays 200."""
AT_ONCE = 13
OPEN = frozenset({2, 22, 53, 69, 77, 110, 122})
"""Worlds in which our model was seen to differ without such a draw, and why is not known yet."""
TRIES = 3
"""How often a world is played that was disturbed: Kueue had not calmed down as it was asked."""


@pytest.mark.skipif(
    "AGREEMENT_WORLDS" not in os.environ,
    reason="worlds still differ (OPEN, and draws of a busy machine); `make verify` plays them",
)
@pytest.mark.timeout(14400)
@pytest.mark.parametrize("is_fair", [False, True], ids=["by priority", "by shares"])
def test_who_starts_and_who_is_preempted_is_what_kueue_does(tmp_path, is_fair):
    worlds = [world for world in map(make_world, seeds()) if world.is_fair == is_fair]

    found = [judge(course) for course in played(tmp_path, worlds, is_fair=is_fair)]

    wrong = [item for item in found if not item.agrees]
    drawn = [item for item in wrong if item.cause]
    events = sum(len(item.happened) for item in found)
    print(f"{len(found)} worlds, {events} events, {len(wrong)} differ, {len(drawn)} by a draw")
    for item in wrong:
        print(f"seed {item.course.world.seed} {item.cause}:\n{item.difference}")
    unexplained = {item.course.world.seed for item in wrong if not item.cause}
    assert sorted(unexplained - OPEN) == []
    # Where quota is shared by shares, starts of newcomers are said not to be known.
    if not is_fair:
        check_newcomers(found)


def played(folder: Path, worlds: list[TimedWorld], *, is_fair: bool) -> list[Course]:
    """Play worlds in a control plane of their own, some at a time."""
    config = {**USAGE_BASED, **(FAIR_SHARING if is_fair else {})}
    done: list[Course] = []
    with ControlPlane(folder / "plane", options=Options(kueue_config=config)) as plane:
        for _ in range(TRIES):
            disturbed = []
            for first in range(0, len(worlds), AT_ONCE):
                part = worlds[first : first + AT_ONCE]
                for course in play(plane.client, plane.processes.log("kueue"), part):
                    (disturbed if course.failure else done).append(course)
            worlds = [course.world for course in disturbed]
        assert [(course.world.seed, course.failure) for course in disturbed] == []
    return done


def check_newcomers(found: list[Judgement]) -> None:
    """Check what was said of newcomers: when they start, and whether they preempt."""
    known = [item.newcomer for item in found if item.newcomer.forecast.is_known]
    close = [one for one in known if one.error <= max(2.0, 0.1 * one.waited)]
    near = [one for one in known if one.error <= max(5.0, 0.25 * one.waited)]
    claims = [one for one in known if one.forecast.preempts]
    print(
        f"{len(known)} newcomers: {len(close)} within 2 s or 10 %, {len(near)} within 5 s or 25 %; "
        f"{len(claims)} are said to preempt, {sum(one.preempts > 0 for one in known)} do"
    )
    assert len(close) >= 0.5 * len(known)
    assert [one for one in claims if not one.preempts] == []


def seeds() -> list[int]:
    given = os.environ.get("AGREEMENT_WORLDS", f"1-{WORLDS}")
    found: list[int] = []
    for part in given.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
