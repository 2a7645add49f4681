"""TrainJobs: pods of a runtime, with what the TrainJob says instead; edits go to the TrainJob."""

import pytest

from tests.builders import policy
from webhook.adapt.adaptation import adapt
from webhook.admission import patch
from webhook.admission.patch import original_of, undone
from webhook.jobs import BY_NAME
from webhook.jobs.trainjob import MANAGER
from webhook.kueue import requests
from webhook.model import marks
from webhook.model.queues import KueueConfig
from webhook.model.reasons import Obstacle
from webhook.model.snapshot_parts import ClusterObjects

TRAINJOB = BY_NAME["TrainJob"]
GPU = "nvidia.com/gpu"
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
RESOURCES = {"requests": {"cpu": "4"}, "limits": {GPU: "1"}}


def step(name, ancestor, *, container=None, replicas=1, **pods):
    container = {"name": container or name, "image": "torch", "resources": RESOURCES}
    template = {"spec": {"containers": [container], **pods}}
    labels = {STEP: ancestor} if ancestor else {}
    job = {"metadata": {"labels": labels}, "spec": {"template": template}}
    return {"name": name, "replicas": replicas, "template": job}


def runtime(*jobs, **policies):
    spec = {"replicatedJobs": [*jobs] or [step("node", "trainer")]}
    return {"spec": {"mlPolicy": {"numNodes": 2, **policies}, "template": {"spec": spec}}}


def trainjob(**spec):
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "tune", "namespace": "team"},
        "spec": {"runtimeRef": {"name": "torch"}, **spec},
    }


def read(source, found=None):
    runtimes = {("", "torch"): found or runtime(), ("team", "own"): runtime(numNodes=7)}
    return TRAINJOB.read(TRAINJOB.completed(source, runtimes))


def counts(job):
    return [
        (each.name, each.count) for each in requests.needs(job, ClusterObjects(), KueueConfig())
    ]


def patched(*patches):
    template = {"spec": {"template": {"spec": {"replicatedJobs": [*patches]}}}}
    runtime_patch = {"manager": "me", "trainingRuntimeSpec": template["spec"]}
    return {"runtimePatches": [runtime_patch]}


@pytest.mark.parametrize(
    ("source", "found", "counted"),
    [
        (trainjob(), runtime(), [("node", 2)]),
        (trainjob(trainer={"numNodes": 5}), runtime(torch={}), [("node", 5)]),
        (trainjob(), runtime(numNodes=None), [("node", 1)]),
        (
            trainjob(),
            runtime(
                step("fetch", "dataset-initializer", replicas=3),
                step("node", "trainer"),
                step("web", "", replicas=4),
            ),
            [("fetch", 1), ("node", 2), ("web", 4)],
        ),
    ],
)
def test_pods_are_counted_as_the_trainer_makes_them(source, found, counted):
    assert counts(read(source, found)) == counted


def test_dora_wants_no_gpu():
    args = ["model.quantize_base=True", "model.use_dora=True"]

    assert read(trainjob(trainer={"args": args})).unmodelled == ""


def test_a_runtime_of_the_namespace_is_told_from_the_clusters():
    source = trainjob(runtimeRef={"name": "own", "kind": "TrainingRuntime"})

    assert counts(read(source)) == [("node", 7)]


@pytest.mark.parametrize(
    ("source", "found", "what"),
    [
        (trainjob(runtimeRef={"name": "gone"}), None, "its ClusterTrainingRuntime gone, which"),
        (trainjob(), runtime(mpi={}), "the mlPolicy mpi of its ClusterTrainingRuntime torch"),
    ],
)
def test_a_runtime_that_is_unknown_or_counts_otherwise_is_not_modelled(source, found, what):
    job = read(source, found)

    assert (job.pod_sets, job.unmodelled.startswith(what)) == ((), True)


def test_a_runtime_that_somebody_wrote_into_the_trainjob_counts_for_nothing():
    source = {**trainjob(runtimeRef={"name": "gone"}), "kueue-fallback.dev/runtime": runtime()}

    assert read(source).pod_sets == ()


