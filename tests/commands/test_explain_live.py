"""`kubectl fallback explain JOB`: what was decided for a Job, and what would be now."""

import copy
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from tests.commands.calling import call, call_on
from tests.commands.cluster import Cluster
from webhook.commands import deciding
from webhook.commands.explain import as_if_created

SNAPSHOT = json.loads(Path("examples/snapshot.json").read_text(encoding="utf-8"))["items"]
LIGHT = yaml.safe_load(Path("examples/light-job.yaml").read_text(encoding="utf-8"))
DECISION = "kueue-fallback.dev/decision"


def job(name="train", **annotations):
    """The example's light Job as it is in the cluster, not decided."""
    found = copy.deepcopy(LIGHT)
    metadata = found["metadata"]
    del metadata["generateName"]
    metadata |= {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
    metadata["annotations"] = annotations
    found["spec"]["suspend"] = True
    return found


@pytest.fixture(scope="module")
def decided():
    """The same Job, as the webhook decided it."""
    view = deciding.view_of_file("examples/snapshot.json", ())
    return deciding.patched(job(), deciding.consider_manifest(job(), view))


@pytest.fixture
def explain(tmp_path):
    def run(cluster, *words):
        return call_on(cluster, tmp_path, "explain", *words, namespace="research")

    return run


def rows(text):
    """The rows of each table of options, without the marks."""
    found = []
    for line in text.splitlines():
        words = line.removeprefix(">").split()
        if words[:2] == ["OPTION", "QUEUE"]:
            found.append([])
        elif found and words and words[0] in ("gpu", "cpu"):
            found[-1].append(words)
    return found


def test_a_decided_job_shows_what_was_and_what_would_be_decided(explain, decided):
    result = explain(Cluster(*SNAPSHOT, decided), "job/train")

    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == "Job research/train: pending."
    assert lines[2].startswith("Decided 20")
    sentence = "Policy light-gpu (Enforce): sent to cpu-lq (cpu): starts now; gpu-lq has 11 pending"
    assert [line for line in lines if line.startswith("Policy")] == [sentence] * 2
    then, now = rows(result.output)
    assert [row[:5] for row in then] == [
        ["gpu", "gpu-lq", "gpu-cq", "waits", "11"],
        ["cpu", "cpu-lq", "cpu-cq", "yes", "0"],
    ]
    assert [row[:5] for row in now] == [
        ["gpu", "gpu-lq", "gpu-cq", "waits", "11"],
        ["cpu", "cpu-lq", "cpu-cq", "now", "0"],
    ]


def test_the_cluster_of_a_recorded_option_is_shown(explain, decided):
    remote = copy.deepcopy(decided)
    annotations = remote["metadata"]["annotations"]
    record = json.loads(annotations[DECISION])
    record["options"][0]["cluster"] = "worker-1"
    annotations[DECISION] = json.dumps(record)

    result = explain(Cluster(*SNAPSHOT, remote), "train", "-o", "wide")

    then, now = rows(result.output)
    assert [row[:5] for row in then] == [
        ["gpu", "gpu-lq", "gpu-cq", "worker-1", "waits"],
        ["cpu", "cpu-lq", "cpu-cq", "-", "yes"],
    ]
    assert [row[:4] for row in now] == [
        ["gpu", "gpu-lq", "gpu-cq", "waits"],
        ["cpu", "cpu-lq", "cpu-cq", "now"],
    ]


def test_its_own_workload_is_not_counted(explain, decided):
    waiting = next(
        item
        for item in SNAPSHOT
        if item["kind"] == "Workload"
        and item["spec"]["queueName"] == "gpu-lq"
        and not item.get("status", {}).get("admission")
    )
    own = copy.deepcopy(waiting)
    own["metadata"] |= {"name": "job-train", "namespace": "research"}
    owner = {"kind": "Job", "name": "train", "controller": True}
    own["metadata"]["ownerReferences"] = [{**owner, "apiVersion": "batch/v1", "uid": "1"}]

    mine = explain(Cluster(*SNAPSHOT, own, decided), "train")
    other = explain(Cluster(*SNAPSHOT, own, job("eval")), "eval")

    assert [rows(found.output)[-1][0][4] for found in (mine, other)] == ["11", "12"]


def test_the_moves_of_a_job_are_listed(explain, decided):
    moved = copy.deepcopy(decided)
    found = json.loads(moved["metadata"]["annotations"][DECISION])
    found |= {
        "moves": 1,
        "history": [
            {"time": "2026-01-01T00:00:00Z", "option": "gpu", "reason": "stays in gpu-lq"},
            {"time": "2026-01-01T00:05:00Z", "option": "cpu", "reason": "moved to cpu-lq"},
        ],
    }
    moved["metadata"]["annotations"][DECISION] = json.dumps(found)

    lines = explain(Cluster(*SNAPSHOT, moved), "train").output.splitlines()

    first = lines.index("Moved once:")
    assert lines[first + 1 : first + 4] == [
        "  SINCE                 OPTION  REASON",
        "  2026-01-01T00:00:00Z  gpu     stays in gpu-lq",
        "  2026-01-01T00:05:00Z  cpu     moved to cpu-lq",
    ]


def test_a_job_without_a_decision_shows_what_would_be_decided(explain):
    result = explain(Cluster(*SNAPSHOT, job()), "train")

    assert (
        "It carries no decision: no policy matched, or the policy only observed." in result.output
    )
    assert "sent to cpu-lq (cpu): starts now" in result.output


def test_a_job_that_is_kept_from_policies_says_that_it_is(explain):
    kept = job()
    kept["metadata"]["annotations"] = {"kueue-fallback.dev/policy": "none"}

    lines = explain(Cluster(*SNAPSHOT, kept), "train").output.splitlines()

    assert "It carries no decision: its annotation kueue-fallback.dev/policy says none." in lines


def test_who_may_not_list_cluster_queues_sees_the_record(explain, decided):
    forbidden = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"

    result = explain(Cluster(*SNAPSHOT, decided, forbidden=[forbidden]), "train")

    assert result.exit_code == 0
    assert len(rows(result.output)) == 1
    assert "you cannot GET" not in result.output
    assert " ".join(result.output.split()).endswith(
        "Not known: you may not list what a decision needs, such as ClusterQueues; "
        "your admin can let you."
    )


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_get_both_decisions(explain, decided, form, read):
    found = read(explain(Cluster(*SNAPSHOT, decided), "train", "-o", form).output)

    assert found["job"] == {"namespace": "research", "name": "train", "state": "pending"}
    assert (found["decided"]["option"], "original" in found["decided"]) == ("cpu", False)
    assert found["now"]["decision"]["option"] == "cpu"


def test_what_is_left_of_a_deadline_stays_the_same():
    created = datetime(2026, 1, 1, tzinfo=UTC)
    later = (created + timedelta(minutes=10)).timestamp()

    found = as_if_created(job(**{"kueue-fallback.dev/deadline": "45m"}), later)

    deadline = found["metadata"]["annotations"]["kueue-fallback.dev/deadline"]
    assert datetime.fromisoformat(deadline) == created + timedelta(minutes=45)


@pytest.mark.parametrize("words", [(), ("train", "-f", "job.yaml"), ("train", "--snapshot", "s")])
def test_what_is_meant_must_be_said_once(words):
    result = call("explain", *words)

    assert (result.exit_code, "Usage: " in result.stderr) == (2, True)


def decided_by_dry_run(decided, *, conflict):
    def created(path, query, body):
        assert (path, query) == ("/apis/batch/v1/namespaces/research/jobs", {"dryRun": "All"})
        if conflict and "name" in body["metadata"]:
            return 409, [], {"message": "exists"}
        return 201, [], decided

    return created


@pytest.mark.parametrize("conflict", [False, True])
def test_a_manifest_is_explained_by_a_dry_run(explain, decided, tmp_path, conflict):
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job()))
    cluster = Cluster(
        forbidden=["/apis/kueue.x-k8s.io/*"],
        created=decided_by_dry_run(decided, conflict=conflict),
    )

    result = explain(cluster, "-f", str(path))

    assert "the webhook was asked by a server-side dry run instead" in result.stderr
    (table,) = rows(result.stdout)
    assert [row[0] for row in table] == ["gpu", "cpu"]


