"""When newcomers start by the log of a simulation without them, against one in which they wait."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import arrival
from tests.conftest import FULL
from tests.kueue.newcomers import (
    NEWEST,
    PRIORITIES,
    OneQueue,
    PreemptingWorld,
    SettledWorld,
    World,
    WorldOfSizes,
    run_time_of,
)
from webhook.kueue.forecast import forecast
from webhook.kueue.queue_lines import pending_group
from webhook.kueue.tree_forecast import start_of
from webhook.kueue.tree_workloads import ExpectedArrivals
from webhook.state.forecast_input import forecast_givens

NEAR = {"rel": 0.25, "abs": 5.0}
FEWER = {number: number if FULL else max(1, number // 3) for number in (3, 8, 40, 60)}
"""How many of so many worlds there is time for."""


def played(world_of, seeds):
    """Map seeds to when newcomers start in their worlds, as they are told and in truth."""
    return {seed: world_of(seed).told_and_true() for seed in seeds}


def told_wrong(found, **near):
    return {
        seed: (told.seconds, true)
        for seed, (told, true) in found.items()
        if told.seconds != pytest.approx(true, **near or NEAR)
    }


def again(world, seeds):
    return f"told and true by seed: {seeds}; one again: {world}.told_and_true()"


@given(st.integers(0, 10**9))
def test_by_use_a_newcomer_starts_as_if_it_had_waited_with_the_others(seed):
    told, true = OneQueue(seed).told_and_true()

    assert told.is_known
    assert told.seconds == pytest.approx(true)


@given(st.integers(0, 10**9), st.booleans())
def test_of_equals_a_newcomer_starts_as_if_it_had_waited_with_the_others(seed, is_fair):
    told, true = World(seed, fair_sharing=is_fair).told_and_true()

    assert told.is_known
    assert told.seconds == pytest.approx(true)


@given(st.integers(0, 10**9))
def test_of_any_size_a_newcomer_starts_about_when_it_would_have_with_the_others(seed):
    told, true = WorldOfSizes(seed).told_and_true()

    assert told.is_known
    # What is kept for it while it waits may change who of the others comes first.
    assert told.seconds == pytest.approx(true, **NEAR)


def test_of_any_size_nearly_all_newcomers_start_as_if_they_had_waited_with_the_others():
    found = played(WorldOfSizes, range(100))

    wrong = told_wrong(found, rel=1e-6)
    assert len(wrong) <= 0.02 * len(found), again("WorldOfSizes(seed)", wrong)


@pytest.mark.parametrize("pending", [170, 400])
def test_among_hundreds_a_newcomer_starts_as_if_it_had_waited_with_the_others(pending):
    found = played(lambda seed: WorldOfSizes(seed, at_least=pending), range(FEWER[8]))

    wrong = told_wrong(found, rel=1e-6)
    assert not wrong, again(f"WorldOfSizes(seed, at_least={pending})", wrong)


def test_who_comes_after_all_have_started_overtakes_none_of_hundreds():
    world = WorldOfSizes(0, at_least=100)
    given = forecast_givens(world.snapshot, run_time_of, 0.0), world.running, world.pending
    alone = forecast(*given)
    last = max(of.waits(name, 0.0) for name, of in alone.items())
    alike = world.waiting(NEWEST, world.names[0])
    asked = replace(arrival("team", local_queue="other-lq"), needs=alike.needs)
    one = ExpectedArrivals(
        cluster_queue=world.names[0],
        priority=0,
        per_second=1.0 / last,
        seconds=1.5 * last,
        kinds=(pending_group(asked, job_class="60"),),
    )

    coming = forecast(*given, expected=[one])

    def starts(forecasts):
        found = (
            start_of(
                forecasts[name],
                world.newcomer(replace(alike, priority=priority), name),
            ).start.seconds
            for name in world.names
            for priority in PRIORITIES
        )
        return [seconds for seconds in found if seconds < last]

    assert len(starts(alone)) > 3
    assert any(of.later is not None for of in coming.values())
    assert starts(coming) == starts(alone)


def test_where_many_wait_most_newcomers_are_told_when_they_start():
    # The worlds are always the same, as of newcomers among many some are told a wrong time.
    found = played(PreemptingWorld, range(FEWER[60]))

    wrong = told_wrong(found)
    assert len(wrong) <= 0.05 * len(found), again("PreemptingWorld(seed)", wrong)


@pytest.mark.parametrize("is_fair", [False, True])
def test_where_workloads_preempt_newcomers_are_told_when_they_start_and_that_they_preempt(is_fair):
    # In some of these, those of lower priority are within their quota, and nobody preempts them.
    seeds = range(14, 14 + FEWER[40])
    found = played(lambda seed: SettledWorld(seed, fair_sharing=is_fair), seeds)

    at_once = {
        seed: true
        for seed, (told, true) in found.items()
        if told.preempts and not told.preempts_later
    }
    wrong = told_wrong(found)
    world = f"SettledWorld(seed, fair_sharing={is_fair})"
    assert len(at_once) >= FEWER[3]
    assert max(at_once.values()) <= 3.0, again(world, at_once)
    assert len(wrong) <= 0.05 * len(found), again(world, wrong)
