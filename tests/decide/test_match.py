"""Whether a Job is ours to decide, and which policy applies."""

from dataclasses import replace

import pytest

from tests import builders
from webhook.decide import match, wishes
from webhook.jobs import BY_NAME, KINDS
from webhook.model.fields import FieldError
from webhook.model.job import PRIORITY_LABEL, Owner, Requester
from webhook.model.pods import Selector
from webhook.model.queues import KueueConfig, LocalQueue
from webhook.model.reasons import Skip
from webhook.model.snapshot_parts import OffSwitch
from webhook.state.snapshot import updated

LIGHT = {"matchLabels": {"workload-type": "light"}}


def world(*policies, **rest):
    queues = (builders.cluster_queue("gpu-cq"), builders.cluster_queue("cpu-cq"))
    return builders.snapshot(*queues, policies=policies, **{"generation": 1, **rest})


def owner(api_version, kind):
    return Owner(api_version=api_version, kind=kind)


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ({"owner": owner("jobset.x-k8s.io/v1alpha2", "JobSet")}, Skip.OWNER_MANAGED),
        ({"owner": owner("example.com/v1", "Train")}, Skip.OWNER_MANAGED),
        ({"labels": {"kueue.x-k8s.io/multikueue-origin": "m"}}, Skip.MULTIKUEUE_ORIGIN),
        ({"labels": {"kueue.x-k8s.io/prebuilt-workload-name": "w"}}, Skip.PREBUILT_WORKLOAD),
        ({"annotations": {"kueue.x-k8s.io/prebuilt-workload-name": "w"}}, Skip.PREBUILT_WORKLOAD),
        ({"annotations": {"kueue.x-k8s.io/elastic-job": "true"}}, Skip.ELASTIC_JOB),
        ({"managed_by": "kueue.x-k8s.io/multikueue"}, Skip.MANAGED_BY),
        ({"annotations": {"kueue-fallback.dev/policy": "none"}}, Skip.OPTED_OUT),
        ({"owner": owner("batch/v1", "CronJob")}, None),
        ({"owner": owner("example.com/v2", "Train")}, None),
        ({}, None),
    ],
)
def test_jobs_that_others_decide_are_skipped(job, reason):
    kueue = KueueConfig(external_frameworks=("Train.v1.example.com",))

    assert match.skip(builders.job(**job), world(kueue=kueue)) == reason


def test_every_kind_counts_as_queued_where_kueues_configuration_is_not_known():
    unknown = match.queueing_all(world(kueue=KueueConfig(is_read=False))).setup.kueue
    known = match.queueing_all(world(kueue=KueueConfig(is_read=True))).setup.kueue

    assert {match.integration_off(kind, unknown) for kind in KINDS.values()} == {""}
    assert match.integration_off(BY_NAME["SparkApplication"], known)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"generation": 0}, Skip.NOT_SYNCED),
        ({"off": OffSwitch()}, Skip.OFF),
        ({"off": OffSwitch(namespaces=frozenset({"team"}))}, Skip.OFF),
        ({"off": OffSwitch(namespaces=frozenset({"other"}))}, None),
        ({"kueue": KueueConfig(frameworks=("jobset.x-k8s.io/jobset",))}, Skip.KIND_NOT_MANAGED),
        (
            {"kueue": KueueConfig(managed_namespaces=Selector(labels={"kueue": "yes"}))},
            Skip.NAMESPACE_NOT_MANAGED,
        ),
        (
            {
                "kueue": KueueConfig(managed_namespaces=Selector(labels={"kueue": "yes"})),
                "namespaces": {"team": {"kueue": "yes"}},
            },
            None,
        ),
    ],
)
def test_nothing_is_touched_where_kueue_or_an_admin_says_so(state, reason):
    assert match.skip(builders.job(), world(**state)) == reason


def test_the_highest_priority_applies_then_the_first_by_name():
    low = builders.policy(name="a", match={"jobSelector": LIGHT})
    high = builders.policy(name="b", match={"jobSelector": LIGHT}, priority=5)
    job = builders.job(labels={"workload-type": "light"})

    # The snapshot holds them in that order.
    assert match.policy_for(job, world(high, low)).name == "b"


def test_a_job_may_name_the_policy():
    first, second = builders.policy(name="a"), builders.policy(name="b")
    job = builders.job(annotations={"kueue-fallback.dev/policy": "b"})

    assert match.policy_for(job, world(first, second)).name == "b"


