"""`kubectl fallback explain` on files: no cluster is asked."""

import json
from pathlib import Path

import pytest
import yaml

from tests.commands.calling import call
from tests.reviews import light_job
from webhook.decide.wishes import GPU_MEMORY
from webhook.model.job import QUEUE_LABEL

LIGHT, HEAVY = "examples/light-job.yaml", "examples/heavy-job.yaml"
SNAPSHOT, POLICY = "examples/snapshot.json", "examples/policy.yaml"
EXAMPLES = sorted(Path("examples").glob("pools/*.yaml")) + sorted(
    Path("examples").glob("slices/*.yaml")
)


def explain(*arguments, given=None):
    return call("explain", *arguments, given=given)


def test_the_example_goes_to_the_cpu_with_a_table_that_fits_a_terminal():
    found = explain("-f", LIGHT, "--snapshot", SNAPSHOT, "--policy", POLICY)

    lines = found.output.splitlines()
    assert found.exit_code == 0
    assert lines[0] == (
        "Policy light-gpu (Enforce): sent to cpu-lq (cpu): starts now; gpu-lq has 11 pending"
    )
    assert lines[2].split() == [
        "OPTION",
        "QUEUE",
        "CLUSTERQUEUE",
        "FITS",
        "PENDING",
        "RESERVING",
        "WHY",
    ]
    assert [line.split()[:6] for line in lines if line.startswith("> ")] == [
        [">", "cpu", "cpu-lq", "cpu-cq", "now", "0"]
    ]
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_get_the_same_with_every_edit(form, read):
    found = read(explain("-f", LIGHT, "--snapshot", SNAPSHOT, "-o", form).output)

    assert found["decision"]["option"] == "cpu"
    assert [option["name"] for option in found["decision"]["options"]] == ["gpu", "cpu"]
    assert {
        "path": "/metadata/labels/kueue.x-k8s.io~1queue-name",
        "value": "cpu-lq",
    } in found["edits"]
    assert found["job"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "cpu-lq"
    (container,) = found["job"]["spec"]["template"]["spec"]["containers"]
    assert "nvidia.com/gpu" not in container["resources"]["requests"]


def test_a_job_that_no_policy_matches_is_said_to_be_untouched():
    found = explain("-f", HEAVY, "--snapshot", SNAPSHOT)

    assert found.exit_code == 0
    assert found.output.splitlines() == [
        "Left untouched: no policy matches this Job.",
        "Policy light-gpu: the Job has no label workload-type, which must be light-gpu",
    ]


def test_the_nearest_miss_of_each_policy_is_said(tmp_path):
    policy = yaml.safe_load(Path("examples/policy.yaml").read_text(encoding="utf-8"))
    policy["spec"]["match"] = {"args": [{"flag": "--steps", "atMost": 30}]}
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(policy), encoding="utf-8")
    asked = ("-f", HEAVY, "--snapshot", SNAPSHOT, "--policy", str(path))
    why = "--steps of container diffusion is '50', not at most 30"

    assert explain(*asked).output == (
        f"Left untouched: no policy matches this Job.\nPolicy light-gpu: {why}\n"
    )
    assert json.loads(explain(*asked, "-o", "json").output)["mismatches"] == {"light-gpu": why}


def test_a_misspelt_queue_is_answered_with_the_nearest():
    given = (
        Path(LIGHT).read_text(encoding="utf-8").replace("queue-name: gpu-lq", "queue-name: gpu-ql")
    )

    found = explain("-f", "-", "--snapshot", SNAPSHOT, given=given)

    assert (found.exit_code, found.stderr) == (
        0,
        "There is no LocalQueue gpu-ql in namespace research (there is gpu-lq).\n",
    )


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ("kind: Job\n  x: [", "not YAML"),
        ("kind: ConfigMap", "no Job in it, only ConfigMap"),
        ("kind: CronJob\nmetadata: {name: a}", "job.yaml:1: spec.jobTemplate: expected an object"),
        ("kind: Job", "metadata: expected an object"),
        ("[1]", "document 1: expected an object"),
        (
            "{kind: Job, apiVersion: batch/v2, metadata: {name: a}, spec: {}}",
            "apiVersion: expected batch/v1, got batch/v2",
        ),
        (
            "{kind: Job, apiVersion: batch/v1, metadata: {name: a},\nspec: {parallelism: x}}",
            "job.yaml:2: spec.parallelism: expected a whole number, got a string",
        ),
    ],
)
def test_a_job_that_cannot_be_read_ends_with_2_and_the_place(tmp_path, job, message):
    path = tmp_path / "job.yaml"
    path.write_text(job)

    found = explain("-f", str(path), "--snapshot", SNAPSHOT)

    assert found.exit_code == 2
    assert message in found.output


