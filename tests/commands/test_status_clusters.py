"""`kubectl fallback status` on worker clusters: what Kueue says of them, how old their state is."""

import json

import pytest

from tests.commands import release
from tests.commands.release import WELL, lines_of, metrics, ready, with_status, worker

HEADER = "CLUSTER ACTIVE STATE AGE MESSAGE"


@pytest.fixture
def status(tmp_path):
    def run(*workers, ages=None, **given):
        objects = (*with_status(ready()), *WELL, *workers)
        return release.status(tmp_path, *objects, told=metrics(clusters=ages), **given)

    return run


def table(lines):
    start = lines.index(HEADER) + 1
    return lines[start : lines.index("", start)]


def test_clusters_are_shown_with_kueues_word_and_their_age(status):
    result = status(worker("near", "True", "Connected"), worker("new"), ages={"near": 0.31})

    assert result.exit_code == 0
    assert table(lines_of(result)) == [
        "near active 0s -",
        "new - - Kueue has not judged it yet",
    ]


def test_a_cluster_that_kueue_does_not_reach_needs_attention(status):
    result = status(worker("far", "False", "no answer"))

    lines = lines_of(result)
    assert (result.exit_code, table(lines)) == (1, ["far inactive - no answer"])
    assert lines[-2:] == ["Needs attention:", "cluster far is not active: no answer"]


def test_a_cluster_that_a_server_has_not_heard_from_needs_attention(status):
    result = status(worker("far", "True"), ages={"far": 40}, words=["-o", "json"])

    found = json.loads(result.output)
    assert (result.exit_code, found["attention"]) == (1, ["cluster far is stale at server-1"])
    assert found["clusters"] == [{"name": "far", "active": True, "message": ""}]
    (server,) = found["replicas"]
    assert server["clusterStateAgeSeconds"] == {"far": 40.0}
    assert (server["staleClusters"], server["state"]) == (["far"], "ready")


def test_who_may_not_list_clusters_sees_the_ages(status):
    result = status(worker("near", "True"), ages={"near": 2}, forbidden=["*/multikueueclusters"])

    lines = lines_of(result)
    said = "You may not see: Clusters, Queues (-o json has the reasons)."
    assert (result.exit_code, said in lines) == (0, True)
    assert table(lines) == ["near - 2s -"]


def test_without_multikueue_there_is_no_table(status):
    result = status()

    assert (result.exit_code, HEADER in lines_of(result)) == (0, False)
