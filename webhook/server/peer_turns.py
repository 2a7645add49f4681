"""A queue in which those who wait are served in turn by peer, however much one peer sends.

It knows no sockets and no messages.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

Waiting = TypeVar("Waiting")


class TurnsByPeer(Generic[Waiting]):
    """One of each peer, then again one of each; of one peer the first comes first."""

    def __init__(self) -> None:
        # In the order in which the peers have their next turns; none is empty.
        self._of_peers: dict[str, deque[Waiting]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of_peers.values()))

    def append(self, peer: str, waiting: Waiting) -> None:
        self._of_peers.setdefault(peer, deque()).append(waiting)

    def popleft(self) -> Waiting:
        peer = next(iter(self._of_peers))
        line = self._of_peers.pop(peer)
        first = line.popleft()
        if line:
            self._of_peers[peer] = line
        return first
