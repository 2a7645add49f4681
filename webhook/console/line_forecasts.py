"""Forecasts who starts when for the console, only while somebody asks.

The Workloads come from the observer's own thread, which alone may count them. A forecast of a long
queue takes CPU time that the observer needs, so it rests for several times as long afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from webhook.model.queues import Snapshot
from webhook.state.feed import Counted
from webhook.state.queue_contents import QueueContents
from webhook.state.waiting_line import WaitingWorkload, waiting_in

FRESH_SECONDS: Final = 2.0
"""So old a forecast may at least be, as those of the observer itself."""
SAME_SECONDS: Final = 0.5
"""For so long all are told the same."""
REST: Final = 10.0
"""So many times as long as it took, a forecast serves."""
PATIENCE_SECONDS: Final = 2.0
"""How long an answer waits for the observer's thread, which publishes twice a second."""


class _Offered(NamedTuple):
    snapshot: Snapshot
    contents: Mapping[str, QueueContents]


class LineForecasts:
    """Who waits, for any thread; ``offer`` is called by the observer's own."""

    def __init__(self, *, clock: Callable[[], float], unix: Callable[[], float]) -> None:
        """Take seconds of the monotonic *clock* and since 1970 (*unix*)."""
        self._clock, self._unix = clock, unix
        self._asked = threading.Event()
        self._came = threading.Event()
        self._offered: _Offered | None = None
        self._lock = threading.Lock()
        self._known: tuple[WaitingWorkload, ...] | None = None
        self._shown: tuple[WaitingWorkload, ...] | None = None
        self._shown_until = 0.0
        self._at, self._until = 0.0, 0.0
        """When what is known was forecast, and for how long it serves."""

    def offer(self, counted: Counted | None, contents_of: Callable[[str], QueueContents]) -> None:
        """Hand over who waits, if that was asked for."""
        if not self._asked.is_set():
            return
        self._asked.clear()
        if counted is not None:
            names = counted.snapshot.cluster_queues
            contents = {name: contents_of(name) for name in names}
            self._offered = _Offered(counted.snapshot, contents)
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
