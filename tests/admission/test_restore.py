"""Manifests applied again: what the submitter sent comes back, and the decided values win."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from webhook.admission.original import original_of, restoration
from webhook.admission.patch import operations
from webhook.jobs import KINDS
from webhook.model.edits import ABSENT, Edit, Original
from webhook.model.job import DECISION, QUEUE_LABEL

ALLOWED = KINDS["batch", "v1", "Job"].allowed
POD = ("spec", "template", "spec")
MAIN = (*POD, "containers", "main")
GPU, CPU = {"name": "RUN_ENV", "value": "gpu"}, {"name": "RUN_ENV", "value": "cpu"}
READ = {"name": "RUN_ENV", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['a']"}}}
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}


def submitted() -> dict[str, Any]:
    return {
        "metadata": {"labels": {QUEUE_LABEL: "gpu-lq", "workload-type": "light-gpu"}},
        "spec": {
            "suspend": True,
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "main",
                            "image": "sd",
                            "env": [dict(GPU)],
                            "resources": {
                                "requests": {"cpu": "1"},
                                "limits": {"nvidia.com/gpu": "1"},
                            },
                        }
                    ],
                    "tolerations": [dict(TOLERATION)],
                }
            },
        },
    }


EDITS = tuple(
    Edit(path=path, value=value, was=ABSENT)
    for path, value in (
        (("metadata", "labels", QUEUE_LABEL), "cpu-lq"),
        (("metadata", "annotations", DECISION), "{}"),
        ((*MAIN, "resources", "limits", "nvidia.com/gpu"), ABSENT),
        ((*MAIN, "resources", "requests", "cpu"), "4"),
        ((*MAIN, "resources", "requests", "memory"), "6Gi"),
        ((*MAIN, "env", "RUN_ENV"), CPU),
        ((*MAIN, "image"), "sd-cpu"),
        ((*POD, "tolerations"), ABSENT),
        ((*POD, "nodeSelector", "pool"), "cpu"),
    )
)


def decided() -> tuple[dict[str, Any], Original]:
    source = submitted()
    original = original_of(EDITS, source)
    operations(EDITS, source, ALLOWED)
    return source, original


def running() -> tuple[dict[str, Any], Original]:
    """Give the decided Job as Kueue has started it."""
    job, original = decided()
    job["spec"]["suspend"] = False
    pod = job["spec"]["template"]["spec"]
    pod["nodeSelector"]["flavor"] = "spot"
    pod["tolerations"] = [{"key": "spot", "operator": "Exists"}]
    return job, original


def main_of(job: dict[str, Any]) -> Any:
    return job["spec"]["template"]["spec"]["containers"][0]


def applied(stored: dict[str, Any]) -> dict[str, Any]:
    """Lay the manifest over the stored Job as ``kubectl apply`` does."""
    job, manifest = deepcopy(stored), submitted()
    job["metadata"]["labels"] |= manifest["metadata"]["labels"]
    main = main_of(job)
    main |= {"image": "sd", "env": [dict(GPU)]}
    main["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    main["resources"]["requests"]["cpu"] = "1"
    job["spec"]["template"]["spec"]["tolerations"] = [dict(TOLERATION)]
    return job


def restored(old: dict[str, Any], new: dict[str, Any], original: Original) -> dict[str, Any]:
    operations(restoration(old, new, original), new, ALLOWED)
    return new


@pytest.mark.parametrize("state", [decided, running])
def test_the_same_manifest_again_changes_nothing(state):
    stored, original = state()

    assert restored(stored, applied(stored), original) == stored


def test_another_change_in_the_manifest_passes_and_only_that():
    stored, original = decided()
    new = applied(stored)
    new["metadata"]["labels"]["team"] = "b"
    new["spec"]["parallelism"] = 2
    expected = deepcopy(stored)
    expected["metadata"]["labels"]["team"] = "b"
    expected["spec"]["parallelism"] = 2

    assert restored(stored, new, original) == expected


def test_a_third_value_passes():
    stored, original = decided()
    new = applied(stored)
    third = {"name": "RUN_ENV", "value": "tpu"}
    main_of(new)["env"] = [third]
    main_of(new)["resources"]["requests"]["cpu"] = "2"

    found = main_of(restored(stored, new, original))

    assert found["env"] == [third]
    assert found["resources"] == {"requests": {"cpu": "2", "memory": "6Gi"}, "limits": {}}


@pytest.mark.parametrize("same", ["1000m", "1.0", 1])
def test_quantities_are_compared_as_quantities(same):
    stored, original = decided()
    new = applied(stored)
    main_of(new)["resources"]["requests"]["cpu"] = same

    assert restored(stored, new, original) == stored


@pytest.mark.parametrize("other", ["1001m", "x", None, ["1"]])
def test_other_quantities_are_not_restored(other):
    stored, original = decided()
    new = deepcopy(stored)
    main_of(new)["resources"]["requests"]["cpu"] = other

    assert restoration(stored, new, original) == ()


def test_a_parent_that_was_absent_comes_back_with_what_kueue_injected():
    stored, original = running()
    new = deepcopy(stored)
    del new["spec"]["template"]["spec"]["nodeSelector"]

    assert restored(stored, new, original) == stored


def test_a_missing_container_is_skipped():
    stored, original = decided()
    new = applied(stored)
    main_of(new)["name"] = "renamed"
    other = deepcopy(main_of(new))

    assert main_of(restored(stored, new, original)) == other


def test_containers_that_others_injected_do_not_matter():
    stored, original = decided()
    new = applied(stored)
    sidecar = {"name": "sidecar"}
    for job in (stored, new):
        job["spec"]["template"]["spec"]["containers"].insert(0, dict(sidecar))

    assert restored(stored, new, original) == stored


def test_a_forged_record_gives_back_only_what_is_stored():
    stored, _ = decided()
    new = deepcopy(stored)
    new["spec"]["suspend"] = False

    edits = restoration(stored, new, {("spec", "suspend"): False, ("a", "b", "c"): "x"})

    assert edits == (Edit(path=("spec", "suspend"), value=True, was=False),)


@pytest.mark.parametrize(("first", "decided"), [(GPU, READ), (READ, CPU)])
def test_a_variable_that_was_merged_into_the_decided_one_is_given_back(first, decided):
    place = (*MAIN, "env", "RUN_ENV")
    old, new = submitted(), submitted()
    env_of(old)[:] = [dict(decided)]
    env_of(new)[:] = [{**decided, **first}]

    found = restoration(old, new, {place: dict(first)})

    assert found == (Edit(path=place, value=decided, was={**decided, **first}),)


def test_a_variable_changed_by_its_owner_passes():
    place = (*MAIN, "env", "RUN_ENV")
    old, new = submitted(), submitted()
    env_of(old)[:] = [dict(READ)]
    env_of(new)[:] = [{**READ, "value": "other"}]

    assert restoration(old, new, {place: dict(GPU)}) == ()


def env_of(job: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = job["spec"]["template"]["spec"]["containers"][0]["env"]
    return found
