"""An undo that cannot be made whole: nothing changes but the wish, and a warning says why."""

import json
from dataclasses import replace

import pytest

from tests.flow.movable_jobs import QUEUE, UNNAMED, stored
from tests.flow.moves import asking, decision, reconsidering, with_spec
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from webhook.model.job import DECISION
from webhook.model.queues import MULTIKUEUE, AdmissionCheck
from webhook.state.snapshot import updated


@pytest.fixture
def server():
    """Whose options differ in no variable, with a full GPU queue."""
    return Server(with_spec(reconsidering(), options=UNNAMED))


def undo(server, before, annotations=()):
    return server.update(before, asking(before, "none", **dict(annotations)))


def refused(server, before):
    """Ask; returns the obstacle and the warnings, once nothing has changed."""
    after, warnings = undo(server, before)
    assert after == before
    assert server.count("kueue_fallback_moves_total", outcome="refused") == 1
    return str(server.considered[-1].outcome.obstacle), "\n".join(warnings)


def test_a_job_that_runs_is_not_undone(server):
    before = stored(server)
    before["spec"]["suspend"] = False

    found = refused(server, before)

    text = "kueue-fallback: not undone: it is no longer suspended"
    assert found == ("notSuspended", text)
    assert server.considered[-1].outcome.audit == {"not-moved": "notSuspended"}


def test_a_variable_that_the_job_did_not_set_keeps_the_decision():
    server = Server(paper_snapshot())
    job = light_job()
    del job["spec"]["template"]["spec"]["containers"][0]["env"]

    obstacle, warning = refused(server, stored(server, job))

    assert obstacle == "immutableEnv"
    assert warning == (
        "kueue-fallback: not undone: an environment variable would change, "
        "which Kubernetes allows at creation only"
    )


def test_a_job_that_named_no_queue_would_wait_in_none():
    snapshot = with_spec(reconsidering(), options=UNNAMED)
    match = snapshot.fallback.policies[0].spec.match.model_copy(update={"without_queue": True})
    server = Server(with_spec(snapshot, match=match))
    job = light_job()
    del job["metadata"]["labels"][QUEUE]

    before = stored(server, job)

    assert before["metadata"]["labels"][QUEUE] == "cpu-lq"
    assert refused(server, before)[0] == "noQueue"


@pytest.mark.parametrize(
    ("text", "obstacle"),
    [
        ("{}", "unreadable"),
        ('{"version":2}', "newerDecision"),
        (json.dumps({"version": 1, "original": {"/spec/suspend": True}}), "unreadable"),
    ],
)
def test_a_decision_that_cannot_be_undone_stays(server, text, obstacle):
    before = stored(server)
    before["metadata"]["annotations"][DECISION] = text

    assert refused(server, before)[0] == obstacle


def test_a_decision_that_the_same_update_changes_is_left_to_its_owner(server):
    before = stored(server)

    after, (warning,) = undo(server, before, {DECISION: "{}"})

    assert after["spec"] == before["spec"]
    assert warning.startswith("kueue-fallback: not undone: its decision is changed")
    assert decision(before)["option"] == "cpu"


def test_a_job_that_was_not_created_for_other_clusters_does_not_go_to_their_queue():
    snapshot = with_spec(reconsidering(), options=UNNAMED)
    server = Server(snapshot)
    before = stored(server)
    gpu = replace(snapshot.setup.cluster_queues["gpu-cq"], checks=("far",))
    far = AdmissionCheck(controller=MULTIKUEUE)
    server.show(
        updated(
            snapshot,
            cluster_queues={**snapshot.setup.cluster_queues, "gpu-cq": gpu},
            checks={"far": far},
        )
    )

    assert refused(server, before) == (
        "managedBy",
        (
            "kueue-fallback: not undone: its queue is MultiKueue's, and who runs a Job (managedBy) "
            "is fixed at creation"
        ),
    )
