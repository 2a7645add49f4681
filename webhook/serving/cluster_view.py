"""One cluster as the handler sees it: the last snapshot, and the placements not yet part of it.

Whoever holds it guards it with a lock. There is one of the own cluster, and one of each worker
cluster behind MultiKueue that is watched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from webhook.kueue.live_occupancy import Fold
from webhook.kueue.occupancy import Occupancy
from webhook.model.queues import Arrival, Snapshot
from webhook.serving.ledger import Ledger
from webhook.state.pipe import Update, apply_update
from webhook.state.seen import Seen


class Standing:
    def __init__(self, ttl_seconds: float, *, healthy_seconds: float = -1.0) -> None:
        """Begin with an empty snapshot; a placement is forgotten after *ttl_seconds*.

        While the snapshot is no older than *healthy_seconds* it is forgotten after a few seconds.
        """
        self._healthy_seconds = healthy_seconds
        self.snapshot = Snapshot()
        self.forecasts_as_of = 0.0
        self._ledger = Ledger(ttl_seconds=ttl_seconds)
        self._unforeseen = Ledger(ttl_seconds=ttl_seconds)
        """Placements that the forecasts in use do not contain."""
        self._fold = Fold()

    @property
    def occupancy(self) -> Occupancy:
        return self._fold.occupancy

    def __len__(self) -> int:
        """Count the placements."""
        return len(self._ledger)

    def update(self, update: Update, now: float) -> Sequence[Arrival]:
        """Take over what was published; return the placements whose Workloads never came."""
        self.snapshot = apply_update(self.snapshot, update)
        if update.synced:
            self.forecasts_as_of = update.forecasts_as_of
        self._fold.drop(self._ledger.seen(update.seen, now))
        self._fold.forget(self._unforeseen.seen(update.foreseen))
        gone = self._drop_expired(now)
        self._fold.adopt(self.snapshot)
        return gone

    def expire(self, now: float) -> Sequence[Arrival]:
        """Forget and return the placements whose Workloads never came."""
        if gone := self._drop_expired(now):
            self._fold.adopt(self.snapshot)
        return gone

    def enter(self, arrival: Arrival, now: float) -> None:
        self._ledger.enter(arrival, now)
        self._fold.add(arrival)
        if self._fold.foresee(arrival, now):
            self._unforeseen.enter(arrival, now)

    def has_room(self, arrival: Arrival) -> bool:
        """Tell whether one more placement of its namespace counts."""
        return self._ledger.has_room(arrival)

    def is_healthy(self, now: float) -> bool:
        return now - self.snapshot.as_of <= self._healthy_seconds

    def drop(self, placements: Iterable[Arrival]) -> None:
        """Forget placements that have come to nothing."""
        if gone := self._ledger.drop(placements):
            self._fold.drop(gone)
            self._fold.forget(self._unforeseen.drop(gone))
            self._fold.adopt(self.snapshot)

    def knows(self, key: str) -> bool:
        return self._ledger.knows(key)

    def leave(self, seen: Iterable[Seen]) -> Sequence[tuple[Seen, Arrival]]:
        """Forget and return placements that have turned up in another cluster."""
        found = [(each, gone) for each in seen for gone in self._ledger.seen((each,))]
        if gone := [arrival for _, arrival in found]:
            self._fold.drop(gone)
            self._fold.forget(gone)
            self._fold.adopt(self.snapshot)
        return found

    def _drop_expired(self, now: float) -> Sequence[Arrival]:
        gone = self._ledger.expire(now, healthy=self.is_healthy(now))
        self._fold.drop(gone)
        self._fold.forget(self._unforeseen.drop(gone))
        if late := self._unforeseen.expire(now):
            self._fold.forget(late)
        return gone
