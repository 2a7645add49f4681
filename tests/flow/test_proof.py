"""Decisions and marks that this installation did not sign: they undo nothing and teach nothing."""

import copy
import json

import pytest

from tests.builders import policy
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from tests.state.objects import workload
from webhook.model.job import DECIDED_BY, DECISION, DECISION_ID, JOB_CLASS, MOVE_TO, OPTION_LABEL
from webhook.model.signatures import SigningKey, SigningKeys
from webhook.state.snapshot import updated
from webhook.state.workload import read_workload

BEFORE, SINCE, AFTER = "2026-01-01T00:00:00Z", 1_780_000_000, "2026-11-01T00:00:00Z"
KEYS = SigningKeys(
    keys=(SigningKey(id="a", made=SINCE, secret=b"1" * 32),), signing="a", since=SINCE
)


def server(keys=KEYS, **state):
    return Server(updated(paper_snapshot(**state), signing=keys))


def forged(job, **original):
    decision = {
        "version": 1,
        "id": "1-a",
        "time": "2026-10-01T00:00:00Z",
        "policy": "light-gpu",
        "mode": "Enforce",
        "option": "cpu",
        "reason": "sent",
        "from": {"queue": "gpu-lq"},
        "original": original,
    }
    job["metadata"].setdefault("annotations", {})[DECISION] = json.dumps(decision)
    return job


def confined():
    """A Job to which another admission has given a node selector and an image."""
    job = light_job()
    pods = job["spec"]["template"]["spec"]
    pods["nodeSelector"] = {"tenant": "b"}
    pods["containers"][0]["image"] = "mirror/stable-diffusion"
    return job


def pods_of(job):
    return job["spec"]["template"]["spec"]


def decision_of(job):
    return json.loads(job["metadata"]["annotations"][DECISION])


UNDOING = {
    "/spec/template/spec/nodeSelector/tenant": None,
    "/spec/template/spec/containers/main/image": "evil",
}


@pytest.mark.parametrize("policy", [None, "none"])
def test_a_forged_decision_undoes_nothing_that_another_admission_did(policy):
    job = forged(confined(), **UNDOING)
    if policy:
        job["metadata"]["annotations"]["kueue-fallback.dev/policy"] = policy

    admitted, warnings = server().create(job)

    assert pods_of(admitted)["nodeSelector"] == {"tenant": "b"}
    assert pods_of(admitted)["containers"][0]["image"] == "mirror/stable-diffusion"
    assert warnings[0].startswith("kueue-fallback: its decision was not made by this installation")


def test_a_policy_that_does_not_warn_is_silent_of_a_foreign_decision_too():
    silent = (policy(warn=False),)
    shown = Server(updated(paper_snapshot(), signing=KEYS, policies=silent))

    admitted, warnings = shown.create(forged(confined(), **UNDOING))

    assert pods_of(admitted)["nodeSelector"] == {"tenant": "b"}
    assert not warnings


def test_a_decision_is_signed_and_believed_when_it_comes_again():
    shown = server()
    stored, _ = shown.create(light_job())
    named = {**copy.deepcopy(stored)["metadata"], "name": "another"}

    copied, warnings = shown.create({**copy.deepcopy(stored), "metadata": named})

    first, second = (
        json.loads(each["metadata"]["annotations"][DECISION]) for each in (stored, copied)
    )
    assert len(first["signature"]) == 22
    assert second["from"] == {"queue": "gpu-lq"}
    assert first["id"] != second["id"]
    assert not any("not made by" in warning for warning in warnings)


@pytest.mark.parametrize(("created", "comes_back"), [(BEFORE, True), (AFTER, False)])
def test_an_unsigned_decision_counts_on_jobs_that_are_older_than_the_first_key(created, comes_back):
    shown, unsigned = server(), server(keys=None)
    manifest = light_job()
    stored, _ = unsigned.create(manifest)
    stored["metadata"]["creationTimestamp"] = created
    again = copy.deepcopy(manifest)
    again["metadata"]["annotations"] = dict(stored["metadata"]["annotations"])

    kept, _ = shown.update(stored, again)

    assert (kept["spec"] == stored["spec"]) == comes_back


@pytest.mark.parametrize("wish", ["none", "gpu"])
def test_a_job_whose_decision_was_changed_is_neither_moved_nor_undone(wish):
    shown = server()
    stored, _ = shown.create(light_job())
    stored["metadata"]["creationTimestamp"] = AFTER
    text = stored["metadata"]["annotations"][DECISION]
    stored["metadata"]["annotations"][DECISION] = text.replace("gpu-lq", "gpu-xq")
    stored["spec"]["suspend"] = True
    asking = copy.deepcopy(stored)
    asking["metadata"]["annotations"][MOVE_TO] = wish

    left, warnings = shown.update(stored, asking)

    assert left == stored
    assert "not made by this installation" in " ".join(warnings)


def marked(namespace="team", **marks):
    job = light_job(namespace=namespace)
    job["spec"]["template"]["metadata"] = {
        "annotations": {DECISION_ID: "1-a", DECIDED_BY: "light-gpu", JOB_CLASS: "c ~c 1", **marks},
        "labels": {OPTION_LABEL: "cpu"},
    }
    return job


@pytest.mark.parametrize("annotations", [{"kueue-fallback.dev/policy": "none"}, {}])
def test_marks_that_came_with_a_job_that_nobody_decides_are_taken_off(annotations):
    job = marked()
    job["metadata"]["annotations"] = annotations
    job["metadata"]["labels"]["workload-type"] = "light-gpu" if annotations else "other"

    admitted, _ = server().create(job)

    assert admitted["spec"]["template"]["metadata"] == {"annotations": {}, "labels": {}}
    assert pods_of(admitted) == pods_of(job)


def of_team(source):
    source["metadata"] |= {"namespace": "team", "creationTimestamp": AFTER}
    return source


def test_marks_of_a_workload_count_only_as_they_were_signed():
    stored, _ = server().create(light_job())
    template = stored["spec"]["template"]
    source = of_team(workload())
    source["spec"]["podSets"][0]["template"] = copy.deepcopy(template)
    elsewhere = copy.deepcopy(source)
    elsewhere["metadata"]["namespace"] = "another-team"
    changed = copy.deepcopy(source)
    changed["spec"]["podSets"][0]["template"]["metadata"]["annotations"][JOB_CLASS] = "c ~c 1"

    own, copied, other = (read_workload(each, KEYS) for each in (source, elsewhere, changed))

    assert (own.policy, own.option) == ("light-gpu", "cpu")
    assert own.decision_id == decision_of(stored)["id"]
    assert (copied.policy, copied.option, copied.decision_id) == ("", "", "")
    assert (other.policy, other.option, other.decision_id) == ("", "", "")
    assert other.job_class.key != "team/c"
    assert read_workload(changed, None).job_class.key == "team/c"
