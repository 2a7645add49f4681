"""Make what a release publishes and needs no credentials for: wheel, chart, plugin, checksums.

usage: python -m hack.artifacts v0.1.0 [--repository OWNER/NAME] [--platforms linux-amd64]
                                      [--folder build/release]

The release workflow runs the same, and signs and publishes what is in the folder.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml

from hack import tools
from hack.install import ROOT

PLATFORMS: Final = {
    "linux-amd64": ("manylinux_2_28_x86_64", "manylinux2014_x86_64"),
    "linux-arm64": ("manylinux_2_28_aarch64", "manylinux2014_aarch64"),
    "darwin-arm64": ("macosx_11_0_arm64", "macosx_10_12_universal2"),
}
"""Platforms as krew names them, and the tags of wheels that run there.

Macs with Intel's processors are left out, as cryptography has no wheels for them.
"""
PYTHONS: Final = ("3.11", "3.12", "3.13")
CHECKSUMS: Final = "SHA256SUMS"
KREW: Final = "fallback.yaml"
_TEMPLATE: Final = ROOT / "hack/krew.yaml"
_TAG: Final = re.compile(r"v(\d+\.\d+\.\d+(?:-rc\.\d+)?)")
_LAUNCHER: Final = '''\
#!/usr/bin/env python3
"""What krew calls: the command line, under a Python that the libraries beside it are for."""

import os
import shutil
import sys

PYTHONS = %r

if "%%d.%%d" %% sys.version_info[:2] not in PYTHONS:
    for version in reversed(PYTHONS):
        python = shutil.which("python" + version)
        if python:
            os.execv(python, [python, os.path.realpath(__file__)] + sys.argv[1:])
    sys.exit("kubectl fallback needs one of these on the PATH: Python " + ", ".join(PYTHONS))

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib"))

from webhook.__main__ import main

main()
'''


class ReleaseError(Exception):
    """The tag, or what was made for it, cannot be released; the text says why."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__.splitlines()[0])
    parser.add_argument("tag", help="such as v0.1.0; the project's version with a v before it")
    parser.add_argument("--repository", default="example/kueue-fallback", help="on GitHub")
    parser.add_argument("--platforms", type=_words, default=tuple(PLATFORMS))
    parser.add_argument("--pythons", type=_words, default=PYTHONS, help="of the plugin")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/release")
    given = parser.parse_args()
    try:
        made = make(given)
    except ReleaseError as error:
        sys.exit(f"{given.tag}: {error}")
    sums = [f"{sha256(path)}  {path.name}" for path in made]
    (given.folder / CHECKSUMS).write_text("\n".join(sums) + "\n")
    print("\n".join(sums))


def make(given: argparse.Namespace) -> list[Path]:
    """Make all files in a new folder and return them; raise ReleaseError when one is not right."""
    version = version_of(given.tag)
    shutil.rmtree(given.folder, ignore_errors=True)
    given.folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        source = copy_of_sources(Path(scratch) / "source")
        built = wheel(source, given.folder)
        chart(source / "helm", given.folder, version=version, repository=given.repository)
    archives = {
        platform: plugin(built, given.folder, platform, pythons=given.pythons)
        for platform in given.platforms
    }
    manifest = krew_manifest(archives, tag=given.tag, repository=given.repository)
    (given.folder / KREW).write_text(manifest)
    return sorted(given.folder.iterdir())


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def version_of(tag: str) -> str:
    """Return the version that a tag stands for; raise ReleaseError if the project has another."""
    found = _TAG.fullmatch(tag)
    if found is None:
        raise ReleaseError("a tag is v, three numbers, and for a candidate -rc.1")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    if found[1] != project:
        raise ReleaseError(f"the version in pyproject.toml is {project}")
    return found[1]


def image_of(repository: str) -> str:
    """Return where a repository's images are published; registries know no capitals."""
    return f"ghcr.io/{repository.lower()}"


def copy_of_sources(target: Path) -> Path:
    """Copy what git has, so that a build takes nothing old and leaves nothing in the checkout."""
    listed = _run("git", "ls-files", "-co", "--exclude-standard", folder=ROOT)
    for name in listed.splitlines():
        if (ROOT / name).is_file():
            copy = target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, copy)
    return target


