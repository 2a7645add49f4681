"""A pending Job is sent to another option in the very update that asks for it."""

import copy

import pytest

from tests.flow.movable_jobs import ALIKE, ENV, QUEUE, UNNAMED, pod_of, small_job, stored
from tests.flow.moves import (
    asking,
    decision,
    move,
    pending,
    plain,
    reconsidering,
    undone_job,
    with_spec,
)
from tests.reviews import light_job
from tests.servers import Server
from webhook.model.job import DECISION, DECISION_ID, MOVE_REASON, MOVE_TO, OPTION_LABEL, REASON

WHY = "gpu-lq would start it in 15m, cpu-lq now"
MOVED = f"moved to cpu-lq (cpu): {WHY}"
WARNING = (
    "kueue-fallback: moved to cpu-lq without nvidia.com/gpu;"
    " to take it back: kubectl fallback undo light -n team"
)


@pytest.fixture
def server():
    """Whose GPU queue has room, so that Jobs stay there."""
    return Server(reconsidering(pending=0))


def test_it_is_what_it_would_be_had_it_been_sent_there_at_once(server):
    moved, warnings = move(server, stored(server), "cpu", WHY)

    direct = stored(Server(reconsidering()))
    pod_of(direct)["metadata"]["annotations"][DECISION_ID] = decision(moved)["id"]
    assert warnings == [WARNING]
    assert plain(moved["spec"]) == plain(direct["spec"])
    assert moved["metadata"]["labels"] == direct["metadata"]["labels"]
    assert moved["metadata"]["annotations"][REASON] == f"kueue-fallback: {MOVED}"
    assert pod_of(moved)["metadata"]["annotations"][ENV] == "cpu"


def test_the_decision_keeps_its_id_and_tells_of_the_stays(server):
    before = stored(server)

    moved, _ = move(server, before, "cpu", WHY)

    first, found = decision(before), decision(moved)
    assert [found[key] for key in ("id", "from", "policy")] == [
        first[key] for key in ("id", "from", "policy")
    ]
    assert (found["option"], found["reason"], found["moves"]) == ("cpu", MOVED, 1)
    assert found["history"] == [
        {key: first[key] for key in ("time", "option", "reason")},
        {"time": found["time"], "option": "cpu", "reason": MOVED},
    ]
    assert [option["name"] for option in found["options"]] == ["gpu", "cpu"]


def test_the_wish_is_consumed_and_no_placement_is_entered(server):
    before = stored(server)

    moved, _ = move(server, before, "cpu", WHY)

    assert not {MOVE_TO, MOVE_REASON} & set(moved["metadata"]["annotations"])
    assert server.handler.placements() == 1


def test_nobody_need_say_why(server):
    moved, _ = move(server, stored(server), "cpu")

    assert decision(moved)["reason"] == "moved to cpu-lq (cpu): as asked"


def test_the_stays_are_bounded_and_the_moves_counted(server):
    job = stored(server)
    for number in range(12):
        job, _ = move(server, job, ("cpu", "gpu")[number % 2], f"reason {number}")

    found = decision(job)
    reasons = [stay["reason"].rpartition(": ")[2] for stay in found["history"]]
    assert found["moves"] == 12
    assert reasons == [f"reason {number}" for number in range(2, 12)]


def test_a_manifest_applied_again_with_the_wish_moves_the_job_that_is_stored(server):
    before = stored(server)
    asked = asking(pending(light_job(annotations=before["metadata"]["annotations"])), "cpu", WHY)

    moved, warnings = server.update(before, asked)

    assert warnings == [WARNING]
    assert plain(moved["spec"]) == plain(move(server, before, "cpu", WHY)[0]["spec"])


def test_called_again_in_the_same_update_it_leaves_the_move_alone(server):
    before = stored(server)
    moved, _ = move(server, before, "cpu")

    assert server.update(before, moved) == (moved, [])


def test_a_wish_that_stands_there_already_is_none(server):
    before = asking(stored(server), "cpu")

    assert server.update(before, before) == (before, [])


def test_a_dry_run_shows_the_move(server):
    before = stored(server)

    moved, _ = server.update(before, asking(before, "cpu", WHY), dry_run=True)

    assert decision(moved)["option"] == "cpu"


def test_a_move_of_the_label_alone_leaves_the_pod_template_as_it_is():
    server = Server(with_spec(reconsidering(pending=0), options=ALIKE))
    before = stored(server, small_job())

    moved, _ = move(server, before, "cpu")

    labels = {**before["metadata"]["labels"], QUEUE: "cpu-lq", OPTION_LABEL: "cpu"}
    assert moved["metadata"]["labels"] == labels
    assert moved["spec"] == before["spec"]
    assert undone_job(moved) == pending(small_job())


def test_a_job_without_a_decision_is_taken_as_it_stands(server):
    before = pending(light_job())
    asked = asking(before, "cpu", WHY)
    asked["metadata"]["labels"][OPTION_LABEL] = "cpu"
    server = Server(with_spec(reconsidering(), options=UNNAMED))

    moved, warnings = server.update(before, asked)

    assert warnings == [WARNING]
    assert decision(moved)["history"] == [
        {"time": decision(moved)["time"], "option": "cpu", "reason": MOVED}
    ]
    assert decision(moved)["from"] == {"queue": "gpu-lq"}
    assert pod_of(moved)["metadata"]["annotations"][DECISION_ID] == decision(moved)["id"]
    assert undone_job(moved) == before


@pytest.mark.parametrize("option", ["cpu", "none"])
def test_a_manifest_applied_again_with_the_wish_ends_as_the_wish_alone_does(server, option):
    on_cpu, _ = move(server, stored(server), "cpu")
    on_gpu, _ = move(server, on_cpu, "gpu")
    there = on_gpu if option == "cpu" else on_cpu
    again = copy.deepcopy(there)
    again["spec"]["template"]["spec"] = copy.deepcopy(light_job()["spec"]["template"]["spec"])

    together, warnings = server.update(there, asking(again, option))

    alone, said = move(server, there, option)
    assert plain(timeless(together)) == plain(timeless(alone))
    assert (warnings, server.count("kueue_fallback_patch_verification_failures_total")) == (said, 0)


def timeless(job):
    """Leave out the time of a decision, and its record, which holds it, too."""
    kept = copy.deepcopy(job)
    for name in (DECISION, "kueue-fallback.dev/undone-from"):
        kept["metadata"]["annotations"].pop(name, None)
    return kept
