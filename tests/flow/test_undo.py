"""A pending Job is put back as it was submitted in the very update that asks for it, and pinned."""

import copy
import json

import pytest

from tests.builders import policy
from tests.flow.movable_jobs import ALIKE, ENV, QUEUE, UNNAMED, pod_of, small_job, stored
from tests.flow.moves import asking, move, pending, plain, reconsidering, with_spec
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from webhook.model.job import DECISION, DECISION_ID, MOVE_REASON, MOVE_TO, OPTION_LABEL, REASON
from webhook.model.policy.fallback_policy import Mode
from webhook.model.snapshot_parts import OffSwitch
from webhook.state.snapshot import updated

POLICY = "kueue-fallback.dev/policy"
LEFT = "kueue-fallback.dev/undone"
LEFT_AT = "kueue-fallback.dev/undone-from"
PINNED = "decided no more (kueue-fallback.dev/policy: none)"
UNDONE = f"undone: in gpu-lq as submitted, and {PINNED}"
TOLD = {POLICY: "none", REASON: f"kueue-fallback: {UNDONE}"}


@pytest.fixture
def server():
    """Whose options differ in no variable, with a full GPU queue."""
    return Server(with_spec(reconsidering(), options=UNNAMED))


def undo(server, before, **annotations):
    after, warnings = server.update(before, asking(before, "none", **annotations))
    return untimed(after), warnings


def untimed(job):
    """Leave out when that was."""
    job["metadata"]["annotations"].pop(LEFT_AT, None)
    return job


def pinned(job, *, from_elsewhere=True):
    """Return the Job as an undo leaves it, out of another queue or where it was."""
    found = copy.deepcopy(job)
    marks = {**TOLD, **({LEFT: "light-gpu"} if from_elsewhere else {})}
    found["metadata"].setdefault("annotations", {}).update(marks)
    return found


def test_what_the_job_said_of_policies_gives_way_to_the_pin(server):
    server.show(with_spec(reconsidering(), options=UNNAMED))
    before = stored(server, light_job(annotations={POLICY: "light-gpu", "note": "mine"}))

    after, _ = undo(server, before)

    found = after["metadata"]["annotations"]
    assert found == {**TOLD, LEFT: "light-gpu", "note": "mine"}


def test_a_job_that_stayed_where_it_was_loses_its_marks_alone():
    server = Server(with_spec(reconsidering(pending=0), options=ALIKE))
    before = stored(server, small_job())

    after, warnings = undo(server, before)

    wanted = pinned(pending(small_job()), from_elsewhere=False)
    assert plain(after["metadata"]) == plain(wanted["metadata"])
    assert after["spec"] == before["spec"]
    assert warnings == [f"kueue-fallback: {UNDONE}"]


def test_where_the_queue_alone_differs_the_pod_template_stays_as_it_is():
    server = Server(with_spec(reconsidering(pending=0), options=ALIKE))
    before, _ = move(server, stored(server, small_job()), "cpu")
    assert before["metadata"]["labels"][QUEUE] == "cpu-lq"

    after, _ = undo(server, before)

    assert after["metadata"]["labels"] == small_job()["metadata"]["labels"]
    assert after["spec"] == before["spec"]
    assert DECISION_ID in pod_of(after)["metadata"]["annotations"]


def test_a_variable_that_is_read_from_an_annotation_is_so_still_with_the_submitted_value():
    server = Server(reconsidering())
    before = stored(server)

    after, warnings = undo(server, before)

    (container,) = pod_of(after)["spec"]["containers"]
    (submitted,) = pod_of(light_job())["spec"]["containers"]
    assert plain({**container, "env": submitted["env"]}) == submitted
    assert container["env"] == pod_of(before)["spec"]["containers"][0]["env"]
    assert pod_of(after)["metadata"]["annotations"] == {ENV: "gpu"}
    assert after["metadata"]["labels"][OPTION_LABEL] == "none"
    assert warnings == [f"kueue-fallback: {UNDONE}"]


