"""When the Workloads that wait in worker clusters are expected to start there.

A cluster is forecast with all that wait in it, and not anew for each of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from math import inf
from typing import Final, NamedTuple

from webhook.api.resources import Key
from webhook.controller.world import World
from webhook.state.cluster_watches import ClusterWatches
from webhook.state.waiting_line import waiting_in

STEP_SECONDS: Final = 10.0
REST: Final = 20.0
"""So many times as long as it took, a forecast rests: at most a twentieth of a CPU's time."""


class _KnownStarts(NamedTuple):
    until: float
    """Until when it rests, monotonic."""
    starts: Mapping[Key, float]
    """Of each Workload, in seconds since 1970; inf: it is not expected to start."""


class StartsInWorkers:
    def __init__(self, workers: ClusterWatches) -> None:
        self._workers = workers
        self._known: dict[str, _KnownStarts] = {}

    def of(self, cluster: str, key: Key, world: World) -> float | None:
        """Return in how many seconds a Workload that waits in a cluster starts there.

        inf: it does not, as far as is known; None: it does not wait there.
        """
        known = self._known.get(cluster)
        if known is None or world.now >= known.until:
            known = self._known[cluster] = self._forecast(cluster, world)
        start = known.starts.get(key)
        return None if start is None else max(0.0, start - world.unix)

    def _forecast(self, cluster: str, world: World) -> _KnownStarts:
        began, snapshot = time.monotonic(), self._workers.counted().get(cluster)
        if snapshot is None:
            return _KnownStarts(until=-inf, starts={})
        # The clock of ``Snapshot.as_of`` is the same for all clusters.
        unix = world.unix - (world.now - snapshot.as_of)
        contents = {
            queue: self._workers.contents_of(cluster, queue)
            for queue in snapshot.forecasts.keys() & snapshot.setup.cluster_queues.keys()
        }
        starts = {
            (each.workload.namespace, each.workload.name): unix
            + (each.start.seconds if each.start.is_known else inf)
            for each in waiting_in(contents, snapshot, unix)
        }
        took = time.monotonic() - began
        return _KnownStarts(until=world.now + max(STEP_SECONDS, REST * took), starts=starts)
