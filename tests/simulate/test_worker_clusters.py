"""Worker clusters in a scenario's file: what is read, and what is refused with which words."""

from pathlib import Path

import pytest
import yaml

from tests.simulate import files
from tests.simulate.files import with_workers, worker
from webhook.simulate.scenario_spec import ScenarioError


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
        name: each.snapshot.setup.cluster_queues["fast"].groups[0].quotas["fast", "cpu"].nominal
        for name, each in scenario.workers.items()
    }
    assert quotas == {"a": 1000, "b": 3000}
    assert [each.watched for each in scenario.workers.values()] == [True, False]
    assert scenario.workers["a"].snapshot.cluster.namespaces == scenario.snapshot.cluster.namespaces


def test_policies_of_a_worker_decide_nothing():
    (scenario_worker,) = files.read(
        changed(["clusters", 0, "objects"], [*worker("a")["objects"], files.policy("other")])
    ).workers.values()

    assert scenario_worker.snapshot.fallback.policies == ()


def test_without_clusters_what_has_quota_at_the_manager_runs():
    source = with_workers(worker("a"))
    del source["clusters"]

    assert files.read(source).workers == {}


MISTAKES = yaml.safe_load(Path(__file__).with_name("cluster_mistakes.yaml").read_text())


@pytest.mark.parametrize("mistake", MISTAKES, ids=[each["message"] for each in MISTAKES])
def test_a_mistake_is_named_with_its_path(mistake):
    assert mistake["message"] in message(changed(mistake["path"], mistake["value"]))


def test_a_cluster_to_which_a_queue_leads_is_expected():
    source = with_workers(worker("a"), names=["a", "c"])

    assert message(source) == "clusters: expected c too: a ClusterQueue leads there"


def test_a_cluster_that_kueue_cannot_reach_need_not_be_told():
    source = with_workers(worker("a"), names=["a", "b"])
    status = {"conditions": [{"type": "Active", "status": "False", "message": "gone"}]}
    source["cluster"]["objects"][-1]["status"] = status

    assert list(files.read(source).workers) == ["a"]


def test_a_flavor_of_a_worker_may_have_run_times():
    source = with_workers(worker("a", flavor_name="t4"))
    source["jobs"]["work"]["runTimes"] = {"t4": "10s", "slow": "30s"}

    assert files.read(source).submissions[0].run_seconds == {"t4": 10.0, "slow": 30.0}
