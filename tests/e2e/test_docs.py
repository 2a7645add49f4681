"""Every command in the documentation that needs a cluster, as a reader would type it.

The pages are read in one sitting on one control plane, so that the first of them installs.
"""

import shutil

import pytest

from hack.install import ROOT
from hack.terminal import Terminal
from tests.docs import pages
from tests.docs.pages import PAGES
from tests.e2e.release import Release

BUSY = (
    "kubectl apply -f examples/policy.yaml",
    "kubectl delete jobs -n research --all",
    "for n in $(seq 20); do cat examples/heavy-job.yaml; echo ---; done | kubectl create -f -",
    """until kubectl create -f examples/light-job.yaml --dry-run=server -o yaml 2>&1 |
    grep -q 'starts now; gpu-lq has'; do sleep 0.2; done""",
)
"""The policy of the examples in force, and a light Job that would leave the GPU queue."""
FIRST = [ROOT / "docs/get-started.md", ROOT / "README.md"]
OTHERS = {*FIRST, *(ROOT / page for page in pages.ELSEWHERE)}
READ = [*FIRST, *(page for page in PAGES if page not in OTHERS)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("reader")
    shutil.copytree(ROOT / "examples", found / "examples")
    # A policy of the reader's own.
    shutil.copy(ROOT / "examples/policy.yaml", found / "new.yaml")
    return found


@pytest.fixture(scope="module")
def terminal(own_plane, folder, tmp_path_factory):
    release = Release(own_plane, tmp_path_factory.mktemp("helm"), certificates="selfManaged")
    yield Terminal(release, folder)
    release.down()


@pytest.fixture(scope="module")
def typed():
    """What was typed before: nobody installs twice."""
    return set()


@pytest.fixture
def busy(page, terminal):
    """Fill the GPU queue before every page but the first, which does it itself."""
    if page == FIRST[0]:
        return
    for text in BUSY:
        ran = terminal.run(text)
        assert ran.code == 0, ran.output


def commands(page):
    return [command for command in pages.commands(page) if command.place == "cluster"]


@pytest.mark.parametrize(
    "page", [page for page in READ if commands(page)], ids=lambda page: page.name
)
def test_the_commands_of_a_page_do_what_it_shows(page, terminal, folder, busy, typed):
    pages.write_files(page, folder)

    for command in commands(page):
        if command.text.startswith("helm ") and command.text in typed:
            continue
        typed.add(command.text)
        ran = terminal.run(command.text)
        assert ran.code == 0, f"{command}\n{ran.output}"
        assert pages.is_as_shown(ran.output, command.shown, on_a_cluster=True), (
            f"{command}\n{ran.output}"
        )
