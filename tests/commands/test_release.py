"""`kubectl fallback release`, and what an uninstall does with held Jobs."""

import copy

import pytest

from tests.commands.calling import call_on

GATE, HELD = "kueue.x-k8s.io/admission-gated-by", "kueue-fallback.dev/held"
OURS = "kueue-fallback.dev/hold"
DECISION = "kueue-fallback.dev/decision"
JOBS = "/apis/batch/v1"


def job(name, *, gates=OURS, latest="2026-01-01T00:00:00Z"):
    hold = f'{{"until":"{latest}","latest":"{latest}","saves":{{"money":1,"of":2}},'
    decision = f'{{"version":1,"id":"x","hold":{hold}"seconds":60,"quota":[]}}}}'
    metadata = {
        "name": name,
        "namespace": "team",
        "resourceVersion": "1",
        "labels": {HELD: "true", "kueue-fallback.dev/option": "gpu"},
        "annotations": {GATE: gates, DECISION: decision},
    }
    return {"metadata": metadata, "spec": {"suspend": True}}


class Cluster:
    def __init__(self, *jobs, conflicts=0, status=200):
        self.jobs = {each["metadata"]["name"]: copy.deepcopy(each) for each in jobs}
        self.conflicts, self.status, self.patched = conflicts, status, []

    def __call__(self, method, url, body):
        path = url.partition("?")[0]
        name = path.rpartition("/jobs/")[2] if "/jobs/" in path else ""
        if not path.startswith(JOBS) or (name and name not in self.jobs):
            return 404, [], {"message": "not found"}
        if method == "GET":
            found = self.jobs[name] if name else {"items": list(self.jobs.values()), "metadata": {}}
            return 200, [], found
        if self.conflicts:
            self.conflicts -= 1
            return 409, [], {"message": "changed", "reason": "Conflict"}
        if self.status != 200:
            return self.status, [], {"message": "no", "reason": "Forbidden"}
        self.patched.append((name, body["metadata"]))
        return 200, [], self.jobs[name]


def run(tmp_path, cluster, *arguments):
    return call_on(cluster, tmp_path, *arguments)


OPEN = {"resourceVersion": "1", "annotations": {GATE: None}, "labels": {HELD: None}}


def test_a_named_job_is_released_and_no_other(tmp_path):
    cluster = Cluster(job("a"), job("b"))

    done = run(tmp_path, cluster, "release", "a", "-n", "team")

    assert (done.exit_code, done.stdout) == (0, "Job team/a: released\n")
    assert cluster.patched == [("a", OPEN)]


def test_the_gates_of_others_stay(tmp_path):
    cluster = Cluster(job("a", gates=f"example.com/gate, {OURS}"))

    run(tmp_path, cluster, "release", "--all")

    assert cluster.patched[0][1]["annotations"] == {GATE: "example.com/gate"}


def test_all_are_released_that_our_gate_holds(tmp_path):
    cluster = Cluster(job("a"), job("b", gates="example.com/gate"), job("c"))

    done = run(tmp_path, cluster, "release", "--all")

    assert done.stdout.splitlines()[-1] == "Held Jobs released: 2."
    assert [name for name, _ in cluster.patched] == ["a", "c"]


def test_overdue_ones_are_those_past_their_latest_start_or_without_one(tmp_path):
    unknown = job("c")
    unknown["metadata"]["annotations"][DECISION] = "?"
    cluster = Cluster(job("a"), job("b", latest="2099-01-01T00:00:00Z"), unknown)

    run(tmp_path, cluster, "release", "--overdue")

    assert [name for name, _ in cluster.patched] == ["a", "c"]


def test_a_job_that_has_changed_meanwhile_is_read_again(tmp_path):
    cluster = Cluster(job("a"), conflicts=1)

    assert run(tmp_path, cluster, "release", "a", "-n", "team").exit_code == 0
    assert len(cluster.patched) == 1


@pytest.mark.parametrize(
    ("cluster", "arguments", "code", "said"),
    [
        (Cluster(), ("a", "-n", "team"), 1, "There is no Job team/a."),
        (
            Cluster(job("a", gates="x/y")),
            ("a", "-n", "team"),
            1,
            "Job team/a is not held by kueue-fallback.",
        ),
        (Cluster(job("a"), status=403), ("--all",), 1, "Job team/a: not released: "),
        (Cluster(), (), 2, "Name Jobs, or give --all or --overdue"),
        (Cluster(), ("a", "--all"), 2, "Name Jobs, or give --all or --overdue"),
    ],
    ids=["gone", "not held", "forbidden", "nothing", "both"],
)
def test_what_is_not_released_is_said(tmp_path, cluster, arguments, code, said):
    done = run(tmp_path, cluster, "release", *arguments)

    assert done.exit_code == code
    assert said in done.stderr


def test_an_uninstall_releases_all_and_never_fails(tmp_path):
    cluster = Cluster(job("a"), job("b"))

    done = run(tmp_path, cluster, "unfinished", "--release")
    refused = run(tmp_path, Cluster(job("a"), status=403), "unfinished", "--release")

    assert (done.exit_code, refused.exit_code) == (0, 0)
    assert "Held Jobs released: 2." in done.stdout
    assert [name for name, _ in cluster.patched] == ["a", "b"]
