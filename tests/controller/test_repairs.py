"""What is taken back of the quota that Kueue gave a moved Job, and what is left to it."""

from __future__ import annotations

import pytest

from tests.controller.moving import (
    LATER,
    Cluster,
    arrive,
    change,
    eight,
    feed,
    job,
    lane,
    mover,
    stale,
    step,
    tell,
)
from tests.reconsider.queued_jobs import time, waiting
from tests.state.objects import condition
from webhook.api import resources as kinds
from webhook.api.kubernetes_api import Refused
from webhook.controller.mover import AGAIN_SECONDS, LOST_SECONDS, RACE_SECONDS

__all__ = ["feed"]

UNDONE = {"kueue-fallback.dev/policy": "none", "kueue-fallback.dev/undone": "light-gpu"}


class Running(Cluster):
    """What is written to Workloads; each answer of the API server in turn, then it agrees."""

    def __init__(self, *answers):
        super().__init__()
        self.answers = list(answers)

    def patch(self, path, body):
        answer = super().patch(path, body)
        if self.answers and "/workloads/" in path:
            raise self.answers.pop(0)
        return answer

    def post(self, path, body):
        if body["metadata"]["name"] in {each["metadata"]["name"] for _, each in self.events}:
            raise Refused(409, "already exists")
        return super().post(path, body)


def moved(**given):
    """A Job that was moved from GPU to CPU, by default just now."""
    found = job(1, option="cpu", moves=1, **given)
    found["spec"]["suspend"] = False
    return found


def undone(ago=0):
    """A Job that was sent to CPU, and whose decision was undone."""
    found = job(1)
    left = {"kueue-fallback.dev/undone-from": f"{time(ago)} cpu-cq"}
    found["metadata"]["annotations"] = {**UNDONE, **left}
    found["spec"]["suspend"] = False
    return found


def written(feed, workload, of, cluster=None, *, now=0.0):
    """Follow both for one step of a controller that has just started; return what it wrote."""
    cluster = cluster or Running()
    change(feed, cluster, workload)
    stepped = step(mover(cluster, of), feed, now=now)
    return [body for _, body in cluster.workloads], stepped.counts


def deactivated(cluster_queue):
    return {
        "metadata": {
            "resourceVersion": "5",
            "annotations": {"kueue-fallback.dev/repair": cluster_queue},
        },
        "spec": {"active": False},
    }


def test_a_stale_admission_is_taken_back_and_then_let_go_on(feed):
    cluster = Cluster()
    found = mover(cluster, *eight())
    step(found, feed)
    number = int(cluster.patched[0][0].rpartition("-")[2])
    change(feed, cluster, stale(number))

    stepped = step(found, feed, now=1.0)
    step(found, feed, now=1.5)

    ((path, body),) = cluster.workloads
    assert path.endswith(f"/namespaces/team/workloads/wl-{number}")
    assert body == deactivated("gpu-cq")
    assert stepped.counts["light-gpu", "repaired"] == 1

    freed = waiting(number, queue="cpu-lq", active=False)
    freed["metadata"]["annotations"] = {"kueue-fallback.dev/repair": "gpu-cq"}
    change(feed, cluster, freed)
    step(found, feed, now=2.0)

    assert cluster.workloads[1][1]["spec"] == {"active": True}
    assert cluster.workloads[1][1]["metadata"]["annotations"] == {"kueue-fallback.dev/repair": None}


def test_a_stale_admission_after_an_undo_is_taken_back_though_no_policy_is_left(feed):
    tell(feed, kinds.POLICIES)

    found = written(feed, stale(1, to="cpu", queue="gpu"), undone())

    assert found == ([deactivated("cpu-cq")], {("light-gpu", "repaired"): 1})


@pytest.mark.parametrize("ago", [0, RACE_SECONDS - 1])
def test_kueue_may_have_chosen_a_while_before_the_move_and_another_leader_repairs(feed, ago):
    found, _ = written(feed, stale(1, reserved_ago=ago), moved(moved_ago=5))

    assert found == [deactivated("gpu-cq")]


LONG = RACE_SECONDS + 2


@pytest.mark.parametrize(
    ("workload", "of"),
    [
        pytest.param(
            stale(1, reserved_ago=LONG, admitted_ago=None),
            moved(moved_ago=LONG),
            id="moved long ago",
        ),
        pytest.param(stale(1, reserved_ago=LONG), moved(), id="given quota long before"),
        pytest.param(
            stale(1, reserved_ago=30, admitted_ago=LONG), moved(moved_ago=10), id="admitted long"
        ),
        pytest.param(stale(1, ready=True), moved(), id="its pods are ready"),
        pytest.param(stale(1), {**moved(), "status": {"ready": 1}}, id="its Job has ready pods"),
        pytest.param(
            stale(1),
            {**moved(), "status": {"startTime": time(LONG)}},
            id="its Job started long ago",
        ),
        pytest.param(stale(1, to="cpu"), moved(), id="where it belongs"),
        pytest.param(stale(1, to="other"), moved(), id="where no option ever was"),
        pytest.param(stale(1, to="cpu", queue="gpu"), undone(LONG), id="undone long ago"),
        pytest.param(stale(1, queue="gpu"), moved(), id="it has not followed"),
        pytest.param(stale(1), job(1, option="cpu"), id="it was never moved"),
    ],
)
def test_what_no_move_of_ours_has_raced_is_left_alone(feed, workload, of):
    assert written(feed, workload, of)[0] == []


