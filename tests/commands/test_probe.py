"""The check after an install: only the webhook's own words count as an answer."""

import pytest
from click.testing import CliRunner

from hack.waiting import WAIT_SECONDS
from tests.commands.apiserver import serving
from webhook.admission import review
from webhook.commands.probe import command

UNANSWERED = "the API server created the Job (as a dry run) without the webhook's answer"
JOBS = "/apis/batch/v1/namespaces/team/jobs?dryRun=All"


@pytest.fixture
def run(tmp_path):
    def probed(answer, *, wait="0"):
        with serving(answer, tmp_path) as kubeconfig:
            words = ["--namespace", "team", "--wait", wait, "--kubeconfig", kubeconfig]
            return CliRunner().invoke(command, words)

    return probed


def seen(body):
    nonce = body["metadata"]["annotations"][review.PROBE]
    return [("Warning", f'299 - "{review.probe_warning(nonce, seen_by="web-1 0.1.0")}"')]


def test_an_answer_that_comes_back_says_who_saw_the_probe(run):
    asked = []

    def answer(method, path, body):
        asked.append((method, path, body["kind"], body["spec"]["suspend"]))
        return 201, [("Warning", '299 - "another \\"warning\\""'), *seen(body)], body

    result = run(answer)

    assert asked == [("POST", JOBS, "Job", True)]
    assert (result.exit_code, result.stdout) == (
        0,
        "The API server calls the webhook: the probe was answered by web-1 0.1.0.\n",
    )


def test_the_namespace_is_the_contexts_where_none_is_given(tmp_path):
    asked = []

    def answer(method, path, body):
        asked.append(path)
        return 201, seen(body), body

    with serving(answer, tmp_path, namespace="team") as kubeconfig:
        result = CliRunner().invoke(command, ["--kubeconfig", kubeconfig])

    assert (result.exit_code, asked) == (0, [JOBS])


def test_a_webhook_that_comes_later_is_waited_for(run, monkeypatch):
    monkeypatch.setattr("webhook.commands.probe.EVERY_SECONDS", 0.01)
    asked = []

    def answer(method, path, body):
        asked.append(path)
        return 201, seen(body) if len(asked) == 3 else [], body

    result = run(answer, wait=f"{WAIT_SECONDS:.0f}")

    assert (result.exit_code, len(asked)) == (0, 3)
    waited = [line.partition("; for ")[0] for line in result.stderr.splitlines()]
    assert waited == [f"Not yet: {UNANSWERED}"] * 2


def test_people_wait_for_five_seconds_unless_they_say_otherwise():
    (wait,) = (option for option in command.params if option.name == "wait")

    assert wait.default == 5


def test_no_answer_is_a_failure_that_says_what_to_look_at(run):
    result = run(lambda method, path, body: (201, [], body))

    assert result.exit_code == 1
    assert result.stderr.startswith("The webhook did not answer within 0s")
    assert "Does it exclude namespace team?" in result.stderr


def test_another_probes_answer_is_none(run):
    warning = ("Warning", f'299 - "{review.probe_warning("0123", seen_by="web-1")}"')

    assert run(lambda method, path, body: (201, [warning], body)).exit_code == 1


def test_a_refused_dry_run_is_told_in_the_api_servers_words(run):
    refused = {"message": "jobs.batch is forbidden"}

    result = run(lambda method, path, body: (403, [], refused))

    assert result.exit_code == 1
    assert "jobs.batch is forbidden" in result.stderr
