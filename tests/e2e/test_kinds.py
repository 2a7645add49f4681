"""Every kind of Job on the real Kueue, with its own controller and all of their webhooks."""

import contextlib
import json

import pytest
from click.testing import CliRunner

from hack import paper
from hack.controlplane import ControlPlane, Options
from hack.install import Installation
from hack.job_controllers import JobControllers
from hack.job_definitions import definitions
from hack.kwok import GPU
from tests.e2e.agreement import make_mixed_case, seeds
from tests.e2e.comparing import compare_all, disagreements
from tests.e2e.decisions import applied_policy, cpu_job, decision_of, queue_of, wait_until_counted
from tests.e2e.lives import RUNS_ON, Dashboard, end, env_of, gpus_of, has_started, pods_of
from tests.e2e.plane import has_condition, wait_for, wait_until_reserved, workload_of
from webhook.__main__ import main
from webhook.jobs import BY_NAME, KINDS

pytestmark = pytest.mark.xdist_group("own-plane")

SERVING = ("Deployment", "LeaderWorkerSet", "StatefulSet")
"""What never ends, and is queued by its pods."""
ELSEWHERE = frozenset({"Pod", "SparkApplication", "TrainJob"})
"""Kinds that `test_kinds_without_templates` tries."""
PODS_THAT_SERVE = {"Deployment": 1, "LeaderWorkerSet": 2, "StatefulSet": 1}
MIXED_CASES = 12
"""About half a minute on two cores; `make verify` compares 300."""
CONTROLLERS = {
    "AppWrapper": "appwrapper",
    "JAXJob": "training-operator",
    "JobSet": "jobset",
    "LeaderWorkerSet": "lws",
    "MPIJob": "mpi-operator",
    "PaddleJob": "training-operator",
    "PyTorchJob": "training-operator",
    "RayCluster": "kuberay",
    "RayJob": "kuberay",
    "TFJob": "training-operator",
    "XGBoostJob": "training-operator",
}
APPLIED_BY_SERVER = frozenset({"JobSet"})
"""Of these kubectl's own apply is refused after the creation, with or without this project: it
takes away from a list what the kind's webhook has filled in there, which may not change."""
POD_SETS = {
    "AppWrapper": ["appwrapper-0"],
    "JAXJob": ["worker"],
    "JobSet": ["workers"],
    "MPIJob": ["launcher", "worker"],
    "PaddleJob": ["master", "worker"],
    "PyTorchJob": ["master", "worker"],
    "RayCluster": ["head", "workers"],
    "RayJob": ["head", "workers", "submitter"],
    "TFJob": ["chief", "worker"],
    "XGBoostJob": ["master", "worker"],
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    frameworks = [kind.framework for kind in KINDS.values()]
    gates = {kind.gate: True for kind in KINDS.values() if kind.gate}
    options = Options(
        controllers=("deployment-controller", "replicaset-controller", "statefulset-controller"),
        kueue_config={"integrations": {"frameworks": frameworks}, "featureGates": gates},
        definitions=definitions(),
    )
    with ControlPlane(tmp_path_factory.mktemp("kinds"), options=options) as started:
        yield started


@pytest.fixture(scope="module")
def dashboard(plane):
    with Dashboard(plane.ports.lease()).serving() as played:
        yield played


@pytest.fixture(scope="module")
def controllers(plane, dashboard):
    """Those that a test starts; KubeRay asks the dashboards of its clusters by a proxy."""
    return JobControllers(plane, environment={"HTTP_PROXY": dashboard.address})


@pytest.fixture(scope="module")
def webhook(plane):
    patient = ["webhook.timeoutSeconds=30", "settings.max_state_age=120"]
    named = ",".join(kind.kind for kind in KINDS.values())
    with Installation(plane, chart_values=[*patient, f"kinds={{{named}}}"]) as installed:
        yield installed


@pytest.fixture(scope="module")
def crowded(plane, webhook):
    """A namespace with a long GPU queue, and a policy for light Jobs of every kind."""
    client = plane.client
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "crowded"}})
    names = paper.names_with("crowded", namespace="crowded")
    client.apply_all(paper.queues(names))
    policy = paper.policy(names)
    policy["spec"]["match"]["kinds"] = sorted(kind.kind for kind in KINDS.values())
    with applied_policy(client, policy, names):
        # For hours: building a controller may take a while.
        jobs = [paper.heavy_job(f"fill-{number}", names, faster=0.002) for number in range(14)]
        client.create_all(jobs)
        wait_until_counted(client, names, gpu=14)
        yield names


