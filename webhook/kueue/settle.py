"""Fold a snapshot's pending Workloads into its counts once, where the snapshot is made.

The observer does this, so that the server finds them counted: its reviews cost the same with one
pending Workload and with twenty thousand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from webhook.kueue.live_occupancy import Fold
from webhook.model.queues import Arrival, Snapshot

_NOBODY: Mapping[str, tuple[Arrival, ...]] = {}
"""One value, so that it is seen not to change."""


class Settler:
    """Remembers what the last snapshot came to, so that the next one costs what has changed."""

    def __init__(self) -> None:
        self._fold = Fold()

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """Return the same snapshot in which nobody competes, counted as Kueue would take them."""
        self._fold.adopt(snapshot)
        return replace(snapshot, held=self._fold.occupancy.holdings, competing=_NOBODY)
