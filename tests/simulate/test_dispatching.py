"""Replays in which the leading controller is MultiKueue's dispatcher."""

import pytest

from tests.simulate import files
from tests.simulate.files import with_workers, worker
from webhook.simulate.replay import replay

CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
multiKueue: {dispatcherName: "%s"}
"""
OURS, ALL_AT_ONCE = (
    "kueue-fallback.dev/dispatcher",
    "kueue.x-k8s.io/multikueue-dispatcher-all-at-once",
)


def dispatched(*runs, by=OURS, reconsider=None, workers=None):
    """Two clusters of one CPU behind one queue, and Jobs a second apart that run so long.

    What their policy expects is 100 s.
    """
    source = with_workers(*(workers or (worker("a"), worker("b"))))
    source["cluster"]["objects"].append(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kueue-manager-config", "namespace": "kueue-system"},
            "data": {"controller_manager_config.yaml": CONFIGURATION % by},
        }
    )
    spec = source["policies"]["objects"][0]["spec"]
    spec["options"] = [{"queue": "fast"}]
    spec["strategy"] = {"type": "FinishTime", "finishTime": {"runTime": "100s"}}
    if reconsider is not None:
        spec["reconsider"] = reconsider
    work = source["jobs"].pop("work")
    for number, run in enumerate(runs):
        source["jobs"][f"job-{number}"] = {**work, "runTimes": {"fast": f"{run}s"}}
    source["arrivals"] = [
        {"at": f"{number}s", "job": f"job-{number}"} for number in range(len(runs))
    ]
    scenario = files.read(source)
    (arm,) = scenario.arms(["FinishTime"])
    return [(job.cluster, round(job.start, 3)) for job in replay(scenario, arm).jobs]


def test_a_job_goes_where_it_is_expected_to_end_first_and_then_in_the_clusters_order():
    # The third would start at either within a second, so it waits at the one that comes first.
    # A second after the end of a run, those who wait are tried again.
    assert dispatched(100, 100, 100, 100) == [
        ("a", 0.0),
        ("b", 1.0),
        ("a", 101.0),
        ("b", 102.0),
    ]


@pytest.mark.parametrize(
    ("given", "third"),
    [
        # It waits at *a* and is expected to start there at 101; *b* is free at 51, 50 s sooner.
        ({}, ("b", 51.0)),
        ({"reconsider": {"minimumGain": {"time": "40s", "percent": 20}}}, ("b", 51.0)),
        # It has waited there since 2, and is to stay a minute.
        ({"reconsider": {"minimumGain": {"time": "30s"}, "after": "1m"}}, ("b", 62.0)),
        # No gain is enough, and it is not taken within 30 s after its expected start.
        ({"reconsider": {"minimumGain": {"time": "1h"}}}, ("b", 132.0)),
        # All clusters are asked, and the first with room takes it a second after the end there.
        ({"by": ALL_AT_ONCE}, ("b", 52.0)),
    ],
)
def test_one_that_waits_is_sent_where_it_gains_what_its_policy_demands(given, third):
    assert dispatched(400, 50, 100, **given) == [("a", 0.0), ("b", 1.0), third]


def test_a_cluster_that_is_not_watched_is_asked_when_the_others_disappoint():
    workers = worker("a"), worker("b", watched=False)

    # Where no start is known comes after where one is: 101, and half a minute of patience.
    assert dispatched(400, 100, workers=workers) == [("a", 0.0), ("b", 132.0)]


def test_all_that_wait_are_dispatched_though_no_more_jobs_come():
    found = dispatched(*[100] * 9)

    assert [cluster for cluster, _ in found] == ["a", "b"] * 4 + ["a"]
    starts = [start for _, start in found]
    assert starts == [0.0, 1.0, 101.0, 102.0, 202.0, 203.0, 303.0, 304.0, 404.0]
