"""What Kueue counts of Kubeflow's kinds, and what may change in them."""

import pytest

from tests.builders import policy, snapshot
from webhook.adapt.adaptation import adapt
from webhook.jobs import BY_NAME
from webhook.jobs.kubeflow import KUBEFLOW_KINDS, MPIJOB
from webhook.kueue import requests
from webhook.model.fields import FieldError
from webhook.model.queues import KueueConfig
from webhook.model.snapshot_parts import ClusterObjects

CPU = {"requests": {"cpu": "1"}}
GPU = {"requests": {"cpu": "4"}, "limits": {"nvidia.com/gpu": "1"}}
FIELDS = {
    "JAXJob": ("jaxReplicaSpecs", ["Worker"]),
    "MPIJob": ("mpiReplicaSpecs", ["Launcher", "Worker"]),
    "PaddleJob": ("paddleReplicaSpecs", ["Master", "Worker"]),
    "PyTorchJob": ("pytorchReplicaSpecs", ["Master", "Worker"]),
    "TFJob": ("tfReplicaSpecs", ["Chief", "Master", "PS", "Worker", "Evaluator"]),
    "XGBoostJob": ("xgbReplicaSpecs", ["Master", "Worker"]),
}


def replica(resources=GPU, *, replicas=None, **spec):
    container = {"name": "main", "image": "train", "resources": resources}
    given = {} if replicas is None else {"replicas": replicas}
    return {**given, "template": {"spec": {"containers": [container], **spec}}}


def kubeflow_job(kind="PyTorchJob", *, run_policy=None, status=None, spec=None, **replicas):
    return {
        "apiVersion": BY_NAME[kind].api_version,
        "kind": kind,
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {FIELDS[kind][0]: replicas, "runPolicy": run_policy or {}, **(spec or {})},
        "status": status or {},
    }


def read(source):
    return BY_NAME[source["kind"]].read(source)


def test_all_of_them_are_tested():
    assert {kind.kind for kind in KUBEFLOW_KINDS} == set(FIELDS)


@pytest.mark.parametrize("kind", FIELDS)
def test_replica_types_are_pod_sets_in_the_order_of_kueue(kind):
    types = FIELDS[kind][1]
    given = {name: replica(replicas=number) for number, name in enumerate(types, 2)}

    job = read(kubeflow_job(kind, **dict(reversed(given.items()))))

    assert [(each.name, each.count) for each in job.pod_sets] == [
        (name.lower(), number) for number, name in enumerate(types, 2)
    ]
    assert job.unmodelled == ""


@pytest.mark.parametrize(("replicas", "count"), [(None, 1), (0, 0), (3, 3)])
def test_without_a_number_there_is_one_pod(replicas, count):
    (needs,) = requests.needs(
        read(kubeflow_job(Worker=replica(replicas=replicas))), ClusterObjects(), KueueConfig()
    )

    assert (needs.name, needs.count, needs.per_pod) == (
        "worker",
        count,
        {"cpu": 4000, "nvidia.com/gpu": 1},
    )


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("PyTorchJob", {"Worker": replica(), "Eval": replica()}),
        ("TFJob", {"Worker": replica(), "worker": replica()}),
    ],
)
def test_what_kueue_does_not_count_is_not_modelled(kind, source):
    assert "which Kueue does not count" in read(kubeflow_job(kind, **source)).unmodelled


@pytest.mark.parametrize(("processes", "is_modelled"), [("gpu", False), ("auto", True), (4, True)])
def test_a_process_for_each_gpu_cannot_do_without_gpus(processes, is_modelled):
    job = read(kubeflow_job(spec={"nprocPerNode": processes}, Worker=replica()))

    assert (job.unmodelled == "") is is_modelled


def test_the_run_policy_says_who_runs_it_for_how_long_and_how_urgently():
    policy_of_runs = {
        "managedBy": "kueue.x-k8s.io/multikueue",
        "activeDeadlineSeconds": 60,
        "schedulingPolicy": {"priorityClass": "urgent"},
    }
    masters = replica(priorityClassName="low")
    job = read(kubeflow_job(run_policy=policy_of_runs, Master=masters))
    plain = read(kubeflow_job(Master=masters))
    known = snapshot(pod_priorities={"urgent": 1000, "low": 10})

    assert (job.managed_by, job.active_deadline_seconds) == ("kueue.x-k8s.io/multikueue", 60)
    assert [requests.own_priority(each, known.cluster) for each in (job, plain)] == [1000, 10]


@pytest.mark.parametrize("kind", FIELDS)
def test_each_replica_type_is_edited_at_its_own_place(kind):
    field, types = FIELDS[kind]
    before = read(kubeflow_job(kind, **{name: replica() for name in types}))
    _, cpu = policy().spec.options

    edits = BY_NAME[kind].edits(before, adapt(before, cpu))

    assert {edit.path[:3] for edit in edits} == {("spec", field, name) for name in types}
    assert {BY_NAME[kind].below_template(edit.path) != () for edit in edits} == {True}


@pytest.mark.parametrize(
    ("adaptation", "reason"),
    [
        ({"accelerator": "Remove"}, "immutableResources"),
        ({"image": "other", "containers": ["main"]}, "immutableImage"),
        ({"affinity": "Remove"}, "immutableAffinity"),
        ({"nodeSelector": {"set": {"pool": "cpu"}}}, "kueueWouldNotNotice"),
    ],
)
def test_of_a_launcher_that_exists_only_scheduling_changes(adaptation, reason):
    nodes = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}
    option = {"name": "cpu", "queue": "cpu-lq", "adaptation": adaptation}
    (cpu,) = policy(option).spec.options
    launched = read(kubeflow_job("MPIJob", Launcher=replica(affinity=nodes)))
    workers = read(kubeflow_job("MPIJob", Launcher=replica(CPU), Worker=replica()))
    only = {"podSets": ["worker"], "accelerator": "Remove"}
    (of_workers,) = policy({"name": "cpu", "queue": "cpu-lq", "adaptation": only}).spec.options

    assert MPIJOB.obstacle_to(MPIJOB.edits(launched, adapt(launched, cpu))) == reason
    assert MPIJOB.obstacle_to(MPIJOB.edits(workers, adapt(workers, of_workers))) is None


def test_wrong_types_are_named_with_their_path():
    with pytest.raises(FieldError, match=r"Specs\.Worker\.replicas"):
        read(kubeflow_job(Worker=replica(replicas="2")))
    with pytest.raises(FieldError, match=r"Specs\.Worker: expected an object"):
        read(kubeflow_job(Worker=["pods"]))
