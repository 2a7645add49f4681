"""Jobs that an older version decided, with annotations as it wrote them, go on as new ones do."""

import copy
import json
from pathlib import Path

import pytest

from tests.flow.moves import move, pending, plain, reconsidering
from tests.reviews import light_job
from tests.servers import Server
from webhook.commands import decision_table
from webhook.console import decisions
from webhook.flow import decided_job
from webhook.jobs import KINDS
from webhook.model.signatures import SigningKey, SigningKeys

KIND = KINDS["batch", "v1", "Job"]
KEYS = SigningKeys(
    keys=(SigningKey(id="a", made=1, secret=b"1" * 32),), signing="a", since=1_780_000_000
)
JOBS = json.loads((Path(__file__).parent / "decided_before.json").read_text())
"""Decided, moved, and decided with a signature."""
CASES = json.loads((Path(__file__).parent / "decided_by_0_1_0.json").read_text())
"""Jobs as they were submitted, as version 0.1.0 stored them, and what its log said of them."""


@pytest.mark.parametrize(("name", "keys"), [("created", None), ("moved", None), ("signed", KEYS)])
def test_what_an_older_version_decided_is_undone(name, keys):
    found = decided_job.read_stored(JOBS[name], KIND, keys)

    assert found.doubt is None
    assert plain(found.recovered().submitted_source["spec"]) == plain(pending(light_job())["spec"])
    assert found.recovered().submitted.labels == light_job()["metadata"]["labels"]


def test_what_an_older_version_moved_is_moved_on_and_keeps_its_stays():
    old = copy.deepcopy(JOBS["moved"])

    moved, _ = move(Server(reconsidering(pending=0)), old, "gpu")

    found = decided_job.read_stored(moved, KIND, None).believed
    before = decided_job.read_stored(old, KIND, None).believed
    assert found.history[:-1] == before.history
    assert (found.moves, found.from_queue) == (2, "gpu-lq")
    assert found.history[-1].reason == found.reason == "moved to gpu-lq (gpu): as asked"


@pytest.mark.parametrize("name", CASES)
def test_what_version_0_1_0_decided_is_read(name):
    stored, logged = CASES[name]["stored"], CASES[name]["logged"]

    found = decided_job.read_stored(stored, KIND, None).believed

    assert (found.id, found.time, found.policy) == (logged["id"], logged["time"], logged["policy"])
    assert (found.option, found.left_alone) == (logged.get("option"), logged.get("leftAlone"))
    assert (found.reason, found.from_queue) == (logged["reason"], logged["from"]["queue"])
    assert (found.hold is not None) == ("hold" in logged)
    stays = [(stay.time, stay.option, stay.reason) for stay in found.history]
    assert stays == [tuple(stay.values()) for stay in logged.get("history", ())]
    assert [
        (option.name, option.queue, option.cluster_queue, option.cluster, option.pending)
        for option in found.options
    ] == [
        tuple(
            option.get(key, "") for key in ("name", "queue", "clusterQueue", "cluster", "pending")
        )
        for option in logged["options"]
    ]
    assert [(option.starts_in, option.runs, option.finishes_in) for option in found.options] == [
        tuple(map(option.get, ("startsIn", "runs", "finishesIn"))) for option in logged["options"]
    ]
    assert [option.cost and option.cost.money for option in found.options] == [
        option.get("cost", {}).get("money") for option in logged["options"]
    ]


@pytest.mark.parametrize("name", CASES)
def test_what_version_0_1_0_decided_is_undone_to_what_was_submitted(name):
    submitted, stored = CASES[name]["submitted"], CASES[name]["stored"]

    found = decided_job.read_stored(stored, KIND, None)

    assert found.doubt is None
    back = found.recovered()
    assert plain(back.submitted_source["spec"]) == plain(pending(submitted)["spec"])
    assert back.submitted.labels == submitted["metadata"]["labels"]
    assert back.submitted.annotations == submitted["metadata"].get("annotations", {})


@pytest.mark.parametrize("name", CASES)
def test_what_version_0_1_0_decided_is_shown(name):
    stored, logged = CASES[name]["stored"], CASES[name]["logged"]

    told = "\n".join(map(str, decision_table.as_text(decision_table.decision_on(stored), 300)))
    shown = decisions.from_job(stored)

    assert f"Policy {logged['policy']} (Enforce): {logged['reason']}" in told
    assert all(option["name"] in told for option in logged["options"])
    assert (shown.option, shown.recorded.reason) == (logged.get("option", ""), logged["reason"])
    options = shown.recorded.options
    assert [(option.name, option.rejected, option.passed_over) for option in options] == [
        (option["name"], option.get("rejected", ""), option.get("passedOver", ""))
        for option in logged["options"]
    ]
    assert len(shown.moves) == logged.get("moves", 0)
