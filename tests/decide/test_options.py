from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import (
    CPU_OPTION,
    GPU_OPTION,
    NAMESPACE,
    applicant,
    cluster_queue,
    container,
    held,
    job,
    policy,
    snapshot,
)
from webhook.decide import options
from webhook.kueue.requests import priority_of
from webhook.model.decision import Rejection
from webhook.model.job import PRIORITY_LABEL, Requester
from webhook.model.queues import (
    MULTIKUEUE,
    AdmissionCheck,
    KueueConfig,
    LocalQueue,
    Selector,
    StopPolicy,
    WorkerCluster,
)
from webhook.model.reasons import Reason
from webhook.state.snapshot import updated

GPU = "nvidia.com/gpu"
GPU_CQ = cluster_queue("gpu-cq", {"t4": {GPU: "4", "cpu": "16", "memory": "64Gi"}})
CPU_CQ = cluster_queue("cpu-cq", {"default": {"cpu": "24", "memory": "60Gi"}})
HIGH_ALONE = "it is for priority class high"
ADAPTED = {"adaptation": CPU_OPTION["adaptation"]}
LIGHT = container(requests={"cpu": "1"}, limits={GPU: "1"})


def assess(state, *, which=None, of=None, **rest):
    return options.fitted(applicant(which, state, of=of or job(LIGHT), **rest))


def refusal(state, index=0, **rest):
    """Say why the option of that index is refused."""
    rejection = assess(state, **rest)[index].rejection
    return (rejection.reason, rejection.detail)


def with_gpu(**changes):
    return snapshot(replace(GPU_CQ, **changes), CPU_CQ)


def test_a_queue_that_is_not_there_is_named_with_the_nearest_one():
    state = snapshot(GPU_CQ, CPU_CQ, local_queues={"gpu-lq2": "gpu-cq", "cpu-lq": "cpu-cq"})

    detail = "LocalQueue gpu-lq not found in namespace team (there is gpu-lq2)"
    assert refusal(state) == (Reason.QUEUE_NOT_FOUND, detail)


def test_a_near_name_is_looked_for_among_200():
    others = {f"other-{number}": "gpu-cq" for number in range(199)}
    near, far = {"gpu-lq2": "gpu-cq"}, {"gpu-lq3": "gpu-cq"}

    named = refusal(snapshot(GPU_CQ, local_queues={**others, **near, **far}))
    unnamed = refusal(snapshot(GPU_CQ, local_queues={**others, "other": "gpu-cq", **near}))

    detail = "LocalQueue gpu-lq not found in namespace team"
    assert named == (Reason.QUEUE_NOT_FOUND, f"{detail} (there is gpu-lq2)")
    assert unnamed == (Reason.QUEUE_NOT_FOUND, detail)


def test_a_cluster_queue_that_is_not_there_is_named():
    state = snapshot(CPU_CQ, local_queues={"gpu-lq": "gpu-cq", "cpu-lq": "cpu-cq"})

    detail = "ClusterQueue gpu-cq not found (there is cpu-cq)"
    assert refusal(state) == (Reason.CLUSTER_QUEUE_NOT_FOUND, detail)


def test_an_option_may_name_the_cluster_queue():
    by_cluster_queue = {"name": "cpu", "clusterQueue": "cpu-cq", **ADAPTED}
    which = policy(GPU_OPTION, by_cluster_queue)
    several = {"a": "cpu-cq", "b": "cpu-cq", "gpu-lq": "gpu-cq"}

    def state(names):
        return snapshot(GPU_CQ, CPU_CQ, local_queues=names)

    assert assess(state({"a": "cpu-cq"}), which=which)[1].queue == "a"
    assert assess(state(several), which=which, submitted="b")[1].queue == "b"
    assert refusal(state(several), 1, which=which) == (
        Reason.QUEUE_AMBIGUOUS,
        "LocalQueues a, b of namespace team all point to ClusterQueue cpu-cq",
    )
    assert refusal(state({"gpu-lq": "gpu-cq"}), 1, which=which) == (
        Reason.QUEUE_NOT_FOUND,
        "no LocalQueue of namespace team points to ClusterQueue cpu-cq",
    )


