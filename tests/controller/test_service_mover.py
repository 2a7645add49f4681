"""What the controller writes to move a service, and what it makes of the answers."""

import json

import pytest

from tests.controller.stepping import Metered, at
from tests.reconsider.serving import NOW, chat, known
from webhook.api.kubernetes_api import Refused, Unreachable
from webhook.api.watch import WatchUpdate
from webhook.controller.mover import REFUSED_SECONDS
from webhook.controller.service_mover import STEP_SECONDS, ServiceMover
from webhook.jobs import BY_NAME
from webhook.model.words import rfc3339
from webhook.reconsider import pending_jobs

KIND = BY_NAME["Deployment"]
LATER = STEP_SECONDS + 1


class Listed:
    lists_workloads = True


class Cluster:
    """An API server with the webhook behind it, as far as moves of services are concerned."""

    def __init__(self, *, refuses=None, answers=None):
        self.patched, self._refuses, self._answers = [], refuses, answers

    def patch(self, path, body):
        self.patched.append((path, body))
        if self._refuses:
            raise self._refuses
        option = body["metadata"]["annotations"]["kueue-fallback.dev/move-to"]
        return stored(self._answers or option, ["h100", option], is_done=False)


def stored(option, stays, *, is_done, ago=0, why="cheaper"):
    """A decided Deployment as the API server sends it, *ago* seconds after its last move."""
    source = chat()
    history = [
        {"time": rfc3339(NOW - ago - 60 * left), "option": each, "reason": f"moved to x: {why}"}
        for left, each in enumerate(reversed(stays))
    ][::-1]
    decision = {
        "version": 1,
        "id": "id-1",
        "time": rfc3339(NOW - 86_400),
        "policy": "serving",
        "mode": "Enforce",
        "option": option,
        "reason": history[-1]["reason"],
        "from": {"queue": "h100-lq"},
        "original": {},
        "moves": len(stays) - 1,
        "history": history if len(stays) > 1 else [],
        "options": [],
    }
    metadata = {
        "uid": "1-2",
        "resourceVersion": "7",
        "generation": 3,
        "creationTimestamp": "2026-11-01T06:00:00Z",
    }
    annotations = source["metadata"]["annotations"]
    annotations["kueue-fallback.dev/decision"] = json.dumps(decision)
    reason = "NewReplicaSetAvailable" if is_done else "ReplicaSetUpdated"
    progress = {"type": "Progressing", "status": "True", "reason": reason}
    return {
        **source,
        "metadata": {**source["metadata"], **metadata},
        "status": {"observedGeneration": 3, "conditions": [progress]},
    }


def moving(cluster, *services, may_write=True):
    def make(metrics):
        return ServiceMover(
            cluster, max_state_age=15.0, may_write=lambda: may_write, metrics=metrics
        )

    found = Metered(make, "controller_moves")
    watched = pending_jobs.followed(KIND)
    entries = tuple(watched.read(watched.kind, each) for each in services)
    found.part.take(WatchUpdate(kind=watched.kind, at=0.0, entries=entries))
    return found


def step(found, now=0.0):
    return found.step(at(now, NOW + now, snapshot=known(), feed=Listed()))


def test_a_move_is_one_annotation_with_its_reason():
    cluster = Cluster()

    stepped = step(moving(cluster, stored("h100", ["h100"], is_done=True)))

    wish = {
        "kueue-fallback.dev/move-to": "l40s",
        "kueue-fallback.dev/move-reason": "costs 24 less in 24h",
    }
    path = "/apis/apps/v1/namespaces/research/deployments/chat"
    assert cluster.patched == [(path, {"metadata": {"resourceVersion": "7", "annotations": wish}})]
    assert stepped.counts == {("serving", "moved"): 1}
    assert stepped.lines == ["research/deployment/chat: moved to l40s: costs 24 less in 24h"]


def test_while_its_pods_are_replaced_it_is_not_asked_for_again():
    cluster = Cluster()
    found = moving(cluster, stored("h100", ["h100"], is_done=True))

    step(found)
    step(found, LATER)

    assert len(cluster.patched) == 1
    assert found.shown("controller_not_moved_jobs", policy="serving", reason="rolling") == 1


def test_what_is_not_ready_in_time_goes_back_and_that_is_counted():
    cluster = Cluster()
    late = stored("l40s", ["h100", "l40s"], is_done=False, ago=601)

    stepped = step(moving(cluster, late))

    ((_, body),) = cluster.patched
    assert body["metadata"]["annotations"] == {
        "kueue-fallback.dev/move-to": "h100",
        "kueue-fallback.dev/move-reason": "put back, as new pods were not ready in 10m",
    }
    assert stepped.counts == {("serving", "putBack"): 1}


def test_what_was_put_back_is_read_of_the_decision():
    why = "put back, as new pods were not ready in 10m"
    back = stored("h100", ["l40s", "h100"], is_done=True, ago=100, why=why)

    rollout = pending_jobs.read_job(back, KIND).rollout

    assert (rollout.left, rollout.moved, rollout.failed) == (
        "",
        (NOW - 100,),
        {"l40s": NOW - 100},
    )


@pytest.mark.parametrize(
    ("cluster", "outcome", "is_asked_again"),
    [
        (Cluster(refuses=Refused(409, "changed")), "conflict", True),
        (Cluster(refuses=Refused(422, "is invalid")), "refused", False),
        (Cluster(refuses=Unreachable("away")), "failed", True),
        (Cluster(answers="h100"), "refused", False),
    ],
)
def test_a_move_that_does_not_come_off_is_counted(cluster, outcome, is_asked_again):
    found = moving(cluster, stored("h100", ["h100"], is_done=True))

    stepped = step(found)
    step(found, LATER)

    assert stepped.counts == {("serving", outcome): 1}
    assert len(cluster.patched) == (2 if is_asked_again else 1)
    assert REFUSED_SECONDS > LATER


def test_nothing_is_written_by_who_does_not_lead_or_knows_only_what_is_old():
    cluster = Cluster()
    service = stored("h100", ["h100"], is_done=True)

    step(moving(cluster, service, may_write=False))
    step(moving(cluster, service), now=20.0)

    assert cluster.patched == []


def test_a_watch_that_fails_is_told_of_once():
    found = moving(Cluster(), stored("h100", ["h100"], is_done=True)).part
    name = pending_jobs.followed(KIND).kind

    told = [found.take(WatchUpdate(kind=name, at=0.0, error=text)) for text in ("no", "no", "")]

    assert told == [(f"{name}: no",), (), (f"{name}: readable again",)]
