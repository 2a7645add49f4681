"""Takes part in the election of the leader, in a thread, and tells which term of leading it is.

It must not know what a leader does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from webhook.api.lease import Elector
from webhook.model.faults import Attention

_END_SECONDS: Final = 10.0


class Leadership:
    def __init__(
        self,
        elector: Elector,
        *,
        on_change: Callable[[], None],
        log: Callable[[str], None],
        uniform: Callable[[float, float], float],
    ) -> None:
        """Call *on_change*, in the thread, when leadership is gained or lost."""
        self._elector = elector
        self._on_change = on_change
        self._log = log
        self._uniform = uniform
        self._term = 0
        self._failed = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._take_part, name="lease", daemon=True)

    def start(self) -> None:
        """Start taking part in the election, unless it has been started."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Release the Lease; the caller must not act as leader any more."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(_END_SECONDS)

    def term(self) -> int:
        """Return a number that identifies this term of leading; 0: we do not lead."""
        return self._elector.term()

    def is_leader(self) -> bool:
        return self.term() > 0

    @property
    def heard_at(self) -> float:
        """Monotonic time at which another leader was last known to lead."""
        return self._elector.heard_at

    def notice(self) -> str:
        """Return why we could not lead; empty: we could."""
        trouble = self._elector.trouble
        return Attention(f"the Lease cannot be held: {trouble}") if trouble else ""

    def _take_part(self) -> None:
        while not self._ending.is_set():
            wait = self._elector.step()
            self._report()
            # Replicas that started together must not stay in step.
            self._ending.wait(wait * self._uniform(0.8, 1.0))
        self._elector.resign()

    def _report(self) -> None:
        term, notice = self.term(), self.notice()
        # The connection's message differs from try to try, so only the first is logged.
        if bool(notice) != self._failed:
            self._failed = bool(notice)
            self._log(notice or "the Lease can be held again")
        if term != self._term:
            self._term = term
            self._on_change()