def pods():
    """The pods of one of the paper's Jobs, which ask for a GPU and for its nodes."""
    spec = paper.gpu_job("any", paper.Names(), labels={}, run={})["spec"]["template"]["spec"]
    spec = {**spec, "nodeSelector": {"nvidia.com/gpu.present": "true"}}
    return {"metadata": {"annotations": RUNS_ON}, "spec": spec}


def small():
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    container = {"name": "small", "image": "stable-diffusion", "resources": resources}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"metadata": {"annotations": RUNS_ON}, "spec": spec}


def ray_cluster():
    workers = {"groupName": "Workers", "replicas": 1, "minReplicas": 1, "maxReplicas": 1}
    return {
        "headGroupSpec": {"rayStartParams": {}, "template": without_restarts(small())},
        "workerGroupSpecs": [
            {**workers, "rayStartParams": {}, "template": without_restarts(pods())}
        ],
    }


def without_restarts(template):
    template["spec"].pop("restartPolicy")
    return template


def replicas(field, first, container="main"):
    """Return the pods of a framework; its webhook asks for a container of this name."""
    specs = {"Worker": {"replicas": 1, "template": pods()}}
    if first:
        specs[first] = {"replicas": 1, "template": small()}
    for spec in specs.values():
        spec["template"]["spec"]["containers"][0]["name"] = container
    return {field: specs}


def wrapped(template):
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "wrapped"}}
    return {"template": {**job, "spec": {"template": template}}}


SPECS = {
    "AppWrapper": lambda: {"components": [wrapped(pods())]},
    "JAXJob": lambda: replicas("jaxReplicaSpecs", None, "jax"),
    "JobSet": lambda: {
        "replicatedJobs": [{"name": "workers", "template": {"spec": {"template": pods()}}}]
    },
    "MPIJob": lambda: replicas("mpiReplicaSpecs", "Launcher"),
    "PaddleJob": lambda: replicas("paddleReplicaSpecs", "Master", "paddle"),
    "PyTorchJob": lambda: replicas("pytorchReplicaSpecs", "Master", "pytorch"),
    "RayCluster": ray_cluster,
    "RayJob": lambda: {
        "entrypoint": "python train.py",
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": ray_cluster(),
    },
    "TFJob": lambda: replicas("tfReplicaSpecs", "Chief", "tensorflow"),
    "XGBoostJob": lambda: replicas("xgbReplicaSpecs", "Master", "xgboost"),
}


def made(kind, names, *, labels, name):
    labels = {paper.QUEUE_LABEL: names.gpu_queue, **labels}
    metadata = {"name": name, "namespace": names.namespace, "labels": labels}
    known = BY_NAME[kind]
    return {
        "apiVersion": known.api_version,
        "kind": kind,
        "metadata": metadata,
        "spec": SPECS[kind](),
    }


def test_every_kind_is_tried():
    assert {"Job", *ELSEWHERE, *SPECS, *SERVING} == {kind.kind for kind in KINDS.values()}


@pytest.mark.timeout(3600)
def test_of_mixed_kinds_what_starts_now_is_what_kueue_gives_quota_at_once(plane, tmp_path):
    found = compare_all(plane.client, map(make_mixed_case, seeds(MIXED_CASES)), tmp_path)

    assert [str(item) for item in disagreements(found)] == []


