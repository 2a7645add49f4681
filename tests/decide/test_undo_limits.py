"""What of a policy keeps its decisions from being undone in place is said before they are made."""

import pytest

from tests.builders import GPU_OPTION, policy
from webhook.decide import policy_limits


def limits(**adaptation):
    option = {"name": "cpu", "queue": "cpu-lq", "adaptation": adaptation}
    return [str(each) for each in policy_limits.of_undo(policy(GPU_OPTION, option))]


OPTION = "spec.options[1].adaptation"
UNNOTICED = (
    f"{OPTION}: undo needs --recreate where it changes something, "
    "as Kueue takes note of changed resources only"
)


def test_what_can_change_later_is_not_named():
    assert (
        limits(
            accelerator="Remove",
            perRemoved={"cpu": "4"},
            nodeSelector={"remove": ["pool"]},
            tolerations={"remove": [{"key": "gpu"}]},
            labels={"tier": "cpu"},
        )
        == []
    )


@pytest.mark.parametrize(
    ("adaptation", "found"),
    [
        (
            {"image": "sd-cpu"},
            ".image: undo needs --recreate as Kubernetes takes an image at creation only",
        ),
        (
            {"runtimeClassName": "gvisor"},
            (
                ".runtimeClassName: undo needs --recreate where it changes: Kubernetes takes it at "
                "creation only"
            ),
        ),
        (
            {"affinity": "Remove"},
            (
                ".affinity: undo needs --recreate for Jobs with affinity between pods: Kubernetes "
                "takes that at creation only"
            ),
        ),
        (
            {"env": {"A": "1"}},
            (
                ".env.A: undo needs --recreate for Jobs that do not set A to one value in all "
                "their containers"
            ),
        ),
        (
            {"env": {"A": "$(B)"}},
            (
                ".env.A: undo needs --recreate as Kubernetes takes variables at creation only, and "
                "no annotation can hold this one"
            ),
        ),
    ],
)
def test_what_cannot_is_named_with_its_path(adaptation, found):
    assert limits(**adaptation, accelerator="Remove") == [OPTION + found]


@pytest.mark.parametrize(
    "adaptation",
    [
        {"nodeSelector": {"set": {"pool": "b"}}},
        {"tolerations": {"add": [{"key": "gpu", "operator": "Exists"}]}},
        {"labels": {"tier": "b"}},
        {"annotations": {"note": "b"}},
    ],
)
def test_what_kueue_takes_no_note_of_is_named(adaptation):
    assert limits(**adaptation) == [UNNOTICED]


def test_guests_with_a_priority_and_jobs_without_a_queue_are_named():
    guests = {**GPU_OPTION, "guests": {"maxJobs": 1, "priorityClass": "low"}}
    match = {"jobSelector": {}, "withoutQueue": True}

    assert [str(each) for each in policy_limits.of_undo(policy(guests, match=match))] == [
        "spec.match.withoutQueue: undo needs --recreate for Jobs that name no queue",
        (
            "spec.options[0].guests.priorityClass: undo needs --recreate for Jobs without a "
            "priority class, as Kueue lets none be taken off"
        ),
    ]


def test_an_option_with_a_priority_is_named():
    urgent = {**GPU_OPTION, "priorityClass": "high"}

    assert [str(each).partition(":")[0] for each in policy_limits.of_undo(policy(urgent))] == [
        "spec.options[0].priorityClass"
    ]


@pytest.mark.parametrize(
    ("kind", "adaptation", "expected"),
    [
        ("RayJob", {"accelerator": "Remove", "image": "a:1", "replicas": {"w": 2}}, []),
        ("JobSet", {"accelerator": "Remove", "replicas": {"w": 2}}, ["resources, replicas"]),
        ("JobSet", {"nodeSelector": {"set": {"a": "b"}}}, []),
        ("AppWrapper", {"image": "a:1", "env": {"A": "b"}}, ["image, env"]),
        ("TrainJob", {"image": "a:1", "env": {"A": "b"}}, ["image, env"]),
        ("TrainJob", {"nodeSelector": {"set": {"a": "b"}}}, []),
        ("JobSet", {"accelerator": "Replace", "by": {"amd.com/gpu": 1}}, ["resources"]),
    ],
)
def test_what_a_kind_takes_at_its_creation_only_is_named_by_the_kind(kind, adaptation, expected):
    options = ({"queue": "gpu-lq"}, {"queue": "cpu-lq", "adaptation": adaptation})
    found = policy(
        *options, match={"jobSelector": {}, "kinds": [kind]}, threshold=[{"option": "cpu-lq"}]
    )

    assert [str(limit) for limit in policy_limits.of_undo(found)] == [
        f"spec.match.kinds[0]: undo needs --recreate for each {kind} of which it changes {what}: "
        "taken at creation only"
        for what in expected
    ]


@pytest.mark.parametrize("adaptation", [{}, {"accelerator": "Remove"}])
def test_what_is_decided_at_its_creation_only_is_undone_by_a_new_job_alone(adaptation):
    options = ({"queue": "gpu-lq"}, {"queue": "cpu-lq", "adaptation": adaptation})
    found = policy(
        *options, match={"jobSelector": {}, "kinds": ["Pod"]}, threshold=[{"option": "cpu-lq"}]
    )

    assert [str(limit) for limit in policy_limits.of_undo(found)] == [
        (
            "spec.match.kinds[0]: undo needs --recreate for each Pod, as a Job of its kind is "
            "decided at its creation only"
        )
    ]
