"""Replays with worker clusters: MultiKueue's way with a Workload, and what decisions know of it."""

from dataclasses import replace

import pytest

from tests.simulate import files
from tests.simulate.files import with_workers, worker
from tests.simulate.shipped import shipped
from webhook.flow import create
from webhook.simulate import replay as replaying
from webhook.simulate.replay import replay

BY_FINISH = {
    "type": "FinishTime",
    "finishTime": {"runTime": "10s", "minimumGain": {"time": "1s", "percent": 1}},
}


def ways(source, strategy="static"):
    """Each Job's queue, cluster, start and finish."""
    scenario = files.read(source)
    (arm,) = scenario.arms([strategy])
    found = replay(scenario, arm).jobs
    return [(job.queue, job.cluster, job.start, job.finish) for job in found]


def object_of(source, kind):
    return next(each for each in source["cluster"]["objects"] if each["kind"] == kind)


def delayed(source, by="5s"):
    source["policies"]["objects"][0]["spec"]["options"][0]["startDelay"] = by
    return source


@pytest.mark.parametrize(("arrivals", "alone"), [("uniform", 216.0), ("burst", 215.0)])
def test_a_worker_with_the_quota_of_its_manager_takes_as_long_as_one_cluster(arrivals, alone):
    single = shipped(arrivals)
    both = replace(shipped("clusters"), submissions=single.submissions)

    found = [replay(each, *each.arms(["static"])).totals for each in (single, both)]

    assert [round(each.makespan, 2) for each in found] == [alone, alone]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("given", "strategy", "makespan", "moved"),
    [
        ({}, "Threshold", 195.0, 3),
        ({}, "FinishTime", 175.0, 6),
        ({"managerGpus": 40}, "Threshold", 195.0, 3),
        ({"managerGpus": 40}, "FinishTime", 175.0, 6),
        # The manager lets all through, and of what waits behind it nothing is known.
        ({"managerGpus": 40, "watched": False}, "Threshold", 216.0, 0),
        ({"managerGpus": 40, "watched": False}, "FinishTime", 216.0, 0),
        # Each of the eight Jobs that follow one another on a GPU has to come there first.
        ({"startDelay": "5s"}, "static", 256.0, 0),
        ({"startDelay": "5s"}, "FinishTime", 206.0, 6),
        # They wait in the worker: only the first of each GPU is late.
        ({"managerGpus": 40, "startDelay": "5s"}, "static", 221.0, 0),
    ],
)
def test_the_published_topology_takes_as_long_as_it_does(given, strategy, makespan, moved):
    scenario = shipped("clusters", **given)
    (arm,) = scenario.arms([strategy])

    found = replay(scenario, arm)

    assert (round(found.totals.makespan, 2), found.totals.moved) == (makespan, moved)
    assert all(job.cluster == ("worker" if job.queue == "gpu-lq" else "") for job in found.jobs)


def test_the_first_cluster_with_quota_takes_a_job_and_the_others_drop_it():
    assert ways(with_workers(worker("a"), worker("b", cpu=2))) == [
        ("fast", "a", 0.0, 10.0),
        ("fast", "b", 0.0, 10.0),
        ("fast", "b", 0.0, 10.0),
        ("fast", "a", 11.0, 21.0),
    ]


def test_the_managers_quota_is_held_until_the_run_in_the_worker_ends():
    found = ways(with_workers(worker("a", cpu=4), cpu=2))

    assert [start for _, _, start, _ in found] == [0.0, 0.0, 11.0, 11.0]


def test_what_waits_in_a_worker_holds_the_managers_quota():
    # A big Job waits behind the first in the worker, and the last ones wait for the manager.
    source = with_workers(worker("a", cpu=2), cpu=3)
    source["jobs"]["big"] = {"job": files.job(cpu="2"), "runTimes": {"fast": "10s"}}
    source["arrivals"] = [{"at": "0s", "job": name} for name in ("work", "big", "work")]

    assert ways(source) == [
        ("fast", "a", 0.0, 10.0),
        ("fast", "a", 11.0, 21.0),
        ("fast", "a", 22.0, 32.0),
    ]


