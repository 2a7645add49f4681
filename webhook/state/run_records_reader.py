"""Reads the ConfigMaps with the records of runs, by name, so that no right to list is needed.

A process that follows Workloads learns of new runs by itself; the records hold what was before it
started, so reading them every ten minutes is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from webhook.api.kubernetes_api import ClusterError, Forbidden, KubernetesApi, NotServed
from webhook.api.resources import RUN_TIMES, ReadObject
from webhook.api.watch import WatchUpdate
from webhook.learn.run_records import SHARDS, name_of
from webhook.state.readers import read_by_kind

AGAIN_SECONDS: Final = (500.0, 700.0)
"""Range of the wait after a successful read."""
RETRY_SECONDS: Final = (4.0, 8.0)


class Shard(NamedTuple):
    entry: ReadObject
    version: str
    """The resourceVersion; empty: there is none yet."""
    text: str = ""
    """The records as they are written there."""


def path_of(namespace: str, shard: int | None = None) -> str:
    """Return the path of one shard; without *shard*, of all ConfigMaps."""
    place = f"/api/v1/namespaces/{namespace}/configmaps"
    return place if shard is None else f"{place}/{name_of(shard)}"


def fetch_shard(transport: KubernetesApi, namespace: str, shard: int) -> Shard:
    """Read one shard; one that does not exist is empty.

    Raises:
        ClusterError: it cannot be read.

    """
    try:
        source = transport.get(path_of(namespace, shard))
    except NotServed:
        return Shard(ReadObject((namespace, name_of(shard)), {}), "")
    version = str((source.get("metadata") or {}).get("resourceVersion") or "")
    data = source.get("data")
    text = str(data.get("classes") or "") if isinstance(data, dict) else ""
    return Shard(read_by_kind(RUN_TIMES, source), version, text)


class RunRecordsReader:
    """Reads the records again and again, in the place of a ``Follower``."""

    def __init__(
        self,
        namespace: str,
        transport: KubernetesApi,
        emit: Callable[[WatchUpdate], None],
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        uniform: Callable[[float, float], float],
    ) -> None:
        self._namespace = namespace
        self._transport = transport
        self._emit = emit
        self._clock = clock
        self._sleep = sleep
        self._uniform = uniform

    def run(self) -> None:
        while True:
            self.step()

    def step(self) -> None:
        """Read all shards, and wait until it is time again."""
        at, wait = self._clock(), AGAIN_SECONDS
        try:
            shards = [
                fetch_shard(self._transport, self._namespace, number) for number in range(SHARDS)
            ]
            entries = tuple(shard.entry for shard in shards)
            self._emit(WatchUpdate(kind=RUN_TIMES, at=at, entries=entries))
        except ClusterError as error:
            unreadable = isinstance(error, Forbidden)
            wait = AGAIN_SECONDS if unreadable else RETRY_SECONDS
            self._emit(WatchUpdate(kind=RUN_TIMES, at=at, error=str(error), unreadable=unreadable))
        self._sleep(self._uniform(*wait))