@pytest.mark.parametrize("ago", [0, 10, LONG, 7200])
@pytest.mark.parametrize("ready", [False, True])
def test_a_local_queue_that_is_made_anew_stops_nobody(feed, ago, ready):
    tell(feed, kinds.LOCAL_QUEUES, lane("gpu"), {**lane("cpu"), "spec": {"clusterQueue": "new-cq"}})
    runs = stale(1, to="cpu", reserved_ago=ago, admitted_ago=ago, ready=ready)

    assert written(feed, runs, moved(moved_ago=ago))[0] == []


def test_it_is_read_anew_before_it_is_stopped(feed):
    cluster = Running()
    change(feed, cluster, stale(1))
    cluster.stored["wl-1"] = stale(1, ready=True)

    step(mover(cluster, moved()), feed)

    assert cluster.workloads == []


def test_one_that_changed_meanwhile_is_looked_at_again_at_once(feed):
    cluster = Running(Refused(409, "changed"))
    change(feed, cluster, stale(1))
    found = mover(cluster, moved())

    first, second = step(found, feed), step(found, feed, now=0.1)

    assert (first.lines, len(cluster.workloads)) == ([], 2)
    assert second.counts["light-gpu", "repaired"] == 1


def test_what_cannot_be_written_is_said_and_tried_again_later(feed):
    cluster = Running(Refused(403, "no"))
    change(feed, cluster, stale(1))
    found = mover(cluster, moved())

    lines = step(found, feed).lines
    step(found, feed, now=1.0)
    assert len(cluster.workloads) == 1
    step(found, feed, now=AGAIN_SECONDS)

    assert lines == ["Job team/job-1: its Workload is not repaired: no (403)"]
    assert len(cluster.workloads) == 2


@pytest.mark.parametrize("leads", [[False], [True, False]], ids=["never", "no more"])
def test_who_does_not_lead_takes_nothing_back(feed, leads):
    cluster, still = Running(), iter(leads)
    change(feed, cluster, stale(1))

    step(mover(cluster, moved(), may_write=lambda: next(still, False)), feed)

    assert cluster.workloads == []


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(stale(1, queue="gpu"), id="it does not follow the queue's label"),
        pytest.param(stale(1, ready=True), id="it runs"),
    ],
)
def test_a_race_that_was_lost_is_told_once_on_the_job(feed, workload):
    cluster = Running()
    change(feed, cluster, workload)
    first, another = (mover(cluster, moved()) for _ in range(2))

    step(first, feed, now=LOST_SECONDS)
    assert cluster.events == []
    for each in (first, another):
        step(each, feed, now=LOST_SECONDS + 1)
        step(each, feed, now=LOST_SECONDS + 2)

    ((path, event),) = cluster.events
    assert path == "/api/v1/namespaces/team/events"
    assert (event["reason"], event["involvedObject"]["name"]) == ("MoveLost", "job-1")
    assert event["message"] == (
        "sent to LocalQueue cpu-lq just when Kueue gave it quota in ClusterQueue gpu-cq: "
        "it goes on there"
    )
    assert cluster.workloads == []


def test_a_move_that_arrives_is_no_lost_one(feed):
    cluster = Cluster()
    found = mover(cluster, *eight())
    step(found, feed)
    arrive(feed, cluster, found)

    seen = step(found, feed, now=LATER)
    step(found, feed, now=LOST_SECONDS + 1)

    assert seen.counts["light-gpu", "moved"] == 1
    assert cluster.events == []


def left_deactivated(**given):
    """A Workload that somebody stopped while it ran on GPUs, and whose Job was moved since."""
    found = waiting(1, active=False, also=(condition("Evicted"),), **given)
    found["metadata"]["resourceVersion"] = "5"
    return found


def test_a_deactivated_workload_follows_its_moved_job_and_stays_deactivated(feed):
    cluster, of = Running(), moved()
    of["spec"]["suspend"] = True

    found, outcomes = written(feed, left_deactivated(), of, cluster)

    assert found == [{"metadata": {"resourceVersion": "5"}, "spec": {"queueName": "cpu-lq"}}]
    assert outcomes == {}


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(waiting(1, also=(condition("Evicted"),)), id="active"),
        pytest.param(left_deactivated(queue="cpu-lq"), id="has followed"),
        pytest.param({**stale(1), "spec": {**stale(1)["spec"], "active": False}}, id="has quota"),
    ],
)
def test_no_other_workload_is_sent_after_its_job(feed, workload):
    of = moved()
    of["spec"]["suspend"] = True

    assert not any("queueName" in body.get("spec", {}) for body in written(feed, workload, of)[0])
