"""Replicas that an option sets: counted, written where the kind keeps them, put back, kept."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import policy
from tests.flow.moves import decision, move
from tests.servers import Server, paper_snapshot
from webhook.adapt.adaptation import adapt, refused_replicas
from webhook.admission.patch import original_from_json, undone
from webhook.jobs import BY_NAME, KINDS
from webhook.kueue import requests
from webhook.model.policy.rules import SCALED_KINDS
from webhook.model.queues import KueueConfig
from webhook.model.snapshot_parts import ClusterObjects
from webhook.state.snapshot import updated

FRAMEWORKS = tuple(kind.framework for kind in KINDS.values())
QUEUE = "kueue.x-k8s.io/queue-name"


def pods(gpu=None):
    """Four GPUs are all that there are."""
    requests = {"cpu": "1", **({"nvidia.com/gpu": gpu} if gpu else {})}
    limits = {"nvidia.com/gpu": gpu} if gpu else {}
    resources = {"requests": requests, "limits": limits}
    return {"spec": {"containers": [{"name": "main", "image": "train", "resources": resources}]}}


def rayjob(gpu="1", **group):
    workers = {"groupName": "Workers", "rayStartParams": {}, "template": pods(gpu), **group}
    cluster = {
        "headGroupSpec": {"rayStartParams": {}, "template": pods()},
        "workerGroupSpecs": [workers],
    }
    return stored("RayJob", {"submissionMode": "HTTPMode", "rayClusterSpec": cluster})


def jobset(coordinator=None, parallelism=1, gpu="1", **job):
    template = {"spec": {"parallelism": parallelism, "template": pods(gpu)}}
    spec = {"replicatedJobs": [{"name": "workers", "template": template, **job}]}
    return stored("JobSet", spec if coordinator is None else {**spec, "coordinator": coordinator})


def pytorchjob(elastic=None, gpu="1", **worker):
    specs = {"Master": {"template": pods()}, "Worker": {"template": pods(gpu), **worker}}
    spec = {"pytorchReplicaSpecs": specs, "runPolicy": {}}
    return stored("PyTorchJob", spec if elastic is None else {**spec, "elasticPolicy": elastic})


def mpijob(gpu="1", **worker):
    specs = {"Launcher": {"template": pods()}, "Worker": {"template": pods(gpu), **worker}}
    return stored("MPIJob", {"mpiReplicaSpecs": specs, "runPolicy": {}})


def stored(kind, spec):
    labels = {QUEUE: "gpu-lq", "workload-type": "light-gpu"}
    metadata = {
        "name": "train",
        "namespace": "team",
        "labels": labels,
        "creationTimestamp": "2001-09-09T01:46:40Z",
    }
    known = BY_NAME[kind]
    return {"apiVersion": known.api_version, "kind": kind, "metadata": metadata, "spec": spec}


def service(kind, **spec):
    if kind == "LeaderWorkerSet":
        spec["leaderWorkerTemplate"] = {"size": 2, "workerTemplate": pods("1")}
    else:
        spec["template"] = pods("1")
    return stored(kind, spec)


def setting(replicas, kind="RayJob", **adaptation):
    """The paper's policy, for a kind, with an option that sets replicas."""
    return policy(
        {"name": "gpu", "queue": "gpu-lq"},
        {
            "name": "cpu",
            "queue": "cpu-lq",
            "adaptation": {"accelerator": "Remove", "replicas": replicas, **adaptation},
        },
        match={"jobSelector": {}, "kinds": [kind]},
        threshold=[{"option": "gpu", "orPendingBelow": 10}, {"option": "cpu"}],
        mode="Enforce",
    )


def server_of(rule, **state):
    snapshot = paper_snapshot(kueue=KueueConfig(frameworks=FRAMEWORKS), **state)
    return Server(updated(snapshot, policies=(rule,)))


def about(job):
    known = BY_NAME[job["kind"]]
    return {"group": known.group, "version": known.version, "kind": known.kind}


def create(server, job):
    return server.create(job, kind=about(job))


def counts(job, rule):
    """Each pod set's pods and their CPUs in all, under the option that sets replicas."""
    adapted = adapt(BY_NAME[job["kind"]].read(job), rule.spec.options[1])
    return {
        n.name: (n.count, n.total["cpu"])
        for n in requests.needs(adapted, ClusterObjects(), KueueConfig())
    }


@pytest.mark.parametrize(
    ("job", "name", "expected"),
    [
        (rayjob(replicas=8, maxReplicas=8), "workers", (4, 4_000)),
        (rayjob(replicas=8, maxReplicas=8, numOfHosts=2), "workers", (8, 8_000)),
        (jobset(parallelism=2, replicas=8), "workers", (8, 8_000)),
        (jobset(), "workers", (4, 4_000)),
        (pytorchjob(replicas=8), "worker", (4, 4_000)),
        (mpijob(replicas=8), "worker", (4, 4_000)),
    ],
    ids=["rayjob", "hosts", "jobset", "default", "pytorchjob", "mpijob"],
)
def test_what_an_option_sets_is_what_is_counted(job, name, expected):
    rule = setting({name: 4}, job["kind"])

    assert counts(job, rule)[name] == expected


