"""A manager with the CPU queue, and GPUs on a worker cluster behind MultiKueue: two real planes."""

import pytest

from hack import multikueue, paper
from hack.controlplane import ControlPlane
from hack.install import Installation
from tests.e2e.decisions import OPTION, applied_policy, decision_of, options
from tests.e2e.plane import wait_for, wait_until_complete
from tests.e2e.worker_clusters import arrived, is_active

pytestmark = pytest.mark.xdist_group("multikueue")

NAMES = paper.Names()
CLUSTER = "gpu-worker"
ADDED = {f"kueue.x-k8s.io/{name}" for name in ("multikueue-origin", "prebuilt-workload-name")}


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    with ControlPlane(tmp_path_factory.mktemp("worker")) as started:
        started.client.apply_all(multikueue.worker_queues(NAMES))
        yield started


@pytest.fixture(scope="module")
def manager(tmp_path_factory, worker):
    with ControlPlane(tmp_path_factory.mktemp("manager")) as started:
        client = started.client
        client.apply_all(multikueue.worker(CLUSTER, worker.kubeconfig))
        client.apply_all(multikueue.check([CLUSTER]))
        client.apply_all(multikueue.manager_queues(NAMES))
        wait_for(lambda: is_active(client, NAMES), "the worker is connected")
        yield started


@pytest.fixture(scope="module")
def installed(manager):
    with Installation(manager) as found:
        yield found


@pytest.fixture(scope="module")
def installed_on_worker(worker):
    with Installation(worker) as found:
        yield found


@pytest.mark.usefixtures("installed")
def test_a_job_of_a_multikueue_queue_runs_on_the_worker(manager, worker):
    with applied_policy(manager.client, paper.policy(NAMES), NAMES):
        manager.client.create(paper.light_job("first", NAMES, faster=10))

        wait_for(
            lambda: arrived(worker, NAMES.namespace, "first"),
            "MultiKueue brings the Job to the worker",
        )
        done = wait_until_complete(manager.client, NAMES.namespace, "first")

    assert done["spec"]["managedBy"] == multikueue.CONTROLLER
    assert done["metadata"]["labels"][OPTION] == "gpu"
    assert options(decision_of(done))["gpu"]["fits"]


@pytest.mark.usefixtures("installed", "installed_on_worker")
def test_a_job_arrives_on_the_worker_as_multikueue_sent_it(manager, worker):
    on_worker = paper.policy(NAMES)
    # There it would be sent elsewhere: its first option does not exist.
    on_worker["spec"]["options"][0]["queue"] = "elsewhere"
    on_worker["spec"]["match"]["queues"] = [NAMES.gpu_queue]

    with (
        applied_policy(manager.client, paper.policy(NAMES), NAMES),
        applied_policy(worker.client, on_worker, NAMES),
    ):
        sent = manager.client.create(paper.light_job("sent", NAMES, faster=10))
        found = wait_for(
            lambda: arrived(worker, NAMES.namespace, "sent"), "MultiKueue brings the Job"
        )
        wait_until_complete(manager.client, NAMES.namespace, "sent")

    assert _as_sent(found["metadata"]["annotations"]) == sent["metadata"]["annotations"]
    assert _as_sent(found["metadata"]["labels"]) == sent["metadata"]["labels"]
    assert _without_controllers(found) == _without_controllers(sent)


def _as_sent(texts):
    """Leave out by what MultiKueue knows its own."""
    return {name: text for name, text in texts.items() if name not in ADDED}


def _without_controllers(job):
    """Return the pod template without the labels that the API server gives each Job's pods."""
    template = job["spec"]["template"]
    labels = template["metadata"].get("labels", {})
    kept = {name: text for name, text in labels.items() if not name.endswith(("-uid", "job-name"))}
    return {**template, "metadata": {**template["metadata"], "labels": kept}}
