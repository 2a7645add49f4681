"""Where Kueue shares fairly, a Job that is served next for its small share stays."""

from dataclasses import replace

import pytest

from hack import paper
from hack.controlplane import ControlPlane, Options
from hack.install import PATIENT, Installation
from hack.waiting import wait_for
from tests.e2e import other_team
from tests.e2e.decisions import (
    SLOW,
    applied_policy,
    decision_of,
    finish_time,
    probe,
    queue_of,
)
from tests.e2e.plane import wait_until_reserved

FAIR = {
    "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]},
    "admissionFairSharing": {"usageHalfLifeTime": "10m", "usageSamplingInterval": "1s"},
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    options = Options(kueue_config=FAIR)
    with ControlPlane(tmp_path_factory.mktemp("fair"), options=options) as started:
        yield started


@pytest.fixture(scope="module")
def webhook(plane):
    with Installation(plane, chart_values=PATIENT) as installed:
        yield installed


@pytest.fixture
def fair(plane, webhook, queues):
    """Queues of which one gives its quota to the LocalQueue that has used least.

    Kueue heeds that of a ClusterQueue that is made with it, not of one that is changed.
    """
    names = replace(queues, gpu_queue="fair-lq", gpu_cluster_queue=f"fair-cq-{queues.namespace}")
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    queue = other_team.gpu_queue(names, names.gpu_cluster_queue, admissionScope=scope)
    local = paper.local_queue("fair-lq", names.namespace, cluster_queue=names.gpu_cluster_queue)
    with other_team.applied(plane.client, queue, local):
        yield names


def decided(client, names):
    """Apply a policy by which a run takes a minute, and twice as long on CPU."""
    policy = finish_time(names, runTime="60s")
    policy["spec"]["options"][1]["slowdown"] = 2
    return applied_policy(client, policy, names)


def serve_next(client, names):
    """Create a Job behind twelve of another team, end one of these; tell who gets its quota."""
    other_team.take_all(client, names, 12)
    # Until a forecast contains those who wait, they count as placed before any other Job.
    wait_for(
        lambda: (probe(client, names) or {}).get("option") == "gpu",
        "a forecast contains those who wait",
    )
    before = other_team.reserving(client, names)
    job = client.create(paper.light_job("small", names, faster=SLOW))
    other_team.end_one(client, names)
    wait_until_reserved(client, job)
    return job, other_team.reserving(client, names) - before


def test_by_shares_of_a_cohort_the_smaller_goes_first(plane, webhook, queues):
    client, shared = plane.client, f"shared-{queues.namespace}"
    pool = other_team.gpu_queue(queues, shared)
    groups = {"resourceGroups": pool["spec"]["resourceGroups"]}
    cohort = {"apiVersion": paper.KUEUE, "kind": "Cohort", "metadata": {"name": shared}}
    none = {"gpus": 0, "cohortName": shared}
    client.apply(other_team.gpu_queue(queues, queues.gpu_cluster_queue, **none))
    other = other_team.gpu_queue(queues, f"other-cq-{queues.namespace}", **none)

    with (
        decided(client, queues),
        other_team.applied(client, {**cohort, "spec": groups}, other),
        other_team.with_its_queue(client, queues, other["metadata"]["name"]),
    ):
        job, served = serve_next(client, queues)

    assert (queue_of(job), decision_of(job)["option"]) == (queues.gpu_queue, "gpu")
    assert served == {"small"}


def test_by_usage_of_localqueues_the_smaller_goes_first(plane, fair):
    client = plane.client
    with (
        decided(client, fair),
        other_team.with_its_queue(client, fair, fair.gpu_cluster_queue),
    ):
        job, served = serve_next(client, fair)

    assert (queue_of(job), decision_of(job)["option"]) == ("fair-lq", "gpu")
    assert served == {"small"}