def test_a_cluster_that_cannot_be_reached_ends_with_1(tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text("apiVersion: v1\nkind: Config\n")

    found = explain("-f", LIGHT, "--kubeconfig", str(path))

    assert found.exit_code == 1
    assert "Invalid kube-config file" in found.output


def test_a_group_without_a_user_is_refused():
    found = explain("-f", LIGHT, "--snapshot", SNAPSHOT, "--as-group", "ml")

    assert (found.exit_code, found.output.splitlines()[-1]) == (
        2,
        "Error: --as-group goes with --as.",
    )


@pytest.mark.parametrize(
    ("pods", "level"), [(8, "nvidia.com/gpu.clique"), (1, "kubernetes.io/hostname")]
)
def test_the_example_of_racks_asks_for_one_rack_or_for_one_node(tmp_path, pods, level):
    racks = Path("examples/pools/nvl72-racks.yaml").read_text()
    (tmp_path / "racks.yaml").write_text(racks.replace("mode: Observe", "mode: Enforce"))
    job = light_job(namespace="research", labels={QUEUE_LABEL: "racks-lq"})
    job["spec"] |= {"parallelism": pods, "completions": pods}
    words = ("-f", "-", "--snapshot", str(tmp_path / "racks.yaml"), "-o", "json")

    answer = json.loads(explain(*words, given=json.dumps(job)).output)

    asked = answer["job"]["spec"]["template"]["metadata"]["annotations"]
    assert answer["decision"]["option"] == "rack"
    # Nobody knows how large racks are here, so none is demanded.
    assert asked["kueue.x-k8s.io/podset-preferred-topology"] == level


def test_where_all_gpus_are_taken_the_example_of_npus_sends_jobs_there(tmp_path):
    pools = yaml.safe_load_all(Path("examples/pools/npu-beside-gpu.yaml").read_text())
    items = list(pools)
    for item in items:
        if item["kind"] == "FallbackPolicy":
            item["spec"]["mode"] = "Enforce"
        if item["metadata"]["name"] == "gpu-cq":
            item["spec"]["resourceGroups"][0]["flavors"][0]["resources"][2]["nominalQuota"] = 0
    (tmp_path / "full.json").write_text(json.dumps({"kind": "List", "items": items}))
    job = light_job(namespace="research", annotations={GPU_MEMORY: "12Gi"})
    words = ("-f", "-", "--snapshot", str(tmp_path / "full.json"), "-o", "json")

    answer = json.loads(explain(*words, given=json.dumps(job)).output)

    assert answer["decision"]["option"] == "npu"
    (container,) = answer["job"]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"furiosa.ai/rngd": "1"}
    assert container["image"] == "registry.example.com/embed:rngd"


DECIDED = yaml.safe_load(Path(__file__).with_name("examples.yaml").read_text())


@pytest.mark.parametrize("case", DECIDED, ids=[each["it"] for each in DECIDED])
def test_the_examples_send_jobs_where_they_say(case):
    labels = {QUEUE_LABEL: case.get("queue", "gpu-lq")}
    job = light_job(namespace="research", labels=labels, annotations=case.get("says", {}))
    user = [word for group in case.get("groups", ()) for word in ("--as-group", group)]

    found = explain(
        *("-f", "-", "--snapshot", f"examples/{case['example']}.yaml", "-o", "json"),
        *(["--as", "ann", *user] if user else []),
        given=json.dumps(job),
    )

    assert json.loads(found.output)["decision"]["option"] == case["option"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_policy_of_an_example_is_valid(path):
    checked = call("check", "-f", path)

    assert (checked.exit_code, " is valid" in checked.stdout) == (0, True), checked.output


def test_what_a_decision_changes_is_shown_in_a_line_a_thing():
    found = explain("-f", LIGHT, "--snapshot", SNAPSHOT)

    _, _, diff = found.output.partition("\nIt changes:\n")
    assert [line.strip() for line in diff.splitlines()] == [
        "queue gpu-lq → cpu-lq",
        "nvidia.com/gpu 1 → none",
        "env RUN_ENV gpu → cpu",
    ]


def test_what_a_decision_changes_is_shown_by_path_where_it_is_wide():
    found = explain("-f", LIGHT, "--snapshot", SNAPSHOT, "-o", "wide")

    _, _, diff = found.output.partition("\nIt changes:\n")
    container = "spec.template.spec.containers[diffusion]"
    read = "metadata.annotations['kueue-fallback.dev/env.RUN_ENV']"
    assert [line.strip() for line in diff.splitlines()] == [
        "- metadata.labels[kueue.x-k8s.io/queue-name]: gpu-lq",
        "+ metadata.labels[kueue.x-k8s.io/queue-name]: cpu-lq",
        f"- {container}.env[RUN_ENV].value: gpu",
        f"+ {container}.env[RUN_ENV].valueFrom.fieldRef.apiVersion: v1",
        f"+ {container}.env[RUN_ENV].valueFrom.fieldRef.fieldPath: {read}",
        f"- {container}.resources.limits[nvidia.com/gpu]: 1",
    ]


def test_of_a_policy_that_observes_it_is_shown_what_it_would_change(tmp_path):
    policy = yaml.safe_load(Path("examples/policy.yaml").read_text(encoding="utf-8"))
    policy["spec"]["mode"] = "Observe"
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(policy), encoding="utf-8")

    found = explain("-f", LIGHT, "--snapshot", SNAPSHOT, "--policy", str(path))

    _, title, diff = found.output.partition("\nIf the policy were enforced, it would change:\n")
    assert title
    assert "  queue gpu-lq → cpu-lq" in diff.splitlines()
