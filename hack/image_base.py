"""Make a base for the image from Debian's packages alone, once, into the cache.

It stands in for the official Python image of the same Debian where no registry can be reached.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Final

from hack import tools
from hack.image_builder import Builder

PACKAGES: Final = "python3,python3-venv,ca-certificates"


class MissingError(Exception):
    """A program is not there; the text says which, and how to get it."""


def make(builder: Builder, suite: str) -> str:
    """Put the base into the builder's store; return its name."""
    name = f"localhost/kueue-fallback-base:{suite}"
    if builder.run("images", "--quiet", "--filter", f"reference={name}"):
        return name
    archive = _archive(suite)
    container = builder.run("from", "scratch")
    try:
        builder.run("add", "--quiet", container, str(archive), "/")
        builder.run("commit", "--quiet", container, name)
    finally:
        builder.run("rm", container)
    return name


def _archive(suite: str) -> Path:
    archive = tools.cache_folder() / "image" / f"{suite}.tar"
    if archive.exists():
        return archive
    program = shutil.which("mmdebstrap")
    if program is None:
        raise MissingError("mmdebstrap is missing; on Debian: apt-get install mmdebstrap")
    archive.parent.mkdir(parents=True, exist_ok=True)
    unfinished = archive.with_suffix(".unfinished.tar")
    command = [program, "--quiet", "--variant=essential", f"--include={PACKAGES}"]
    subprocess.run([*command, suite, str(unfinished)], check=True)
    return unfinished.rename(archive)
