"""How many waited in each ClusterQueue over the last day, as far as this process has seen it.

The observer's own thread counts once a minute, whether somebody asks or not; nothing is stored
elsewhere. Any thread may read: what is published is replaced, never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from webhook.model.queues import Held
from webhook.state.snapshot import Snapshot

STEP_SECONDS: Final = 1800
STEPS: Final = 48
"""A day."""
SAMPLE_SECONDS: Final = 60.0
Series: TypeAlias = tuple[int | None, ...]
"""The most that waited at once in each step, the last one now; None: nobody counted."""
Place: TypeAlias = tuple[str, str]
"""Worker cluster, empty: this one; and ClusterQueue."""
_NOTHING: Final = Held()


def pending_in(snapshot: Snapshot, name: str) -> int:
    """Return how many wait in a ClusterQueue."""
    competing = snapshot.workloads.competing.get(name, ())
    return snapshot.workloads.held.get(name, _NOTHING).pending + sum(
        arrival.count for arrival in competing
    )


class QueueHistory:
    def __init__(self) -> None:
        self._due = 0.0
        self._step = 0
        self._series: Mapping[Place, Series] = {}

    def take(self, clusters: Mapping[str, Snapshot | None], unix: float) -> None:
        """Count the pending Workloads of each of the *clusters*, if a minute has passed."""
        # A clock that was set back must not keep it from counting.
        if self._due - SAMPLE_SECONDS <= unix < self._due:
            return
        self._due = unix + SAMPLE_SECONDS
        step = int(unix // STEP_SECONDS)
        passed = min(max(0, step - self._step), STEPS)
        self._step = max(step, self._step)
        known = {
            (cluster, name): pending_in(counted, name)
            for cluster, counted in clusters.items()
            if counted is not None
            for name in counted.setup.cluster_queues
        }
        self._series = {
            place: _added(self._series.get(place, ()), pending, passed)
            for place, pending in known.items()
        }

    @property
    def series(self) -> Mapping[Place, Series]:
        """Return what was counted of each ClusterQueue, the oldest first."""
        return self._series


def _added(series: Series, pending: int, passed: int) -> Series:
    """Return a series with one more count, *passed* steps after its last one."""
    if series and not passed:
        last = series[-1] or 0
        return series if pending <= last else (*series[:-1], pending)
    uncounted = (None,) * (passed - 1) if series else ()
    return (*series, *uncounted, pending)[-STEPS:]
