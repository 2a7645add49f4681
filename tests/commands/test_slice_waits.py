"""`kubectl fallback explain` of a pending Job that asks for slices of A100s of 40 GB."""

import copy
import json
from pathlib import Path

import pytest
import yaml

from tests.commands.calling import call_on
from tests.commands.cluster import Cluster

SNAPSHOT = json.loads(Path("examples/snapshot.json").read_text(encoding="utf-8"))["items"]
LIGHT = yaml.safe_load(Path("examples/light-job.yaml").read_text(encoding="utf-8"))
HALF, SEVENTH = "nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.5gb"


def job():
    """The example's light Job as it is in the cluster, waiting."""
    found = copy.deepcopy(LIGHT)
    del found["metadata"]["generateName"]
    found["metadata"] |= {"name": "train", "creationTimestamp": "2026-01-01T00:00:00Z"}
    found["spec"]["suspend"] = True
    return found


def waiting(resource, amount="1"):
    found = job()
    (container,) = found["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"limits": {resource: amount}}
    return found


def node(name, allocatable):
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu.count": "1"}
    metadata = {"name": name, "labels": labels}
    return {"kind": "Node", "metadata": metadata, "status": {"allocatable": allocatable}}


def pod(name, place, resource):
    labels = {"batch.kubernetes.io/job-name": name}
    container = {"name": "main", "resources": {"limits": {resource: "1"}}}
    return {
        "kind": "Pod",
        "metadata": {"name": f"{name}-x", "namespace": "team", "labels": labels},
        "spec": {"nodeName": place, "containers": [container]},
        "status": {"phase": "Running"},
    }


CUT = (
    node("halves", {HALF: "2"}),
    node("sevenths", {SEVENTH: "7"}),
    pod("left", "halves", HALF),
    pod("right", "halves", HALF),
)


@pytest.fixture
def explain(tmp_path):
    def run(*objects, words=(), **given):
        cluster = Cluster(*SNAPSHOT, *objects, **given)
        return call_on(cluster, tmp_path, "explain", "train", *words, namespace="research"), cluster

    return run


def test_whose_end_frees_its_slice_is_said(explain):
    result, _ = explain(*CUT, pod("small", "sevenths", SEVENTH), waiting(HALF))

    assert f"{HALF}: free on Node halves when team/left has ended." in result.output.splitlines()


def test_a_device_that_only_has_to_be_cut_anew_is_said_too(explain):
    result, _ = explain(*CUT, waiting(HALF), words=["-o", "json"])

    assert json.loads(result.output)["slices"] == [
        {
            "resource": HALF,
            "count": 1,
            "freed": [
                {"node": "halves", "mustEnd": ["team/left"], "cutAnew": False},
                {"node": "sevenths", "mustEnd": [], "cutAnew": True},
            ],
        }
    ]


@pytest.mark.parametrize(
    ("resource", "amount", "said"),
    [
        (HALF, "2", "free on Node halves when team/left, team/right have ended, or on Node"),
        (SEVENTH, "1", "free on Node sevenths now."),
        (HALF, "3", "no Node is known that can give it to a pod."),
    ],
)
def test_more_slices_for_one_pod_and_free_ones_are_said(explain, resource, amount, said):
    result, _ = explain(*CUT, waiting(resource, amount))

    count = f"{amount} x " if amount != "1" else ""
    assert f"{count}{resource}: {said}" in " ".join(result.output.split())


def test_who_may_not_list_nodes_is_told_so(explain):
    result, _ = explain(*CUT, waiting(HALF), forbidden=["/api/v1/nodes"])

    assert result.exit_code == 0
    assert (
        "What would free its slices is not known: you cannot GET /api/v1/nodes."
        in result.output.splitlines()
    )


def test_pods_are_listed_only_for_a_job_that_waits_for_slices(explain):
    started = copy.deepcopy(waiting(HALF))
    started["spec"]["suspend"] = False

    for other in (started, job()):
        _, cluster = explain(*CUT, other)
        assert not [url for _, url, _ in cluster.asked if "/api/v1/pods" in url]