def test_a_job_that_names_a_policy_that_does_not_match_it_is_told():
    job = builders.job(annotations={"kueue-fallback.dev/policy": "c"})

    with pytest.raises(FieldError) as error:
        match.policy_for(job, world(builders.policy(name="a")))

    assert str(error.value) == (
        "metadata.annotations[kueue-fallback.dev/policy]: no policy 'c' matches this Job"
    )


@pytest.mark.parametrize(
    ("given", "matches"),
    [
        ({}, True),
        ({"queues": ["gpu-lq"]}, True),
        ({"queues": ["cpu-lq"]}, False),
        ({"queues": [""]}, False),
        ({"maxRequests": {"cpu": "2"}}, True),
        ({"maxRequests": {"cpu": "1"}}, False),
        ({"maxRequests": {"nvidia.com/gpu": "1"}}, True),
        ({"minRequests": {"cpu": "2"}}, True),
        ({"minRequests": {"cpu": "2100m"}}, False),
        ({"minRequests": {"nvidia.com/gpu": "1"}}, False),
        ({"minRequests": {"cpu": "1"}, "maxRequests": {"cpu": "1"}}, False),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "b"}}}, False),
        ({"jobSelector": LIGHT}, False),
    ],
)
def test_all_that_is_given_must_hold(given, matches):
    policy = builders.policy(match={"jobSelector": {}, **given})
    job = builders.job(builders.container(requests={"cpu": "2"}))
    found = match.policy_for(job, world(policy, namespaces={"team": {"team": "a"}}))

    assert (found is policy) == matches


STEPS = {"args": [{"flag": "--steps", "atMost": 30}]}
VARIABLE = {"env": [{"name": "STEPS", "atLeast": 5, "atMost": 30}]}
MODE = {"env": [{"name": "MODE", "equals": "light"}]}


def env(**values):
    return tuple({"name": name, "value": value} for name, value in values.items())


def running(*args, command=("python", "run.py"), **rest):
    return builders.container(command=list(command), args=list(args), **rest)


@pytest.mark.parametrize(
    ("match_by", "main", "why"),
    [
        (STEPS, running("--steps", "30"), ""),
        (STEPS, running("--steps=30"), ""),
        (STEPS, running("--steps=2.5"), ""),
        (STEPS, running(command=("run", "--steps", "30")), ""),
        (STEPS, running(command=("sh", "-c", "exec python run.py --steps 30")), ""),
        (STEPS, running("--steps", "50", "--steps", "20"), ""),
        ({"args": [{"flag": "-s", "atMost": 30}]}, running("-s", "30"), ""),
        ({"args": [{"flag": "steps", "atMost": 30}]}, running("steps=30"), ""),
        ({"args": [{"flag": "--model", "equals": "small"}]}, running("--model", "small"), ""),
        ({"args": [{"flag": "--steps", "atLeast": 30}]}, running("--steps", "30"), ""),
        (VARIABLE, running(env=env(STEPS="30")), ""),
        (MODE, running(env=env(MODE="light")), ""),
        (
            STEPS,
            running("--steps", "31"),
            "--steps of container main is '31', not at most 30",
        ),
        (
            STEPS,
            running("--steps", "20", "--steps", "50"),
            "--steps of container main is '50', not at most 30",
        ),
        (
            STEPS,
            running("--steps=-1"),
            "--steps of container main is '-1', not a number of at most 30",
        ),
        (
            STEPS,
            running("--steps=$(STEPS)"),
            "--steps of container main is '$(STEPS)', not a number of at most 30",
        ),
        (
            STEPS,
            running("--steps", "9" * 100),
            f"--steps of container main is '{'9' * 39}…', not a number of at most 30",
        ),
        (
            STEPS,
            running("--steps"),
            "--steps of container main has no value that the Job itself says",
        ),
        (STEPS, running("--step", "3"), "no container has --steps"),
        (STEPS, running("--batch=3", "x --steps 3"), "no container has --steps"),
        (
            VARIABLE,
            running(env=env(STEPS="4")),
            "STEPS of container main is '4', not at least 5 and at most 30",
        ),
        (
            VARIABLE,
            running(env=({"name": "STEPS", "valueFrom": {}},)),
            "STEPS of container main has no value that the Job itself says",
        ),
        (
            MODE,
            running(env=env(MODE="heavy")),
            "MODE of container main is 'heavy', not 'light'",
        ),
    ],
)
def test_jobs_are_told_by_what_they_run(match_by, main, why):
    policy = builders.policy(match=match_by)

    assert match.mismatches(builders.job(main), world(policy)) == (
        {"light-gpu": why} if why else {}
    )