@pytest.mark.parametrize(
    ("job", "replicas", "words"),
    [
        (rayjob(replicas=2, maxReplicas=3), {"workers": 4}, "4 replicas of workers, at most 3"),
        (rayjob(replicas=2, minReplicas=2), {"workers": 1}, "1 replicas of workers, at least 2"),
        (rayjob(), {"head": 2}, "the number of pods of head may not change"),
        (rayjob(), {"others": 2}, "no pod set others; the Job has head, workers"),
        (pytorchjob(), {"master": 2}, "the number of pods of master may not change"),
        (
            pytorchjob({"minReplicas": 2, "maxReplicas": 3}, replicas=2),
            {"worker": 4},
            "4 replicas of worker, at most 3",
        ),
        (mpijob(), {"launcher": 2}, "the number of pods of launcher may not change"),
        (
            jobset({"replicatedJob": "workers", "jobIndex": 2}, replicas=4),
            {"workers": 2},
            "2 replicas of workers, at least 3",
        ),
    ],
)
def test_what_the_job_itself_does_not_allow_refuses_the_option(job, replicas, words):
    rule = setting(replicas, job["kind"])

    refused = refused_replicas(BY_NAME[job["kind"]].read(job), rule.spec.options[1].adaptation)

    assert (str(refused.reason), refused.detail) == ("replicasNotAllowed", words)
    created, _ = create(server_of(rule), job)
    assert decision(created)["option"] == "gpu"


def test_what_an_option_sets_is_written_and_said():
    created, _ = create(server_of(setting({"workers": 6})), rayjob(replicas=3, maxReplicas=8))

    (workers,) = created["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert workers["replicas"] == 6
    assert "replicas" in decision(created)["changed"]
    place = "/spec/rayClusterSpec/workerGroupSpecs/Workers/replicas"
    assert decision(created)["original"][place] == 3


MADE = {"RayJob": (rayjob, "workers"), "JobSet": (jobset, "workers"), "MPIJob": (mpijob, "worker")}


@given(
    kind=st.sampled_from(sorted(MADE)),
    before=st.none() | st.integers(1, 4),
    wanted=st.integers(1, 9),
)
def test_whatever_was_submitted_comes_back_and_stays_away_when_applied_again(kind, before, wanted):
    build, name = MADE[kind]
    job = build() if before is None else build(replicas=before)
    server = server_of(setting({name: wanted}, kind))

    created, _ = create(server, copy.deepcopy(job))
    assert decision(created)["option"] == "cpu"
    again, _ = server.update(created, applied(created, job), kind=about(job))

    original = original_from_json(decision(created)["original"])
    assert plain(undone(created, original, BY_NAME[kind].allowed)["spec"]) == plain(job["spec"])
    assert again["spec"] == created["spec"]


def applied(stored, manifest):
    """The stored object with all that the manifest says put into it, as `kubectl apply` does."""

    def merged(old, new):
        if isinstance(new, dict) and isinstance(old, dict):
            return {**old, **{key: merged(old.get(key), value) for key, value in new.items()}}
        if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
            return [merged(*pair) for pair in zip(old, new, strict=True)]
        return new

    return {**stored, "spec": merged(stored["spec"], manifest["spec"])}


def plain(value):
    if isinstance(value, dict):
        kept = {key: plain(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in ({}, [])}
    return [plain(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("job", "name", "words"),
    [
        (rayjob(gpu=None, replicas=3), "workers", None),
        (pytorchjob(gpu=None, replicas=3), "worker", None),
        (mpijob(gpu=None, replicas=3), "worker", None),
        (jobset(gpu=None, replicas=3), "workers", "the replicas of a pod set would change"),
    ],
    ids=["rayjob", "pytorchjob", "mpijob", "jobset"],
)
def test_a_pending_one_gets_other_replicas_by_a_move_where_its_kind_allows(job, name, words):
    rule = setting({name: 4}, job["kind"], accelerator="Keep")
    server = server_of(rule, pending=3)
    created, _ = create(server, job)
    assert decision(created)["option"] == "gpu"
    created["spec"] = suspended(created["spec"])

    moved, warnings = move(server, created, "cpu", kind=about(job))

    pod_set = next(each for each in BY_NAME[job["kind"]].read(moved).pod_sets if each.name == name)
    if words is None:
        assert (decision(moved)["option"], pod_set.replicas.number) == ("cpu", 4)
    else:
        assert (decision(moved)["option"], pod_set.replicas.number) == ("gpu", 3)
        assert words in " ".join(warnings)


def suspended(spec):
    if "runPolicy" in spec:
        return {**spec, "runPolicy": {"suspend": True}}
    return {**spec, "suspend": True}


def test_a_policy_may_set_replicas_of_just_those_kinds_that_have_some():
    assert {kind.kind for kind in KINDS.values() if kind.replicas} == set(SCALED_KINDS)


@pytest.mark.parametrize(
    ("kind", "workloads", "counted"),
    [
        ("Deployment", 4, {"main": (1, 1_000)}),
        ("StatefulSet", 1, {"main": (4, 4_000)}),
        ("LeaderWorkerSet", 4, {"main": (2, 2_000)}),
    ],
)
def test_replicas_of_a_service_are_its_workloads_or_its_pods(kind, workloads, counted):
    rule, job = setting({"main": 4}, kind), service(kind, replicas=8)

    assert counts(job, rule) == counted
    assert adapt(BY_NAME[kind].read(job), rule.spec.options[1]).workloads == workloads


@pytest.mark.parametrize("given", [{"replicas": 8}, {}], ids=["some", "none"])
@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "LeaderWorkerSet"])
def test_an_undo_puts_the_submitted_number_of_a_service_back(kind, given):
    submitted = service(kind, **given)

    created, _ = create(server_of(setting({"main": 4}, kind)), copy.deepcopy(submitted))

    assert (decision(created)["option"], created["spec"]["replicas"]) == ("cpu", 4)
    original = original_from_json(decision(created)["original"])
    assert undone(created, original, BY_NAME[kind].allowed)["spec"] == submitted["spec"]
