"""When those start who are pending, by the simulation that forecasts are made of."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from tests.builders import arrival, cluster_queue, snapshot
from webhook.kueue.flavor_plan import demand_of
from webhook.kueue.forecast import forecast, pending_starts
from webhook.kueue.queue_lines import PendingGroup, pending_group
from webhook.kueue.simulation import Running
from webhook.kueue.tree_workloads import ExpectedArrivals
from webhook.model.forecasts import Basis, RunTime
from webhook.model.queues import Preemption, Queueing
from webhook.state.forecast_input import forecast_givens

GPU = "nvidia.com/gpu"
CELL = ("t4", GPU)
NOW = 0.0


def run_time_of(job_class, flavors):
    if job_class != "known":
        return None
    return RunTime(seconds=100.0, low=80.0, high=125.0, basis=Basis.POLICY)


def runs(gpus=1, job_class="known"):
    return Running(cluster_queue="gpu-cq", usage={CELL: gpus}, job_class=job_class, started_at=NOW)


def waits(key, *, gpus=1, job_class="known", **rest):
    found = arrival("a", {GPU: str(gpus)}, local_queue="gpu-lq")
    return pending_group(replace(found, key=key, **rest), job_class=job_class)


def state(gpus=2, **rest):
    return snapshot(cluster_queue(quotas={"t4": {GPU: str(gpus)}}, **rest))


def seconds(starts):
    return {key: [round(start.seconds) for start in each] for key, each in starts.items()}


def test_a_group_starts_one_after_the_other_where_room_is_for_one():
    found = pending_starts(
        forecast_givens(state(), run_time_of, NOW), [runs(2)], [waits("g", gpus=2, count=3)]
    )

    one, two, three = found["g"]
    assert one.seconds < two.seconds < three.seconds
    assert all(start.low < start.seconds < start.high for start in found["g"])
    # What is further away is less sure.
    assert one.high - one.low < three.high - three.low


def test_the_last_starts_when_the_forecast_says_that_all_have():
    queues, running = state(), [runs(2)]
    waiting = [waits("a"), waits("b"), waits("c", gpus=2)]

    found = pending_starts(forecast_givens(queues, run_time_of, NOW), running, waiting)

    told = forecast(forecast_givens(queues, run_time_of, NOW), running, waiting)["gpu-cq"].waits(
        "gpu-cq", NOW
    )
    assert max(start.seconds for each in found.values() for start in each) == told


def test_what_never_fits_never_starts_and_says_nothing_of_others():
    found = pending_starts(
        forecast_givens(state(), run_time_of, NOW), [], [waits("big", gpus=3), waits("a")]
    )

    assert seconds({"a": found["a"]}) == {"a": [0]}
    assert found["big"][0].seconds == inf


def test_unknown_runs_count_for_those_behind_and_not_for_themselves():
    waiting = [waits("x", job_class="new", count=2), waits("a"), waits("urgent", priority=5)]

    found = pending_starts(forecast_givens(state(), run_time_of, NOW), [runs(2)], waiting)

    assert {key: [start.unseen for start in each] for key, each in found.items()} == {
        "x": [0, 1],
        "a": [2],
        "urgent": [0],
    }


def test_an_unknown_run_that_holds_quota_counts_for_all():
    found = pending_starts(
        forecast_givens(state(1), run_time_of, NOW), [runs(job_class="new")], [waits("a")]
    )

    assert found["a"][0].unseen == 1
    assert not found["a"][0].is_known


def test_who_comes_later_delays_only_those_it_outranks():
    queues = state(1, queueing=Queueing.STRICT)
    kind = PendingGroup(demand=demand_of({CELL: 1}), job_class="known")
    coming = [
        ExpectedArrivals(
            cluster_queue="gpu-cq", priority=100, per_second=1 / 50, seconds=1e6, kinds=(kind,) * 9
        )
    ]
    waiting = [waits("a"), waits("vip", priority=200)]

    alone = pending_starts(forecast_givens(queues, run_time_of, NOW), [runs()], waiting)
    found = pending_starts(
        forecast_givens(queues, run_time_of, NOW), [runs()], waiting, expected=coming
    )

    assert found["vip"] == alone["vip"]
    assert "arrivals" in found["a"][0].uncertain
    assert found["a"][0].high > alone["a"][0].high


def test_one_that_nobody_can_preempt_has_no_doubt_of_that_kind():
    queues = state(1, preemption=Preemption(within_cluster_queue="LowerPriority"))

    found = pending_starts(
        forecast_givens(queues, run_time_of, NOW),
        [runs()],
        [waits("low"), waits("high", priority=9)],
    )

    assert found["high"][0].uncertain == ()
    assert found["low"][0].uncertain == ("preemption",)