def test_any_container_may_have_the_flag_and_the_nearest_one_is_named():
    job = builders.job(
        running("--steps", "90", name="a"),
        running("--steps", "40", name="b"),
        running("--steps", "many", name="c"),
    )
    low, high = (
        builders.policy(match={"args": [{"flag": "--steps", "atMost": most}]}) for most in (30, 40)
    )

    assert match.mismatches(job, world(low)) == {
        "light-gpu": "--steps of container b is '40', not at most 30"
    }
    assert match.policy_for(job, world(high)) is high


def test_an_init_container_counts_and_all_that_is_given_must_hold():
    policy = builders.policy(match={**STEPS, **MODE})
    pods = builders.template(running("--steps", "3"), init=[running(env=env(MODE="light"))])

    assert match.policy_for(builders.job(pods=pods), world(policy)) is policy
    assert match.policy_for(builders.job(running("--steps", "3")), world(policy)) is None


@pytest.mark.parametrize(
    "main",
    [
        running("--steps", "3", *["x"] * 2000),
        running("--steps", "3", "x" * 65_536),
        running("--steps", "3", env=env(A="b") * 2000),
    ],
    ids=["words", "characters", "variables"],
)
def test_a_job_whose_arguments_are_too_long_to_be_read_does_not_match(main):
    assert match.mismatches(builders.job(main), world(builders.policy(match=STEPS))) == {
        "light-gpu": "the Job's arguments and variables are too long to be read"
    }


def test_what_is_known_by_its_metadata_alone_is_not_ruled_out_by_what_it_runs():
    policy = builders.policy(match=STEPS)

    assert match.policy_for(replace(builders.job(), pod_sets=()), world(policy)) is policy


@pytest.mark.parametrize(
    ("given", "job", "why"),
    [
        ({"queues": ["a"]}, {}, "it is for Jobs of other queues than gpu-lq"),
        (
            {"queues": ["a", "b"]},
            {"queue": ""},
            "the Job names no queue; this policy takes Jobs of a, b",
        ),
        ({}, {"queue": ""}, "the Job names no queue; this policy takes Jobs of cpu-lq, gpu-lq"),
        ({"namespaceSelector": {"matchLabels": {"a": "b"}}}, {}, "it is not for namespace team"),
        ({"jobSelector": LIGHT}, {}, "the Job has no label workload-type, which must be light"),
        ({"maxRequests": {"cpu": "1"}}, {}, "the Job asks for more than 1 of cpu"),
        ({"minRequests": {"cpu": "3"}}, {}, "the Job asks for less than 3 of cpu"),
        ({"priorityClasses": ["high", "top"]}, {}, "it is for priority class high, top"),
        ({"users": ["ann"]}, {}, "it is for other users"),
        ({"groups": ["ops"]}, {}, "it is for ops, and the user is in none of them"),
    ],
)
def test_each_policy_that_does_not_match_says_why(given, job, why):
    job = builders.job(builders.container(requests={"cpu": "2"}), **job)

    state = world(builders.policy(match={"jobSelector": {}, **given}))
    found = match.mismatches(job, state, requester=Requester(name="bob"))

    assert found == {"light-gpu": why}


ANN = Requester(name="ann", groups=frozenset({"ml", "system:authenticated"}))


@pytest.mark.parametrize(
    ("given", "requester", "matches"),
    [
        ({"users": ["bob", "ann"]}, ANN, True),
        ({"groups": ["ml", "vision"]}, ANN, True),
        ({"users": ["bob"], "groups": ["ml"]}, ANN, False),
        ({"users": ["ann"], "groups": ["vision"]}, ANN, False),
        ({"users": ["ann"]}, None, False),
        ({"groups": ["ml"]}, None, False),
    ],
)
def test_a_policy_may_be_for_some_users_alone(given, requester, matches):
    mine, everybodys = builders.policy(name="a", match=given), builders.policy(name="b")

    found = match.policy_for(builders.job(), world(mine, everybodys), requester=requester)

    assert found is (mine if matches else everybodys)


