"""`kubectl fallback tail`: a line for each decision that is made, moved, changed or undone."""

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from hack.waiting import WAIT_SECONDS
from tests.commands.apiserver import serving
from tests.commands.calling import call_on
from webhook.commands.tail import Decisions

DECISION = "kueue-fallback.dev/decision"
QUEUE = "kueue.x-k8s.io/queue-name"


def job(name="a", *, version="1", uid="u", queue="cpu-lq", decision=None):
    annotations = {} if decision is None else {DECISION: json.dumps(decision)}
    metadata = {"name": name, "namespace": "team", "uid": uid, "resourceVersion": version}
    return {"metadata": {**metadata, "labels": {QUEUE: queue}, "annotations": annotations}}


def decided(*, minutes_ago=0, option="cpu", **more):
    time = datetime.now(UTC) - timedelta(minutes=minutes_ago)
    return {
        "version": 1,
        "id": "1-a",
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "policy": "light",
        "mode": "Enforce",
        "option": option,
        "reason": f"sent to {option}-lq ({option}): starts now",
        "original": {"/metadata": 1},
        **more,
    }


MOVED = decided(option="gpu", moves=1, history=[{"time": "", "option": "gpu", "reason": ""}])

HEADING = "Following decisions on Jobs in namespace team.\n"


class Jobs:
    """Lists once for each list of jobs, and answers each watch with the next events."""

    def __init__(self, *lists, events=()):
        self.lists, self.events, self.asked = list(lists), list(events), []

    def other(self, path):
        """Who may list no policies, on a cluster without any other kind."""
        return (403 if path.endswith("/fallbackpolicies") else 404), [], {}

    def __call__(self, method, url, body):
        split = urlsplit(url)
        if "/batch/v1/" not in split.path:
            return self.other(split.path)
        self.asked.append((split.path, parse_qs(split.query)))
        if "watch=true" not in split.query:
            items = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
            return 200, [], {"metadata": {"resourceVersion": "7"}, "items": items}
        events = self.events.pop(0) if self.events else []
        return 200, [], "".join(json.dumps(event) + "\n" for event in events)


def event(kind, found):
    return {"type": kind, "object": found}


@pytest.fixture
def run(tmp_path):
    def tailed(jobs, *words):
        return call_on(jobs, tmp_path, "tail", *words, namespace="team")

    return tailed


