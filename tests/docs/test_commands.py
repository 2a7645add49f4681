"""Every command in the documentation is run: those here that need no cluster.

The others are run by tests/e2e/test_docs.py.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import pages
from tests.docs.pages import PAGES, ROOT, Command

REQUESTS = """\
gmt_create,predict_type,num_inference_steps,exec_time_seconds
2026-01-01 00:00:00,TXT_2_IMG,20,18.5
2026-01-01 00:00:04,TXT_2_IMG,50,40.0
"""
ELSEWHERE = {ROOT / page for page in pages.ELSEWHERE}
READ = [page for page in PAGES if page not in ELSEWHERE]
COMMANDS = [command for page in READ for command in pages.commands(page)]
HERE = [page for page in READ if any(one.place == "here" for one in pages.commands(page))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def run(text: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    programs = Path(sys.executable).parent
    return subprocess.run(
        ["bash", "-ec", text],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={
            **os.environ,
            "PATH": f"{folder / 'bin'}:{programs}:{os.environ['PATH']}",
            "HOME": str(folder),
        },
    )


@pytest.fixture
def folder(tmp_path):
    """A folder like the checkout, with the examples and the environment."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "requests.csv").write_text(REQUESTS)
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parent.parent)
    # kubectl would look for the plugin on the path, as this does.
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text('#!/bin/sh\nplugin="kubectl-$1"; shift; exec "$plugin" "$@"\n')
    kubectl.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_it_is_known_where_a_command_can_be_run(command):
    assert command.place, "say in pages.py how to run it, or in e2e/test_docs.py"


@pytest.mark.parametrize("page", HERE, ids=name_of)
def test_a_command_that_needs_no_cluster_does_what_the_page_shows(page, folder):
    pages.write_files(page, folder)

    for command in pages.commands(page):
        if command.place != "here":
            continue
        done = run(command.text, folder)
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        assert pages.is_as_shown(done.stdout, command.shown), f"{command}\n{done.stdout}"


@pytest.mark.parametrize("command", [one for one in COMMANDS if one.place == "make"], ids=str)
def test_a_target_of_make_is_there(command):
    done = run(command.text.replace("make ", "make --dry-run ", 1), ROOT)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("page", pages.ELSEWHERE)
def test_what_is_asked_elsewhere_is_asked_there(page):
    asked = (ROOT / pages.ELSEWHERE[page]).read_text()
    paths = set(re.findall(r"/\w+\?clusterqueue=", (ROOT / page).read_text()))

    assert paths
    assert all(path in asked for path in paths)


@pytest.mark.parametrize(
    ("printed", "shown", "is_so"),
    [
        ("a 1\nb", ["a …", "b"], True),
        ("a\nx\ny\nb", ["a", "…", "b"], True),
        ("a\nb", ["a", "…", "b"], True),
        ("a\nb", ["a"], False),
        ("job.batch/light-x7k2p created", ["job.batch/light-4zbn2 created"], True),
        ("job.batch/heavy-x7k2p created", ["job.batch/light-4zbn2 created"], False),
        ("anything", [], True),
    ],
)
def test_what_is_shown_is_compared_but_for_what_may_differ(printed, shown, is_so):
    assert pages.is_as_shown(printed, shown) is is_so


def test_on_a_cluster_times_and_counts_may_differ():
    shown = ["done in 1m10s; gpu-lq has 10 pending"]

    assert pages.is_as_shown("done in 12s; gpu-lq has 3 pending", shown, on_a_cluster=True)
    assert not pages.is_as_shown("done in 12s; cpu-lq has 3 pending", shown, on_a_cluster=True)
    assert not pages.is_as_shown("done in 12s; gpu-lq has 3 pending", shown)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("kueue-fallback check -f policy.yaml", "here"),
        ("kueue-fallback explain -f job.yaml --snapshot s.json", "here"),
        ("kueue-fallback explain -f job.yaml", "cluster"),
        ("kubectl get jobs -o yaml | kueue-fallback check -f -", "cluster"),
        ("for n in 1 2; do kubectl create -f job.yaml; done", "cluster"),
        ("curl http://example.com", ""),
    ],
)
def test_a_command_is_run_where_it_can_be(text, place):
    assert Command(page="", line=0, text=text).place == place
