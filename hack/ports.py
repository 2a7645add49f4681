"""Lease free TCP ports on loopback, so that several control planes can run side by side."""

import contextlib
import fcntl
import os
import random
import socket
from typing import Final

from hack import tools

# Below the ephemeral ports, so that no outgoing connection takes one between stop and start.
RANGE: Final = range(12_000, 32_000)


class Ports:
    """Ports that no other holder of leases gets; kept until `release` or the process's end."""

    def __init__(self) -> None:
        # Numbers, as files would warn that they are open where they are held until the end.
        self._leases: list[int] = []

    def lease(self) -> int:
        while True:
            port = random.choice(RANGE)  # noqa: S311 - nothing secret
            if self._lock(port) and _is_free(port):
                return port

    def release(self) -> None:
        for lease in self._leases:
            os.close(lease)
        self._leases.clear()

    def _lock(self, port: int) -> bool:
        folder = tools.cache_folder() / "ports"
        folder.mkdir(parents=True, exist_ok=True)
        lease = os.open(folder / str(port), os.O_WRONLY | os.O_CREAT)
        try:
            fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lease)
            return False
        self._leases.append(lease)
        return True


def _is_free(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
