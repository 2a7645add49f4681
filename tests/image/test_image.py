"""`make image`, as far as it can be seen without a builder."""

import os
import subprocess
import sys
from pathlib import Path

from hack import image, image_builder
from hack.image_builder import Builder, Built, Wish
from tests.image.dockerfile import ROOT


def test_without_a_builder_it_says_what_to_install(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "hack.image"],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "No program that builds images was found; looked for buildah, podman, docker.\n"
        "On Debian and Ubuntu, as root: apt-get install --no-install-recommends buildah\n"
        "With it and mmdebstrap, `python -m hack.image --debian trixie` needs no registry of"
        " images.\n"
    )


def test_a_failed_build_is_told_in_one_line(tmp_path):
    _program(tmp_path / "buildah", "exit 7")

    result = subprocess.run(
        [sys.executable, "-m", "hack.image"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )

    assert result.returncode == 1
    assert result.stderr == "buildah failed; its last lines above say why\n"


def test_the_builder_is_told_the_date_the_version_and_the_base(tmp_path):
    said = tmp_path / "said"
    program = _program(tmp_path / "buildah", f'printf "%s\\n" "$@" > {said}')
    builder = Builder(program=str(program), store="/store")

    image_builder.build(builder, Wish(tag="mine:1", base="theirs:2", cached=False))

    words = said.read_text().splitlines()
    assert words[:5] == ["--root", "/store/root", "--runroot", "/store/run", "build"]
    assert {
        f"--timestamp={image_builder.EPOCH}",
        f"--build-arg=VERSION={image_builder.project_version()}",
        "--build-arg=BASE=theirs:2",
        "--no-cache",
        "--layers",
    } <= set(words)
    assert words[-3:] == ["--tag", "mine:1", str(ROOT)]


def test_two_builds_are_shown_layer_by_layer():
    one = Built(
        tag="t",
        digest="sha256:1",
        layers=("a", "b", "c"),
        sizes=(42_000_000, 80_000_000, 1_500_000),
        config={},
    )

    assert list(image.table(one, one)) == [
        "| | MB | first build | second build |",
        "|---|---:|---|---|",
        "| Python | 42.0 | `a` | `a` |",
        "| dependencies | 80.0 | `b` | `b` |",
        "| project | 1.5 | `c` | `c` |",
        "| image | 123.5 | `sha256:1` | `sha256:1` |",
    ]


def _program(path: Path, script):
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