@pytest.mark.parametrize(
    "snapshot",
    [
        with_spec(reconsidering(), mode=Mode.OBSERVE),
        updated(reconsidering(), policies=()),
        reconsidering(off=OffSwitch()),
        reconsidering(as_of=0.0),
        reconsidering(generation=0),
        with_spec(reconsidering(), options=policy({"name": "a", "queue": "b"}).spec.options),
    ],
)
def test_nothing_but_the_job_is_looked_at(server, snapshot):
    before = stored(server)

    after, _ = undo(Server(snapshot), before)

    assert plain(after) == plain(pinned(pending(light_job())))


def test_a_decision_that_only_advised_is_taken_off_with_the_label_that_brought_it_here():
    server = Server(with_spec(reconsidering(), mode=Mode.ADVISE))
    before = stored(server)
    asked = asking(before, "none")
    asked["metadata"]["labels"][OPTION_LABEL] = "none"

    after, warnings = server.update(before, asked)

    assert plain(after) == plain(pinned(pending(light_job()), from_elsewhere=False))
    assert warnings == [f"kueue-fallback: {UNDONE}"]


def test_refused_it_takes_off_the_label_that_brought_it_here():
    server = Server(with_spec(reconsidering(), mode=Mode.ADVISE))
    before = stored(server)
    before["spec"]["suspend"] = False
    asked = asking(before, "none")
    asked["metadata"]["labels"][OPTION_LABEL] = "none"

    assert server.update(before, asked)[0] == before


@pytest.mark.parametrize("suspend", [True, False])
def test_a_job_without_a_decision_is_pinned_alone(server, suspend):
    before = pending(light_job())
    before["spec"]["suspend"] = suspend
    asked = asking(before, "none", "a reason")
    asked["metadata"]["labels"][OPTION_LABEL] = "none"

    after, warnings = server.update(before, asked)

    wanted = copy.deepcopy(before)
    wanted["metadata"]["annotations"] = {POLICY: "none"}
    assert after == wanted
    text = f"kueue-fallback: nothing to undo, as it has no decision; {PINNED}"
    assert warnings == [text]


def test_it_is_counted_logged_and_audited(server):
    before = stored(server)

    undo(server, before)

    assert server.count("kueue_fallback_moves_total", outcome="undone") == 1
    assert server.count("kueue_fallback_moves_total", outcome="moved") == 0
    assert server.considered[-1].outcome.audit == {"undone": UNDONE}
    line = server.logged()[-1]
    assert (line["msg"], line["name"], line["queue"]) == ("undone", "light", "gpu-lq")


def test_an_undone_job_is_moved_no_more(server):
    after, _ = undo(server, stored(server))

    asked = asking(after, "cpu")
    asked["metadata"]["labels"][OPTION_LABEL] = "cpu"
    again, _ = server.update(after, asked)

    assert again == after
    assert server.considered[-1].outcome.obstacle == "optedOut"


def test_created_again_from_what_it_is_now_it_is_not_decided(server):
    after, _ = undo(server, stored(server))
    copied = {key: value for key, value in after.items() if key != "status"}
    copied["metadata"] = {**after["metadata"], "name": "again"}

    created, warnings = server.create(copied)

    assert (created, warnings) == (copied, [])


def test_its_manifest_applied_again_changes_nothing(server):
    after, _ = undo(server, stored(server))
    again = pinned(pending(light_job()))

    assert server.update(after, again) == (again, [])


def test_a_manifest_applied_with_the_wish_is_undone_too(server):
    before = stored(server)
    annotations = before["metadata"]["annotations"]
    asked = asking(pending(light_job(annotations=annotations)), "none", "a reason")

    after, _ = server.update(before, asked)

    assert plain(untimed(after)) == plain(pinned(pending(light_job())))


def test_a_dry_run_shows_it(server):
    before = stored(server)

    after, _ = server.update(before, asking(before, "none"), dry_run=True)

    assert not {DECISION, MOVE_TO, MOVE_REASON} & set(after["metadata"]["annotations"])


