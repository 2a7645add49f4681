"""One cluster that `make up` leaves running: where its files lie, and who may touch them."""

import contextlib
import dataclasses
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hack.processes import end_leftovers

ROOT: Final = Path(__file__).resolve().parent.parent
DELETE_SECONDS: Final = 30.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The folder of one cluster: `.cluster`, or `.cluster-NAME` for a second one beside it."""

    name: str = ""

    @property
    def folder(self) -> Path:
        return ROOT / (f".cluster-{self.name}" if self.name else ".cluster")

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def kubeconfig(self) -> Path:
        """Written last: when it exists, the cluster is up."""
        return self.folder / "kubeconfig"

    @property
    def programs(self) -> Path:
        return self.folder / "bin"

    @property
    def endpoints(self) -> Path:
        return self.folder / "endpoints.json"

    @property
    def ca_certificate(self) -> Path:
        return self.folder / "webhook-ca.crt"

    @property
    def log(self) -> Path:
        return self.folder / "keeper.log"

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the cluster's lock; raise BlockingIOError when another process does.

        Yields the descriptor: a child that inherits it goes on holding the lock.
        """
        while True:
            self.folder.mkdir(exist_ok=True)
            with (self.folder / "lock").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_current(file.fileno()):
                    yield file.fileno()
                    return

    def clear(self) -> int:
        """End all that runs for this cluster and delete its files but the lock's."""
        ended = end_leftovers(self.state)
        for path in self.folder.iterdir():
            if path.is_dir():
                _delete(path)
            elif path.name != "lock":
                path.unlink()
        return ended

    def remove(self) -> int:
        """End all that runs for this cluster and delete its folder; return how many ran."""
        ended = end_leftovers(self.state)
        _delete(self.folder)
        return ended

    def _is_current(self, descriptor: int) -> bool:
        """Whether the locked file is still the one in the folder, which may have been deleted."""
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(descriptor), (self.folder / "lock").stat())
        return False


def _delete(folder: Path) -> None:
    """Delete a folder; a thread of a program that was killed may still be writing to it."""
    deadline = time.monotonic() + DELETE_SECONDS
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=time.monotonic() < deadline)
        time.sleep(0.02)
