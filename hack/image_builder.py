"""The programs that build images, and what an image is made of.

All run the same Dockerfile; which of them is there decides only the command line.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
BUILDERS: Final = ("buildah", "podman", "docker")
STDERR: Final = 2
# The date of all files, as in the Dockerfile: the first that a zip file can hold.
EPOCH: Final = 315532800
# pip's certificates on this machine, as a build sees them.
PIP_CERT: Final = "/run/pip-cert.pem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """A program that builds images, and where it keeps them; empty: where it always does."""

    program: str
    store: str = ""

    def command(self, *arguments: str) -> list[str]:
        kept = ["--root", f"{self.store}/root", "--runroot", f"{self.store}/run"]
        return [self.program, *(kept if self.store else []), *arguments]

    def run(self, *arguments: str) -> str:
        """Run it to the end; return what it printed, its complaints go to stderr."""
        command = self.command(*arguments)
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What to build."""

    tag: str
    base: str = ""
    revision: str = "unknown"
    oci: bool = False
    cached: bool = True
    context: Path = ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """An image in a builder's store. *layers* and *sizes* (bytes) go from the lowest up."""

    tag: str
    digest: str
    layers: tuple[str, ...]
    sizes: tuple[int, ...]
    config: Mapping[str, Any]


def find_builder(store: str = "") -> Builder | None:
    found = (program for program in BUILDERS if shutil.which(program))
    program = next(found, None)
    return None if program is None else Builder(program=program, store=store)


def build(builder: Builder, wish: Wish) -> None:
    arguments = {"VERSION": project_version(), "REVISION": wish.revision}
    if wish.base:
        arguments["BASE"] = wish.base
    index, certificates = _pip_settings()
    if index:
        arguments["PIP_INDEX_URL"] = index
    options = [f"--build-arg={name}={value}" for name, value in arguments.items()]
    if not wish.cached:
        options.append("--no-cache")
    if builder.program != "docker":
        options += _mounted(certificates)
        options += ["--layers", f"--format={'oci' if wish.oci else 'docker'}"]
        options += [f"--timestamp={EPOCH}", f"--isolation={_isolation()}"]
    command = builder.command("build", *options, "--tag", wish.tag, str(wish.context))
    subprocess.run(command, stdout=STDERR, check=True)


def _mounted(certificates: str) -> list[str]:
    """Let pip trust whom it trusts on this machine; docker cannot mount a file for it."""
    if not certificates:
        return []
    return [f"--volume={certificates}:{PIP_CERT}:ro", f"--build-arg=PIP_CERT={PIP_CERT}"]


def built(builder: Builder, tag: str) -> Built:
    """Look an image up; of the builders only buildah tells all this."""
    found = json.loads(builder.run("inspect", "--type", "image", tag))
    manifest = json.loads(found["Manifest"])
    return Built(
        tag=tag,
        digest=found["FromImageDigest"],
        layers=tuple(json.loads(found["Config"])["rootfs"]["diff_ids"]),
        sizes=tuple(layer["size"] for layer in manifest["layers"]),
        config=found["Docker"]["config"] if "Docker" in found else {},
    )


def project_version() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def git_revision() -> str:
    command = ["git", "rev-parse", "HEAD"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def _isolation() -> str:
    """How steps are kept apart; chroot works in a container too, where all others may not."""
    return os.environ.get("BUILDAH_ISOLATION", "chroot")


def _pip_settings() -> tuple[str, str]:
    """Find this machine's index and file of certificates, if pip has been told of any."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = dict(re.findall(r"\.(cert|index-url)='(.+)'$", listed, re.MULTILINE))
    return found.get("index-url", ""), found.get("cert", "")