def test_a_stopped_queue_is_refused():
    state = snapshot(GPU_CQ, CPU_CQ)
    stopped = LocalQueue(
        namespace=NAMESPACE, name="gpu-lq", cluster_queue="gpu-cq", stop_policy=StopPolicy.HOLD
    )
    here = updated(state, local_queues={**state.setup.local_queues, (NAMESPACE, "gpu-lq"): stopped})

    assert refusal(here) == (Reason.STOPPED, "LocalQueue gpu-lq has stopPolicy Hold")
    assert refusal(with_gpu(stop_policy=StopPolicy.HOLD_AND_DRAIN)) == (
        Reason.STOPPED,
        "ClusterQueue gpu-cq has stopPolicy HoldAndDrain",
    )


def test_an_inactive_queue_is_refused_with_kueues_own_words():
    state = with_gpu(active=False, inactive_because="Can't admit new workloads: flavor is missing.")

    detail = "ClusterQueue gpu-cq is inactive: Can't admit new workloads: flavor is missing"
    assert refusal(state) == (Reason.INACTIVE, detail)


def test_a_namespace_that_the_queue_does_not_select_is_refused():
    state = with_gpu(namespaces=Selector(labels={"tier": "gold"}))

    detail = "ClusterQueue gpu-cq does not select namespace team"
    assert refusal(state) == (Reason.NAMESPACE_NOT_SELECTED, detail)
    assert assess(updated(state, namespaces={"team": {"tier": "gold"}}))[0].rejection is None


@pytest.mark.parametrize(
    ("managed_by", "checks", "detail"),
    [
        (MULTIKUEUE, (), "does not use MultiKueue"),
        ("example.com/other", ("remote",), "uses MultiKueue"),
    ],
)
def test_a_job_whose_manager_is_fixed_stays_on_its_side_of_multikueue(managed_by, checks, detail):
    state = updated(
        with_gpu(checks=checks),
        checks={"remote": AdmissionCheck(controller=MULTIKUEUE)},
    )

    assert refusal(state, of=job(LIGHT, managed_by=managed_by)) == (
        Reason.MULTIKUEUE_BOUNDARY,
        f"ClusterQueue gpu-cq {detail}, and the Job's managedBy is {managed_by}",
    )
    assert assess(state)[0].rejection is None


@pytest.mark.parametrize(
    ("clusters", "detail"),
    [
        (
            (WorkerCluster(active=False, inactive_because="no such Secret."),),
            "a inactive: no such Secret; b not found",
        ),
        (
            (WorkerCluster(active=False), WorkerCluster(active=False)),
            "a inactive; b inactive",
        ),
        ((WorkerCluster(active=False), WorkerCluster()), None),
    ],
)
def test_a_queue_whose_clusters_are_all_inactive_is_refused_with_their_own_words(clusters, detail):
    check = AdmissionCheck(controller=MULTIKUEUE, parameters="all")
    state = updated(
        with_gpu(checks=("remote",)),
        checks={"remote": check},
        multikueue_configs={"all": ("a", "b")},
        worker_clusters=dict(zip("ab", clusters, strict=False)),
    )

    found = assess(state)[0].rejection

    assert (found.detail if found else None) == (
        detail and f"no cluster of ClusterQueue gpu-cq is active: {detail}"
    )
    assert found is None or found.reason is Reason.NO_ACTIVE_CLUSTER


def test_a_job_without_a_queue_gets_one_only_if_kueue_looks_at_it_afterwards():
    state = updated(snapshot(GPU_CQ, CPU_CQ), runs_before_kueue=False)
    suspended_anyway = updated(state, kueue=KueueConfig(manage_without_queue=True))
    without = job(LIGHT, queue="")

    assert refusal(state, of=without, submitted="") == (
        Reason.WOULD_NOT_BE_SUSPENDED,
        "the Job names no queue, and this webhook is not proven to run before Kueue's",
    )
    assert assess(state)[0].rejection is None
    assert assess(suspended_anyway, of=without, submitted="")[0].rejection is None


