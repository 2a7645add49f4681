"""`kubectl fallback report --slices` on a saved state: no cluster is asked, nothing is applied."""

import json
import time

import pytest

from tests.commands.calling import call, call_on
from webhook.hindsight.journal import SUCCEEDED, JournalEntry, Slot, config_map, slot_of

BEGAN = 1_800_000_000
GPU, SMALL, HALF = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
A100 = "NVIDIA-A100-SXM4-80GB"


def node(name, allocatable, *, gpus=2, **labels):
    labels = {"nvidia.com/gpu.product": A100, "nvidia.com/gpu.count": str(gpus), **labels}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": "64", **allocatable}},
    }


def pod(name, node_name, *, phase="Running"):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-abcde",
            "namespace": "team",
            "labels": {"batch.kubernetes.io/job-name": name},
        },
        "spec": {
            "nodeName": node_name,
            "containers": [{"name": "main", "resources": {"limits": {GPU: "1"}}}],
        },
        "status": {"phase": phase},
    }


FLAVOR = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ResourceFlavor",
    "metadata": {"name": "a100"},
    "spec": {"nodeLabels": {"nvidia.com/gpu.product": A100}},
}


def entry(number, *, need="8Gi", every=600, seconds=3600, begin=BEGAN):
    created = begin + every * number
    spec = {
        "parallelism": 1,
        "template": {
            "spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: "1"}}}]}
        },
    }
    written = json.dumps(spec)
    return JournalEntry(
        key=f"{begin}-{number}",
        uid=f"{number}",
        namespace="team",
        name=f"job-{number}",
        created=float(created),
        admitted=created,
        finished=created + seconds,
        outcome=SUCCEEDED,
        queue="lq",
        flavors="a100",
        submitted=written,
        ran=written,
        annotations={"kueue-fallback.dev/gpu-memory": need} if need else {},
    )


def journals(entries):
    by_slot = {}
    for each in entries:
        by_slot.setdefault(slot_of(each.finished), {})[each.key] = each
    found = [config_map(Slot(number=n, entries=of_slot)) for n, of_slot in by_slot.items()]
    for number, each in enumerate(found):
        each["metadata"] = {**each["metadata"], "namespace": "kueue-fallback"}
        each["metadata"]["name"] += f"-{number}" * (len(found) > 32)
    return found


def saved(tmp_path, *objects, name="snapshot.json"):
    path = tmp_path / name
    path.write_text(json.dumps({"kind": "List", "items": list(objects)}))
    return str(path)


def report(*arguments):
    return call("report", "--slices", *arguments)


@pytest.fixture
def pool(tmp_path):
    """Four whole GPUs on two nodes for which many small Jobs wait; one Job runs on one of them."""
    entries = [entry(number, every=300) for number in range(300)]
    nodes = [node("a", {GPU: "2"}), node("b", {GPU: "2"})]
    pods = [pod("train", "a"), pod("over", "b", phase="Succeeded")]
    return saved(tmp_path, FLAVOR, *nodes, *pods, *journals(entries))


def test_a_change_is_a_file_for_mig_parted_with_the_commands(pool):
    found = json.loads(report("--snapshot", pool, "-o", "json").output)

    (model,) = found["models"]
    assert (model["model"], model["devices"], model["jobs"]) == (A100, 4, 300)
    assert model["waitedDeviceHours"]["now"] > 1000
    assert model["waitedDeviceHours"]["then"] < 0.8 * model["waitedDeviceHours"]["now"]
    assert model["saved"] > 0.2
    assert model["savedByDay"]["low"] <= model["saved"] <= model["savedByDay"]["high"]
    assert sum(each["devices"] for each in model["then"]) == 4
    # The node without running Jobs is changed first.
    assert found["nodes"][0] == {"name": "b", "migConfig": "kf-2027-01-16", "mustEnd": []}
    configs = found["migParted"]["mig-configs"]
    assert found["migParted"]["version"] == "v1"
    assert configs["kf-2027-01-16"][0] == {
        "devices": [0, 1],
        "mig-enabled": True,
        "mig-devices": {"1g.10gb": 7},
    }
    done = r"'{.metadata.labels.nvidia\.com/mig\.config\.state}'=success"
    assert found["commands"][:4] == [
        "kubectl cordon b",
        "kubectl label node b nvidia.com/mig.config=kf-2027-01-16 --overwrite",
        f"kubectl wait node b --timeout=15m --for=jsonpath={done}",
        "kubectl uncordon b",
    ]
    assert set(model["quotas"]) == {GPU, SMALL}


@pytest.mark.parametrize("sees_pods", [True, False])
def test_a_cluster_is_read_with_the_user_s_own_rights_and_not_written(tmp_path, sees_pods):
    now = int(time.time())
    entries = [entry(number, every=60, begin=now - 100_000) for number in range(600)]
    asked = []
    held = {
        "/api/v1/nodes": [node("a", {GPU: "2"})],
        "/api/v1/pods": [pod("train", "a")],
        "/resourceflavors": [FLAVOR],
        "/configmaps": journals(entries),
    }

    def answer(method, path, body):
        asked.append(method)
        path = path.partition("?")[0]
        if path == "/api/v1/pods" and not sees_pods:
            return 403, [("Content-Type", "application/json")], {"message": "pods: forbidden"}
        if path == "/apis/kueue.x-k8s.io":
            served = {"versions": [{"version": "v1beta2"}]}
            return 200, [("Content-Type", "application/json")], served
        items = next((items for end, items in held.items() if path.endswith(end)), [])
        return 200, [("Content-Type", "application/json")], {"metadata": {}, "items": items}

    words = ("report", "--slices", "--release-namespace", "kueue-fallback")
    found = call_on(answer, tmp_path, *words)

    assert "kubectl cordon a" in found.output
    assert ("# until these have ended: team/train" in found.output) is sees_pods
    assert ("forbidden" in found.output) is not sees_pods
    assert set(asked) == {"GET"}
