"""What Kueue counts of RayJobs and RayClusters, and what may change in them."""

import pytest

from tests.builders import CPU_OPTION, policy
from webhook.adapt.adaptation import adapt
from webhook.jobs import KINDS
from webhook.kueue import requests
from webhook.model.fields import FieldError
from webhook.model.queues import KueueConfig
from webhook.model.snapshot_parts import ClusterObjects

RAYJOB, RAYCLUSTER = KINDS["ray.io", "v1", "RayJob"], KINDS["ray.io", "v1", "RayCluster"]
GPU = "nvidia.com/gpu"


def pods(name, cpu="1", **resources):
    amounts = {"cpu": cpu, **resources}
    limits = {GPU: resources[GPU]} if GPU in resources else {}
    container = {"name": name, "image": "ray", "resources": {"requests": amounts, "limits": limits}}
    return {"spec": {"containers": [container]}}


def group(name="workers", **rest):
    return {"groupName": name, "template": pods("worker", "4", **{GPU: "1"}), **rest}


def cluster(*groups, **rest):
    head = {"rayStartParams": {}, "template": pods("head")}
    return {"headGroupSpec": head, "workerGroupSpecs": list(groups or (group(),)), **rest}


def rayjob(ray=None, *, status=None, metadata=None, **spec):
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": "train", "namespace": "team", **(metadata or {})},
        "spec": {"rayClusterSpec": ray or cluster(), "submissionMode": "K8sJobMode", **spec},
        "status": status or {},
    }


def counted(job):
    return [
        (n.name, n.count, n.per_pod["cpu"])
        for n in requests.needs(job, ClusterObjects(), KueueConfig())
    ]


def test_head_workers_and_submitter_are_counted():
    assert counted(RAYJOB.read(rayjob())) == [
        ("head", 1, 1000),
        ("workers", 1, 4000),
        ("submitter", 1, 500),
    ]


@pytest.mark.parametrize(
    ("spec", "count"),
    [({}, 1), ({"replicas": 0}, 0), ({"replicas": 3}, 3), ({"replicas": 3, "numOfHosts": 2}, 6)],
)
def test_a_worker_is_counted_for_each_host_of_each_replica(spec, count):
    assert RAYJOB.read(rayjob(cluster(group(**spec)))).pod_sets[1].count == count


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("SidecarMode", [("head", 1, 1500), ("workers", 1, 4000)]),
        ("HTTPMode", [("head", 1, 1000), ("workers", 1, 4000)]),
        ("InteractiveMode", [("head", 1, 1000), ("workers", 1, 4000)]),
    ],
)
def test_how_it_is_submitted_decides_what_submits_it(mode, expected):
    assert counted(RAYJOB.read(rayjob(submissionMode=mode))) == expected


def test_a_submitter_of_its_own_is_counted_and_may_be_edited():
    job = RAYJOB.read(rayjob(submitterPodTemplate=pods("submit", "2")))

    assert counted(job)[2] == ("submitter", 1, 2000)
    assert job.pod_sets[2].path == ("spec", "submitterPodTemplate")


@pytest.mark.parametrize(
    ("options", "cpu"), [({}, 1500), ({"resources": {"requests": {"cpu": "2"}}}, 3000)]
)
def test_an_autoscaler_is_counted_beside_the_head(options, cpu):
    ray = cluster(enableInTreeAutoscaling=True, autoscalerOptions=options)

    assert counted(RAYJOB.read(rayjob(ray)))[0] == ("head", 1, cpu)


def test_one_that_uses_a_cluster_that_exists_has_no_pods_of_its_own():
    assert RAYJOB.read(rayjob(clusterSelector={"a": "b"})).pod_sets == ()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (rayjob(entrypointNumGpus=1), "its entrypointNumGpus, which Ray would still ask for,"),
        (rayjob(entrypointNumGpus=0), ""),
        (
            rayjob(cluster(group(rayStartParams={"num-gpus": "1"}))),
            "the GPUs that Ray is given in rayStartParams",
        ),
        (rayjob(cluster(group(rayStartParams={"num-gpus": "0"}))), ""),
        *(
            (rayjob(cluster(group(rayStartParams={"resources": text}))), what)
            for text, what in (
                (r'"{\"TPU\": 4}"', "the devices that Ray is given in rayStartParams"),
                ('{"neuron_cores": 32}', "the devices that Ray is given in rayStartParams"),
                ("{TPU: 4}", "the devices that Ray is given in rayStartParams"),
                ('{"TPU": 0, "disk": 1}', ""),
                ("[" * 100_000, ""),
            )
        ),
        (
            rayjob(cluster(group(resources={"TPU": "4"}))),
            "the devices that Ray is given in resources",
        ),
        *(
            (rayjob(cluster(), entrypointResources=text), what)
            for text, what in (
                ('{"TPU": 4}', "its entrypointResources, which Ray would still ask for,"),
                (
                    '{"accelerator_type:A100": 0.001}',
                    "its entrypointResources, which Ray would still ask for,",
                ),
                ('{"disk": 1}', ""),
            )
        ),
        (rayjob(cluster(group(resources={"GPU": "1"}))), "the GPUs that Ray is given in resources"),
        (
            rayjob(cluster(gcsFaultToleranceOptions={"redisAddress": "redis:6379"})),
            "the Redis clean-up, which asks for more than its head,",
        ),
    ],
)
def test_what_is_not_modelled_is_named(source, words):
    assert RAYJOB.read(source).unmodelled == words


def test_a_number_of_gpus_that_no_double_holds_is_one():
    assert "entrypointNumGpus" in RAYJOB.read(rayjob(entrypointNumGpus=10**399)).unmodelled


def test_limits_and_who_runs_it_are_read():
    job = RAYJOB.read(rayjob(activeDeadlineSeconds=60, managedBy="kueue.x-k8s.io/multikueue"))

    assert (job.active_deadline_seconds, job.managed_by) == (60, "kueue.x-k8s.io/multikueue")
    assert job.reference == "rayjob/train"


def test_groups_need_names_of_their_own():
    with pytest.raises(FieldError) as caught:
        RAYJOB.read(rayjob(cluster(group(), group())))

    assert caught.value.path == "spec.rayClusterSpec.workerGroupSpecs[1].groupName"


def test_only_pods_with_accelerators_change_and_only_in_the_pod_sets_named():
    before = RAYJOB.read(rayjob(cluster(group("a"), group("b"))))
    _, every = policy().spec.options
    named = {**CPU_OPTION, "adaptation": {**CPU_OPTION["adaptation"], "podSets": ["b"]}}
    _, one = policy({"name": "gpu", "queue": "gpu-lq"}, named).spec.options

    def lost(option):
        edits = RAYJOB.edits(before, adapt(before, option))
        return {edit.path[3] for edit in edits if edit.path[-1] == GPU}

    assert (lost(every), lost(one)) == ({"a", "b"}, {"b"})


def test_everything_may_change_while_it_is_suspended():
    before = RAYJOB.read(rayjob())
    _, cpu = policy().spec.options

    assert RAYJOB.obstacle_to(RAYJOB.edits(before, adapt(before, cpu))) is None


def test_a_raycluster_is_counted_without_a_submitter_and_never_finishes():
    source = {"metadata": {"name": "c", "namespace": "team"}, "spec": cluster()}

    assert counted(RAYCLUSTER.read(source)) == [("head", 1, 1000), ("workers", 1, 4000)]
    assert not RAYCLUSTER.finishes
    assert RAYCLUSTER.held_back(source) == "notSuspended"
