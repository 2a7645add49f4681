"""What later webhooks change of a decided Job, before the API server asks again (IfNeeded).

The decision is carried out again on what is there then, or nothing of it is left.
"""

import copy
import json

import pytest

from tests.flow.signing_server import KEYS, decision_of, main_of, server
from tests.reviews import light_job
from webhook.model.job import DECISION, DECISION_ID, OPTION_LABEL
from webhook.model.signatures import unsigned_id

QUEUE = "kueue.x-k8s.io/queue-name"
GPU = "nvidia.com/gpu"
NOTES = "example.com/notes"
MOST_ANNOTATIONS = 256 * 1024
"""Bytes that the API server takes of an object's annotations, names and texts."""
AGAIN = ["kueue-fallback: other admission changed the Job, so option cpu was carried out again"]


def nothing(job):
    """Change nothing, as where another webhook has only filled in a default."""
    job["spec"]["suspend"] = True


def put_the_queue_back(job):
    job["metadata"]["labels"][QUEUE] = "gpu-lq"


def put_the_gpu_back(job):
    main_of(job)["resources"]["limits"] = {GPU: "1"}


def ask_for_more_gpus(job):
    main_of(job)["resources"]["limits"] = {GPU: "2"}


def select_gpu_nodes(job):
    job["spec"]["template"]["spec"]["nodeSelector"] = {"nvidia.com/gpu.present": "true"}


def put_the_variable_back(job):
    main_of(job)["env"] = [{"name": "RUN_ENV", "value": "gpu"}]


def take_the_option_off(job):
    del job["metadata"]["labels"][OPTION_LABEL]
    put_the_queue_back(job)


def add_a_sidecar(job):
    """What the option changes in containers with a GPU, it changes in this one."""
    sidecar = {"name": "sidecar", "image": "any", "env": [{"name": "RUN_ENV", "value": "gpu"}]}
    sidecar["resources"] = {"limits": {GPU: "1"}}
    job["spec"]["template"]["spec"]["containers"].append(sidecar)


def select_a_gpu_pool(job):
    """Select Nodes by a label that the option does not take off."""
    job["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "gpu"}


def ask_for_device_claims(job):
    job["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "gpu"}]
    main_of(job)["resources"]["claims"] = [{"name": "gpu"}]


def ask_for_what_cannot_be_read(job):
    put_the_gpu_back(job)
    job["metadata"]["annotations"]["kueue-fallback.dev/max-wait"] = "soon"


def leave_no_room(job):
    """Add a container that the option changes, too, and fill all room for a record of that."""
    add_a_sidecar(job)
    texts = job["metadata"]["annotations"]
    used = sum(len(name) + len(text) for name, text in texts.items()) + len(NOTES)
    texts[NOTES] = "n" * (MOST_ANNOTATIONS - used)


def give_it_a_runtime_class(job):
    job["spec"]["template"]["spec"]["runtimeClassName"] = "nvidia"


def reviewed_again(change, *, dry_run=False):
    """Review a light Job, let another webhook change it, and review it again."""
    shown = server(KEYS)
    first, _ = shown.create(light_job(), dry_run=dry_run)
    changed = copy.deepcopy(first)
    change(changed)
    return (first, *shown.create(changed, dry_run=dry_run))


def gpus(job):
    containers = job["spec"]["template"]["spec"]["containers"]
    return [c["resources"].get("limits", {}).get(GPU) for c in containers]


CARRIED_OUT = (
    put_the_queue_back,
    put_the_gpu_back,
    ask_for_more_gpus,
    select_gpu_nodes,
    put_the_variable_back,
    take_the_option_off,
    add_a_sidecar,
    give_it_a_runtime_class,
)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("change", CARRIED_OUT)
def test_a_decision_is_carried_out_again_on_what_others_made_of_the_job(change, dry_run):
    first, again, warnings = reviewed_again(change, dry_run=dry_run)

    spec = again["spec"]["template"]["spec"]
    assert again["metadata"]["labels"][QUEUE] == "cpu-lq"
    assert again["metadata"]["labels"][OPTION_LABEL] == "cpu"
    assert set(gpus(again)) == {None}
    assert spec.get("nodeSelector", {}) == {}
    assert "runtimeClassName" not in spec
    assert decision_of(again)["option"] == "cpu"
    marks = again["spec"]["template"]["metadata"]["annotations"]
    assert marks[DECISION_ID] == decision_of(again)["id"]
    assert unsigned_id(marks[DECISION_ID]) == unsigned_id(decision_of(first)["id"])
    assert warnings == AGAIN


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        select_a_gpu_pool,
        ask_for_device_claims,
        ask_for_what_cannot_be_read,
    ],
)
def test_nothing_is_left_of_a_decision_that_cannot_be_carried_out_on_it(change, dry_run):
    _, again, warnings = reviewed_again(change, dry_run=dry_run)

    wanted = light_job(annotations={})
    change(wanted)
    wanted["spec"]["template"]["metadata"] = again["spec"]["template"]["metadata"]
    assert again["spec"] == wanted["spec"]
    assert again["metadata"]["labels"] == wanted["metadata"]["labels"]
    assert not again["spec"]["template"]["metadata"].get("annotations")
    assert (decision_of(again).get("option"), decision_of(again)["leftAlone"]) == (
        None,
        "changedSince",
    )
    assert decision_of(again)["original"] == {}
    assert warnings[0].startswith("kueue-fallback: not sent to cpu after all")


def test_where_there_is_no_room_for_its_record_nothing_is_carried_out_again():
    _, again, warnings = reviewed_again(leave_no_room)

    wanted = light_job(annotations={})
    add_a_sidecar(wanted)
    wanted["spec"]["template"]["metadata"] = again["spec"]["template"]["metadata"]
    assert again["spec"] == wanted["spec"]
    assert again["metadata"]["labels"] == wanted["metadata"]["labels"]
    assert list(again["metadata"]["annotations"]) == [NOTES]
    assert "metadata.annotations would have more than" in " ".join(warnings)


def tolerate_spot_nodes(job):
    job["spec"]["template"]["spec"]["tolerations"] = [{"key": "spot", "operator": "Exists"}]


@pytest.mark.parametrize("change", [nothing, tolerate_spot_nodes])
def test_what_is_none_of_the_decisions_business_changes_nothing(change):
    first, again, warnings = reviewed_again(change)

    change(first)
    assert again == first
    assert warnings == []


def test_a_job_that_was_left_as_submitted_is_not_looked_at_again():
    shown = server(KEYS, pending=0)
    first, _ = shown.create(light_job())
    assert decision_of(first)["option"] == "gpu"
    changed = copy.deepcopy(first)
    select_a_gpu_pool(changed)

    again, warnings = shown.create(changed)

    assert json.loads(again["metadata"]["annotations"][DECISION]) == decision_of(first)
    assert warnings == []
