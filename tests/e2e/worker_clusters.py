"""What the tests of MultiKueue share: planes, accounts on workers, and Jobs that keep coming."""

import contextlib

import yaml

from hack import multikueue, paper
from hack.cluster import ROOT
from hack.controlplane import ControlPlane, Options
from hack.install import NAMESPACE, kubeconfig_of
from hack.waiting import wait_for
from tests.e2e.plane import has_condition
from tests.e2e.running import processes_of
from webhook.state.cluster_watches import PREFIX

READER = "manager-reader"
MANIFEST = ROOT / "examples/worker-reader.yaml"


def as_worker(plane, names):
    """Give a plane the GPU queue as a worker has it."""
    plane.client.apply_all(multikueue.worker_queues(names))
    return plane


@contextlib.contextmanager
def manager_of(folder, names, workers, *, gpus, kueue_config):
    """Start a plane whose GPU queue is on workers, in this order; Kueue is connected by then."""
    with ControlPlane(folder, options=Options(kueue_config=kueue_config)) as started:
        client = started.client
        for name, worker in workers.items():
            client.apply_all(multikueue.worker(name, worker.kubeconfig))
        client.apply_all(multikueue.check(list(workers)))
        client.apply_all(multikueue.manager_queues(names, gpus=gpus))
        wait_for(lambda: is_active(client, names), "the worker is connected")
        yield started


def processes_of_the_project(manager):
    """Name the process ids of the webhook's server and observer, and of the controller.

    The controller looks back in a process that lives for seconds, and is none of these.
    """
    return [sorted(processes_of(manager, "webhook-0")), manager.processes.pid("controller")]


def times_watched_anew(manager, cluster):
    """Tell how often another kubeconfig of the worker was taken up."""
    log = manager.processes.log("webhook-0").read_text()
    return log.count(f"cluster {cluster}: watched anew")


def let_read(worker):
    """Make the documented account on a worker; return the path of a kubeconfig for it."""
    items = [item for item in yaml.safe_load_all(MANIFEST.read_text()) if item]
    worker.client.apply_all([item for item in items if item["kind"] == "Namespace"])
    worker.client.apply_all([item for item in items if item["kind"] != "Namespace"])
    return kubeconfig_of(worker, READER)


def delete_account(worker):
    worker.client.delete("v1", "ServiceAccount", READER, namespace=NAMESPACE)


def reader_secret(cluster, kubeconfig):
    return multikueue.kubeconfig_secret(f"{PREFIX}{cluster}", NAMESPACE, kubeconfig)


def is_active(client, names):
    queue = client.get(paper.KUEUE, "ClusterQueue", names.gpu_cluster_queue)
    return has_condition(queue, "Active")


def arrived(worker, namespace, name):
    found = worker.client.list("batch/v1", "Job", namespace=namespace)
    return next((job for job in found if job["metadata"]["name"] == name), None)
