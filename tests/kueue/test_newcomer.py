"""How newcomers are looked up in a log: cut short, sent, far into it, and beside placements."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace

import pytest

from tests.builders import arrival, cluster_queue, needs, snapshot
from tests.kueue.newcomers import PRIORITIES, World, WorldOfSizes, run_time_of
from webhook.kueue import cycle_log, newcomer, tree_workloads
from webhook.kueue.cycle_log import CHECKPOINT
from webhook.kueue.flavor_plan import demand
from webhook.kueue.forecast import forecast, pending_starts
from webhook.kueue.newcomer import Newcomer, PlacedJob
from webhook.kueue.queue_lines import pending_group
from webhook.kueue.simulation import Running
from webhook.kueue.tree_forecast import StartTimes, start_of
from webhook.model.forecasts import SIGMAS_OF_A_SIDE, Basis, RunTime
from webhook.model.queues import Preemption, Queueing
from webhook.state.forecast_input import forecast_givens
from webhook.state.occupancy import beside
from webhook.state.snapshot import updated

GPU = "gpu"
CELL = ("t4", GPU)
LOWER = Preemption(within_cluster_queue="LowerPriority")


def forecasts_of(world):
    return forecast(forecast_givens(world.snapshot, run_time_of, 0.0), world.running, world.pending)


def all_starts(forecasts, world, *, at=0.0):
    """What newcomers of each priority and two sizes are told in each ClusterQueue."""
    return [
        start_of(
            forecasts[name],
            world.newcomer(
                arrival("new", {GPU: gpus}, priority=priority, local_queue=f"{name[:-3]}-lq"),
                name,
                now=at,
            ),
        )
        for name in world.names
        for priority in PRIORITIES
        for gpus in "12"
    ]


@pytest.mark.parametrize(
    "world",
    [World(3, fair_sharing=True), WorldOfSizes(4, at_least=100)],
    ids=["shares", "sizes"],
)
def test_a_log_that_was_sent_answers_as_it_did(world):
    found = forecasts_of(world)

    sent = pickle.loads(pickle.dumps(found))

    assert all_starts(sent, world) == all_starts(found, world)
    assert any(told.start.seconds > 0.0 for told in all_starts(sent, world))


def test_a_start_far_into_a_log_is_the_one_by_going_through_all_of_it(monkeypatch):
    world = WorldOfSizes(1, at_least=200)
    found = forecasts_of(world)
    entries = len(found[world.names[0]].log.times)
    by_checkpoints = [all_starts(found, world, at=at) for at in (0.0, 500.0, 900.0)]

    monkeypatch.setattr(newcomer, "CHECKPOINT", entries)

    assert entries > 3 * CHECKPOINT
    assert by_checkpoints == [all_starts(found, world, at=at) for at in (0.0, 500.0, 900.0)]


def test_after_the_part_of_a_log_with_each_cycle_starts_are_told_no_earlier(monkeypatch):
    world = WorldOfSizes(2, at_least=200)
    exact = forecasts_of(world)
    monkeypatch.setattr(cycle_log, "MOST_LOGGED", 1000)

    short = forecasts_of(world)

    name = world.names[0]
    log = short[name].log
    assert len(log.times) < len(exact[name].log.times)
    logged_until = max(at for at, rests in zip(log.times, log.rests, strict=True) if not rests)
    starts = [
        (one.start.seconds, other.start.seconds)
        for one, other in zip(all_starts(short, world), all_starts(exact, world), strict=True)
    ]
    # From then on it is not known in whose place one would start, only what all have left.
    assert all(told == true for told, true in starts if true <= logged_until)
    assert all(told >= true for told, true in starts)
    assert min(true for _, true in starts) <= logged_until < max(true for _, true in starts)


def gpus(number, **rest):
    return snapshot(cluster_queue(quotas={"t4": {GPU: str(number)}}, **rest))


def runs(seconds, *, number=1, **rest):
    usage = {CELL: number}
    return Running(
        cluster_queue="gpu-cq", usage=usage, job_class=str(seconds), started_at=0.0, **rest
    )


def waits(seconds, *, number=1, **rest):
    found = replace(arrival("a", {GPU: str(number)}, local_queue="gpu-lq"), **rest)
    return pending_group(found, job_class=str(seconds))


def told(found, state, *, number=1, priority=0, **rest):
    queue = state.setup.cluster_queues["gpu-cq"]
    asked = demand([needs({GPU: str(number)})], queue, state.setup)
    newcomer = Newcomer(queue=queue, demand=asked, setup=state.setup, priority=priority, **rest)
    return start_of(found["gpu-cq"], newcomer).start


def placement(start, end, *, number=1, **rest):
    return PlacedJob(cluster_queue="gpu-cq", usage={CELL: number}, start=start, end=end, **rest)


def test_quota_of_a_placement_is_taken_from_its_start_until_the_batch_after_its_end():
    state = gpus(2)
    found = forecast(forecast_givens(state, run_time_of, 0.0), [runs(1000)], [])

    def at(now):
        return told(found, state, now=now, among=[placement(10.0, 60.0)]).seconds

    assert (at(0.0), at(9.0)) == (0.0, 0.0)
    assert at(10.0) == 51.0
    assert at(40.0) == 21.0
    assert at(62.0) == 0.0


def test_where_one_clusterqueue_alone_has_equals_pending_a_newcomer_to_another_takes_turns():
    state = snapshot(
        cluster_queue(quotas={"t4": {GPU: "2"}}, cohort="all"),
        cluster_queue("other-cq", {"t4": {GPU: "2"}}, cohort="all"),
    )
    both = [runs(50, number=2), replace(runs(500, number=2), cluster_queue="other-cq")]
    waiting = waits(100, count=2)
    found = forecast(forecast_givens(state, run_time_of, 0.0), both, [waiting])

    (first, second) = pending_starts(forecast_givens(state, run_time_of, 0.0), both, [waiting])["a"]
    queue = state.setup.cluster_queues["other-cq"]
    wanted = demand([needs({GPU: "1"})], queue, state.setup)
    newcomer = Newcomer(queue=queue, demand=wanted, setup=state.setup)

    # Without it both start as the first run ends; with it, one of them and the newcomer do.
    assert first.seconds == second.seconds == 51.0
    assert start_of(found["gpu-cq"], newcomer).start.seconds == 51.0


def test_a_start_on_the_quota_of_a_placement_is_as_uncertain_as_its_end():
    state = gpus(1)
    found = forecast(forecast_givens(state, run_time_of, 0.0), [], [])

    start = told(found, state, among=[placement(0.0, 50.0, spread=8.0)])

    assert (start.low, start.seconds, start.high) == pytest.approx(
        (51.0 - 8.0 * SIGMAS_OF_A_SIDE, 51.0, 51.0 + 8.0 * SIGMAS_OF_A_SIDE)
    )


def test_decided_jobs_are_forgotten_once_they_have_ended_as_far_as_that_is_known():
    state = gpus(9)
    found = forecast(forecast_givens(state, run_time_of, 0.0), [], [])
    short = RunTime(seconds=10.0, low=10.0, high=10.0, basis=Basis.POLICY)
    decided = beside(StartTimes(), replace(state, forecasts=found))

    for key, run in (("short", short), ("unknown", None)):
        decided = decided.add(arrival(key, {GPU: "1"}, run=run), 0.0)

    assert decided.add(arrival("next", {GPU: "1"}, run=short), 9.0).placed.keys() == {
        "short",
        "unknown",
        "next",
    }
    assert decided.add(arrival("next", {GPU: "1"}, run=short), 1e9).placed.keys() == {
        "unknown",
        "next",
    }


def test_under_strict_fifo_nobody_starts_before_a_placement_that_comes_first():
    wide = placement(100.0, 150.0, number=2)
    starts = {}
    for queueing in Queueing:
        state = gpus(2, queueing=queueing)
        found = forecast(forecast_givens(state, run_time_of, 0.0), [runs(100)], [])
        starts[queueing] = [
            told(found, state, priority=priority, among=[wide]).seconds for priority in (0, 9)
        ]

    assert starts[Queueing.BEST_EFFORT] == [0.0, 0.0]
    # One of a higher priority comes before it.
    assert starts[Queueing.STRICT] == [151.0, 0.0]


def test_placements_of_other_trees_take_nothing():
    state = snapshot(
        cluster_queue(quotas={"t4": {GPU: "1"}}), cluster_queue("other-cq", {"t4": {GPU: "1"}})
    )
    found = forecast(forecast_givens(state, run_time_of, 0.0), [], [])
    elsewhere = replace(placement(0.0, 50.0), cluster_queue="other-cq")

    assert told(found, state, among=[elsewhere]).seconds == 0.0
    assert told(found, state, among=[placement(0.0, 50.0)]).seconds == 51.0


def test_after_so_many_tries_nobody_preempts_any_more_and_the_forecast_says_so(monkeypatch):
    state = updated(gpus(1, preemption=LOWER), priority_classes={"high": 9})
    running = [runs(100, priority=0, created=1)]
    first, last = waits(5, key="first", created=2), waits(5, key="last", priority=9, created=3)
    given = forecast_givens(state, run_time_of, 0.0), running, [last, first]
    expected = told(forecast(*given), state)

    monkeypatch.setattr(tree_workloads, "MOST_TRIES", -1)

    (without,) = pending_starts(*given)["last"]
    assert without.seconds == 101.0
    assert "depth" in told(forecast(*given), state).uncertain
    assert "depth" not in expected.uncertain


def test_of_thousands_in_one_clusterqueue_starts_are_near_the_exact_ones(monkeypatch):
    state = gpus(8)
    drawn = random.Random(1)
    running = [runs(drawn.uniform(20.0, 300.0)) for _ in range(8)]
    waiting = [waits(drawn.uniform(20.0, 300.0), key=str(age), created=age) for age in range(2000)]
    given = forecast_givens(state, run_time_of, 0.0), running, waiting
    monkeypatch.setattr(tree_workloads, "EXACT", 0)
    monkeypatch.setattr(tree_workloads, "GRAIN", 0.002)
    coarse, told_coarse = pending_starts(*given), told(forecast(*given), state).seconds

    monkeypatch.setattr(tree_workloads, "EXACT", len(waiting))
    exact, told_exact = pending_starts(*given), told(forecast(*given), state).seconds

    def seconds(starts):
        return [start.seconds for key in exact for start in starts[key]]

    assert seconds(coarse) != seconds(exact)
    assert seconds(coarse) == pytest.approx(seconds(exact), rel=0.05, abs=5.0)
    assert told_coarse == pytest.approx(told_exact, rel=0.05)


def test_where_events_share_a_moment_it_is_known_who_may_be_preempted(monkeypatch):
    state = updated(gpus(1, preemption=LOWER), priority_classes={"high": 9})
    running = [runs(100, priority=0, created=1)]
    waiting = [waits(50, key=str(age), priority=4, created=age) for age in (2, 3)]
    given = forecast_givens(state, run_time_of, 0.0), running, waiting
    exact = told(forecast(*given), state).seconds

    monkeypatch.setattr(tree_workloads, "EXACT", 0)

    assert told(forecast(*given), state).seconds == pytest.approx(exact, rel=0.05)
