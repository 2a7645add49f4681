"""A manager with the CPU queue, and GPUs on a worker cluster behind MultiKueue: two real planes."""

import pytest

from hack import multikueue, paper
from hack.install import PATIENT, Installation
from hack.waiting import wait_for
from tests.e2e.decisions import OPTION, applied_policy, decision_of, options, probe
from tests.e2e.plane import wait_until_complete
from tests.e2e.worker_clusters import arrived, as_worker, manager_plane

NAMES = paper.Names()
ADDED = {f"kueue.x-k8s.io/{name}" for name in ("multikueue-origin", "prebuilt-workload-name")}
OF_THE_CLUSTER = ("managedBy", "selector", "suspend", "template")
"""Of a Job's spec, what is set in each cluster; the template is looked at apart."""


@pytest.fixture(scope="module")
def worker(own_plane):
    return as_worker(own_plane, NAMES)


@pytest.fixture(scope="module")
def manager(tmp_path_factory, worker):
    with manager_plane(tmp_path_factory.mktemp("manager"), NAMES, worker) as started:
        yield started


@pytest.fixture(scope="module")
def installed(manager):
    with Installation(manager, chart_values=PATIENT) as found:
        yield found


@pytest.fixture(scope="module")
def installed_on_worker(worker):
    with Installation(worker, chart_values=PATIENT) as found:
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
    worker.client.apply_all(paper.queues(NAMES))

    with (
        applied_policy(manager.client, paper.policy(NAMES), NAMES),
        applied_policy(worker.client, _always_cpu(), NAMES),
    ):
        submitted_there = probe(worker.client, NAMES)
        sent = manager.client.create(paper.light_job("sent", NAMES, faster=10))
        found = wait_for(
            lambda: arrived(worker, NAMES.namespace, "sent"), "MultiKueue brings the Job"
        )
        wait_until_complete(manager.client, NAMES.namespace, "sent")

    assert submitted_there["option"] == "cpu"
    assert _as_sent(found["metadata"]["annotations"]) == sent["metadata"]["annotations"]
    assert _as_sent(found["metadata"]["labels"]) == sent["metadata"]["labels"]
    assert _without_controllers(found) == _without_controllers(sent)
    assert _own(found["spec"]) == _own(sent["spec"])


def _always_cpu():
    """Make a policy that matches the same Jobs, and changes each of them."""
    policy = paper.policy(NAMES)
    policy["spec"]["strategy"]["threshold"] = [{"option": "cpu", "orPendingBelow": 1_000_000}]
    return policy


def _own(spec):
    return {name: value for name, value in spec.items() if name not in OF_THE_CLUSTER}


def _as_sent(texts):
    """Leave out by what MultiKueue knows its own."""
    return {name: text for name, text in texts.items() if name not in ADDED}


def _without_controllers(job):
    """Return the pod template as it was before anything but admission saw it.

    Leaves out the labels that the API server gives each Job's pods, and what Kueue adds when it
    starts it, which may have been before it was looked at.
    """
    template = job["spec"]["template"]
    pod = {name: value for name, value in template["spec"].items() if name != "nodeSelector"}
    metadata = {
        field: {
            name: text
            for name, text in template["metadata"].get(field, {}).items()
            if not name.startswith("kueue.x-k8s.io/") and not name.endswith(("-uid", "job-name"))
        }
        for field in ("labels", "annotations")
    }
    return {"metadata": {**template["metadata"], **metadata}, "spec": pod}
