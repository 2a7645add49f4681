"""What an uninstall leaves to itself: unfinished Jobs that carry a decision."""

import json

import pytest
from click.testing import CliRunner

from tests.commands.apiserver import serving
from tests.commands.cluster import Cluster
from webhook.commands.release import unfinished


@pytest.fixture
def run(tmp_path):
    def listed(answer):
        with serving(answer, tmp_path) as kubeconfig:
            return CliRunner().invoke(unfinished, ["--kubeconfig", kubeconfig])

    return listed


def job(name, *, suspend=False, finished=()):
    labels = {"kueue-fallback.dev/option": "cpu", "kueue.x-k8s.io/queue-name": "cpu-lq"}
    conditions = [{"type": kind, "status": "True"} for kind in finished]
    return {
        "metadata": {
            "namespace": "team",
            "name": name,
            "labels": labels,
            "annotations": {"kueue-fallback.dev/decision": "{}"},
        },
        "spec": {"suspend": suspend},
        "status": {"conditions": conditions} if conditions else {},
    }


def test_unfinished_jobs_of_all_pages_are_listed_with_what_becomes_of_them(run):
    asked = []
    pages = [
        {"metadata": {"continue": "more"}, "items": [job("a"), job("b", finished=["Complete"])]},
        {"metadata": {}, "items": [job("long-name", suspend=True), job("d", finished=["Failed"])]},
    ]

    def answer(method, path, body):
        if "/batch/v1/" not in path:
            return 404, [], {}
        asked.append(path)
        return 200, [], pages[len(asked) - 1]

    result = run(answer)

    selected = "/apis/batch/v1/jobs?labelSelector=kueue-fallback.dev%2Foption&limit=500"
    assert asked == [selected, selected + "&continue=more"]
    assert result.stdout.splitlines()[:4] == [
        "NAMESPACE  NAME       OPTION  QUEUE   STATE",
        "team       a          cpu     cpu-lq  running",
        "team       long-name  cpu     cpu-lq  pending",
        "Unfinished Jobs with a decision: 2.",
    ]
    assert result.exit_code == 0


def test_other_kinds_are_named_and_those_that_may_not_be_listed_left_out(run):
    ray = {**job("train"), "status": {"jobDeploymentStatus": "Running"}}
    over = {**job("done"), "status": {"jobDeploymentStatus": "Complete"}}

    def answer(method, path, body):
        if "/rayjobs" in path:
            return 200, [], {"metadata": {}, "items": [ray, over]}
        if "/batch/v1/" in path:
            return 200, [], {"metadata": {}, "items": [job("train", suspend=True)]}
        return 403, [], {"message": "not allowed"}

    result = run(answer)

    assert result.stdout.splitlines()[1:4] == [
        "team       train         cpu     cpu-lq  pending",
        "team       rayjob/train  cpu     cpu-lq  running",
        "Unfinished Jobs with a decision: 2.",
    ]


def test_pods_of_a_decided_job_are_no_jobs(run):
    pod = job("light-9clkg-dx7gs")
    del pod["metadata"]["annotations"]

    def answer(method, path, body):
        items = {"/apis/batch/v1/jobs": [job("light-9clkg")], "/api/v1/pods": [pod]}
        return 200, [], {"metadata": {}, "items": items.get(path.partition("?")[0], [])}

    result = run(answer)

    assert "Unfinished Jobs with a decision: 1." in result.stdout.splitlines()
    assert "light-9clkg-dx7gs" not in result.stdout


def test_without_such_jobs_it_says_so(run):
    result = run(lambda *_: (200, [], {"metadata": {}, "items": []}))

    assert (result.exit_code, result.stdout) == (0, "No unfinished Job carries a decision.\n")


def test_a_list_that_is_refused_does_not_hold_up_an_uninstall(run):
    result = run(lambda *_: (403, [], {"message": "not allowed"}))

    assert result.exit_code == 0
    assert result.stderr == (
        "The unfinished Jobs with a decision could not be listed: not allowed\n"
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), ["team/a", "team/b"]),
        (("-A",), ["team/a", "team/b"]),
        (("-n", "team"), ["team/a", "team/b"]),
        (("-n", "other"), []),
        (("-l", "kueue.x-k8s.io/queue-name=gpu-lq"), []),
    ],
)
def test_namespaces_and_labels_choose(tmp_path, words, expected):
    jobs = [{**job(name), "kind": "Job"} for name in ("a", "b")]
    with serving(Cluster(*jobs), tmp_path) as kubeconfig:
        asked = [*words, "--kubeconfig", kubeconfig]
        found = CliRunner().invoke(unfinished, [*asked, "-o", "json"])
        names = CliRunner().invoke(unfinished, [*asked, "-o", "name"])

    listed = [f"{each['namespace']}/{each['name']}" for each in json.loads(found.stdout)["jobs"]]
    assert listed == expected
    assert names.stdout.splitlines() == [f"job/{each.removeprefix('team/')}" for each in expected]
