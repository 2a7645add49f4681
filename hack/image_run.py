"""Run an image as a cluster would: any user, read-only root, no capabilities, /tmp of its own.

Only the network is the machine's, so that what listens in it can be called on loopback.
"""

import contextlib
import json
import random
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hack.image_builder import Builder, Built

RUNTIMES: Final = ("runc", "crun")
SPACES: Final = ("mount", "pid", "ipc", "uts")
TEMPORARY: Final = {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"}  # noqa: S108
MOUNTS: Final = (
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
    {**TEMPORARY, "options": ["nosuid", "nodev", "mode=1777"]},
)


def find_runtime() -> str:
    """Find what runs containers without a daemon; empty: there is nothing."""
    return next((program for program in RUNTIMES if shutil.which(program)), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """An image, unpacked."""

    image: Built
    folder: Path

    def run(self, *arguments: str, **given: Any) -> subprocess.CompletedProcess[str]:
        """Run to the end; *arguments* replace the image's CMD."""
        with self._bundle(arguments, **given) as command:
            return subprocess.run(command, capture_output=True, text=True, check=False)

    @contextlib.contextmanager
    def start(self, *arguments: str, **given: Any) -> Iterator[subprocess.Popen[str]]:
        """Run beside the caller, ended with SIGTERM."""
        with self._bundle(arguments, **given) as command:
            pipe = subprocess.PIPE
            with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
                try:
                    yield process
                finally:
                    process.terminate()

    @contextlib.contextmanager
    def _bundle(
        self, arguments: Sequence[str], *, entry: Sequence[str] = (), files: Path | None = None
    ) -> Iterator[list[str]]:
        """Describe a container; *entry* replaces all that it runs, *files* is seen as /given."""
        config = self.image.config
        command = entry or [*config["Entrypoint"], *(arguments or config["Cmd"])]
        with tempfile.TemporaryDirectory(prefix="kueue-fallback-run-") as folder:
            spec = _spec(self.folder, command, config["Env"], files)
            (Path(folder) / "config.json").write_text(json.dumps(spec))
            runtime = [find_runtime(), "--root", f"{folder}/state", "run", "--bundle", folder]
            yield [*runtime, f"kueue-fallback-{uuid.uuid4().hex[:8]}"]


@contextlib.contextmanager
def unpacked(builder: Builder, image: Built) -> Iterator[Root]:
    container = builder.run("from", "--pull-never", image.tag)
    try:
        yield Root(image=image, folder=Path(builder.run("mount", container)))
    finally:
        builder.run("rm", container)


def _spec(
    root: Path, command: Sequence[str], environment: Sequence[str], files: Path | None
) -> Mapping[str, Any]:
    mounts: list[Any] = list(MOUNTS)
    if files is not None:
        bound = {"type": "bind", "source": str(files), "options": ["bind", "ro"]}
        mounts.append({"destination": "/given", **bound})
    return {
        "ociVersion": "1.0.0",
        "process": {
            # As OpenShift does it: a user that nobody knows, in the group root.
            "user": {"uid": random.randrange(100_000, 2**31), "gid": 0},  # noqa: S311
            "args": list(command),
            "env": list(environment),
            "cwd": "/",
            "capabilities": {},
            "noNewPrivileges": True,
        },
        "root": {"path": str(root), "readonly": True},
        "mounts": mounts,
        "linux": {"namespaces": [{"type": space} for space in SPACES]},
    }