def wheel(source: Path, folder: Path) -> Path:
    """Build the wheel from a copy of the sources."""
    build = ("pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    _run(sys.executable, "-m", *build, "--wheel-dir", str(folder), str(source))
    (built,) = folder.glob("*.whl")
    return built


def chart(source: Path, folder: Path, *, version: str, repository: str) -> Path:
    """Package the chart with the published image as its default; the sources name no registry."""
    values = source / "values.yaml"
    image, here = image_of(repository), "  repository: kueue-fallback\n"
    if values.read_text().count(here) != 1:
        raise ReleaseError("helm/values.yaml has no line of its own for image.repository")
    values.write_text(values.read_text().replace(here, f"  repository: {image}\n"))
    versions = ("--version", version, "--app-version", version)
    _helm("package", str(source), *versions, "--destination", str(folder))
    packaged = folder / f"kueue-fallback-{version}.tgz"
    rendered = _helm("template", "kueue-fallback", str(packaged), "-n", "kueue-fallback")
    images = set(re.findall(r"^ *image: \"?([^\s\"]+)", rendered, re.MULTILINE))
    if images != {f"{image}:{version}"}:
        raise ReleaseError(f"the chart would run {', '.join(sorted(images))}")
    return packaged


def plugin(built: Path, folder: Path, platform: str, *, pythons: Sequence[str]) -> Path:
    """Pack the command line with the libraries of one platform, for several Pythons at once.

    What is compiled carries its Python in its name, so it lies side by side.
    """
    version = built.name.split("-")[1]
    archive = folder / f"kubectl-fallback_{version}_{platform.replace('-', '_')}.tar.gz"
    with tempfile.TemporaryDirectory() as scratch:
        root, wheels = Path(scratch) / "kubectl-fallback", Path(scratch) / "wheels"
        for python in pythons:
            _download(wheels, PLATFORMS[platform], python)
        for each in (built, *sorted(wheels.glob("*.whl"))):
            shutil.unpack_archive(each, root / "lib", "zip")
        # A third of all, which nothing imports; the image leaves it out, too.
        shutil.rmtree(root / "lib/kubernetes/aio")
        launcher = root / "kubectl-fallback"
        launcher.write_text(_LAUNCHER % (tuple(pythons),))
        launcher.chmod(0o755)
        shutil.copyfile(ROOT / "LICENSE", root / "LICENSE")
        with tarfile.open(archive, "w:gz") as packed:
            for path in sorted(root.iterdir()):
                packed.add(path, path.name, filter=_of_nobody)
    return archive


def _download(target: Path, tags: Sequence[str], python: str) -> None:
    flags = [word for tag in tags for word in ("--platform", tag)]
    locked = ("--require-hashes", "-r", str(ROOT / "requirements/run.txt"))
    only = ("--no-deps", "--only-binary", ":all:", "--python-version", python)
    _run(
        *(sys.executable, "-m", "pip", "download", "--quiet", *only, *flags),
        *(*locked, "--dest", str(target)),
    )


def _of_nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def krew_manifest(archives: Mapping[str, Path], *, tag: str, repository: str) -> str:
    """Return krew's manifest of the plugin, with the archives as the release has them."""
    homepage = f"https://github.com/{repository}"
    platforms = []
    for platform, archive in archives.items():
        system, _, processor = platform.partition("-")
        platforms.append(
            {
                "selector": {"matchLabels": {"os": system, "arch": processor}},
                "uri": f"{homepage}/releases/download/{tag}/{archive.name}",
                "sha256": sha256(archive),
                "bin": "kubectl-fallback",
            }
        )
    more = {"version": tag, "homepage": homepage, "platforms": platforms}
    # The template ends with `spec`.
    return _TEMPLATE.read_text() + textwrap.indent(yaml.safe_dump(more, sort_keys=False), "  ")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _helm(*words: str) -> str:
    program = str(tools.program("helm"))
    return _run(program, *words)


def _run(*command: str, folder: Path | None = None) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(command[:4])} failed:\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
