"""Dry runs for the console: one at a time, and resting for several times as long as each took.

A review counts all that waits anew here, which takes CPU time that the observer needs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from webhook.flow import create
from webhook.model.decision import CreateOutcome
from webhook.model.requester import Requester
from webhook.state.feed import Counted

REST: Final = 10.0
PATIENCE_SECONDS: Final = 2.0
"""A caller who would wait longer is told to try again."""


class DryRuns:
    def __init__(
        self,
        counted: Callable[[], Counted | None],
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
        self, source: Mapping[str, Any], requester: Requester | None, counted: Counted
    ) -> CreateOutcome:
        began = self._clock()
        snapshot = replace(counted.snapshot, forecasts=counted.forecasts)
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