def lines_of(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_each_change_of_a_decision_is_a_line(run):
    events = [
        event("ADDED", job(decision=decided())),
        event("MODIFIED", job(decision=decided(minutes_ago=0) | {"original": {}})),
        event("MODIFIED", job(queue="gpu-lq", decision=MOVED)),
        event("MODIFIED", job(queue="gpu-lq")),
        event("ADDED", job("b")),
        event("DELETED", job(queue="gpu-lq")),
        event("BOOKMARK", {"metadata": {"resourceVersion": "9"}}),
    ]
    events[1]["object"] = job(
        decision=json.loads(events[0]["object"]["metadata"]["annotations"][DECISION])
        | {"original": {}}
    )

    result = run(Jobs([], events=[events]), "-o", "json", "--count", "3")

    found = lines_of(result)
    assert result.exit_code == 0
    assert [(each["event"], each["option"], each["queue"]) for each in found] == [
        ("created", "cpu", "cpu-lq"),
        ("moved", "gpu", "gpu-lq"),
        ("undone", "", "gpu-lq"),
    ]
    assert found[0] == {
        "time": found[0]["time"],
        "event": "created",
        "namespace": "team",
        "name": "a",
        "policy": "light",
        "mode": "Enforce",
        "option": "cpu",
        "queue": "cpu-lq",
        "reason": "sent to cpu-lq (cpu): starts now",
        "id": "1-a",
        "moves": 0,
    }
    assert found[2]["reason"] == "undone: as submitted in gpu-lq"


@pytest.mark.parametrize(
    ("since", "names"),
    [([], ["later"]), (["--since", "10m"], ["middle", "new", "later"])],
)
def test_earlier_decisions_are_printed_only_if_asked_for(run, since, names):
    ages = {"old": 20, "new": 1, "middle": 5}
    jobs = [job(name, decision=decided(minutes_ago=age)) for name, age in ages.items()]
    later = event("ADDED", job("later", decision=decided()))

    found = run(Jobs(jobs, events=[[later]]), *since, "-o", "json", "--count", str(len(names)))

    assert [line["name"] for line in lines_of(found)] == names


def test_people_get_one_line_a_decision_that_fits(run, monkeypatch):
    jobs = Jobs([job(decision=decided(reason="sent to cpu-lq (cpu): " + "word " * 40))])
    words = ("--since", "10m", "--count", "1")

    plain = run(jobs, *words).stdout
    monkeypatch.setenv("COLUMNS", "110")
    narrow, wide = run(jobs, *words).stdout, run(jobs, *words, "-o", "wide").stdout

    assert plain.split()[2:6] == ["created", "team/a", "cpu", "sent"]
    assert (len(narrow.rstrip("\n")) <= 110, narrow[-2]) == (True, "…")
    assert wide == plain


@pytest.mark.parametrize(
    ("words", "path", "where"),
    [
        ((), "/apis/batch/v1/namespaces/team/jobs", "namespace team"),
        (("-n", "other"), "/apis/batch/v1/namespaces/other/jobs", "namespace other"),
        (("-A",), "/apis/batch/v1/jobs", "all namespaces"),
    ],
)
def test_the_namespace_is_the_one_that_is_meant_and_printed(run, words, path, where):
    jobs = Jobs([], events=[[event("ADDED", job(decision=decided()))]])

    followed = run(jobs, *words, "--count", "1")

    assert followed.stderr == f"Following decisions on Jobs in {where}.\n"
    assert {asked for asked, _ in jobs.asked} == {path}
    (_, watched) = jobs.asked[1]
    assert (watched["resourceVersion"], watched["watch"]) == (["7"], ["true"])


def test_after_a_gap_the_jobs_are_listed_again_and_compared(run):
    gone = [{"type": "ERROR", "object": {"code": 410, "message": "too old"}}]
    before, after = [job(decision=decided())], [job(decision=MOVED), job("b", decision=decided())]

    result = run(Jobs(before, after, events=[gone]), "-o", "json", "--count", "2")

    assert {(line["event"], line["name"]) for line in lines_of(result)} == {
        ("moved", "a"),
        ("created", "b"),
    }


def test_a_job_of_the_same_name_is_another_job():
    decisions = Decisions()
    decisions.put(job(decision=MOVED))

    found = decisions.put(job(uid="v", decision=decided()))

    assert found is not None
    assert found.event == "created"


def test_a_damaged_decision_is_none():
    found = job()
    found["metadata"]["annotations"] = {DECISION: "[1"}

    assert Decisions().put(found) is None


def test_what_somebody_wrote_on_a_job_does_not_steer_the_terminal(run):
    jobs = Jobs([job(decision=decided(reason="sent\x1b]0;title\x07 to\ncpu-lq"))])

    (line,) = run(jobs, "--since", "10m", "--count", "1").stdout.splitlines()

    assert line.endswith("sent ]0;title  to cpu-lq")


def test_who_may_not_list_jobs_is_told(run):
    result = run(lambda *_: (403, [], {"message": "you cannot list jobs"}))

    assert (result.exit_code, result.stderr) == (1, "you cannot list jobs\n")


def test_a_cluster_that_never_answers_ends_with_3(run):
    result = run(lambda *_: (503, [], {"message": "starting"}))

    assert (result.exit_code, result.stderr) == (1, "The watch is lost: 503 starting\n")


HEEDING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from webhook.__main__ import main
main()
"""


def test_ctrl_c_ends_it_cleanly(tmp_path):
    jobs = Jobs([job(decision=decided())])
    # What was started in the background ignores Ctrl-C, and so would what it starts.
    command = [sys.executable, "-c", HEEDING, "tail", "--since", "1h"]
    with serving(jobs, tmp_path, namespace="team") as kubeconfig:
        started = subprocess.Popen(
            [*command, "--kubeconfig", kubeconfig],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert started.stdout is not None
        first = started.stdout.readline()
        started.send_signal(signal.SIGINT)
        _, errors = started.communicate(timeout=WAIT_SECONDS)

    assert "sent to cpu-lq (cpu)" in first
    assert (started.returncode, errors) == (0, HEADING)


class Kinds(Jobs):
    """Jobs beside RayJobs, of which a policy names these."""

    def __init__(self, *lists, rays, policies=(), **rest):
        super().__init__(*lists, **rest)
        self.rays, self.policies, self.paths = rays, policies, []

    def other(self, path):
        self.paths.append(path)
        if path.endswith("/fallbackpolicies"):
            return 200, [], {"metadata": {}, "items": list(self.policies)}
        return 200, [], {"metadata": {"resourceVersion": "7"}, "items": self.rays}


def test_jobs_of_the_kinds_that_policies_name_are_followed_and_called_by_them(run):
    policies = [{"spec": {"match": {"kinds": ["Job", "RayJob"]}}}]
    rays = [job("train", decision=decided(minutes_ago=3))]
    jobs = Kinds([job("train", decision=decided(minutes_ago=1))], rays=rays, policies=policies)

    found = lines_of(run(jobs, "--since", "10m", "-o", "json", "--count", "2"))
    text = run(jobs, "--since", "10m", "--count", "1").output

    assert [(each["name"], each.get("kind")) for each in found] == [
        ("train", "RayJob"),
        ("train", None),
    ]
    assert "team/rayjob/train" in text
    assert {path.rpartition("/")[2] for path in jobs.paths} == {"fallbackpolicies", "rayjobs"}
