"""What the tests of MultiKueue share: accounts on workers, and the manager's Secrets for them."""

import yaml

from hack import multikueue, paper
from hack.cluster import ROOT
from hack.install import NAMESPACE, kubeconfig_of
from tests.e2e.plane import has_condition
from webhook.cluster.kubeconfigs import PREFIX

READER = "manager-reader"
MANIFEST = ROOT / "examples/worker-reader.yaml"


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


def cluster_of(decision, cluster, option="gpu"):
    """Return what a decision knows of one cluster behind an option."""
    found = next(each for each in decision["options"] if each["name"] == option)
    return next((each for each in found.get("clusters", ()) if each["name"] == cluster), {})
