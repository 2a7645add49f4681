"""All commands, one table: exit codes, 60 columns, pipes, missing rights and dead servers."""

import contextlib
import copy
import json
import os
import re
import shlex
import sys
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest
import yaml

from tests.commands.apiserver import serving
from tests.commands.calling import call
from tests.commands.cluster import Cluster
from webhook.__main__ import main
from webhook.commands import deciding

POLICY, JOB = "examples/policy.yaml", "examples/light-job.yaml"
SNAPSHOT = "examples/snapshot.json"
OF_A_CLUSTER = (
    "advise",
    f"check -f {POLICY} --server",
    "estimate",
    "explain train",
    f"explain -f {JOB}",
    "move train --to cpu",
    "off",
    "on",
    "probe --wait 0",
    "queue",
    "release train",
    "report",
    "report --run-times",
    "report --slices",
    "status",
    "tail --for 10s",
    "tariff from-opencost --prometheus http://127.0.0.1:1",
    "undo train",
    "undo train --recreate",
    "unfinished",
)
HERE = (
    f"check -f {POLICY}",
    f"explain -f {JOB} --snapshot {SNAPSHOT}",
    f"queue -A --snapshot {SNAPSHOT}",
    "simulate -f examples/scenarios/uniform.yaml",
)
INFORMS = {"unfinished"}
"""Never fails: the chart runs it before an uninstall."""
SHOWS_THE_REST = {"status"}
"""Names what one may not see in one line, and shows the rest."""
REFUSED = (
    "The connection to the server 127.0.0.1:1 was refused - did you specify the right host or port?"
)


def run(words, *more):
    return call(*shlex.split(words), *more)


@pytest.fixture(scope="module")
def decided():
    """The example's light Job in the cluster, as the webhook decided it."""
    job = yaml.safe_load(Path(JOB).read_text(encoding="utf-8"))
    del job["metadata"]["generateName"]
    job["metadata"] |= {"name": "train", "creationTimestamp": "2026-01-01T00:00:00Z"}
    job["spec"]["suspend"] = True
    view = deciding.view_of_file(SNAPSHOT, ())
    return deciding.patched(job, deciding.consider_manifest(copy.deepcopy(job), view))


@pytest.fixture
def cluster(tmp_path, decided):
    """The example's cluster; its address is that of a kubeconfig."""
    items = json.loads(Path(SNAPSHOT).read_text(encoding="utf-8"))["items"]
    with serving(Cluster(*items, decided), tmp_path, namespace="research") as kubeconfig:
        yield kubeconfig


def test_every_command_is_in_the_table():
    named = {words.split()[0] for words in (*OF_A_CLUSTER, *HERE)}

    assert named | {"serve", "control"} == set(main.list_commands(None))


