"""Manifests applied again: what the submitter sent comes back, and the decided values win."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from webhook.admission.patch import operations, original_of, restoration
from webhook.jobs import KINDS
from webhook.model.edits import ABSENT, Edit, Original
from webhook.model.job import DECISION, OPTION_LABEL, QUEUE_LABEL

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
    new = applied(stored)
    del new["spec"]["template"]["spec"]["nodeSelector"]

    assert restored(stored, new, original) == stored


def with_queue(job: dict[str, Any]) -> None:
    job["metadata"]["labels"][QUEUE_LABEL] = "gpu-lq"


def with_tolerations(job: dict[str, Any]) -> None:
    job["spec"]["template"]["spec"]["tolerations"] = [dict(TOLERATION)]


def with_image(job: dict[str, Any]) -> None:
    main_of(job)["image"] = "sd"


def without_what_was_added(job: dict[str, Any]) -> None:
    del job["spec"]["template"]["spec"]["nodeSelector"]
    del main_of(job)["resources"]["requests"]["memory"]


def with_amounts(job: dict[str, Any]) -> None:
    resources = main_of(job)["resources"]
    resources["limits"] = {"nvidia.com/gpu": "1"}
    resources["requests"]["cpu"] = "1"


@pytest.mark.parametrize("starts", [False, True])
@pytest.mark.parametrize(
    "change", [with_tolerations, with_image, with_amounts, without_what_was_added]
)
def test_one_place_alone_is_somebodys_change_and_passes(change, starts):
    stored, original = decided()
    new = deepcopy(stored)
    change(new)

    assert restoration(stored, new, original, starts=starts) == ()


def test_all_places_but_one_are_no_manifest():
    stored, original = decided()
    new = applied(stored)
    main_of(new)["image"] = "sd-cpu"

    edits = restoration(stored, new, original)

    assert [edit.path for edit in edits] == [("metadata", "labels", QUEUE_LABEL)]


@pytest.mark.parametrize("starts", [False, True])
def test_the_queue_is_given_back_alone_as_the_pods_stay_those_of_the_option(starts):
    stored, original = decided()
    new = deepcopy(stored)
    with_queue(new)
    operations(restoration(stored, new, original, starts=starts), new, ALLOWED)

    assert new == stored


def without_its_own_label(job: dict[str, Any]) -> None:
    job["metadata"]["labels"].pop(OPTION_LABEL)


def without_the_labels(job: dict[str, Any]) -> None:
    job["metadata"]["labels"] = decided()[0]["metadata"]["labels"]


def without_what_others_schedule(job: dict[str, Any]) -> None:
    job["spec"]["template"]["spec"].pop("tolerations")


def with_a_merged_variable(job: dict[str, Any]) -> None:
    main_of(job)["env"] = [{**READ, **GPU}]


def running_it(job: dict[str, Any]) -> None:
    job["spec"]["suspend"] = False


WAYS = {
    "client-side": [],
    "server-side, whose manager does not own suspend": [running_it],
    "by an operator that sets all labels": [without_its_own_label],
    "the spec alone": [without_the_labels],
    "without what other admission had added": [without_what_others_schedule],
    "without its own label, of the spec alone": [without_its_own_label, without_the_labels],
    "server-side over a variable that is read": [with_a_merged_variable, running_it],
}


@pytest.mark.parametrize("changes", WAYS.values(), ids=WAYS)
def test_in_whatever_way_the_manifest_comes_again_the_decided_values_stay(changes):
    stored, original = decided()
    original = {**original, ("metadata", "labels", OPTION_LABEL): ABSENT}
    stored["metadata"]["labels"][OPTION_LABEL] = "cpu"
    if with_a_merged_variable in changes:
        main_of(stored)["env"] = [dict(READ)]
    new = applied(stored)
    for change in changes:
        change(new)
    expected = {**stored, "spec": {**stored["spec"], "suspend": new["spec"]["suspend"]}}
    if without_the_labels in changes:
        expected["metadata"] = new["metadata"] | {"labels": stored["metadata"]["labels"]}

    starts = not new["spec"]["suspend"]
    operations(restoration(stored, new, original, starts=starts), new, ALLOWED)

    assert new == expected


QUEUED = {("metadata", "labels", QUEUE_LABEL): "gpu-lq", (*POD, "tolerations"): [TOLERATION]}
"""What was submitted, of a decision that changed no container."""


@pytest.mark.parametrize(
    ("changes", "starts", "back"),
    [
        ([with_queue, with_tolerations], False, {QUEUE_LABEL, "tolerations"}),
        ([with_queue, with_tolerations], True, {QUEUE_LABEL, "tolerations"}),
        ([with_queue], False, {QUEUE_LABEL}),
        ([with_tolerations], False, set()),
        ([with_tolerations], True, set()),
    ],
    ids=["applied", "applied and started", "queue alone", "tolerations alone", "started by Kueue"],
)
def test_if_no_container_was_changed_all_submitted_values_have_to_come(changes, starts, back):
    stored, _ = decided()
    new = deepcopy(stored)
    for change in changes:
        change(new)

    edits = restoration(stored, new, QUEUED, starts=starts)

    assert {edit.path[-1] for edit in edits} == back


def test_the_flavors_tolerations_alone_are_no_manifest_at_a_start():
    stored, _ = decided()
    new = deepcopy(stored)
    with_tolerations(new)

    assert restoration(stored, new, {(*POD, "tolerations"): [TOLERATION]}, starts=True) == ()


@pytest.mark.parametrize("name", ["labels", "tolerations", "affinity", "requests"])
def test_a_container_may_have_the_name_of_a_field(name):
    stored, new = submitted(), submitted()
    main_of(stored).update(name=name, image="sd-cpu")
    main_of(new).update(name=name)
    with_tolerations(new)
    del stored["spec"]["template"]["spec"]["tolerations"]
    place = (*POD, "containers", name, "image")

    edits = restoration(stored, new, {place: "sd", (*POD, "tolerations"): [TOLERATION]})

    assert {edit.path[-1] for edit in edits} == {"image", "tolerations"}


def test_a_value_that_kueue_gave_back_at_the_start_is_no_reason_to_leave_the_others():
    stored, original = decided()
    stored["spec"]["suspend"] = False
    with_tolerations(stored)

    assert restored(stored, applied(stored), original) == stored


ADDED = {
    ("metadata", "labels", OPTION_LABEL): ABSENT,
    (*POD, "nodeSelector", "pool"): ABSENT,
    (*MAIN, "resources", "requests", "memory"): ABSENT,
}


def test_what_was_only_added_is_given_back_if_all_of_it_is_taken_off():
    stored, _ = decided()
    stored["metadata"]["labels"][OPTION_LABEL] = "cpu"
    some, every = deepcopy(stored), deepcopy(stored)
    without_what_was_added(some)
    without_what_was_added(every)
    del every["metadata"]["labels"][OPTION_LABEL]

    assert restoration(stored, some, ADDED) == ()
    assert restored(stored, every, ADDED) == stored


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

    edits = restoration(stored, new, {("spec", "suspend"): False, ("a", "b", "c"): ABSENT})

    assert edits == (Edit(path=("spec", "suspend"), value=True, was=False),)


@pytest.mark.parametrize(("first", "decided"), [(GPU, READ), (READ, CPU)])
def test_a_variable_that_was_merged_into_the_decided_one_is_given_back(first, decided):
    place = (*MAIN, "env", "RUN_ENV")
    old, new = submitted(), submitted()
    env_of(old)[:] = [dict(decided)]
    env_of(new)[:] = [{**decided, **first}]

    found = restoration(old, new, {place: dict(first)})

    assert found == (Edit(path=place, value=decided, was={**decided, **first}),)


@pytest.mark.parametrize("empty", [{"name": "EMPTY"}, {"name": "EMPTY", "value": ""}])
def test_an_empty_variable_that_is_merged_keeps_no_other_from_coming_back(empty):
    read = {**READ, "name": "EMPTY"}
    old, new = submitted(), submitted()
    env_of(old)[:] = [dict(READ), dict(read)]
    env_of(new)[:] = [{**READ, **GPU}, dict(read)]

    found = restoration(old, new, {(*MAIN, "env", each["name"]): each for each in (GPU, empty)})

    assert [edit.value for edit in found] == [READ]


def test_a_variable_changed_by_its_owner_passes():
    place = (*MAIN, "env", "RUN_ENV")
    old, new = submitted(), submitted()
    env_of(old)[:] = [dict(READ)]
    env_of(new)[:] = [{**READ, "value": "other"}]

    assert restoration(old, new, {place: dict(GPU)}) == ()


def env_of(job: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = job["spec"]["template"]["spec"]["containers"][0]["env"]
    return found
