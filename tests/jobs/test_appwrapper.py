"""What Kueue counts of AppWrappers, and what may change in them."""

from dataclasses import replace

import pytest

from tests.builders import policy
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from webhook.adapt.adaptation import adapt
from webhook.jobs.appwrapper import APPWRAPPER
from webhook.model.fields import FieldError
from webhook.state.snapshot import updated

GPU = {"requests": {"cpu": "4"}, "limits": {"nvidia.com/gpu": "1"}}
MAIN = {"name": "main", "image": "train", "resources": GPU}


def pods(**spec):
    return {"spec": {"containers": [MAIN], **spec}}


def wrapped(api_version="batch/v1", kind="Job", **spec):
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "train"}, "spec": spec}


JOB = wrapped(template=pods())
POD = {"apiVersion": "v1", "kind": "Pod", **pods()}
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "data": {}}
RAY = {
    "headGroupSpec": {"template": pods()},
    "workerGroupSpecs": [
        {"groupName": "small", "replicas": 3, "numOfHosts": 2, "template": pods()},
        {"groupName": "large", "template": pods()},
    ],
}


def replicated(name, replicas=1, **job):
    return {"name": name, "replicas": replicas, "template": {"spec": {"template": pods(), **job}}}


def appwrapper(*templates, status=None, pod_sets=None, **spec):
    declared = {} if pod_sets is None else {"podSets": pod_sets}
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {
            "components": [{"template": template, **declared} for template in templates],
            **spec,
        },
        "status": status or {},
    }


def counted(source):
    return [(each.path[2:], each.count) for each in APPWRAPPER.read(source).pod_sets]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (POD, [((), 1)]),
        (wrapped(parallelism=4, completions=3, template=pods()), [(("spec", "template"), 3)]),
        (
            wrapped(
                "jobset.x-k8s.io/v1alpha2",
                "JobSet",
                replicatedJobs=[replicated("a"), replicated("b", 2, parallelism=4)],
            ),
            [
                (("spec", "replicatedJobs", "a", "template", "spec", "template"), 1),
                (("spec", "replicatedJobs", "b", "template", "spec", "template"), 8),
            ],
        ),
        (
            wrapped(
                "kubeflow.org/v1",
                "PyTorchJob",
                pytorchReplicaSpecs={
                    "Worker": {"replicas": 2, "template": pods()},
                    "Master": {"template": pods()},
                },
            ),
            [
                (("spec", "pytorchReplicaSpecs", "Master", "template"), 1),
                (("spec", "pytorchReplicaSpecs", "Worker", "template"), 2),
            ],
        ),
        (
            wrapped("ray.io/v1", "RayJob", rayClusterSpec=RAY),
            [
                (("spec", "rayClusterSpec", "headGroupSpec", "template"), 1),
                (("spec", "rayClusterSpec", "workerGroupSpecs", "small", "template"), 3),
                (("spec", "rayClusterSpec", "workerGroupSpecs", "large", "template"), 1),
            ],
        ),
        (CONFIG, []),
    ],
)
def test_pods_of_well_known_kinds_are_inferred(template, expected):
    source = appwrapper(CONFIG, template)

    assert counted(source) == [(("1", "template", *path), count) for path, count in expected]
    assert APPWRAPPER.read(source).unmodelled == ""


def test_declared_pod_sets_count_as_they_say():
    mpi = wrapped(
        "kubeflow.org/v2beta1",
        "MPIJob",
        mpiReplicaSpecs={"Launcher": {"template": pods()}, "Worker": {"template": pods()}},
    )
    path = "template.spec.mpiReplicaSpecs.{}.template"
    declared = [{"path": path.format("Worker"), "replicas": 0}, {"path": path.format("Launcher")}]

    assert counted(appwrapper(mpi, pod_sets=declared)) == [
        (("0", "template", "spec", "mpiReplicaSpecs", "Worker", "template"), 0),
        (("0", "template", "spec", "mpiReplicaSpecs", "Launcher", "template"), 1),
    ]


def test_pod_sets_go_by_their_places_over_all_components():
    assert [each.name for each in APPWRAPPER.read(appwrapper(JOB, CONFIG, POD)).pod_sets] == [
        "0",
        "1",
    ]


