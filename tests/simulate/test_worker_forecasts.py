"""What replays learn and forecast of worker clusters, and what is never done with their Jobs."""

from dataclasses import replace

import pytest

from tests.simulate import files
from tests.simulate.files import with_workers, worker
from webhook.flow import create
from webhook.learn.estimates import RunTimeLearner
from webhook.learn.run_records import unpack_runs
from webhook.simulate import replay as replaying
from webhook.simulate.replay import replay

GAIN = {"time": "1s", "percent": 1}


@pytest.fixture(autouse=True)
def middles_decide(monkeypatch):
    """Let a gain be as likely as not: what is forecast is tested here, not how sure that is."""
    monkeypatch.setattr(replaying, "_RULES", create.Rules(min_gain_probability=0.5))


def by_finish(source, *, gain=GAIN, run_time="10s", **more):
    """Let the policy decide by the expected finish."""
    finish_time = {"minimumGain": gain, **({"runTime": run_time} if run_time else {})}
    spec = source["policies"]["objects"][0]["spec"]
    spec |= {"strategy": {"type": "FinishTime", "finishTime": finish_time}, **more}
    return source


def queues(source, *, run_times=None):
    scenario = files.read(source)
    (arm,) = scenario.arms(["FinishTime"])
    return [job.queue for job in replay(scenario, arm, run_times=run_times).jobs]


def _seconds(packed):
    return [run.seconds for run in unpack_runs(packed)]


def test_nobody_is_moved_out_of_a_worker():
    reconsider = {"after": "1s", "minimumGain": GAIN}
    gain = {"time": "25s", "percent": 1}

    here = by_finish(files.document(), gain=gain, reconsider=reconsider)
    there = by_finish(with_workers(worker("a"), cpu=1), gain=gain, reconsider=reconsider)

    assert queues(here) == ["fast", "fast", "fast", "slow"]
    assert queues(there) == ["fast"] * 4


def test_what_waits_in_a_worker_has_its_whole_run_ahead():
    # One runs and one waits behind it, both with the manager's quota: the last one sees that
    # only the first makes room soon, and that one has waited for 9 s to be dispatched.
    source = by_finish(with_workers(worker("a", watched=False), cpu=2))
    source["policies"]["objects"][0]["spec"]["options"][1]["slowdown"] = 2.4
    source["jobs"]["work"]["runTimes"]["slow"] = "24s"
    source["arrivals"] = [{"at": at, "job": "work"} for at in ("0s", "0s", "9s", "9s")]

    assert queues(source) == ["fast", "fast", "fast", "slow"]


def test_waiting_in_a_worker_is_no_part_of_a_run():
    learned = RunTimeLearner()

    assert queues(by_finish(with_workers(worker("a", watched=False))), run_times=learned) == (
        ["fast"] * 4
    )

    (record,) = learned.records.values()
    assert {place: _seconds(packed) for place, packed in record.runs.items()} == {
        "fast": [10] * 4,
        "fast@a": [10] * 4,
    }
    assert _seconds(record.dispatches["fast"]) == [0, 11, 22, 33]
    assert record.starts == {}


def test_what_the_manager_has_learned_of_runs_stands_for_what_a_worker_has_not_seen():
    learned = RunTimeLearner()
    queues(by_finish(files.document()), run_times=learned)
    source = by_finish(with_workers(worker("a", flavor_name="t4")), run_time=None)
    source["arrivals"] = [{"every": {"interval": "2s", "count": 4, "jobs": ["work"]}}]

    assert queues(source, run_times=learned) == ["fast", "fast", "fast", "slow"]


def test_the_managers_namespaces_say_whose_jobs_are_decided():
    source = by_finish(with_workers(worker("a")))
    metadata = {"name": "team", "labels": {"tier": "gold"}}
    source["cluster"]["objects"] += [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    ]
    match = {"jobSelector": {}, "namespaceSelector": {"matchLabels": {"tier": "gold"}}}
    source["policies"]["objects"][0]["spec"]["match"] = match

    assert queues(source) == ["fast", "fast", "slow", "fast"]


def test_who_is_on_the_way_undecided_counts_where_fewest_wait():
    source = with_workers(worker("a"))
    spec = source["policies"]["objects"][0]["spec"]
    spec["match"] = {"jobSelector": {"matchExpressions": [{"key": "own", "operator": "Exists"}]}}
    spec["options"][0]["startDelay"] = "5s"
    labelled = files.job(labels={"kueue.x-k8s.io/queue-name": "fast", "own": "yes"})
    source["jobs"]["own"] = {"job": labelled, "runTimes": {"fast": "10s", "slow": "30s"}}
    source["arrivals"] = [{"at": "0s", "job": name} for name in ("work", "own", "own")]
    scenario = files.read(source)
    (arm,) = scenario.arms(["Threshold"])

    assert [job.queue for job in replay(scenario, arm).jobs] == ["fast", "fast", "slow"]


def test_where_not_all_clusters_are_known_the_managers_quota_is_all_there_is():
    scenario = files.read(with_workers(worker("a"), worker("b")))
    scenario = replace(scenario, workers={"a": scenario.workers["a"]})
    (arm,) = scenario.arms(["static"])

    found = [(job.cluster, job.start) for job in replay(scenario, arm).jobs]

    assert found == [("", 0.0)] * 4


def taught(source):
    """Let Jobs run in the workers, and return what is learned of that."""
    learned, option = RunTimeLearner(), source["policies"]["objects"][0]["spec"]["options"][1]
    slowdown, option["slowdown"] = option["slowdown"], 1000
    assert set(queues(source, run_times=learned)) == {"fast"}
    option["slowdown"] = slowdown
    return learned


def test_runs_are_known_by_the_cluster_that_they_were_in():
    source = by_finish(with_workers(worker("a", flavor_name="t4"), worker("b", flavor_name="k80")))
    source["jobs"]["work"]["runTimes"] = {"t4": "10s", "k80": "40s", "slow": "30s"}
    comes = [50 * number for number in (0, 0, 1, 1, 2, 2, *range(3, 9))]
    source["arrivals"] = [{"at": f"{at}s", "job": "work"} for at in comes]
    learned = taught(source)
    source["arrivals"] = [{"burst": {"count": 2, "jobs": ["work"]}}]

    # Cluster b is free, but there it would take 40 s.
    assert queues(by_finish(source, run_time=None), run_times=learned) == ["fast", "slow"]


def test_how_long_others_waited_counts_where_nobody_looks_into_the_workers():
    source = by_finish(with_workers(worker("a", watched=False)))
    learned = taught(source)
    source["arrivals"] = [{"at": "0s", "job": "work"}]

    # They were dispatched in 0, 10, 20 and 30 s.
    source["jobs"]["work"]["runTimes"]["slow"] = "15s"
    source["policies"]["objects"][0]["spec"]["options"][1]["slowdown"] = 1.5

    assert queues(source) == ["fast"]
    assert queues(source, run_times=learned) == ["slow"]


@pytest.mark.parametrize(("way", "taken"), [("12s", "fast"), ("25s", "slow")])
def test_a_learned_way_to_a_worker_counts_once(way, taken):
    source = by_finish(with_workers(worker("a", cpu=4)))
    source["policies"]["objects"][0]["spec"]["options"][0]["startDelay"] = way
    learned = taught(source)
    source["arrivals"] = [{"at": "0s", "job": "work"}]

    assert {_seconds(each.dispatches["fast"])[0] for each in learned.records.values()} == {
        int(way.removesuffix("s"))
    }
    assert queues(source, run_times=learned) == [taken]
