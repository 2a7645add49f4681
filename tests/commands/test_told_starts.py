"""`queue` for who may see Jobs and no ClusterQueues: what stands on the Jobs, and Kueue's word."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest

from tests.commands.calling import call_on
from tests.commands.cluster import Cluster
from webhook.commands.queue import RESTRICTED
from webhook.model import forecasts
from webhook.model.forecasts import ExpectedStart
from webhook.model.job import DECISION, EXPECTED_START

VISIBILITY = "/apis/visibility.kueue.x-k8s.io"
PENDING = f"{VISIBILITY}/v1beta2/namespaces/research/localqueues/cpu-lq/pendingworkloads"
CLUSTER_QUEUES = "*/clusterqueues"
SERVED = {"preferredVersion": {"version": "v1beta2"}}
POSITIONS = {
    "items": [
        {
            "metadata": {"ownerReferences": [{"kind": "Job", "name": "train"}]},
            "positionInClusterQueue": 6,
        }
    ]
}


def moment(seconds_from_now):
    return datetime.fromtimestamp(time.time() + seconds_from_now, UTC).isoformat()


def decided(*, ago=600, starts_in=6000.0):
    options = [
        {"name": "gpu", "queue": "gpu-lq", "startsIn": 9000.0},
        {"name": "cpu", "queue": "cpu-lq", "startsIn": starts_in, "clusterQueue": "cpu-cq"},
    ]
    return json.dumps({"version": 1, "time": moment(-ago), "option": "cpu", "options": options})


def job(name="train", *, suspend=True, **annotations):
    metadata = {
        "name": name,
        "namespace": "research",
        "creationTimestamp": moment(-3600),
        "labels": {"kueue.x-k8s.io/queue-name": "cpu-lq"},
        "annotations": annotations,
    }
    spec = {"suspend": suspend, "template": {"spec": {"containers": []}}}
    return {"kind": "Job", "metadata": metadata, "spec": spec, "status": {}}


@pytest.fixture
def queue(tmp_path):
    def run(*words, jobs, forbidden=(CLUSTER_QUEUES,), command="queue", **texts):
        cluster = Cluster(*jobs, forbidden=forbidden, texts=texts)
        return call_on(cluster, tmp_path, command, *words, namespace="research")

    return run


def test_the_start_that_was_expected_at_the_decision_is_told(queue):
    result = queue("train", jobs=[job(**{DECISION: decided()})])

    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[:2] == ["research/train", "It waits, in LocalQueue cpu-lq, pending for 1h."]
    assert lines[2].startswith("Expected to start: in 1h30m, as forecast 10m")
    told = " ".join(result.stderr.split())
    assert told == RESTRICTED


def test_a_newer_forecast_of_the_controller_goes_before_it(queue):
    newer = ExpectedStart(
        at=time.time() + 600, as_of=time.time() - 40, cluster_queue="cpu-cq", position=4, pending=9
    )
    annotations = {DECISION: decided(), EXPECTED_START: forecasts.write_expected_start(newer)}

    (found,) = json.loads(queue("train", "-o", "json", jobs=[job(**annotations)]).stdout)[
        "workloads"
    ]

    assert (found["position"], found["clusterQueue"], abs(found["startsAt"] - newer.at) <= 1) == (
        4,
        "cpu-cq",
        True,
    )


def test_kueue_says_the_position_where_the_user_may_ask_it(queue):
    result = queue(
        "train",
        jobs=[job(**{DECISION: decided()})],
        **{VISIBILITY: (200, [], SERVED), PENDING: (200, [], POSITIONS)},
    )

    assert result.stdout.splitlines()[1].startswith("Position 7 in its ClusterQueue, in LocalQueue")


def test_all_that_wait_in_the_namespace_are_listed(queue):
    jobs = [job("b"), job("a", **{DECISION: decided()}), job("runs", suspend=False)]

    result = queue(jobs=jobs)

    rows = [line.split() for line in result.stdout.splitlines()]
    assert {row[1]: row[5] for row in rows[1:]} == {"b": "not", "a": "in"}


def test_a_start_that_has_passed_is_not_told_as_time(queue):
    result = queue("train", jobs=[job(**{DECISION: decided(starts_in=60.0)})])

    assert "Expected to start: any moment, as forecast 10m" in result.stdout


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ([job(suspend=False)], "Job research/train does not wait: it is started."),
        ([], "There is no Job research/train"),
    ],
)
def test_a_job_that_does_not_wait_is_told_so(queue, jobs, said):
    result = queue("train", jobs=jobs)

    assert result.exit_code == 1
    assert said in result.stderr


def test_explain_tells_it_too(queue):
    result = queue("train", command="explain", jobs=[job(**{DECISION: decided()})])

    assert "Expected to start: in 1h30m, as forecast 10m" in result.stdout


UNDATED = '{"starts": "2026-01-01T00:00:00Z"}'
HOSTILE = ["", "[]", "{", '{"starts": 7}', UNDATED, "{" * 600, "9" * 99]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_somebody_else_wrote_there_is_no_start(text):
    assert forecasts.read_expected_start({EXPECTED_START: text}) is None


def test_what_is_written_is_read_again():
    start = ExpectedStart(at=1e9, as_of=9e8, cluster_queue="cpu-cq", position=4, pending=9)

    assert (
        forecasts.read_expected_start({EXPECTED_START: forecasts.write_expected_start(start)})
        == start
    )


@pytest.mark.parametrize(
    ("at", "cluster_queue", "differs"),
    [
        (1100.0, "a", False),
        (1110.0, "a", False),
        (1112.0, "a", True),
        (1088.0, "a", True),
        (1100.0, "b", True),
    ],
)
def test_a_start_is_news_where_it_changed_by_a_tenth_of_the_wait(at, cluster_queue, differs):
    told = ExpectedStart(at=1100.0, as_of=0.0, cluster_queue="a")

    new = ExpectedStart(at=at, as_of=1000.0, cluster_queue=cluster_queue)

    assert new.differs(told, 1000.0) is differs
    assert new.differs(None, 1000.0)
