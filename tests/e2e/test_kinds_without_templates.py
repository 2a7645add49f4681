"""TrainJobs, SparkApplications and Pods against their definitions and the real Kueue's webhooks."""

import json

import pytest

from hack import paper
from hack.controlplane import ControlPlane, Options
from hack.install import Installation
from hack.job_definitions import definitions
from hack.kwok import GPU
from tests.e2e.decisions import applied_policy, decision_of, fill, queue_of
from tests.e2e.plane import wait_for, wait_until_reserved, workload_of
from webhook.jobs import BY_NAME

pytestmark = pytest.mark.xdist_group("own-plane")

POD_SETS = {"Pod": ["main"], "SparkApplication": ["driver", "executor"], "TrainJob": ["node"]}


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    frameworks = ["batch/job", *(BY_NAME[kind].framework for kind in POD_SETS)]
    gates = {"SparkApplicationIntegration": True}
    config = {"integrations": {"frameworks": frameworks}, "featureGates": gates}
    options = Options(kueue_config=config, definitions=definitions())
    with ControlPlane(tmp_path_factory.mktemp("templates"), options=options) as started:
        yield started


@pytest.fixture(scope="module")
def webhook(plane):
    patient = ["webhook.timeoutSeconds=30", "settings.max_state_age=120"]
    kinds = ",".join(["Job", *POD_SETS])
    with Installation(plane, chart_values=[*patient, f"kinds={{{kinds}}}"]) as installed:
        yield installed


@pytest.fixture(scope="module")
def crowded(plane, webhook):
    """A namespace with a long GPU queue, a runtime, and a policy for light Jobs."""
    client = plane.client
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "templates"}})
    names = paper.names_with("templates", namespace="templates")
    client.apply_all([*paper.queues(names), training_runtime()])
    policy = paper.policy(names)
    policy["spec"]["match"]["kinds"] = ["Job", *POD_SETS]
    with applied_policy(client, policy, names):
        fill(plane, names, gpu=14)
        yield names


def pods():
    """The pods of one of the paper's Jobs, which ask for a GPU and for its nodes."""
    spec = paper.gpu_job("any", paper.Names(), labels={}, run={})["spec"]["template"]["spec"]
    return {**spec, "nodeSelector": {"nvidia.com/gpu.present": "true"}}


def training_runtime():
    """The paper's pods as a runtime; what it pins to nodes, no TrainJob could take off."""
    spec = {**pods(), "nodeSelector": {}}
    spec["containers"] = [{**spec["containers"][0], "name": "node"}]
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"metadata": {"labels": labels}, "spec": {"template": {"spec": spec}}}
    jobs = [{"name": "node", "replicas": 1, "template": job}]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "paper"},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": jobs}}},
    }


def spark():
    return {
        "type": "Python",
        "mode": "cluster",
        "sparkVersion": "4.0.0",
        "mainApplicationFile": "local:///train.py",
        "driver": {"coreRequest": "1", "memory": "1g"},
        "executor": {
            "instances": 1,
            "coreRequest": "4",
            "memory": "6g",
            "gpu": {"name": GPU, "quantity": 1},
            "env": [{"name": "RUN_ENV", "value": "gpu"}],
            "nodeSelector": {"nvidia.com/gpu.present": "true"},
        },
    }


SPECS = {
    "Pod": pods,
    "SparkApplication": spark,
    "TrainJob": lambda: {"runtimeRef": {"name": "paper"}, "trainer": {"numNodes": 1}},
}


def made(kind, names, *, labels, name):
    labels = {paper.QUEUE_LABEL: names.gpu_queue, **labels}
    metadata = {"name": name, "namespace": names.namespace, "labels": labels}
    version = BY_NAME[kind].api_version
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": SPECS[kind]()}


@pytest.mark.parametrize("kind", SPECS)
def test_a_light_one_takes_the_free_queue_and_kueue_admits_it(plane, crowded, kind, tmp_path):
    client, name = plane.client, kind.lower()
    wanted = made(kind, crowded, labels=paper.LIGHT, name=name)
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(wanted))
    apply(plane, manifest)
    here = {"namespace": crowded.namespace}

    def now():
        return client.get(wanted["apiVersion"], kind, name, **here)

    job = now()
    assert (decision_of(job)["option"], queue_of(job)) == ("cpu", crowded.cpu_queue)
    workload = wait_until_reserved(client, job)
    assert [each["name"] for each in workload["spec"]["podSets"]] == POD_SETS[kind]
    assert GPU not in json.dumps(workload["spec"]["podSets"])
    assert workload["status"]["admission"]["clusterQueue"] == crowded.cpu_cluster_queue
    # Kueue starts it a moment after its quota is reserved.
    suspend = BY_NAME[kind].suspend
    wait_for(lambda: not at(now(), suspend), "Kueue starts it")

    before = now()
    for _ in range(3):
        apply(plane, manifest)
    after = now()

    assert GPU not in json.dumps(after["spec"])
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert decision_of(after)["id"] == decision_of(before)["id"]
    client.delete(wanted["apiVersion"], kind, name, **here)
    wait_for(lambda: workload_of(client, job) is None, "its Workload is gone")


@pytest.mark.parametrize("kind", SPECS)
def test_a_heavy_one_waits_where_it_was_submitted(plane, crowded, kind):
    wanted = made(kind, crowded, labels=paper.HEAVY, name=f"heavy-{kind.lower()}")

    made_here = plane.client.create(wanted, dry_run=True)

    assert (decision_of(made_here), queue_of(made_here)) == (None, crowded.gpu_queue)
    # What a TrainJob asks for stands in its runtime.
    assert GPU in json.dumps(made_here["spec"]) or kind == "TrainJob"
    assert "resourcesPerNode" not in json.dumps(made_here["spec"])


def apply(plane, manifest):
    applied = plane.kubectl("apply", "-f", str(manifest))
    assert applied.returncode == 0, applied.stderr


def at(source, path):
    for part in path:
        source = source.get(part, {})
    return source