def test_a_manifest_that_the_api_server_refuses_says_why(explain, tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job()))
    cluster = Cluster(
        forbidden=["/apis/kueue.x-k8s.io/*"],
        created=lambda *_: (422, [], {"message": "spec.template: wrong"}),
    )

    result = explain(cluster, "-f", str(path))

    assert result.exit_code == 1
    assert result.stderr.endswith("The API server refuses the Job: spec.template: wrong (422)\n")


SENTENCE = "undone: in gpu-lq as submitted, and decided no more (kueue-fallback.dev/policy: none)"
PINNED = {"kueue-fallback.dev/policy": "none"}


@pytest.mark.parametrize(
    ("annotations", "told"),
    [
        ({"kueue-fallback.dev/reason": f"kueue-fallback: {SENTENCE}"}, SENTENCE),
        (
            {"kueue-fallback.dev/undone": "light-gpu"},
            "undone: what policy light-gpu had decided",
        ),
    ],
)
def test_an_undone_job_is_said_to_be_undone(explain, annotations, told):
    cluster = Cluster(*SNAPSHOT, job(**PINNED, **annotations))

    text = explain(cluster, "train")
    found = explain(cluster, "train", "-o", "json")

    assert f"pending.\n\n{told}\n" in text.stdout
    assert json.loads(found.stdout)["undone"] == told


