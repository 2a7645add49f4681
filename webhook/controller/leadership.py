"""A thread that strives for the Lease; everyone else only asks whether we lead."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from webhook.api.lease import Elector

ANSWER_SECONDS: Final = 3.0
"""For the calls about the Lease: one that stays unanswered leaves time for another before
leadership must be given up."""
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
        """Call *on_change* from the thread when leadership was gained or lost."""
        self._elector = elector
        self._on_change = on_change
        self._log = log
        self._uniform = uniform
        self._term = 0
        self._failed = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._strive, name="lease", daemon=True)

    def start(self) -> None:
        """Strive from now on, unless it does so already."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Give the Lease back; whoever calls must not act on leadership any more."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(_END_SECONDS)

    def term(self) -> int:
        """Tell one time of leading from another; 0: we do not lead."""
        return self._elector.term()

    def is_leader(self) -> bool:
        return self.term() > 0

    @property
    def heard_at(self) -> float:
        """When another leader last gave a sign of life, by the monotonic clock."""
        return self._elector.heard_at

    def notice(self) -> str:
        """Say why we could not lead; empty: we could."""
        trouble = self._elector.trouble
        return f"the Lease cannot be held: {trouble}" if trouble else ""

    def _strive(self) -> None:
        while not self._ending.is_set():
            wait = self._elector.step()
            self._report()
            # Replicas that started together shall not go on asking together.
            self._ending.wait(wait * self._uniform(0.8, 1.0))
        self._elector.resign()

    def _report(self) -> None:
        term, notice = self.term(), self.notice()
        # The connection's own words differ from try to try; said once, they stay said.
        if bool(notice) != self._failed:
            self._failed = bool(notice)
            self._log(notice or "the Lease can be held again")
        if term != self._term:
            self._term = term
            self._on_change()
