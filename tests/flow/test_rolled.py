"""A Deployment that serves is moved by what its pods are made of, and goes back the same way."""

import copy

import pytest

from tests.flow.movable_jobs import QUEUE
from tests.flow.moves import asking, plain
from tests.flow.signing_server import KEYS, decision_of
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from webhook.model.job import DECISION, MOVE_TO, OPTION_LABEL, PODS_QUEUE, PRIORITY_LABEL
from webhook.model.queues import KueueConfig
from webhook.model.signatures import own_words
from webhook.state.snapshot import updated

REVIEWED = {
    "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
    "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
}
ROLLING = {"maxSurge": 0, "maxUnavailable": "25%"}


def web(**metadata):
    """A light Deployment."""
    job = light_job()
    spec = {"replicas": 2, "strategy": {"type": "RollingUpdate", "rollingUpdate": {**ROLLING}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**job["metadata"], "name": "web", **metadata},
        "spec": {**spec, "template": job["spec"]["template"]},
    }


def by_kueue(deployment):
    """What Kueue's webhook makes of it, in each review."""
    after = copy.deepcopy(deployment)
    labels = after["spec"]["template"]["metadata"].setdefault("labels", {})
    labels[QUEUE] = after["metadata"]["labels"][QUEUE]
    return after


def admitted(server, before, wanted):
    """Return *wanted* as stored: our webhook is called before and after Kueue's."""
    first, warnings = server.update(before, wanted, **REVIEWED)
    second, _ = server.update(before, by_kueue(first), **REVIEWED)
    return second, warnings


def stored(server, deployment):
    created = by_kueue(server.create(deployment, **REVIEWED)[0])
    known = {"uid": "1-2-3", "creationTimestamp": "2001-09-09T01:46:40Z"}
    return {**created, "metadata": {**created["metadata"], **known}, "status": {"readyReplicas": 2}}


def world(**state):
    kueue = KueueConfig(frameworks=("batch/job", "pod", "deployment"))
    return updated(paper_snapshot(kinds=("Deployment",), kueue=kueue, **state), signing=KEYS)


@pytest.fixture
def server():
    """Whose GPU queue has room, so that the Deployment is sent there."""
    return Server(world(pending=0))


def queues_of(deployment):
    template = deployment["spec"]["template"]["metadata"]
    return deployment["metadata"]["labels"][QUEUE], template["labels"][QUEUE]


def resources_of(deployment):
    return deployment["spec"]["template"]["spec"]["containers"][0]["resources"]


def queue_of_pods(deployment):
    text = deployment["metadata"]["annotations"][PODS_QUEUE]
    return own_words(text, "team", KEYS, created=float("inf"))


def test_it_is_moved_by_its_template_and_keeps_its_own_queue(server):
    before = stored(server, web())

    moved, (warning,) = admitted(server, before, asking(before, "cpu"))

    assert queues_of(moved) == ("gpu-lq", "cpu-lq")
    assert queue_of_pods(moved) == "cpu-lq"
    assert "nvidia.com/gpu" not in resources_of(moved)["requests"]
    assert moved["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert (decision_of(moved)["option"], decision_of(moved)["moves"]) == ("cpu", 1)
    assert MOVE_TO not in moved["metadata"]["annotations"]
    assert warning.endswith("to take it back: kubectl fallback undo deployment/web -n team")


def test_moved_back_it_is_what_it_was(server):
    before = stored(server, web())
    moved, _ = admitted(server, before, asking(before, "cpu"))

    back, _ = admitted(server, moved, asking(moved, "gpu"))

    # So its old ReplicaSet goes on.
    assert back["spec"]["template"] == before["spec"]["template"]
    assert back["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert PODS_QUEUE not in back["metadata"]["annotations"]


def test_undone_it_is_as_it_was_submitted(server):
    before = stored(server, web())
    moved, _ = admitted(server, before, asking(before, "cpu"))

    undone, _ = admitted(server, moved, asking(moved, "none"))

    assert plain(undone["spec"]) == by_kueue(web())["spec"]
    assert OPTION_LABEL not in undone["metadata"]["labels"]
    assert {DECISION, PODS_QUEUE}.isdisjoint(undone["metadata"]["annotations"])


def test_undone_in_another_queue_than_its_own_it_stays_there(server):
    server.show(world())
    before = stored(server, web())
    assert queues_of(before) == ("cpu-lq", "cpu-lq")

    undone, _ = admitted(server, before, asking(before, "none"))
    # As kubectl applies its manifest: the API server would refuse the other queue.
    labels = {**undone["metadata"]["labels"], QUEUE: "gpu-lq"}
    wanted = {**undone, "metadata": {**undone["metadata"], "labels": labels}}
    again, _ = admitted(server, undone, wanted)

    assert (queues_of(undone), queues_of(again)) == ((("cpu-lq", "gpu-lq"),) * 2)
    assert again["spec"] == undone["spec"]
    assert undone["metadata"]["labels"][OPTION_LABEL] == "none"


def test_what_its_author_says_of_its_own_queue_ends_the_note(server):
    before = stored(server, web())
    moved, _ = admitted(server, before, asking(before, "cpu"))
    labels = {**moved["metadata"]["labels"], QUEUE: "other-lq"}

    after, _ = admitted(
        server, moved, {**moved, "metadata": {**moved["metadata"], "labels": labels}}
    )

    assert queues_of(after) == ("other-lq", "other-lq")
    assert PODS_QUEUE not in after["metadata"]["annotations"]


def test_a_note_that_is_not_signed_leads_nowhere(server):
    before = stored(server, web())
    forged = {**before["metadata"]["annotations"], PODS_QUEUE: "cpu-lq"}

    after, _ = admitted(
        server, before, {**before, "metadata": {**before["metadata"], "annotations": forged}}
    )

    assert after == before


@pytest.mark.parametrize(
    ("spec", "because"),
    [
        ({"paused": True}, "its rollout is paused"),
        ({"strategy": {"type": "Recreate"}}, "its strategy is Recreate"),
    ],
)
def test_what_cannot_roll_without_a_gap_is_refused(server, spec, because):
    wanted = web()
    before = stored(server, {**wanted, "spec": {**wanted["spec"], **spec}})

    after, (warning,) = admitted(server, before, asking(before, "cpu"))

    assert after == before
    assert because in warning


def test_its_priority_stays(server):
    snapshot = world(pending=0)
    policy = snapshot.fallback.policies[0]
    options = [policy.spec.options[0], policy.spec.options[1].model_copy()]
    before = stored(server, web(labels={**web()["metadata"]["labels"], PRIORITY_LABEL: "low"}))
    options[1] = options[1].model_copy(update={"priority_class": "high"})
    changed = policy.spec.model_copy(update={"options": tuple(options)})
    policies = (policy.model_copy(update={"spec": changed}),)
    server.show(updated(snapshot, policies=policies))

    after, (warning,) = admitted(server, before, asking(before, "cpu"))

    assert after == before
    assert "its label kueue.x-k8s.io/priority-class would " in warning