def test_a_cluster_without_the_localqueue_takes_nobody():
    empty = worker("a")
    del empty["objects"][2]

    assert {cluster for _, cluster, _, _ in ways(with_workers(empty, worker("b")))} == {"b"}
    assert ways(with_workers(empty)) == [("fast", "", None, None)] * 4


def test_an_inactive_cluster_takes_nobody():
    source = with_workers(worker("a"), worker("b"))
    object_of(source, "MultiKueueCluster")["status"] = {
        "conditions": [{"type": "Active", "status": "False", "message": "gone"}]
    }

    assert {cluster for _, cluster, _, _ in ways(source)} == {"b"}


def test_the_start_delay_of_the_option_is_the_way_to_the_worker():
    found = ways(delayed(with_workers(worker("a"))))

    assert [start for _, _, start, _ in found] == [5.0, 16.0, 27.0, 38.0]


def test_decisions_count_who_waits_in_a_watched_worker():
    assert ways(with_workers(worker("a")), "Threshold") == [
        ("fast", "a", 0.0, 10.0),
        ("fast", "a", 11.0, 21.0),
        ("slow", "", 0.0, 30.0),
        ("slow", "", 31.0, 61.0),
    ]


def test_of_a_worker_that_is_not_watched_the_managers_quota_is_all_that_counts():
    found = ways(with_workers(worker("a", watched=False)), "Threshold")

    assert [cluster for _, cluster, _, _ in found] == ["a"] * 4


def test_who_is_on_the_way_to_a_worker_counts_there():
    found = ways(delayed(with_workers(worker("a"))), "Threshold")

    assert [queue for queue, *_ in found] == ["fast", "fast", "slow", "slow"]


def test_who_is_on_the_way_to_a_worker_counts_in_forecasts(monkeypatch):
    monkeypatch.setattr(replaying, "_RULES", create.Rules(min_gain_probability=0.5))
    source = delayed(with_workers(worker("a")), by="1s")
    source["policies"]["objects"][0]["spec"]["strategy"] = BY_FINISH

    # Done in 11, 23 and 35 s, against 30 s: the way is taken to hold quota as the run does.
    assert [queue for queue, *_ in ways(source, "FinishTime")] == ["fast", "fast", "slow", "fast"]


def test_a_job_is_counted_in_the_cluster_where_it_will_start_first():
    source = with_workers(worker("a"), worker("b"))

    assert ways(source, "Threshold") == [
        ("fast", "a", 0.0, 10.0),
        ("fast", "b", 0.0, 10.0),
        ("fast", "a", 11.0, 21.0),
        ("slow", "", 0.0, 30.0),
    ]


@pytest.mark.parametrize(
    ("run_times", "ends"),
    [
        ({"fast": "10s", "t4": "20s"}, 20.0),
        ({"fast": "10s", "slow": "30s"}, 10.0),
    ],
)
def test_a_run_time_is_told_by_the_workers_flavor_or_else_by_the_managers(run_times, ends):
    source = with_workers(worker("a", flavor_name="t4", cpu=4))
    source["jobs"]["work"]["runTimes"] = run_times

    assert [finish for *_, finish in ways(source)] == [ends] * 4


def test_heads_of_a_strict_queue_in_a_worker_are_waited_for():
    strict = worker("a", cpu=2)
    strict["objects"][1]["spec"]["queueingStrategy"] = "StrictFIFO"
    source = with_workers(strict)
    source["jobs"]["big"] = {"job": files.job(cpu="2"), "runTimes": {"fast": "10s"}}
    source["arrivals"] = [{"at": "0s", "job": name} for name in ("work", "big", "work")]

    assert [start for _, _, start, _ in ways(source)] == [0.0, 10.0, 20.0]