@pytest.mark.parametrize("words", OF_A_CLUSTER)
def test_a_dead_server_is_named_in_one_line(words, tmp_path):
    path = tmp_path / "kubeconfig"
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    config = {
        "current-context": "c",
        "contexts": [context],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path.write_text(yaml.safe_dump(config))

    found = run(words, "--kubeconfig", str(path))

    (line,) = found.stderr.splitlines()
    assert line.endswith(REFUSED)
    assert found.exit_code == (0 if words in INFORMS else 1)


VERBS = {"GET": "list", "POST": "create", "PUT": "update", "PATCH": "patch"}


def forbidding(method, url, body):
    """Say in the API server's words that nothing is allowed but what everybody may see."""
    path = urlsplit(url).path
    if path.count("/") < 3:
        version = {"version": "v1beta2"}
        return 200, [], {"major": "1", "minor": "36", "versions": [version]}
    resource = path.rpartition("/")[2]
    why = f'User "ds" cannot {VERBS[method]} resource "{resource}" in API group ""'
    return 403, [], {"message": f"{resource} is forbidden: {why}"}


@pytest.mark.parametrize("words", OF_A_CLUSTER)
def test_a_missing_right_is_named_in_one_line(words, tmp_path):
    with serving(forbidding, tmp_path, namespace="research") as kubeconfig:
        found = run(words, "--kubeconfig", kubeconfig)

    if words in SHOWS_THE_REST:
        assert (found.exit_code, found.stderr) == (0, "")
        assert found.stdout.splitlines()[-1].startswith("You may not see: ")
        return
    (line,) = found.stderr.splitlines()
    assert re.search(r'is forbidden: User "ds" cannot \w+ resource "[\w-]+"', line)
    assert found.exit_code == (0 if words in INFORMS else 1)


@pytest.mark.parametrize(
    "words",
    [
        "explain trian",
        "queue trian",
        "undo trian",
        "move trian --to cpu",
        "release trian",
        "advise trian",
    ],
)
def test_a_misspelt_job_is_answered_with_the_nearest(words, cluster):
    found = run(words, "--kubeconfig", cluster)

    assert (found.exit_code, found.stderr) == (
        1,
        "There is no Job research/trian (there is train).\n",
    )


NAMED = [
    "advise {}",
    "explain {}",
    "move {} --to cpu",
    "queue {}",
    "release {}",
    "undo {}",
    "undo {} --recreate",
]


@pytest.mark.parametrize("words", NAMED)
def test_type_and_name_may_be_two_words(words, cluster):
    found = [
        run(words.format(job), "--kubeconfig", cluster).stderr
        for job in ("trian", "job/trian", "job trian", "jobs.batch trian")
    ]

    assert found == ["There is no Job research/trian (there is train).\n"] * 4


@pytest.mark.parametrize("words", NAMED)
@pytest.mark.parametrize(("job", "said"), [("''", "''"), ("job/", "'job/'")])
def test_an_empty_name_is_wrong_usage(words, job, said, cluster):
    # `undo "$JOB"` of a shell in which JOB is not set names no Job, and not all.
    found = run(words.format(job), "--kubeconfig", cluster)

    expected = f"Error: expected the name of a Job, got {said}"
    assert (found.exit_code, found.stderr.splitlines()[-1]) == (2, expected)


@pytest.mark.parametrize("words", ["move {} --to cpu", "queue {}", "undo {}"])
@pytest.mark.parametrize(
    ("jobs", "error"),
    [
        ("train sweep", "expected one Job, got 2: train sweep"),
        ("jobs train sweep", "expected one Job, got 2: jobs/train jobs/sweep"),
        ("cj nightly", "cj/nightly: a CronJob is no Job; name one of those that it has made"),
    ],
)
def test_a_command_for_one_job_takes_no_other_words(words, jobs, error, cluster):
    found = run(words.format(jobs), "--kubeconfig", cluster)

    assert (found.exit_code, found.stderr.splitlines()[-1]) == (2, f"Error: {error}")


def commands(group=main, path=()):
    """Every command with the words before it."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize(("path", "command"), list(commands()), ids=str)
def test_help_fits_60_columns_and_says_its_exit_codes(path, command):
    context = click.Context(command, info_name=" ".join(path), terminal_width=60)

    text = command.get_help(context)

    long = [line for line in text.splitlines() if len(line) > 60 and not line.startswith("    ")]
    assert [line for line in long if not re.match(r"\s+(kubectl|kueue)", line)] == []
    if path[0] not in ("serve", "control") and not isinstance(command, click.Group):
        assert "Exit codes: 0" in text


READS = [
    words
    for words in (*OF_A_CLUSTER, *HERE)
    if words.split()[0]
    not in (
        "off",
        "on",
        "probe",
        "tail",
        "tariff",
        "release",
        "move",
        "undo",
        "check",
    )
]


@pytest.mark.parametrize("words", READS)
def test_nothing_is_wider_than_60_columns_where_it_can_wrap(words, cluster, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    connection = ["--kubeconfig", cluster] if words in OF_A_CLUSTER else []

    found = run(words, *connection)

    wide = [line for line in found.stdout.splitlines() if len(line) > 60]
    assert wide == []


class Head:
    """Standard output whose reader has gone, as `| head -1` goes."""

    def __enter__(self):
        reader, writer = os.pipe()
        os.close(reader)
        self.file = os.fdopen(writer, "w")
        return self.file

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):
            self.file.close()


@pytest.mark.parametrize("words", READS)
def test_a_reader_that_goes_away_is_no_error(words, cluster, monkeypatch, capfd):
    connection = ["--kubeconfig", cluster] if words in OF_A_CLUSTER else []

    with Head() as file:
        monkeypatch.setattr(sys, "stdout", file)
        with pytest.raises(SystemExit):
            main([*words.split(), *connection])

    assert "webhook/" not in capfd.readouterr().err
