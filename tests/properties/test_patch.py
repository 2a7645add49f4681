"""For every Job and every adaptation: the patch applies, and it can be undone and restored."""

from __future__ import annotations

import dataclasses
import json
from copy import deepcopy
from typing import Any

import jsonpatch
from hypothesis import given, settings

from tests.conftest import THOROUGH
from tests.properties.jobs import jobs, options
from webhook.adapt.adaptation import adapt
from webhook.admission import patch
from webhook.admission.patch import (
    original_from_json,
    original_json,
    original_of,
    restoration,
    undone,
)
from webhook.jobs import KINDS
from webhook.model.edits import ABSENT, Edit
from webhook.model.job import DECISION, DECISION_ID, OPTION_LABEL, QUEUE_LABEL, Job
from webhook.model.policy.fallback_policy import Option

KIND = KINDS["batch", "v1", "Job"]
DECISION_EDIT = Edit(path=("metadata", "annotations", DECISION), value="{}", was=ABSENT)


def _decided(job: Job, option: Option) -> Job:
    """Adapt and mark a Job as a decision does."""
    job = adapt(job, option)
    (pod_set,) = job.pod_sets
    template = dataclasses.replace(
        pod_set.template,
        labels={**pod_set.template.labels, OPTION_LABEL: option.name},
        annotations={**pod_set.template.annotations, DECISION_ID: "1-abc"},
    )
    return dataclasses.replace(
        job,
        labels={**job.labels, QUEUE_LABEL: option.queue, OPTION_LABEL: option.name},
        pod_sets=(dataclasses.replace(pod_set, template=template),),
    )


def _edits(source: dict[str, Any], option: Option) -> tuple[Edit, ...]:
    before = KIND.read(source)
    return KIND.edits(before, _decided(before, option))


def _patched(source: dict[str, Any], edits: tuple[Edit, ...]) -> dict[str, Any]:
    result = deepcopy(source)
    patch.operations(edits, result, KIND.allowed)
    return result


def _the_patch_applies_and_makes_the_decided_job(source, option):
    wanted = _decided(KIND.read(source), option)

    operations = patch.operations(_edits(source, option), deepcopy(source), KIND.allowed)
    sent = json.loads(json.dumps(operations))
    patched = jsonpatch.JsonPatch(sent).apply(source)

    assert KIND.read(patched) == wanted


def _adapted_and_patched_twice_is_once(source, option):
    edits = _edits(source, option)
    adapted = adapt(KIND.read(source), option)
    patched = _patched(source, edits)

    assert adapt(adapted, option) == adapted
    assert patch.operations(edits, patched, KIND.allowed) == []


def _undoing_gives_the_submitted_object(source, option):
    edits = (*_edits(source, option), DECISION_EDIT)
    original = original_of(edits, source)
    recorded = original_from_json(json.loads(json.dumps(original_json(original))))
    patched = _patched(source, edits)

    restored = undone(patched, recorded, KIND.allowed)
    from_stored = undone(_without_empty(patched), recorded, KIND.allowed)

    assert restored == source
    assert _without_empty(from_stored) == _without_empty(source)


def _a_manifest_applied_again_changes_nothing(source, option):
    edits = _edits(source, option)
    original = original_of(edits, source)
    stored = _patched(source, edits)
    applied = _applied(source, stored)

    patch.operations(restoration(stored, applied, original), applied, KIND.allowed)

    assert _without_empty(applied) == _without_empty(stored)


@settings(max_examples=THOROUGH)
@given(jobs(), options())
def test_each_patch_applies_once_and_for_all_and_can_be_undone_and_restored(source, option):
    # One generated Job for all four: making it costs more than looking at it.
    _the_patch_applies_and_makes_the_decided_job(source, option)
    _adapted_and_patched_twice_is_once(source, option)
    _undoing_gives_the_submitted_object(source, option)
    _a_manifest_applied_again_changes_nothing(source, option)


def _applied(manifest: Any, stored: Any) -> Any:
    """Lay a manifest over a stored object as ``kubectl apply`` does: names merge, lists do not."""
    if isinstance(manifest, dict) and isinstance(stored, dict):
        merged = {key: _applied(value, stored.get(key)) for key, value in manifest.items()}
        return {**deepcopy(stored), **merged}
    if _is_named(manifest) and _is_named(stored):
        return _merged_by_name(manifest, stored)
    return deepcopy(manifest)


def _merged_by_name(manifest: list[Any], stored: list[Any]) -> list[Any]:
    names = [item["name"] for item in stored]
    if names[: len(manifest)] != [item["name"] for item in manifest]:
        return deepcopy(manifest)
    own = [_replaced(item, old) for item, old in zip(manifest, stored, strict=False)]
    return own + deepcopy(stored[len(manifest) :])


def _replaced(item: dict[str, Any], stored: dict[str, Any]) -> Any:
    # An env entry's source goes as one: value and valueFrom exclude each other.
    return deepcopy(item) if "resources" not in item else _applied(item, stored)


def _is_named(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(i, dict) and "name" in i for i in value)


def _without_empty(value: Any) -> Any:
    """Leave out empty lists and objects, as the API server's ``omitempty`` does."""
    if isinstance(value, dict):
        kept = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in ({}, [], None)}
    if isinstance(value, list):
        return [_without_empty(item) for item in value]
    return value
