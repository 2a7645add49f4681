"""How often what runs on given flavors is interrupted, as on spot capacity, by evictions seen.

Preemption is no interruption of that kind: it is between Jobs, and forecast by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from webhook.learn.run_records import ClassRecord, unpack_runs
from webhook.model import fields
from webhook.model.costs.prices import HOUR, SeenInterruptions
from webhook.model.forecasts import AT_LEVEL, IN_CLUSTER

_NODE_FAILURES: Final = "NodeFailures"
_PODS_LOST: Final = ("PodsReadyTimeout", "WaitForRecovery")
"""Why Kueue evicts, and the underlying cause: the pods were ready once, and did not come back."""
_MOST: Final = 255


def evictions_of(status: Mapping[str, Any]) -> int:
    """Return how often a Workload was evicted as its Nodes or pods were lost."""
    stats = fields.mapping(status, "schedulingStats", "status")
    count = sum(
        fields.integer(eviction, "count", here) or 0
        for eviction, here in fields.objects(stats, "evictions", "status.schedulingStats")
        if _is_loss(eviction, here)
    )
    return min(count, _MOST)


def _is_loss(eviction: Mapping[str, Any], path: str) -> bool:
    reason = fields.text(eviction, "reason", path)
    cause = fields.text(eviction, "underlyingCause", path)
    return reason == _NODE_FAILURES or (reason, cause) == _PODS_LOST


class Interruptions:
    """Sums over all classes, by flavor; kept up to date record by record."""

    def __init__(self) -> None:
        self._sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        """Flavor to interruptions and hours."""
        self._published: Mapping[str, SeenInterruptions] = {}
        self._is_changed = False

    def take(self, before: ClassRecord | None, after: ClassRecord | None) -> None:
        """Count a record instead of what it was before; None: there is none."""
        told = [(each.runs, each.evicted) for each in (before, after) if each is not None]
        if len(told) == 2 and told[0] == told[1]:  # noqa: PLR2004 - both
            return
        for record, sign in ((before, -1), (after, 1)):
            for flavors, count, hours in _seen(record) if record is not None else ():
                for flavor in flavors.split(","):
                    self._sums[flavor][0] += sign * count
                    self._sums[flavor][1] += sign * hours
        self._is_changed = True

    def seen(self) -> Mapping[str, SeenInterruptions]:
        """Return what was seen by flavor; the same mapping as before if nothing has changed."""
        if self._is_changed:
            self._is_changed = False
            self._published = {
                flavor: SeenInterruptions(round(count), round(hours, 1))
                for flavor, (count, hours) in self._sums.items()
                if hours > 0
            }
        return self._published


def _seen(record: ClassRecord) -> Iterable[tuple[str, int, float]]:
    """Yield flavors, with interruptions and hours of the runs that are kept of them."""
    for flavors, packed in record.runs.items():
        # The same runs, told apart by where they were.
        if IN_CLUSTER in flavors or AT_LEVEL in flavors:
            continue
        runs = unpack_runs(packed)
        kept = {(run.finished, run.uid) for run in runs}
        evicted = unpack_runs(record.evicted.get(flavors, b""))
        count = sum(run.seconds for run in evicted if (run.finished, run.uid) in kept)
        yield flavors, count, sum(run.seconds for run in runs) / HOUR
