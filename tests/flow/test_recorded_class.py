"""The class of a service is recorded where its own metrics tell what a replica does."""

import pytest

from tests.flow.moves import asking, with_spec
from tests.flow.signing_server import decision_of
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from webhook.model.job import JOB_CLASS
from webhook.model.policy.spec import ServingMetrics
from webhook.model.queues import KueueConfig

METRICS = ServingMetrics(requests="chat_total", latency="chat_seconds")
REVIEWED = {
    "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
    "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
}


def chat():
    job = light_job()
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**job["metadata"], "name": "chat"},
        "spec": {"replicas": 2, "template": job["spec"]["template"]},
    }


def server(serving, kind="Deployment"):
    kueue = KueueConfig(frameworks=("batch/job", "pod", "deployment"))
    snapshot = paper_snapshot(kinds=(kind,), kueue=kueue, pending=0)
    return Server(with_spec(snapshot, serving=serving))


def class_of(deployment):
    return deployment["spec"]["template"]["metadata"]["annotations"][JOB_CLASS]


def test_a_service_whose_metrics_are_asked_for_records_its_class_and_keeps_it_when_moved():
    serves = server(METRICS)
    created = serves.create(chat(), **REVIEWED)[0]
    known = {"uid": "1-2-3", "creationTimestamp": "2001-09-09T01:46:40Z"}
    before = {**created, "metadata": {**created["metadata"], **known}}
    moved = serves.update(before, asking(before, "cpu"), **REVIEWED)[0]

    assert decision_of(before)["jobClass"] == class_of(before)
    assert decision_of(moved)["option"] == "cpu"
    assert decision_of(moved)["jobClass"] == class_of(before)


@pytest.mark.parametrize("kind", ["Deployment", "Job"])
def test_no_other_decision_records_it(kind):
    if kind == "Job":
        created = server(METRICS, kind).create(light_job())[0]
    else:
        created = server(None).create(chat(), **REVIEWED)[0]

    assert decision_of(created)["option"] == "gpu"
    assert "jobClass" not in decision_of(created)
