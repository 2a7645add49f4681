"""The handler's view of each cluster, this one or a MultiKueue worker: snapshot and placements.

A Job that goes to a worker cluster counts there until its Workload appears, which takes a second
or two. While it waits for the manager's quota it is sent to no cluster and counts at the manager
alone, so that each waiting Job counts once. Time comes in; the caller holds the lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from webhook.decide import remote_options
from webhook.kueue import occupancy
from webhook.kueue.live_occupancy import LiveOccupancy
from webhook.kueue.occupancy import Occupancy
from webhook.model.queues import Arrival, Snapshot
from webhook.serving.ledger import Ledger
from webhook.state.pipe import Update, apply_update
from webhook.state.workload import SeenWorkload


class ClusterView:
    def __init__(self, ttl_seconds: float, *, healthy_seconds: float = -1.0) -> None:
        """Begin with an empty snapshot; a placement expires after *ttl_seconds*.

        While the snapshot is at most *healthy_seconds* old, it expires after a few seconds.
        """
        self._healthy_seconds = healthy_seconds
        self.snapshot = Snapshot()
        self.forecasts_as_of = 0.0
        self._ledger = Ledger(ttl_seconds=ttl_seconds)
        self._unforeseen = Ledger(ttl_seconds=ttl_seconds)
        """Placements that the forecasts in use do not contain yet."""
        self._live = LiveOccupancy()

    @property
    def occupancy(self) -> Occupancy:
        return self._live.occupancy

    def __len__(self) -> int:
        """Count the placements."""
        return len(self._ledger)

    def update(self, update: Update, now: float) -> Sequence[Arrival]:
        """Apply an update; return the placements that expired without a Workload."""
        self.snapshot = apply_update(self.snapshot, update)
        if update.synced:
            self.forecasts_as_of = update.forecasts_as_of
        self._live.drop(self._ledger.seen(update.seen, now))
        self._live.forget(self._unforeseen.seen(update.foreseen))
        gone = self._drop_expired(now)
        self._live.adopt(self.snapshot)
        return gone

    def expire(self, now: float) -> Sequence[Arrival]:
        """Drop and return the placements that expired without a Workload."""
        if gone := self._drop_expired(now):
            self._live.adopt(self.snapshot)
        return gone

    def enter(self, arrival: Arrival, now: float) -> None:
        self._ledger.enter(arrival, now)
        self._live.add(arrival)
        if self._live.foresee(arrival, now):
            self._unforeseen.enter(arrival, now)

    def has_room(self, arrival: Arrival) -> bool:
        """Return whether one more placement of its namespace counts."""
        return self._ledger.has_room(arrival)

    def is_healthy(self, now: float) -> bool:
        return now - self.snapshot.as_of <= self._healthy_seconds

    def drop(self, placements: Iterable[Arrival]) -> None:
        """Drop placements that led to no Workload."""
        if gone := self._ledger.drop(placements):
            self._live.drop(gone)
            self._live.forget(self._unforeseen.drop(gone))
            self._live.adopt(self.snapshot)

    def knows(self, key: str) -> bool:
        return self._ledger.knows(key)

    def leave(self, seen: Iterable[SeenWorkload]) -> Sequence[tuple[SeenWorkload, Arrival]]:
        """Drop and return placements whose Workloads were observed in another cluster."""
        found = [(each, gone) for each in seen for gone in self._ledger.seen((each,))]
        if gone := [arrival for _, arrival in found]:
            self._live.drop(gone)
            self._live.forget(gone)
            self._live.adopt(self.snapshot)
        return found

    def _drop_expired(self, now: float) -> Sequence[Arrival]:
        gone = self._ledger.expire(now, healthy=self.is_healthy(now))
        self._live.drop(gone)
        self._live.forget(self._unforeseen.drop(gone))
        if late := self._unforeseen.expire(now):
            self._live.forget(late)
        return gone


_WAITING_SECONDS = 3600.0
"""A placement that waits longer for the manager's quota, or was deleted, is forgotten."""


