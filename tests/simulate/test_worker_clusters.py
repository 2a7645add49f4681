"""Worker clusters in a scenario's file: what is read, and what is refused with which words."""

import pytest

from tests.simulate import files
from tests.simulate.files import with_workers, worker
from webhook.simulate.scenario import ScenarioError


def message(source, read_files=None):
    with pytest.raises(ScenarioError) as raised:
        files.read(source, read_files)
    return str(raised.value)


def changed(path, value, *workers):
    found = with_workers(*(workers or (worker("a"),)))
    place = found
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return found


def test_each_cluster_has_queues_of_its_own():
    scenario = files.read(with_workers(worker("a"), worker("b", cpu=3, watched=False)))

    quotas = {
        name: each.snapshot.cluster_queues["fast"].groups[0].quotas["fast", "cpu"].nominal
        for name, each in scenario.workers.items()
    }
    assert quotas == {"a": 1000, "b": 3000}
    assert [each.watched for each in scenario.workers.values()] == [True, False]
    assert scenario.workers["a"].snapshot.namespaces == scenario.snapshot.namespaces


def test_policies_of_a_worker_decide_nothing():
    (scenario_worker,) = files.read(
        changed(["clusters", 0, "objects"], [*worker("a")["objects"], files.policy("other")])
    ).workers.values()

    assert scenario_worker.snapshot.policies == ()


def test_without_clusters_what_has_quota_at_the_manager_runs():
    source = with_workers(worker("a"))
    del source["clusters"]

    assert files.read(source).workers == {}


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["clusters", 0, "name"], None, "clusters[0].name: expected a string"),
        (["clusters", 0, "watched"], "perhaps", "clusters[0].watched: expected true or false"),
        (["clusters", 0, "quota"], 4, "clusters[0].quota: no such field"),
        (
            ["clusters", 0, "name"],
            "b",
            (
                "clusters[0].name: no ClusterQueue in `cluster` leads to b through MultiKueue; "
                "there is a"
            ),
        ),
        (
            ["cluster", "objects", 2],
            files.cluster_queue("fast", cpu=1),
            (
                "clusters[0].name: no ClusterQueue in `cluster` leads to a through MultiKueue; "
                "there is none"
            ),
        ),
        (
            ["cluster", "objects", -1, "metadata", "name"],
            "c",
            "clusters[0].name: no MultiKueueCluster a in `cluster`; there is c",
        ),
        (
            ["cluster", "objects", -2, "spec", "clusters"],
            ["a", "c"],
            "clusters: expected c too: a ClusterQueue leads there",
        ),
        (
            ["clusters"],
            [worker("a"), worker("a")],
            "clusters[1].name: a is there twice",
        ),
        (
            ["clusters", 0, "objects", 1, "spec", "resourceGroups"],
            4,
            "clusters[0].objects[1].spec.resourceGroups: expected a list, got a number",
        ),
        (
            ["jobs", "work", "runTimes"],
            {"t4": "1s"},
            "jobs.work.runTimes.t4: expected a ResourceFlavor or an option; there is fast, slow",
        ),
    ],
)
def test_a_mistake_is_named_with_its_path(path, value, words):
    source = changed(path, value)
    if words.endswith("leads there"):
        source["cluster"]["objects"] += files.multikueue("c")[2:]

    assert words in message(source)


def test_a_cluster_that_kueue_cannot_reach_need_not_be_told():
    source = with_workers(worker("a"), names=["a", "b"])
    status = {"conditions": [{"type": "Active", "status": "False", "message": "gone"}]}
    source["cluster"]["objects"][-1]["status"] = status

    assert list(files.read(source).workers) == ["a"]


def test_a_flavor_of_a_worker_may_have_run_times():
    source = with_workers(worker("a", flavor_name="t4"))
    source["jobs"]["work"]["runTimes"] = {"t4": "10s", "slow": "30s"}

    assert files.read(source).submissions[0].run_seconds == {"t4": 10.0, "slow": 30.0}
