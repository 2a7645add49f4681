"""Finds the Workloads of a Job for the console, only while somebody asks.

The observer's own thread alone may read Workloads; it looks for all Jobs asked for at once, so
that those who ask cost it one pass over them for each of its updates at most.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from webhook.api.resources import Key
from webhook.state.workload import Workload

PATIENCE_SECONDS: Final = 2.0
"""How long an answer waits for the observer's thread, which publishes twice a second."""


class JobWorkloads:
    """Workloads by Job, for any thread; ``offer`` is called by the observer's own."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asked: dict[Key, int] = {}
        """Namespace and reference of a Job to how many ask for it."""
        self._found: Mapping[Key, tuple[Workload, ...]] = {}
        self._round = 0
        """How often it was looked for."""

    def offer(self, workloads: Callable[[], Iterable[Workload]]) -> None:
        """Look for the Jobs that are asked for, if there are any."""
        with self._changed:
            asked = set(self._asked)
        if not asked:
            return
        found: dict[Key, tuple[Workload, ...]] = dict.fromkeys(asked, ())
        for workload in workloads():
            job = workload.namespace, workload.job
            if job in asked:
                found[job] = (*found[job], workload)
        with self._changed:
            self._found, self._round = found, self._round + 1
            self._changed.notify_all()

    def of(self, namespace: str, job: str) -> tuple[Workload, ...] | None:
        """Return a Job's Workloads, the oldest first; None: nobody has looked in time."""
        key = namespace, job
        with self._changed:
            self._asked[key] = self._asked.get(key, 0) + 1
            first = self._round
            # A pass that had begun before does not look for this one.
            has_come = self._changed.wait_for(
                lambda: self._round > first and key in self._found, PATIENCE_SECONDS
            )
            found = self._found[key] if has_come else ()
            self._asked[key] -= 1
            if not self._asked[key]:
                del self._asked[key]
        return tuple(sorted(found, key=lambda each: each.created)) if has_come else None