def test_the_trainer_and_patches_override_the_runtime():
    more = {
        "name": "node",
        "template": {"spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}},
    }
    trainer = {
        "image": "mine",
        "args": ["--steps", "5"],
        "env": [{"name": "A", "value": "b"}],
        "resourcesPerNode": {"limits": {"cpu": "2"}},
    }
    (node,) = read(trainjob(trainer=trainer, **patched(more))).pod_sets

    (container,) = node.template.containers
    assert (container.image, container.args) == ("mine", ["--steps", "5"])
    assert (container.resources.requests, container.resources.limits) == ({}, {"cpu": "2"})
    assert (container.env, node.template.node_selector) == (
        ({"name": "A", "value": "b"},),
        {"disk": "ssd"},
    )


@pytest.mark.parametrize("manager", ["trainer.kubeflow.org/trainjob-controller", ""])
def test_the_default_manager_is_nobodys_wish(manager):
    assert read(trainjob(managedBy=manager)).managed_by is None
    assert read(trainjob(managedBy="kueue.x-k8s.io/multikueue")).managed_by is not None


def to_cpu(source, found=None, **adaptation):
    before = read(source, found)
    given = {"accelerator": "Remove", "env": {"RUN_ENV": "cpu"}, **adaptation}
    options = [{"queue": "gpu-lq"}, {"queue": "cpu-lq", "adaptation": given}]
    return before, adapt(before, policy(options=options).spec.options[1])


def test_what_changes_is_written_into_the_trainer_and_a_patch_of_our_own():
    source = trainjob()
    before, after = to_cpu(source, tolerations={"add": [{"key": "slow", "operator": "Exists"}]})
    after = marks.marked(after, {}, option="cpu", decision_id="d", policy="p")
    edits = TRAINJOB.edits(before, after)
    original = original_of(edits, source)

    patch.operations(edits, source, TRAINJOB.allowed)

    assert source["spec"]["trainer"] == {
        "env": [{"name": "RUN_ENV", "value": "cpu"}],
        "resourcesPerNode": {"requests": {"cpu": "4"}},
    }
    (own,) = source["spec"]["runtimePatches"]
    (job,) = own["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pods = job["template"]["spec"]["template"]
    assert (own["manager"], job["name"]) == (MANAGER, "node")
    assert pods["metadata"]["labels"] == {"kueue-fallback.dev/option": "cpu"}
    assert pods["spec"] == {"tolerations": [{"key": "slow", "operator": "Exists"}]}
    assert undone(source, original, TRAINJOB.allowed) == trainjob()


def test_a_patch_of_our_own_stands_beside_those_of_others():
    theirs = patched()["runtimePatches"]
    source = trainjob(runtimePatches=theirs)
    before, after = to_cpu(source)
    after = marks.marked(after, {}, option="cpu", decision_id="d", policy="p")

    patch.operations(TRAINJOB.edits(before, after), source, TRAINJOB.allowed)

    assert [each["manager"] for each in source["spec"]["runtimePatches"]] == ["me", MANAGER]


@pytest.mark.parametrize(
    ("job", "adaptation", "what"),
    [
        (step("node", "trainer"), {}, ""),
        (
            step("node", "trainer", nodeSelector={"nvidia.com/gpu.present": "true"}),
            {},
            "the nodeSelector nvidia.com/gpu.present of its runtime or runtimePatches",
        ),
        (step("node", "trainer", affinity={"a": {}}), {"affinity": "Remove"}, "the affinity"),
        (step("node", "trainer", runtimeClassName="nvidia"), {}, "the RuntimeClass"),
        (step("node", "trainer", container="main"), {}, "the container main of its runtime"),
        (step("node", "trainer"), {"resources": {"remove": ["cpu"]}}, "all resources"),
    ],
)
def test_what_a_trainjob_has_no_field_for_cannot_be_written(job, adaptation, what):
    before, after = to_cpu(trainjob(), runtime(job), **adaptation)

    assert TRAINJOB.unwritable(before, after).startswith(what)
    assert bool(TRAINJOB.unwritable(before, after)) is bool(what)


def test_once_it_exists_only_marks_and_places_may_change():
    before, after = to_cpu(trainjob())
    moved = marks.marked(before, {}, option="cpu", decision_id="d", policy="p")

    refused = {TRAINJOB.obstacle_to([edit]) for edit in TRAINJOB.edits(before, after)}

    assert refused == {Obstacle.IMMUTABLE_ENV, Obstacle.IMMUTABLE_RESOURCES}
    assert TRAINJOB.obstacle_to(TRAINJOB.edits(before, moved)) is None


@pytest.mark.parametrize("others", [[], ["example.com/team"]])
def test_to_be_created_anew_it_loses_kueues_patch_alone(others):
    patches = [runtime_patch(manager) for manager in ("kueue.x-k8s.io/manager", *others)]

    anew = TRAINJOB.without_kueues(trainjob(runtimePatches=patches))

    assert anew == (trainjob(runtimePatches=patches[1:]) if others else trainjob())


def runtime_patch(manager):
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {}}}}
