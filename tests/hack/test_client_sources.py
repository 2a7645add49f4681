"""The load program's sources are as Go's own tools want them."""

import subprocess
from pathlib import Path

import pytest

from hack import tools
from hack.load import SOURCES


@pytest.fixture(scope="module")
def go():
    return tools.Go(program=tools.find_go())


def test_the_sources_are_vetted(go):
    assert go.run("vet", "./...", cwd=SOURCES) == ""


def test_the_sources_are_formatted(go):
    gofmt = Path(go.run("env", "GOROOT", cwd=SOURCES), "bin/gofmt")

    done = subprocess.run([gofmt, "-l", SOURCES], capture_output=True, text=True, check=True)

    assert done.stdout == ""