@pytest.mark.parametrize(
    ("labels", "pods", "matches"),
    [
        ({PRIORITY_LABEL: "high"}, "", True),
        ({PRIORITY_LABEL: "high"}, "low", True),
        ({PRIORITY_LABEL: "low"}, "high", False),
        ({}, "high", True),
        ({}, "", False),
    ],
)
def test_a_policy_may_be_for_priority_classes(labels, pods, matches):
    policy = builders.policy(match={"priorityClasses": ["high"]})
    pods = replace(builders.template(builders.container()), priority_class=pods)

    found = match.policy_for(builders.job(pods=pods, labels=labels), world(policy))

    assert (found is policy) == matches


@pytest.mark.parametrize("given", [{"priorityClasses": ["high"]}, {"minRequests": {"cpu": "1"}}])
def test_what_its_metadata_cannot_say_rules_no_job_out(given):
    policy = builders.policy(match=given)

    assert match.policy_for(replace(builders.job(), pod_sets=()), world(policy)) is policy


@pytest.mark.parametrize(
    ("given", "default_exists", "matches"),
    [
        ({"queues": [""]}, False, True),
        ({"queues": [""]}, True, True),
        ({"withoutQueue": True}, False, True),
        ({"withoutQueue": True}, True, False),
        ({"queues": ["default"]}, True, True),
        ({}, False, False),
    ],
)
def test_jobs_that_name_no_queue(given, default_exists, matches):
    policy = builders.policy(match={"jobSelector": {}, **given})
    state = world(policy)
    if default_exists:
        default = LocalQueue(namespace="team", name="default", cluster_queue="own-cq")
        found = {**state.setup.local_queues, ("team", "default"): default}
        state = updated(state, local_queues=found)

    assert (match.policy_for(builders.job(queue=""), state) is policy) == matches


def test_our_own_and_system_namespaces_are_left_alone_unless_selected():
    policy, chosen = (
        builders.policy(),
        builders.policy(match={"jobSelector": {}, "namespaceSelector": {}}),
    )

    assert match.policy_for(builders.job(), world(policy), own_namespace="team") is None
    assert match.policy_for(builders.job(), world(chosen), own_namespace="team") is chosen


@pytest.mark.parametrize(
    ("value", "found"), [("gpu", {"gpu"}), ("gpu, cpu", {"gpu", "cpu"}), (None, None)]
)
def test_allowed_options_are_read(value, found):
    annotations = {} if value is None else {"kueue-fallback.dev/allow": value}

    allowed = wishes.allowed_options(builders.job(annotations=annotations), builders.policy())

    assert allowed == found


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("gpuu", "no option 'gpuu'; policy light-gpu has gpu, cpu"),
        (" , ", "no option named; policy light-gpu has gpu, cpu"),
    ],
)
def test_an_allow_that_names_no_option_is_an_error(value, message):
    job = builders.job(annotations={"kueue-fallback.dev/allow": value})

    with pytest.raises(FieldError) as error:
        wishes.allowed_options(job, builders.policy())

    assert error.value.message == message


def test_a_policy_of_another_namespaces_own_is_neither_found_nor_named_nor_explained():
    own, other = builders.team_policy(), builders.team_policy(namespace="other")
    found = world(other, own)
    job = builders.job(labels={"kueue.x-k8s.io/queue-name": "gpu-lq"})

    assert match.policy_for(job, found) is own
    assert match.policy_for(replace(job, namespace="elsewhere"), found) is None
    assert match.named("team/light", "team", found) is own
    assert match.named("other/light", "team", found) is None
    unlike = replace(job, namespace="team", kind="RayJob")
    assert list(match.mismatches(unlike, found)) == ["team/light"]


@pytest.mark.parametrize("namespace", ["kube-system", "own"])
def test_in_system_namespaces_and_the_webhooks_no_policy_of_their_own_counts(namespace):
    found = world(builders.team_policy(namespace=namespace))
    job = replace(builders.job(), namespace=namespace)

    assert match.policy_for(job, found, own_namespace="own") is None


def test_a_policy_for_others_users_leaves_the_team_its_say():
    admins = builders.policy(match={"users": ["alice"]})
    found = world(admins, builders.team_policy())
    job = builders.job(labels={"kueue.x-k8s.io/queue-name": "gpu-lq"})
    alice, bob = (Requester(name=name, groups=frozenset()) for name in ("alice", "bob"))

    assert match.policy_for(job, found, requester=alice) is admins
    assert match.policy_for(job, found, requester=bob).name == "team/light"