def test_guests_are_counted_by_policy_and_option():
    which = policy(GPU_OPTION, {**CPU_OPTION, "guests": {"maxJobs": 3}})

    def state(count):
        guests = {
            ("light-gpu", "cpu", "team"): count,
            ("x", "cpu", "team"): 9,
            ("light-gpu", "cpu", "another-team"): 9,
        }
        there = held(pending=1, reserving=9, guests=guests)
        return snapshot(GPU_CQ, CPU_CQ, held={"cpu-cq": there})

    assert assess(state(2), which=which)[1].rejection is None
    assert refusal(state(3), 1, which=which) == (
        Reason.GUESTS_FULL,
        "3 Jobs of policy light-gpu are in ClusterQueue cpu-cq as guests (at most 3)",
    )


def test_an_option_that_the_api_server_would_refuse_is_refused():
    many = {"adaptation": {"resources": {"requests": {"cpu": "4"}}, "containers": ["main"]}}
    limited = container(requests={"cpu": "1"}, limits={"cpu": "2", GPU: "1"})

    (found,) = assess(snapshot(GPU_CQ), which=policy({**GPU_OPTION, **many}), of=job(limited))

    assert found.rejection is not None
    assert found.rejection.reason is Reason.WOULD_BE_INVALID


MEMBER = Requester(name="alice", groups=frozenset({"ml-research", "system:authenticated"}))
RESERVED = {**GPU_OPTION, "only": {"groups": ["ml-research"]}}


@pytest.mark.parametrize(
    ("only", "labels", "requester", "why"),
    [
        ({"groups": ["ml-research"]}, {}, MEMBER, None),
        ({"users": ["alice", "bob"]}, {}, MEMBER, None),
        ({"users": ["bob"]}, {}, MEMBER, "it is for other users"),
        (
            {"users": ["alice"], "groups": ["vision", "speech"]},
            {},
            MEMBER,
            "it is for vision, speech, and the user is in none of them",
        ),
        (
            {"groups": ["ml-research"]},
            {},
            None,
            "it is only for some users, and the Job's creator is unknown",
        ),
        ({"priorityClasses": ["high"]}, {PRIORITY_LABEL: "high"}, None, None),
        ({"priorityClasses": ["high"]}, {PRIORITY_LABEL: "low"}, MEMBER, HIGH_ALONE),
        ({"priorityClasses": ["high"]}, {}, MEMBER, HIGH_ALONE),
    ],
)
def test_an_option_may_be_kept_for_some(only, labels, requester, why):
    which = policy({**GPU_OPTION, "only": only}, CPU_OPTION)
    state = snapshot(GPU_CQ, CPU_CQ, priority_classes={"high": 9, "low": 1})

    reserved, other = assess(state, which=which, of=job(LIGHT, labels=labels), requester=requester)

    assert reserved.rejection == (why and Rejection(reason=Reason.NOT_FOR_YOU, detail=why))
    assert other.rejection is None


def test_a_job_may_stay_in_an_option_that_is_kept_for_some():
    state, which = snapshot(GPU_CQ, CPU_CQ), policy(RESERVED, CPU_OPTION)

    assert assess(state, which=which, stays_in="gpu")[0].rejection is None
    assert assess(state, which=which, stays_in="cpu")[0].rejection is not None


def test_an_option_gives_its_jobs_a_priority():
    state = snapshot(GPU_CQ, CPU_CQ, priority_classes={"high": 9})
    which = policy({**GPU_OPTION, "priorityClass": "high"}, CPU_OPTION)

    assert [priority_of(job(LIGHT), option, state.cluster) for option in which.spec.options] == [
        9,
        0,
    ]