@pytest.mark.parametrize("kind", SPECS)
def test_a_light_one_runs_to_its_end_in_the_free_queue(
    plane, crowded, controllers, dashboard, kind, tmp_path
):
    controllers.start(CONTROLLERS[kind])
    client, name = plane.client, kind.lower()
    wanted = made(kind, crowded, labels=paper.LIGHT, name=name)
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(wanted))
    apply(plane, manifest, kind)
    here = {"namespace": crowded.namespace}

    def now():
        return client.get(wanted["apiVersion"], kind, name, **here)

    job = now()
    assert decision_of(job)["option"] == "cpu"
    assert queue_of(job) == crowded.cpu_queue
    workload = wait_until_reserved(client, job)
    assert [each["name"] for each in workload["spec"]["podSets"]] == POD_SETS[kind]
    assert GPU not in json.dumps(workload["spec"]["podSets"])
    assert workload["status"]["admission"]["clusterQueue"] == crowded.cpu_cluster_queue

    # Kueue starts it a moment after its quota is reserved.
    suspend = BY_NAME[kind].suspend
    wait_for(lambda: at(now(), suspend) is not True, "Kueue starts it")
    pods = wait_for(lambda: started_pods(client, job, len(POD_SETS[kind])), "its pods run")
    assert gpus_of(pods) == []
    assert "cpu" in env_of(pods, "RUN_ENV")
    assert "gpu" not in env_of(pods, "RUN_ENV")
    before = now()
    for _ in range(3):
        apply(plane, manifest, kind)
    after = now()
    assert_same(after, before)

    told = asked(plane, "explain", f"{kind.lower()}/{name}", "-n", crowded.namespace)
    assert told.startswith(f"{kind} {crowded.namespace}/{name}: started.")
    assert decision_of(after)["reason"].partition(";")[0] in told

    if BY_NAME[kind].finishes:
        let_end(client, dashboard, kind, pods)
        wait_for(lambda: has_condition(workload_of(client, job), "Finished"), "Kueue sees its end")
    client.delete(wanted["apiVersion"], kind, name, **here)
    wait_for(lambda: workload_of(client, job) is None, "its Workload is gone")


def apply(plane, manifest, kind):
    by_server = ("--server-side", "--field-manager=team") if kind in APPLIED_BY_SERVER else ()
    applied = plane.kubectl("apply", *by_server, "-f", str(manifest))
    assert applied.returncode == 0, applied.stderr


def assert_same(after, before):
    # kubectl replaces lists of such objects as a whole, with what Kueue has filled in there.
    assert containers_of(after) == containers_of(before)
    assert GPU not in json.dumps(after["spec"])
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert decision_of(after)["id"] == decision_of(before)["id"]


def started_pods(client, job, count):
    """Return its pods once all of them run."""
    found = pods_of(client, job)
    return found if len(found) == count and all(map(has_started, found)) else None


def let_end(client, dashboard, kind, pods):
    if kind == "RayJob":
        dashboard.has_ended = True
    elif kind == "MPIJob":
        end(client, [pod for pod in pods if "launcher" in pod["metadata"]["name"]])
    else:
        end(client, pods)


@pytest.mark.parametrize("kind", [*SPECS, *SERVING])
def test_a_heavy_one_waits_where_it_was_submitted(plane, crowded, controllers, kind):
    if kind in CONTROLLERS:
        controllers.start(CONTROLLERS[kind])
    make = served if kind in SERVING else made
    wanted = make(kind, crowded, labels=paper.HEAVY, name=f"heavy-{kind.lower()}")

    made_here = plane.client.create(wanted, dry_run=True)

    assert decision_of(made_here) is None
    assert queue_of(made_here) == crowded.gpu_queue
    assert GPU in json.dumps(made_here["spec"])


@pytest.mark.parametrize("kind", [kind for kind in SPECS if BY_NAME[kind].can_change_env])
def test_one_that_waits_is_undone_by_its_kind_and_name(plane, crowded, kind):
    client, name = plane.client, f"undone-{kind.lower()}"
    large = [wide_cpu_job(f"large-{number}", crowded) for number in range(2)]
    with created(client, [*large, made(kind, crowded, labels=paper.LIGHT, name=name)]) as all_made:
        *_, before = all_made
        assert (decision_of(before)["option"], queue_of(before)) == ("gpu", crowded.gpu_queue)

        # Its controller and Kueue write to it meanwhile, on a busy machine for seconds.
        wait_for(lambda: workload_of(client, before) is not None, "its Workload is there")
        words = ("undo", f"{kind.lower()}/{name}", "-n", crowded.namespace)
        wait_for(lambda: invoked(plane, *words).exit_code == 0, "it is undone")

        after = client.get(before["apiVersion"], kind, name, namespace=crowded.namespace)
        assert (decision_of(after), queue_of(after)) == (None, crowded.gpu_queue)
        assert after["metadata"]["annotations"]["kueue-fallback.dev/policy"] == "none"
        assert containers_of(after) == containers_of(before)


