"""The class of a service is recorded where its own metrics tell what a replica does."""

import pytest

from tests.flow.moves import asking, with_spec
from tests.flow.signing_server import decision_of
from tests.flow.test_rolled import REVIEWED, admitted, stored, web, world
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from webhook.model.job import JOB_CLASS
from webhook.model.policy.spec import ServingMetrics

METRICS = ServingMetrics(requests="chat_total", latency="chat_seconds")


def class_of(deployment):
    return deployment["spec"]["template"]["metadata"]["annotations"][JOB_CLASS]


def test_a_service_whose_metrics_are_asked_for_records_its_class_and_keeps_it_when_moved():
    server = Server(with_spec(world(pending=0), serving=METRICS))
    before = stored(server, web())
    moved, _ = admitted(server, before, asking(before, "cpu"))

    assert decision_of(before)["jobClass"] == class_of(before)
    assert decision_of(moved)["option"] == "cpu"
    assert decision_of(moved)["jobClass"] == class_of(before)


@pytest.mark.parametrize(
    ("snapshot", "created", "reviewed"),
    [(world(), web(), REVIEWED), (paper_snapshot(), light_job(), {})],
    ids=["no metrics", "no service"],
)
def test_no_other_decision_records_it(snapshot, created, reviewed):
    serving = None if reviewed else METRICS
    server = Server(with_spec(snapshot, serving=serving))

    assert "jobClass" not in decision_of(server.create(created, **reviewed)[0])
