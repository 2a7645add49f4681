"""What of a policy sends or moves no Job is said before anybody waits for it."""

import pytest

from tests.builders import policy
from webhook.decide import policy_limits

GPU = {"name": "gpu", "queue": "gpu-lq"}
CPU = {"name": "cpu", "queue": "cpu-lq", "slowdown": 3.5}
BETWEEN = "spec.options[1]: reconsider moves no {} between it and gpu: {}"


def limits(*options, kinds=("Job",), reconsider=None, **spec):
    found = policy(
        *options,
        match={"jobSelector": {}, "kinds": list(kinds)},
        **({} if reconsider is None else {"reconsider": reconsider}),
        **spec,
    )
    return [str(each) for each in policy_limits.of_moves(found)]


def between(gpu, cpu, kinds=("Job",)):
    options = ({**GPU, "adaptation": gpu}, {**CPU, "adaptation": cpu})
    return limits(*options, kinds=kinds, reconsider={})


def test_what_moves_is_not_named():
    adapted = {"accelerator": "Remove", "perRemoved": {"cpu": "4"}, "env": {"RUN_ENV": "cpu"}}

    assert between({}, adapted) == []
    assert between({}, {}) == []


def test_without_reconsider_nothing_is_said_of_moves():
    assert limits(GPU, {**CPU, "adaptation": {"image": "sd-cpu"}}) == []


def test_an_option_without_a_slowdown_waits_for_runs_under_finish_time_alone():
    guessed = {"name": "cpu", "queue": "cpu-lq"}

    assert limits(GPU, guessed) == [
        (
            "spec.options[1]: FinishTime sends no Job there until some have run there, as it has "
            "no slowdown"
        )
    ]
    assert limits(GPU, guessed, strategy={"type": "Cost"}) == []
    assert limits(GPU, guessed, threshold=[{"option": "cpu"}]) == []


def test_services_go_nowhere_by_cost_where_no_option_says_what_a_replica_does():
    serving = {"requestsPerSecond": "20", "latency": "80ms"}
    by_cost = {"kinds": ["Job", "Deployment", "StatefulSet"], "strategy": {"type": "Cost"}}
    metrics = {"requests": "requests_total", "latency": "request_seconds"}

    assert limits(GPU, CPU, **by_cost) == [
        (
            "spec.options: each Deployment or StatefulSet with a request-rate is refused, as no "
            "option has `serving`"
        )
    ]
    assert limits({**GPU, "serving": serving}, CPU, **by_cost) == []
    assert limits(GPU, CPU, serving=metrics, **by_cost) == []
    assert limits(GPU, CPU, kinds=["Deployment"], threshold=[{"option": "cpu"}]) == []


@pytest.mark.parametrize(
    ("gpu", "cpu", "because"),
    [
        (
            {},
            {"accelerator": "Remove", "image": "sd-cpu"},
            "the image would change, which Kubernetes allows at creation only",
        ),
        (
            {"runtimeClassName": "nvidia"},
            {"accelerator": "Remove", "runtimeClassName": "Remove"},
            "the runtime class would change, which Kubernetes allows at creation only",
        ),
        (
            {},
            {"accelerator": "Remove", "env": {"A": "$(B)"}},
            "an environment variable would change, which Kubernetes allows at creation only",
        ),
        (
            {"nodeSelector": {"set": {"gpu": "h100"}}},
            {"nodeSelector": {"set": {"gpu": "l40"}}},
            "Kueue would not notice, as no container's resources would change",
        ),
        (
            {},
            {"env": {"A": "1"}},
            "Kueue would not notice, as no container's resources would change",
        ),
    ],
)
def test_options_between_which_no_move_is_possible_are_named(gpu, cpu, because):
    assert between(gpu, cpu) == [BETWEEN.format("Job", because)]


def test_options_that_change_the_same_differ_in_the_queue_alone():
    same = {"image": "sd", "nodeSelector": {"remove": ["pool"]}}

    assert between(same, same) == []


def test_kinds_that_take_resources_at_their_creation_are_named_together():
    because = "its resources would change, which its kind allows at creation only"

    assert between({}, {"accelerator": "Remove"}, ["Job", "JobSet", "AppWrapper", "RayJob"]) == [
        BETWEEN.format("JobSet or AppWrapper", because)
    ]


@pytest.mark.parametrize(
    ("kind", "because"),
    [
        ("Pod", "a Job of its kind is decided at its creation only"),
        ("StatefulSet", "a Job of its kind is decided at its creation only"),
        ("Deployment", "it never ends, so no run of it is known"),
        ("TrainJob", "its pods are defined in other objects, which the controller does not read"),
        ("RayCluster", "it never ends, so no run of it is known"),
    ],
)
def test_kinds_that_are_never_moved_are_named(kind, because):
    found = limits(GPU, CPU, kinds=[kind], reconsider={}, threshold=[{"option": "cpu"}])

    assert found == [f"spec.match.kinds[0]: reconsider moves no {kind}: {because}"]


def test_of_what_serves_a_deployment_is_moved_by_what_an_hour_costs():
    gpu = {**GPU, "serving": {"requestsPerSecond": "20", "latency": "80ms"}}
    found = limits(gpu, CPU, kinds=["Deployment"], reconsider={}, strategy={"type": "Cost"})

    assert found == []


def test_who_is_not_known_any_more_is_moved_to_no_option_for_some():
    users = {**CPU, "only": {"groups": ["ml"]}}
    urgent = {**CPU, "only": {"priorityClasses": ["high"]}}

    assert limits(GPU, users, reconsider={}) == [
        (
            "spec.options[1].only: reconsider moves no Job there, because the Job's creator is "
            "unknown"
        )
    ]
    assert limits(GPU, urgent, reconsider={}) == []


def test_guests_of_kinds_that_are_not_counted_are_named():
    guests = {**CPU, "guests": {"maxJobs": 3}}

    assert limits(GPU, guests, kinds=["Job", "Pod"]) == [
        "spec.options[1].guests: it is refused to each Pod, which are not counted as guests"
    ]
