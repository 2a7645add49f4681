"""What users put into Jobs, and what they sign in with, stays out of every log line."""

import json

import pytest

from tests.reviews import light_job, review
from tests.servers import Server, paper_snapshot
from webhook.admission.patch import PatchError

SECRET = "hunter2"


def secretive(**changed):
    """A light Job that has the secret wherever a user may put one."""
    job = light_job()
    pod = job["spec"]["template"]["spec"]
    container = pod["containers"][0]
    container["env"] += [{"name": "TOKEN", "value": SECRET}]
    # What the policy changes is kept on the Job, to undo it; it is not to be logged.
    container["env"][0]["value"] = SECRET
    container |= {"command": ["sh", "-c", SECRET], "args": [SECRET], "image": f"{SECRET}/image"}
    job["metadata"]["annotations"] = {"note": SECRET}
    pod["volumes"] = [{"name": "a", "csi": {"driver": "x", "volumeAttributes": {"key": SECRET}}}]
    pod["initContainers"] = [{"name": "init", "image": "x", "env": [{"name": SECRET}]}]
    return {**job, **changed}


def user():
    return {"username": "ann", "extra": {"authentication.kubernetes.io/token": [SECRET]}}


@pytest.mark.parametrize("mode", ["Observe", "Advise", "Enforce"])
def test_a_decision_is_logged_without_what_the_job_holds(mode):
    server = Server(paper_snapshot(mode=mode))

    server.create(secretive(), userInfo=user())

    (line,) = server.logged()
    assert line["msg"] == "decided"
    assert SECRET not in json.dumps(line)


def test_a_restoration_is_logged_without_what_it_puts_back():
    server = Server(paper_snapshot())
    job = secretive()
    decided, _ = server.create(job)

    labels = decided["metadata"]["labels"] | job["metadata"]["labels"]
    metadata = {**decided["metadata"], "labels": labels}
    server.update(decided, {**decided, "metadata": metadata, "spec": job["spec"]}, userInfo=user())

    decision, restoration = server.logged()
    assert restoration["msg"] == "restored"
    assert SECRET not in json.dumps([decision, restoration])


@pytest.mark.parametrize(
    "path",
    [
        ("spec",),
        ("spec", "template", "spec"),
        ("spec", "template", "spec", "containers"),
        ("spec", "template", "spec", "containers", 0, "env"),
        ("spec", "template", "spec", "containers", 0, "env", 0),
        ("spec", "template", "spec", "containers", 0, "resources"),
        ("spec", "template", "spec", "nodeSelector"),
        ("spec", "parallelism"),
        ("metadata", "labels"),
        ("metadata", "annotations"),
    ],
    ids=lambda path: ".".join(map(str, path)),
)
def test_a_job_that_cannot_be_read_is_logged_without_what_it_holds(path):
    server = Server(paper_snapshot())
    job = secretive()
    node = job
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = SECRET

    answer = server.post(json.dumps(review(job)))

    assert answer.status_code == 200
    assert SECRET not in json.dumps(server.logged())


@pytest.mark.parametrize(
    "error",
    [KeyError(SECRET), ValueError(f"bad {SECRET}"), PatchError(("spec",), "does not apply")],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_ours_is_logged_without_its_text(error, monkeypatch, capfd):
    server = Server(paper_snapshot())

    def fail(*_):
        raise error

    monkeypatch.setattr(server.handler, "admit", fail)
    server.post(json.dumps(review(secretive())))

    (line,) = server.logged()
    assert line["level"] == "error"
    assert SECRET not in json.dumps(line) + "".join(capfd.readouterr())


def test_what_is_no_review_is_not_logged(capfd):
    server = Server(paper_snapshot())

    answer = server.post(json.dumps(review(secretive()))[:-1] + SECRET)

    assert answer.status_code == 400
    assert SECRET not in json.dumps(server.logged()) + "".join(capfd.readouterr())