@pytest.mark.parametrize(
    ("moves", "left"), [((), "cpu-cq"), (("gpu",), "cpu-cq"), (("gpu", "cpu"), "cpu-cq")]
)
def test_it_says_when_it_was_and_where_it_does_not_belong(monkeypatch, server, moves, left):
    job = stored(server)
    for option in moves:
        job, _ = move(server, job, option)
    monkeypatch.setattr("webhook.serving.handler.time.time", lambda: 1_800_000_000.0)

    after, _ = server.update(job, asking(job, "none"))

    at, _, cluster_queues = after["metadata"]["annotations"][LEFT_AT].partition(" ")
    assert (at, cluster_queues) == ("2027-01-15T08:00:00Z", left)


def test_what_came_from_elsewhere_stays_known_when_it_is_undone_again(server):
    before = stored(server)
    undone, _ = server.update(before, asking(before, "none"))
    labels = {**undone["metadata"]["labels"], OPTION_LABEL: "none"}
    labelled = {**undone, "metadata": {**undone["metadata"], "labels": labels}}

    after, _ = server.update(labelled, asking(labelled, "none"))

    assert after["metadata"]["annotations"] == undone["metadata"]["annotations"]
    assert set(after["metadata"]["annotations"]) == {*TOLD, LEFT, LEFT_AT}


def env_of(job):
    return pod_of(job)["spec"]["containers"][0]["env"]


def test_an_undone_job_lets_anybody_apply_the_variable_that_it_reads_from_an_annotation():
    server = Server(paper_snapshot())
    before = stored(server)
    claim = {"f:name": {}, "f:value": {}}
    env = {"f:env": {'k:{"name":"RUN_ENV"}': claim}}
    spec = {
        "f:containers": {f'k:{{"name":"{pod_of(before)["spec"]["containers"][0]["name"]}"}}': env}
    }
    fields = {"f:spec": {"f:template": {"f:spec": spec}}}
    before["metadata"]["managedFields"] = [{"manager": "kubectl", "fieldsV1": fields}]

    undone, _ = undo(server, before)
    again = copy.deepcopy(undone)
    again["metadata"]["managedFields"] = before["metadata"]["managedFields"]
    applied, _ = server.update(undone, again)

    for job in (undone, applied):
        assert "f:value" not in json.dumps(job["metadata"]["managedFields"])
    assert "f:value" in json.dumps(move(server, before, "gpu")[0]["metadata"]["managedFields"])


def test_another_value_of_a_variable_that_is_read_from_an_annotation_is_left_to_kubernetes():
    server = Server(paper_snapshot())
    undone, _ = undo(server, stored(server))
    again = copy.deepcopy(undone)
    pod_of(again)["spec"]["containers"][0]["env"] = [{"name": "RUN_ENV", "value": "mine"}]

    assert server.update(undone, again) == (again, [])


def test_a_move_asked_of_an_undone_job_leaves_the_label_by_which_it_is_restored():
    server = Server(paper_snapshot())
    undone, _ = undo(server, stored(server))
    asked = asking(undone, "cpu")
    asked["metadata"]["labels"][OPTION_LABEL] = "cpu"

    after, _ = server.update(undone, asked)

    assert after == undone


def test_undone_again_it_keeps_the_label_by_which_it_is_restored():
    server = Server(paper_snapshot())
    undone, _ = undo(server, stored(server))

    after, _ = undo(server, undone)

    assert after == undone


def test_a_job_of_a_policy_that_does_not_reconsider_goes_back_by_a_move_too():
    server = Server(paper_snapshot())
    before = stored(server)

    after, _ = move(server, before, "gpu")

    assert after["metadata"]["labels"][QUEUE] == "gpu-lq"
    assert env_of(after) == env_of(before)
    assert pod_of(after)["metadata"]["annotations"][ENV] == "gpu"
