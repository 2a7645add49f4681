"""`kubectl fallback report --slices` on a saved state: no cluster is asked, nothing is applied."""

import json
import time

import pytest
import yaml
from click.testing import CliRunner

from tests.commands.apiserver import serving
from webhook.__main__ import main
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
    found = CliRunner().invoke(main, ["report", "--slices", *arguments])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found


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


def test_the_text_says_the_same_and_holds_the_file(pool):
    found = report("--snapshot", pool)

    lines = found.output.splitlines()
    assert found.exit_code == 0
    assert lines[0].startswith("By the Jobs of 1.1 days, from 2027-01-15T")
    assert lines[0].endswith("Nothing is applied.")
    assert lines[2].startswith(f"{A100}: 300 Jobs waited ")
    assert lines[3] == "Of what was free, 0% were of no use to the average Job."
    begin = lines.index("version: v1")
    end = lines.index("", begin)
    file = yaml.safe_load("\n".join(lines[begin:end]))
    assert file == json.loads(report("--snapshot", pool, "-o", "json").output)["migParted"]
    assert "kubectl cordon b" in lines[end:]
    assert all(len(line) <= 100 for line in lines if not line.startswith("kubectl"))


def test_whose_jobs_must_end_is_said_beside_the_commands(tmp_path):
    entries = [entry(number, every=60) for number in range(600)]
    path = saved(tmp_path, FLAVOR, node("a", {GPU: "2"}), pod("train", "a"), *journals(entries))

    lines = report("--snapshot", path).output.splitlines()

    at = lines.index("kubectl cordon a")
    assert lines[at + 1] == "# until these have ended: team/train"


def test_where_nobody_waits_it_says_so_and_prints_no_file(tmp_path):
    entries = [entry(number, every=7200) for number in range(20)]
    path = saved(tmp_path, FLAVOR, node("a", {GPU: "2"}), *journals(entries))

    text = report("--snapshot", path).output
    found = json.loads(report("--snapshot", path, "-o", "json").output)

    assert "Nothing is to be gained: nobody waited." in text
    assert "mig-configs" not in text
    assert (found["migParted"], found["commands"], found["nodes"]) == (None, [], [])
    assert found["models"][0]["whyNot"] == "nobody waited"


def test_a_week_is_that_of_states_that_were_saved_each_day(tmp_path):
    today = saved(tmp_path, FLAVOR, node("a", {GPU: "2"}), *journals([entry(0)]))
    before = [entry(number, every=300, begin=BEGAN - 86_400) for number in range(200)]
    earlier = saved(tmp_path, *journals(before), name="earlier.json")
    old = [entry(number, begin=BEGAN - 9 * 86_400) for number in range(3)]
    oldest = saved(tmp_path, *journals(old), name="oldest.json")

    found = json.loads(
        report("--snapshot", today, "--journal", earlier, "--journal", oldest, "-o", "json").output
    )

    assert found["models"][0]["jobs"] == 201


@pytest.mark.parametrize(
    ("days", "covered", "of", "told"),
    [
        ("1", 24, 24, ""),
        ("2", 24, 48, "The journal covers 24 of 48 hours; to keep more, set journal_days: 2."),
        ("7", 24, 168, "The journal covers 24 of 168 hours; to keep more, set journal_days: 7."),
        ("30", 24, 720, "The journal covers 24 of 720 hours; to keep more, set journal_days: 7."),
    ],
)
def test_how_much_of_the_days_the_journal_covers_is_said(pool, days, covered, of, told):
    text = report("--snapshot", pool, "--days", days).output
    found = json.loads(report("--snapshot", pool, "--days", days, "-o", "json").output)

    assert found["journalHours"] == {"covered": covered, "of": of}
    assert text.splitlines()[-1] == told if told else "The journal covers" not in text


@pytest.mark.parametrize(
    ("left_out", "why"),
    [
        (node("x", {GPU: "2"}, **{"nvidia.com/gpu.product": "Tesla-T4"}), "cannot be cut"),
        (node("x", {GPU: "8"}, **{"nvidia.com/gpu.replicas": "4"}), "shared in time"),
        (node("x", {SMALL: "15"}), "how its devices are cut is not known"),
        (
            node("x", {GPU: "14"}, **{"nvidia.com/gpu.product": f"{A100}-MIG-1g.10gb"}),
            "all its devices are cut alike",
        ),
    ],
)
def test_a_node_that_cannot_be_judged_is_named(tmp_path, left_out, why):
    path = saved(tmp_path, FLAVOR, left_out, *journals([entry(0)]))

    found = report("--snapshot", path)

    assert found.exit_code == 1
    assert "Left out: Node x: " in found.output
    assert why in found.output


def test_slices_that_are_there_count_as_they_are_cut(tmp_path):
    nodes = [node("a", {GPU: "1", HALF: "2"}), node("cpu", {}, **{"nvidia.com/gpu.product": ""})]
    path = saved(tmp_path, FLAVOR, *nodes, *journals([entry(0)]))

    (model,) = json.loads(report("--snapshot", path, "-o", "json").output)["models"]

    assert model["now"] == [
        {"devices": 1, "slices": {}},
        {"devices": 1, "slices": {"3g.40gb": 2}},
    ]


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

    with serving(answer, tmp_path) as kubeconfig:
        found = report("--kubeconfig", kubeconfig, "--release-namespace", "kueue-fallback")

    assert "kubectl cordon a" in found.output
    assert ("# until these have ended: team/train" in found.output) is sees_pods
    assert ("forbidden" in found.output) is not sees_pods
    assert set(asked) == {"GET"}
