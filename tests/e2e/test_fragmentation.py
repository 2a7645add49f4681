"""A Job that waits for a slice, on a real control plane: who is told whose end frees it."""

import copy
import json
import urllib.request

from click.testing import CliRunner

from hack import kwok, paper
from hack.install import PATIENT, Installation
from hack.waiting import WAIT_SECONDS, wait_for
from webhook.__main__ import main

NAMES = paper.names_with("slices", namespace="slices")
HALF, SEVENTH = "nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.5gb"
NODE = "cut-in-sevenths"
PRODUCT = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}
TOLERATION = {"key": kwok.GPU, "operator": "Exists", "effect": "NoSchedule"}
METRIC = f'kueue_fallback_controller_blocked_slices{{resource="{HALF}"}} 1.0'


def node():
    found = copy.deepcopy(kwok.nodes()[0])
    labels = {"kubernetes.io/hostname": NODE, "nvidia.com/gpu.count": "1", **PRODUCT}
    found["metadata"] |= {"name": NODE, "labels": labels}
    del found["status"]["allocatable"][kwok.GPU]
    found["status"]["allocatable"] |= {SEVENTH: "7"}
    found["spec"] = {"taints": [{"key": kwok.GPU, "value": "present", "effect": "NoSchedule"}]}
    return found


def queues():
    quota = {"cpu": "100", SEVENTH: "7", HALF: "0"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMES.namespace}},
        paper.resource_flavor("sevenths", node_labels=PRODUCT),
        paper.cluster_queue("sevenths", flavor="sevenths", quota=quota),
        paper.local_queue("mig-lq", NAMES.namespace, cluster_queue="sevenths"),
    ]


def sliced(name, resource, count):
    found = paper.gpu_job(
        name,
        paper.Names(namespace=NAMES.namespace, gpu_queue="mig-lq"),
        labels={},
        run={"gpu-run": 3600, "cpu-run": 3600},
    )
    pod = found["spec"]["template"]["spec"]
    pod["tolerations"] = [TOLERATION]
    slices = {resource: str(count)}
    pod["containers"][0]["resources"] = {"requests": {"cpu": "1", **slices}, "limits": slices}
    return found


def test_the_leader_and_explain_tell_whose_end_frees_a_slice(own_plane):
    client = own_plane.client
    client.apply_all([node(), *queues()])
    client.create_all([sliced("small", SEVENTH, 3), sliced("wide", HALF, 1)])
    wait_for(lambda: runs_on(client, "small") == NODE, "the small Job runs")

    def ask(*words):
        result = CliRunner().invoke(main, [*words, "--kubeconfig", str(own_plane.kubeconfig)])
        assert not result.exception or isinstance(result.exception, SystemExit), result.output
        return result.output

    explained = json.loads(ask("explain", "wide", "-n", NAMES.namespace, "-o", "json"))
    freed = {"node": NODE, "mustEnd": ["slices/small"], "cutAnew": True}
    assert explained["slices"] == [{"resource": HALF, "count": 1, "freed": [freed]}]

    values = [*PATIENT, "accelerators.fragmentationMinutes=1"]
    with Installation(own_plane, chart_values=values) as installed:
        url = f"http://127.0.0.1:{installed.controllers[0].metrics}/metrics"
        wait_for(
            lambda: METRIC in scraped(url),
            "the leader counts what is blocked",
            timeout_seconds=2 * WAIT_SECONDS,
        )
        shown = json.loads(ask("status", "-o", "json"))["fragmentation"]

    (half,) = (size for size in shown["sizes"] if size["resource"] == HALF)
    # Four of seven sevenths are free.
    assert half == {
        "resource": HALF,
        "waiting": 1,
        "free": 0,
        "blocked": 1,
        "unusable": 0.571,
        "nodes": {NODE: 0.571},
        "freed": [freed],
    }
    assert shown["cuts"] == [
        {
            "node": NODE,
            "before": {SEVENTH: 7},
            "after": {HALF: 2},
            "mustEnd": ["slices/small"],
        }
    ]


def runs_on(client, job):
    pods = client.list("v1", "Pod", namespace=NAMES.namespace)
    return next(
        (
            pod["spec"].get("nodeName")
            for pod in pods
            if pod["metadata"]["labels"].get("batch.kubernetes.io/job-name") == job
        ),
        None,
    )


def scraped(url):
    with urllib.request.urlopen(url) as answer:
        return answer.read().decode()
