"""What the console makes only while somebody asks: who starts when, a Job's Workloads, dry runs.

Workloads are read by the observer's own thread alone, in its next update: it takes a Job's from one
pass over all that were asked for. Forecasts and dry runs take CPU time that the observer needs, so
each is followed by a rest of several times as long as it took.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from webhook.api.resources import Key
from webhook.flow import create
from webhook.model.decision import CreateOutcome
from webhook.model.job import Requester
from webhook.state.queue_counts import QueueContents
from webhook.state.snapshot import Snapshot
from webhook.state.waiting_line import WaitingWorkload, waiting_in
from webhook.state.workload import Workload

PATIENCE_SECONDS: Final = 2.0
"""How long an answer waits: for the observer's thread, which publishes twice a second, or for its
turn. A caller who would wait longer is told to try again."""
REST: Final = 10.0
"""So many times as long as it took, a forecast serves, and no dry run follows another."""
FRESH_SECONDS: Final = 2.0
"""So old a forecast may at least be, as those of the observer itself."""
SAME_SECONDS: Final = 0.5
"""For so long all are told the same."""


class LineForecasts:
    """Who waits, for any thread; ``offer`` is called by the observer's own."""

    def __init__(self, *, clock: Callable[[], float], unix: Callable[[], float]) -> None:
        """Take seconds of the monotonic *clock* and since 1970 (*unix*)."""
        self._clock, self._unix = clock, unix
        self._asked = threading.Event()
        self._came = threading.Event()
        self._offered: tuple[Snapshot, Mapping[str, QueueContents]] | None = None
        self._lock = threading.Lock()
        self._known: tuple[WaitingWorkload, ...] | None = None
        self._shown: tuple[WaitingWorkload, ...] | None = None
        self._shown_until = 0.0
        self._at, self._until = 0.0, 0.0
        """When what is known was forecast, and for how long it serves."""

    def offer(self, counted: Snapshot | None, contents_of: Callable[[str], QueueContents]) -> None:
        """Hand over who waits, if that was asked for."""
        if not self._asked.is_set():
            return
        self._asked.clear()
        if counted is not None:
            names = counted.setup.cluster_queues
            contents = {name: contents_of(name) for name in names}
            self._offered = counted, contents
        self._came.set()

    def waiting(self) -> tuple[WaitingWorkload, ...] | None:
        """Return who waits, with starts from now on; None: that is not known yet."""
        with self._lock:
            if self._clock() >= self._until:
                self._forecast()
            elif self._clock() < self._shown_until:
                return self._shown
            now = self._clock()
            known, passed = self._known, now - self._at
            self._shown = None if known is None else tuple(each.later(passed) for each in known)
            self._shown_until = now + SAME_SECONDS
            return self._shown

    def _forecast(self) -> None:
        self._came.clear()
        self._asked.set()
        if not self._came.wait(PATIENCE_SECONDS) or self._offered is None:
            self._known = None
            return
        snapshot, contents = self._offered
        self._offered = None
        began = self._clock()
        # The snapshot is as old as its watches' last signs of life.
        unix = self._unix() - (began - snapshot.as_of)
        self._known, self._at = waiting_in(contents, snapshot, unix), snapshot.as_of
        spent = self._clock() - began
        self._until = began + max(FRESH_SECONDS, REST * spent)


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

    def workloads_of(self, namespace: str, job: str) -> tuple[Workload, ...] | None:
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


class DryRuns:
    def __init__(
        self,
        counted: Callable[[], Snapshot | None],
        own_namespace: str,
        *,
        clock: Callable[[], float],
        unix: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        """Decide on what *counted* returns, in seconds of the monotonic *clock* and since 1970."""
        self._counted, self._own_namespace = counted, own_namespace
        self._clock, self._unix, self._sleep = clock, unix, sleep
        self._lock = threading.Lock()
        self._next = 0.0

    def decide(
        self, source: Mapping[str, Any], requester: Requester | None
    ) -> CreateOutcome | None:
        """Return what would be decided; None: too many ask, or nothing is known yet.

        Raises:
            FieldError: something in the Job cannot be read.

        """
        counted = self._counted()
        if counted is None or not self._lock.acquire(timeout=PATIENCE_SECONDS):
            return None
        try:
            rest = self._next - self._clock()
            if rest > PATIENCE_SECONDS:
                return None
            self._sleep(max(0.0, rest))
            return self._decided(source, requester, counted)
        finally:
            self._lock.release()

    def _decided(
        self, source: Mapping[str, Any], requester: Requester | None, snapshot: Snapshot
    ) -> CreateOutcome:
        began = self._clock()
        try:
            return create.dry_run(
                source,
                snapshot,
                unix=self._unix() - (began - snapshot.as_of),
                requester=requester,
                own_namespace=self._own_namespace,
            )
        finally:
            self._next = self._clock() + REST * (self._clock() - began)