def served(kind, names, *, labels, name):
    app = {"app": name}
    template = without_restarts(pods())
    template["metadata"]["labels"] = app
    metadata = {"name": name, "namespace": names.namespace}
    metadata["labels"] = {paper.QUEUE_LABEL: names.gpu_queue, **labels}
    spec = {"replicas": 1, "selector": {"matchLabels": app}, "template": template}
    if kind == "LeaderWorkerSet":
        spec = {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}}
    api_version = BY_NAME[kind].api_version
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("kind", SERVING)
def test_what_serves_runs_in_the_free_queue(plane, crowded, controllers, kind, tmp_path):
    client, name = plane.client, f"serves-{kind.lower()}"
    if kind in CONTROLLERS:
        controllers.start(CONTROLLERS[kind])
    wanted = served(kind, crowded, labels=paper.LIGHT, name=name)
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(wanted))
    apply(plane, manifest, kind)

    def now():
        return client.get(wanted["apiVersion"], kind, name, namespace=crowded.namespace)

    before = now()
    assert (decision_of(before)["option"], queue_of(before)) == ("cpu", crowded.cpu_queue)
    made_pods = wait_for(
        lambda: started_pods(client, before, PODS_THAT_SERVE[kind]), "its pods run"
    )
    assert {queue_of(pod) for pod in made_pods} == {crowded.cpu_queue}
    assert gpus_of(made_pods) == []
    assert set(env_of(made_pods, "RUN_ENV")) == {"cpu"}
    (workload,) = workloads_in(client, crowded, crowded.cpu_queue)
    assert has_condition(workload, "Admitted")

    for _ in range(3):
        apply(plane, manifest, kind)
    after = now()
    assert after["spec"] == before["spec"]
    assert_same(after, before)
    assert uids(pods_of(client, after)) == uids(made_pods)

    client.delete(wanted["apiVersion"], kind, name, namespace=crowded.namespace)
    wait_for(lambda: not workloads_in(client, crowded, crowded.cpu_queue), "nothing is left")


def uids(objects):
    return {each["metadata"]["uid"] for each in objects}


def workloads_in(client, names, queue):
    found = client.list(paper.KUEUE, "Workload", namespace=names.namespace)
    return [workload for workload in found if workload["spec"].get("queueName") == queue]


def wide_cpu_job(name, names):
    """Half of the CPU queue's quota."""
    found = cpu_job(name, names)
    container = found["spec"]["template"]["spec"]["containers"][0]
    container["resources"]["requests"]["cpu"] = "12"
    return found


@contextlib.contextmanager
def created(client, objects):
    """Create objects one by one, Jobs until they have quota; delete them in the end."""
    found = []
    try:
        for each in objects:
            found.append(client.create(each))
            if each["kind"] == "Job":
                wait_until_reserved(client, found[-1])
        yield found
    finally:
        for each in found:
            place = each["metadata"]
            client.delete(
                each["apiVersion"], each["kind"], place["name"], namespace=place["namespace"]
            )
            wait_for(lambda each=each: workload_of(client, each) is None, "its Workload is gone")


def invoked(plane, *words):
    return CliRunner().invoke(main, [*words, "--kubeconfig", str(plane.kubeconfig)])


def asked(plane, *words):
    result = invoked(plane, *words)
    assert result.exit_code == 0, result.output
    return result.output


def containers_of(source):
    return [
        pod_set.template.containers for pod_set in BY_NAME[source["kind"]].read(source).pod_sets
    ]


def at(source, path):
    for part in path:
        source = source.get(part, {})
    return source
