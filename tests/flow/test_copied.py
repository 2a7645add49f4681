"""A decision that comes with a new manifest: undone only where all is as the decision left it."""

import copy
import json
from dataclasses import replace

import pytest

from tests.flow.signing_server import decision_of, main_of, server
from tests.reviews import light_job
from webhook.flow.create import dry_run
from webhook.model.job import DECISION
from webhook.state.snapshot import updated

MIRRORED = "mirror.corp/stable-diffusion-cpu:1"
NOT_OURS = "kueue-fallback: its earlier decision is not undone, as it wrote another "
IMAGE = "/spec/template/spec/containers/main/image"


def copied(job, **metadata):
    again = copy.deepcopy(job)
    again["metadata"] |= {"name": "another", **metadata}
    return again


def test_a_copy_that_is_as_the_decision_left_it_is_decided_as_it_was_submitted():
    shown = server()
    stored, _ = shown.create(light_job())
    shown.show(replace(shown.handler.snapshot, generation=2))
    manifest = copied(stored)
    main_of(manifest)["resources"]["requests"]["cpu"] = "8"

    admitted, warnings = shown.create(manifest)

    assert decision_of(admitted)["from"] == {"queue": "gpu-lq"}
    assert decision_of(admitted)["original"][IMAGE] == "stable-diffusion"
    assert not any(warning.startswith(NOT_OURS) for warning in warnings)


def with_another_image(job):
    main_of(job)["image"] = MIRRORED
    return "image"


def with_another_amount(job):
    main_of(job)["resources"]["requests"]["cpu"] = "9"
    return "cpu"


def with_the_gpu_back(job):
    main_of(job)["resources"]["limits"]["nvidia.com/gpu"] = "1"
    return "nvidia.com/gpu"


@pytest.mark.parametrize("change", [with_another_image, with_another_amount, with_the_gpu_back])
def test_a_copy_that_other_admission_has_changed_is_taken_as_it_came(change):
    shown = server()
    stored, _ = shown.create(light_job())
    manifest = copied(stored, annotations={**stored["metadata"]["annotations"]})
    place = change(manifest)
    came = copy.deepcopy(main_of(manifest))

    admitted, warnings = shown.create(manifest)

    assert warnings[0] == NOT_OURS + place
    assert main_of(admitted)["image"] == came["image"]
    assert IMAGE not in decision_of(admitted)["original"]


def test_a_copy_without_its_policy_is_taken_as_it_came():
    shown = server()
    stored, _ = shown.create(light_job())
    (known,) = shown.handler.snapshot.fallback.policies
    renamed = known.model_copy(update={"name": "other"})
    shown.show(updated(shown.handler.snapshot, generation=2, policies=(renamed,)))
    manifest = copied(stored)
    del manifest["metadata"]["labels"]["workload-type"]

    admitted, warnings = shown.create(manifest)

    assert main_of(admitted)["image"] == "stable-diffusion-cpu:1"
    assert warnings[0].startswith(NOT_OURS)
    assert DECISION not in admitted["metadata"]["annotations"]


def test_a_dry_run_is_decided_without_a_signature():
    shown = server()

    shown_only, _ = shown.create(light_job(), dryRun=True)
    created, _ = shown.create(light_job())

    assert "signature" not in decision_of(shown_only)
    assert "." not in decision_of(shown_only)["id"]
    assert "signature" in decision_of(created)
    assert decision_of(shown_only)["option"] == decision_of(created)["option"] == "cpu"


def test_the_console_answers_without_a_signature():
    outcome = dry_run(light_job(), server().handler.snapshot, unix=1_790_000_000.0)

    (text,) = (edit.value for edit in outcome.edits if edit.path[-1] == DECISION)
    assert "signature" not in json.loads(text)
    assert "." not in outcome.decision.id


def test_called_again_in_a_dry_run_it_leaves_its_decision_alone():
    shown = server()
    once, _ = shown.create(light_job(), dryRun=True)

    assert shown.create(once, dryRun=True) == (once, [])


def test_what_a_dry_run_said_counts_for_nothing_in_a_manifest():
    shown = server()
    once, _ = shown.create(light_job(), dryRun=True)

    admitted, warnings = shown.create(once)

    assert warnings[0].startswith("kueue-fallback: its decision was not made by this installation")
    assert IMAGE not in decision_of(admitted)["original"]
