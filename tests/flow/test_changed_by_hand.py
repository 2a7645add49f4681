"""A person changes the queue of a decided Job with kubectl: it is kept, and that is said."""

import copy

import pytest

from tests.flow.movable_jobs import stored
from tests.flow.moves import reconsidering
from tests.servers import Server

QUEUE = "kueue.x-k8s.io/queue-name"
KEPT = "kueue-fallback: kept in cpu-lq, as it was decided"


def labelled(job, queue):
    changed = copy.deepcopy(job)
    changed["metadata"]["labels"][QUEUE] = queue
    return changed


@pytest.fixture
def server():
    return Server(reconsidering())


@pytest.mark.parametrize("manager", ["kubectl-label", "kubectl-edit", "kubectl-patch"])
def test_whoever_changes_the_queue_by_hand_is_told_that_it_is_kept(server, manager):
    before = stored(server)

    after, warnings = server.update(
        before, labelled(before, "gpu-lq"), options={"fieldManager": manager}
    )

    assert after == before
    assert warnings == [KEPT, "kueue-fallback: to put it back: kubectl fallback undo light -n team"]


def test_what_has_started_stays_there(server):
    before = stored(server)
    before["spec"]["suspend"] = False

    _, warnings = server.update(
        before, labelled(before, "gpu-lq"), options={"fieldManager": "kubectl-label"}
    )

    assert warnings == [f"{KEPT}; it is no longer suspended"]


@pytest.mark.parametrize("manager", ["kubectl-client-side-apply", "argocd-controller", ""])
def test_a_manifest_that_is_applied_again_is_put_right_in_silence(server, manager):
    before = stored(server)

    after, warnings = server.update(
        before, labelled(before, "gpu-lq"), options={"fieldManager": manager}
    )

    assert (after, warnings) == (before, [])


def test_another_change_by_hand_is_taken_in_silence(server):
    before = stored(server)
    changed = copy.deepcopy(before)
    changed["metadata"]["labels"]["owner"] = "ann"

    after, warnings = server.update(before, changed, options={"fieldManager": "kubectl-label"})

    assert (after, warnings) == (changed, [])