def test_a_job_that_was_never_decided_is_not_said_to_be_undone(explain):
    result = explain(Cluster(*SNAPSHOT, job(**PINNED)), "train", "-o", "json")

    assert "undone" not in json.loads(result.stdout)


def reserved(kept):
    """The example's policies, with their last option for some alone."""
    found = copy.deepcopy(SNAPSHOT)
    for item in found:
        if item["kind"] == "FallbackPolicy":
            item["spec"]["options"][-1]["only"] = kept
    return found


def asked_as(groups):
    def created(path, query, body):
        assert (path, body["kind"]) == (REVIEWS, "SelfSubjectReview")
        return 201, [], {**body, "status": {"userInfo": {"username": "ann", "groups": groups}}}

    return created


REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@pytest.mark.parametrize(("groups", "option"), [(["ml"], "cpu"), (["vision"], "gpu")])
def test_who_asks_is_taken_to_create_it_where_that_matters(explain, groups, option):
    cluster = Cluster(*reserved({"groups": ["ml"]}), job(), created=asked_as(groups))

    found = explain(cluster, "train", "-o", "json")

    assert json.loads(found.output)["now"]["decision"]["option"] == option


@pytest.mark.parametrize(
    ("kept", "words"), [({"priorityClasses": ["high"]}, ()), ({"users": ["bo"]}, ("--as", "bo"))]
)
def test_nobody_is_asked_who_they_are_where_it_does_not_matter(explain, kept, words):
    cluster = Cluster(*reserved(kept), job())

    assert explain(cluster, "train", *words).exit_code == 0
    assert {method for method, _, _ in cluster.asked} == {"GET"}


def test_who_cannot_be_told_gets_nothing_that_is_for_some(explain):
    cluster = Cluster(*reserved({"groups": ["ml"]}), job(), forbidden=[REVIEWS])

    assert "the Job's creator is unknown" in " ".join(explain(cluster, "train").output.split())