class ClusterViews:
    def __init__(self, ttl_seconds: float) -> None:
        self._ttl_seconds = ttl_seconds
        self._views: dict[str, ClusterView] = {}
        self._unheard: dict[str, float] = {}
        """Watched clusters without an update so far, to the monotonic time since when."""
        self._waiting = Ledger(ttl_seconds=_WAITING_SECONDS)
        """Placements that are sent to a cluster once the manager reserves quota for them."""

    def __len__(self) -> int:
        return len(self._views)

    def ages(self, now: float) -> dict[str, float]:
        """Return for how many seconds at most each cluster has sent nothing."""
        heard = {name: each.snapshot.as_of for name, each in self._views.items()}
        return {name: max(0.0, now - at) for name, at in {**self._unheard, **heard}.items()}

    def update(self, update: Update, here: Occupancy, now: float) -> None:
        """Apply an update to the worker clusters; drop those that are no longer watched.

        *here* is the manager, with this update applied.
        """
        if update.watched_clusters is not None:
            self._watch(update.watched_clusters, now)
        self._hold_back(update.seen, here, now)
        self._send(update.reserved, now)
        for name, news in update.clusters.items():
            # A cluster that is not synced keeps its last snapshot, which ages.
            if news.synced:
                self._take(name, news, now)

    def _hold_back(self, seen: Iterable[SeenWorkload], here: Occupancy, now: float) -> None:
        """Take placements back to the manager if their Workloads wait there for quota.

        A Job was placed in a cluster as if the manager had quota for it, and may find none, since
        other replicas decide, too.
        """
        waiting = {each.key: each for each in seen if _is_long(here, each)}
        for name, view in self._views.items():
            for each, arrival in view.leave(tuple(waiting.values())):
                del waiting[each.key]
                self._waiting.enter(replace(arrival, key=each.key, cluster=name), now)

    def _send(self, reserved: Iterable[SeenWorkload], now: float) -> None:
        """Count Workloads in their clusters once the manager has reserved quota for them."""
        for each in reserved:
            for arrival in self._waiting.seen((each,)):
                if arrival.cluster in self._views:
                    # By now even a Job from generateName has its name.
                    self._views[arrival.cluster].enter(replace(arrival, key=each.key), now)

    def _take(self, name: str, news: Update, now: float) -> None:
        self._unheard.pop(name, None)
        view = self._views.setdefault(name, ClusterView(self._ttl_seconds))
        view.update(news, now)
        self._waiting.seen(news.seen)
        for other in self._views.values():
            if other is not view:
                other.leave(news.seen)

    def expire(self, now: float) -> None:
        self._waiting.expire(now)
        for view in self._views.values():
            view.expire(now)

    def drop(self, placements: Iterable[Arrival]) -> None:
        """Drop placements whose Workloads never appeared at the manager."""
        self._waiting.drop(placements)
        for view in self._views.values():
            view.drop(placements)

    def enter(self, arrival: Arrival, here: Occupancy, now: float) -> None:
        """Count a placement in the worker cluster that it goes to, if that is known.

        *here* is the manager without the placement.
        """
        if not self._views:
            return
        place = arrival.namespace, arrival.local_queue
        name = arrival.cluster or remote_options.likely(self.around(here), place)
        if name not in self._views:
            return
        if occupancy.is_kept_waiting(here, arrival):
            self._waiting.enter(replace(arrival, cluster=name), now)
        else:
            self._views[name].enter(arrival, now)

    def around(self, here: Occupancy) -> Occupancy:
        """Return the manager's occupancy with those of its worker clusters."""
        if not self._views and not self._unheard:
            return here
        found = {name: view.occupancy for name, view in self._views.items()}
        return replace(here, clusters=found, unheard=self._unheard)

    def _watch(self, names: tuple[str, ...], now: float) -> None:
        for name in self._views.keys() - set(names):
            del self._views[name]
        new = [name for name in names if name not in self._views]
        self._unheard = {name: self._unheard.get(name, now) for name in new}


def _is_long(here: Occupancy, seen: SeenWorkload) -> bool:
    """Return whether any Workload waits in the ClusterQueue that it is for."""
    queue = here.snapshot.local_queues.get((seen.namespace, seen.local_queue))
    return queue is not None and here.held(queue.cluster_queue).pending > 0