@pytest.mark.parametrize(
    "path",
    [
        "",
        "spec.template",
        "template.spec",
        "template.spec.templates",
        "template.spec.template.spec.containers[1]",
        "template.spec[0]",
        "template.spec.template]",
        "templates.spec.template",
    ],
)
def test_a_declared_path_leads_to_a_pod_template(path):
    with pytest.raises(FieldError, match=r"components\[0\]: no pod template at"):
        APPWRAPPER.read(appwrapper(JOB, pod_sets=[{"path": path}]))


@pytest.mark.parametrize(
    ("template", "what"),
    [
        (wrapped("apps/v1", "Deployment", template=pods()), "its Deployment, which never ends,"),
        (wrapped("ray.io/v1", "RayCluster", **RAY), "its RayCluster, which never ends,"),
        (
            wrapped("ray.io/v1", "RayJob", rayClusterSpec=RAY, entrypointNumGpus=1),
            "its entrypointNumGpus, which Ray would still ask for,",
        ),
        (
            wrapped(template=pods(runtimeClassName="nvidia")),
            "the runtimeClassName of its pods, which Kueue does not count,",
        ),
        (
            wrapped(template=pods(initContainers=[{"name": "log", "restartPolicy": "Always"}])),
            "its sidecars, which Kueue counts as other containers,",
        ),
    ],
)
def test_what_is_not_modelled_is_named(template, what):
    assert APPWRAPPER.read(appwrapper(CONFIG, template)).unmodelled == what


def test_pods_of_an_unknown_kind_are_not_modelled():
    crd = wrapped("example.com/v1", "Training", pods=pods())
    source = appwrapper(crd, pod_sets=[{"path": "template.spec.pods"}])

    assert APPWRAPPER.read(source).unmodelled == "the pods of its Training"


def test_the_shortest_time_limit_of_a_wrapped_job_counts():
    limited = [wrapped(template=pods(), activeDeadlineSeconds=limit) for limit in (90, 60)]

    assert APPWRAPPER.read(appwrapper(*limited)).active_deadline_seconds == 60
    assert APPWRAPPER.read(appwrapper(JOB)).active_deadline_seconds is None


def test_a_mistake_in_a_wrapped_job_is_named_with_its_place():
    with pytest.raises(
        FieldError, match=r"spec\.components\[0\]\.template\.spec\.parallelism: expected"
    ):
        APPWRAPPER.read(appwrapper(wrapped(parallelism="2", template=pods())))


@pytest.mark.parametrize(
    ("adaptation", "reason"),
    [
        ({"accelerator": "Remove"}, "immutableResources"),
        ({"nodeSelector": {"set": {"pool": "cpu"}}}, "immutableTemplate"),
        ({}, None),
    ],
)
def test_of_one_that_exists_only_the_queue_changes(adaptation, reason):
    before = APPWRAPPER.read(appwrapper(JOB))
    option = {"name": "cpu", "queue": "cpu-lq", "adaptation": adaptation}
    (cpu,) = policy(option).spec.options

    assert APPWRAPPER.obstacle_to(APPWRAPPER.edits(before, adapt(before, cpu))) == reason


def test_a_light_one_goes_to_cpus_and_stays_so_when_it_is_applied_again():
    known = paper_snapshot()
    (rule,) = known.fallback.policies
    match = rule.spec.match.model_copy(update={"kinds": ("AppWrapper",)})
    spec = rule.spec.model_copy(update={"match": match})
    rule = (
        rule.model_copy(update={"spec": spec})
        if hasattr(rule, "model_copy")
        else replace(rule, spec=spec)
    )
    kueue = replace(known.setup.kueue, frameworks=("workload.codeflare.dev/appwrapper",))
    server = Server(updated(known, policies=(rule,), kueue=kueue))
    job = light_job()
    light = {**appwrapper(CONFIG, job), "metadata": light_job()["metadata"]}
    heavy = {
        **light,
        "metadata": {
            **job["metadata"],
            "labels": {**job["metadata"]["labels"], "workload-type": "heavy"},
        },
    }
    kind = {"group": "workload.codeflare.dev", "version": "v1beta2", "kind": "AppWrapper"}

    created, _ = server.create(light, kind=kind)
    untouched, _ = server.create(heavy, kind=kind)
    applied, _ = server.update(created, {**light, "metadata": created["metadata"]}, kind=kind)

    pods_of_job = created["spec"]["components"][1]["template"]["spec"]["template"]["spec"]
    assert created["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "cpu-lq"
    assert "nvidia.com/gpu" not in pods_of_job["containers"][0]["resources"]["limits"]
    assert untouched == heavy
    assert applied == created
