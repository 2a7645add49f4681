"""What becomes of a hold: written at the creation, kept when a manifest comes again, released."""

import copy
import json
from pathlib import Path

import jsonpatch
import pytest
import yaml

from webhook.admission import patch
from webhook.commands import decision_table
from webhook.commands.decision_table import decision_on
from webhook.decide import decision_record
from webhook.decide.applicant import Moment
from webhook.flow import create, update
from webhook.flow.decided_job import read_decided_job
from webhook.jobs import JOB
from webhook.model.job import DECISION
from webhook.state import forecast_input
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.snapshot_file import read_state

CASES = Path("tests/cases")
GATE, HELD = "kueue.x-k8s.io/admission-gated-by", "kueue-fallback.dev/held"
OURS = "kueue-fallback.dev/hold"
MOMENT = Moment(now=0.0, unix=1795240800.0, time="2026-11-21T06:00:00Z", uid="5f0c")
RULES = create.Rules()


def written(case, tmp_path, rules=RULES, **annotations):
    """Return a Job of a case as it is stored once it is decided, the outcome and the occupancy."""
    given = yaml.safe_load((CASES / f"{case}.yaml").read_text())
    world = yaml.safe_load((CASES / "worlds" / f"{given['world']}.yaml").read_text())
    names = {(item["kind"], item["metadata"]["name"]) for item in given["objects"]}
    kept = [item for item in world if (item["kind"], item["metadata"]["name"]) not in names]
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps({"kind": "List", "items": [*kept, *given["objects"]]}))
    state = read_state(str(path))
    snapshot = forecast_input.with_forecasts(state, state.snapshot(0.0, MOMENT.unix), MOMENT.unix)
    occupancy = occupancy_of(snapshot)
    job = given["job"]
    job["metadata"]["annotations"] |= annotations
    outcome = create.consider(job, JOB, occupancy, MOMENT, rules)
    return patched(job, outcome.edits), outcome, occupancy


def patched(job, edits):
    operations = patch.operations(edits, copy.deepcopy(job), JOB.allowed)
    return jsonpatch.apply_patch(copy.deepcopy(job), operations)


@pytest.fixture
def held(tmp_path):
    job, outcome, _ = written("hold_waits_for_the_cheaper_hour", tmp_path)
    assert job["metadata"]["annotations"][GATE] == OURS
    return job, outcome


def test_the_decision_says_until_when_and_at_the_latest_and_what_it_saves(held):
    job, outcome = held

    record = json.loads(job["metadata"]["annotations"][DECISION].partition("\n")[0])
    assert record["hold"] == {
        "until": "2026-11-21T10:00:00Z",
        "latest": record["hold"]["latest"],
        "saves": {"money": 1.08, "of": 3.25},
        "seconds": 3900,
        "class": record["hold"]["class"],
        "quota": [
            ["h100", "cpu", 4000],
            ["h100", "memory", 6442450944],
            ["h100", "nvidia.com/gpu", 1],
        ],
    }
    assert "2026-11-21T12:00:00Z" < record["hold"]["latest"] < "2026-11-21T12:50:00Z"
    read = read_decided_job(job, JOB).recorded.hold
    assert (read.until, read.seconds) == (MOMENT.unix + 4 * 3600, 3900.0)
    assert read.usage["h100", "nvidia.com/gpu"] == 1
    prefix = "kueue-fallback: held until 11-21 10:00 UTC (saves 1.08 of 3.25)"
    assert outcome.warnings[-2:] == (
        f"{prefix}; latest 11-21 {record['hold']['latest'][11:16]} UTC",
        "kueue-fallback: to start it now: kubectl fallback release train-1 -n research",
    )


def test_a_hold_that_cannot_be_read_is_none(held):
    job, _ = held
    source = json.loads(job["metadata"]["annotations"][DECISION].partition("\n")[0])
    for broken in ({}, {"until": "noon"}, 5, {**source["hold"], "quota": [["a"]]}):
        assert decision_record.from_object({**source, "hold": broken}).hold is None


def restored(old, new):
    edits, _ = update.restored(old, new, JOB)
    return patched(new, edits)["metadata"]


def changed(job, *, annotation=..., label=...):
    new = copy.deepcopy(job)
    for texts, key, value in (("annotations", GATE, annotation), ("labels", HELD, label)):
        if value is None:
            new["metadata"][texts].pop(key)
        elif value is not ...:
            new["metadata"][texts][key] = value
    return new


def test_a_manifest_that_is_applied_again_leaves_it_held(held):
    job, _ = held

    assert restored(job, copy.deepcopy(job))["annotations"][GATE] == OURS


@pytest.mark.parametrize(
    "change",
    [{"annotation": None, "label": None}, {"annotation": None}],
    ids=["released", "annotation taken off by hand"],
)
def test_who_takes_the_gate_off_ends_the_hold(held, change):
    job, _ = held

    metadata = restored(job, changed(job, **change))

    assert GATE not in metadata["annotations"]
    assert metadata["labels"]["kueue-fallback.dev/option"] == "h100"


def test_a_manifest_with_a_gate_of_its_own_does_not_end_the_hold(tmp_path):
    job, *_ = written("hold_waits_for_the_cheaper_hour", tmp_path, **{GATE: "example.com/gate"})
    both = f"example.com/gate,{OURS}"
    assert job["metadata"]["annotations"][GATE] == both

    again = restored(job, changed(job, annotation="example.com/gate"))
    released = restored(job, changed(job, annotation="example.com/gate", label=None))

    assert again["annotations"][GATE] == both
    assert (released["annotations"][GATE], HELD in released["labels"]) == (
        "example.com/gate",
        False,
    )


def test_an_undo_ends_the_hold(tmp_path):
    job, _, occupancy = written("hold_waits_for_the_cheaper_hour", tmp_path)
    job["metadata"] |= {"creationTimestamp": "2026-11-21T06:00:00Z", "uid": "1"}
    job["spec"]["suspend"] = True
    wanted = copy.deepcopy(job)
    wanted["metadata"]["annotations"]["kueue-fallback.dev/move-to"] = "none"

    outcome = update.respond(job, wanted, JOB, occupancy, MOMENT, create.Rules())

    metadata = patched(wanted, outcome.edits)["metadata"]
    assert (GATE in metadata["annotations"], HELD in metadata["labels"]) == (False, False)


def test_where_no_controller_would_release_it_nobody_is_held(tmp_path):
    nobody = create.Rules(may_hold=False)

    job, outcome, _ = written("hold_waits_for_the_cheaper_hour", tmp_path, nobody)

    assert GATE not in job["metadata"]["annotations"]
    assert outcome.decision.reason.endswith(
        "not held: no controller is installed that would release it"
    )


def test_explain_says_until_when_it_is_held(held):
    job, outcome = held

    said = "Held until 2026-11-21T10:00:00Z, at the latest until 2026-11-21T12:"
    assert any(str(line).startswith(said) for line in decision_table.table(outcome))
    assert any(str(line).startswith(said) for line in decision_table.as_text(decision_on(job), 100))


def test_explain_says_that_a_job_is_held_for_room_alone(tmp_path):
    decision = decision_on(written("hold_waits_for_the_cheaper_hour", tmp_path)[0])
    decision["hold"]["saves"] = {"money": 0.0, "of": 3.25}

    assert any(
        str(line).startswith("Held until there is room, at the latest until 2026-11-21T12:")
        for line in decision_table.as_text(decision, 100)
    )
