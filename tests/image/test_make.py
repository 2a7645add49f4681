"""`make image` takes the first builder that works, and says what is wrong with the others."""

import os
import subprocess

import pytest

from tests.image.dockerfile import ROOT

BUILDERS = ("docker", "podman", "buildah")


@pytest.fixture
def make(tmp_path):
    """Run `make image` with builders that are no more than these scripts."""

    def run(*words, **scripts):
        for name in BUILDERS:
            path = tmp_path / name
            path.write_text(f"#!/bin/sh\n{scripts.get(name, 'echo not here >&2; exit 1')}\n")
            path.chmod(0o755)
        return subprocess.run(
            ["make", "--silent", "--no-print-directory", "image", *words],
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "MAKEFLAGS": ""},
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )

    return run


def test_without_a_builder_it_says_what_is_wrong_with_each(make):
    done = make(docker="echo Server:; echo 'no daemon on this socket' >&2; exit 1")

    assert done.returncode == 2
    assert done.stderr.splitlines()[:4] == [
        "docker: no daemon on this socket",
        "podman: not here",
        "buildah: not here",
        "No image can be built here; start one of these, or install it.",
    ]


def test_the_first_that_works_builds_what_is_asked_for(make):
    done = make(
        "TAG=mine:1",
        "IMAGE=--build-arg BASE=theirs:2",
        podman='test "$1" = info || echo $BUILDAH_FORMAT "$@"',
    )

    words = done.stdout.split()
    assert (done.returncode, done.stderr) == (0, "docker: not here\n")
    assert words[:4] == ["docker", "build", "--tag", "mine:1"]
    assert words[-3:] == ["--build-arg", "BASE=theirs:2", "."]


def test_a_failed_build_is_not_tried_with_the_next(make):
    done = make(docker='test "$1" = info || exit 7', podman="echo podman")

    assert done.returncode == 2
    assert "podman" not in done.stdout + done.stderr
