"""Placements: decisions whose Workloads are not yet part of the snapshot, and views with them.

Also what distinguishes a second review of one creation from a second Job. Pure state machines. Its
owner guards it with a lock and drops a placement in the same step in which the snapshot with its
Workload comes into use, so that it is never counted twice.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from webhook.decide import remote_options
from webhook.jobs import JobKind
from webhook.model.queues import Arrival
from webhook.state import counted_arrivals
from webhook.state.live_occupancy import LiveOccupancy
from webhook.state.occupancy import Occupancy
from webhook.state.pipe import Update, apply_update
from webhook.state.snapshot import Snapshot
from webhook.state.workload import OF_A_JOB, SeenWorkload

UNNAMED = "gen:"
"""``gen:<namespace>/<generateName>/<n>``: a Job left as submitted whose name came later."""

_LONGEST_BASE = 58
_RANDOM = 5
"""What the API server makes of a generateName: at most 58 characters of it, and 5 more."""
_NAMES_KEPT_SECONDS = 900.0
"""Longer than a restarted observer goes on reporting the Workloads that it finds."""
SOON_SECONDS = 5.0
"""Time after which the Workload of a created Job is observed: Kueue makes it in milliseconds."""
_TIMES = 4.0
"""Factor on the longest recent time, if that makes more than ``SOON_SECONDS``."""
_LESS_EACH_TIME = 0.9
"""Factor by which the longest time decays with each Workload that took less."""
MOST_UNSEEN = 256
"""Workloads of one namespace that one peer asked about, and that may count while not observed."""
LEAST_UNSEEN = 8
"""The same after many that led to no Workload."""
_PER_PLACEMENT = 8
"""So many fewer count after each without a Workload, and more again after each with one."""
_MOST_CHARGED = 10_000
"""Namespaces of peers, of which fewer count; beyond, the first of them count as others."""

_Asker: TypeAlias = tuple[str, str]
"""Who asked, by its address, and about a Job of which namespace. Whoever reaches the port can name
any namespace, and must not use up what counts of those that the API server asks about."""


class _Entry(NamedTuple):
    arrival: Arrival
    at: float
    """When it was entered."""
    peer: str

    @property
    def asker(self) -> _Asker:
        return self.peer, self.arrival.namespace


class Ledger:
    def __init__(self, ttl_seconds: float) -> None:
        self._ttl_seconds = ttl_seconds
        self._entries: dict[str, _Entry] = {}
        """By key."""
        self._unseen: Counter[_Asker] = Counter()
        """The count of Workloads in placements."""
        self._lost: Counter[_Asker] = Counter()
        """How many fewer Workloads count."""
        self._longest = 0.0
        """Longest recent time until a Workload was observed, in seconds."""
        self._names: dict[str, float] = {}
        """Keys of Workloads that claimed by name, to the time at which they may be forgotten."""
        self._clock = 0.0

    def enter(self, arrival: Arrival, now: float, peer: str = "") -> None:
        """Remember a placement; one of the same key is replaced and counts as the newest.

        *peer*: the address that asked.
        """
        self._clock = max(self._clock, now)
        self._pop(arrival.key)
        entry = self._entries[arrival.key] = _Entry(arrival, now, peer)
        self._unseen[entry.asker] += arrival.count

    def room(self, arrival: Arrival, peer: str = "") -> int:
        """Return how many of its Workloads count: the rest of what its namespace may have.

        One of a key that is known replaces that entry. *peer*: the address that asks.
        """
        asker = peer, arrival.namespace
        most = max(LEAST_UNSEEN, MOST_UNSEEN - self._lost.get(asker, 0))
        entry = self._entries.get(arrival.key)
        own = entry.arrival.count if entry is not None and entry.asker == asker else 0
        others = self._unseen[asker] - own
        return max(0, min(arrival.count, most - others))

    def seen(self, workloads: Iterable[SeenWorkload], now: float = 0.0) -> tuple[Arrival, ...]:
        """Drop and return the placements whose Workloads the snapshot in use contains."""
        self._clock = max(self._clock, now)
        gone: list[Arrival] = []
        for workload in workloads:
            entry = self._pop(workload.key) or self._claim_unnamed(workload)
            if entry is not None:
                gone.append(entry.arrival)
                self._longest = max(self._clock - entry.at, self._longest * _LESS_EACH_TIME)
                self._trust(entry.asker, -_PER_PLACEMENT)
        return tuple(gone)

    def drop(self, placements: Iterable[Arrival]) -> tuple[Arrival, ...]:
        """Drop placements that will lead to no Workload; return those that were here."""
        popped = (self._pop(placement.key) for placement in placements)
        return tuple(entry.arrival for entry in popped if entry is not None)

    def expire(self, now: float, *, healthy: bool = False) -> tuple[Arrival, ...]:
        """Drop and return the placements whose Workloads never appeared.

        *healthy*: the watch is live, so that a Workload not observed within seconds does not exist.
        """
        self._clock = max(self._clock, now)
        if not (self._entries or self._names):
            return ()
        life = self._ttl_seconds
        if healthy:
            life = min(life, max(SOON_SECONDS, self._longest * _TIMES))
        # Both are in the order in which they were entered: the oldest come first.
        gone: list[_Entry] = []
        for entry in self._entries.values():
            if entry.at + life > now:
                break
            gone.append(entry)
        for entry in gone:
            self._pop(entry.arrival.key)
            if healthy:
                self._trust(entry.asker, _PER_PLACEMENT)
        # There may be thousands of names, and this runs with each review: do not copy them all.
        forgotten: list[str] = []
        for key, until in self._names.items():
            if until > now:
                break
            forgotten.append(key)
        for key in forgotten:
            del self._names[key]
        return tuple([entry.arrival for entry in gone])

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> tuple[Arrival, ...]:
        """Return the placements, oldest first."""
        return tuple(entry.arrival for entry in self._entries.values())

    def knows(self, key: str) -> bool:
        return key in self._entries

    def _claim_unnamed(self, workload: SeenWorkload) -> _Entry | None:
        """Drop and return the oldest unnamed placement that may be this Workload's.

        None: there is none, or it has claimed one: each Job claims once, however often it is
        reported.
        """
        if not workload.key.startswith(OF_A_JOB) or workload.key in self._names:
            return None
        self._names[workload.key] = self._clock + _NAMES_KEPT_SECONDS
        for key, entry in self._entries.items():
            if key.startswith(UNNAMED) and _may_be(entry.arrival, workload):
                return self._pop(key)
        return None

    def _pop(self, key: str) -> _Entry | None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._unseen[entry.asker] -= entry.arrival.count
            if not self._unseen[entry.asker]:
                del self._unseen[entry.asker]
        return entry

    def _trust(self, asker: _Asker, lost: int) -> None:
        now = min(MOST_UNSEEN, self._lost[asker] + lost)
        if now > 0:
            self._lost[asker] = now
        else:
            del self._lost[asker]
        while len(self._lost) > _MOST_CHARGED:
            del self._lost[next(iter(self._lost))]


def _may_be(arrival: Arrival, workload: SeenWorkload) -> bool:
    if (arrival.namespace, arrival.local_queue) != (workload.namespace, workload.local_queue):
        return False
    # Its key is made of namespace, kind (if it is no batch Job), generateName and the review's UID.
    *kind, base = arrival.key.removeprefix(UNNAMED).split("/")[1:-1]
    base = "/".join((*kind, base[:_LONGEST_BASE]))
    name = workload.job_name
    return name.startswith(base) and len(name) == len(base) + _RANDOM


REPEATED_SECONDS = 2.0
"""The webhook's timeout: the second review of one creation does not come later."""


class RepeatedReviews:
    """Remembers, for two seconds, creations that Kueue's webhook will suspend.

    The API server may then send a second review of the same creation, of a suspended Job.
    """

    def __init__(self) -> None:
        self._expected: dict[str, deque[float]] = {}
        self._order: deque[tuple[float, str]] = deque()

    def repeats(self, source: Mapping[str, Any], kind: JobKind, now: float) -> bool:
        """Return whether a Job without a mark of ours was reviewed before in the same creation."""
        # Kueue's webhook suspends a Job that names a queue; the API server may then call us again.
        metadata = source["metadata"]
        name = metadata.get("name") or metadata.get("generateName")
        key = f"{kind.kind}/{metadata['namespace']}/{name}"
        if kind.is_suspended(source):
            return self.is_repeated(key, now)
        self.expect(key, now)
        return False

    def expect(self, name: str, now: float) -> None:
        """Note an unsuspended Job; *name* is its name or generateName with its namespace."""
        self._expire(now)
        self._expected.setdefault(name, deque()).append(now)
        self._order.append((now, name))

    def is_repeated(self, name: str, now: float) -> bool:
        """Return whether a suspended Job was noted before.

        Each note answers one repeated review.
        """
        self._expire(now)
        expected = self._expected.get(name)
        if not expected:
            return False
        expected.popleft()
        return True

    def _expire(self, now: float) -> None:
        while self._order and now - self._order[0][0] > REPEATED_SECONDS:
            at, name = self._order.popleft()
            expected = self._expected.get(name)
            if expected and expected[0] <= at:
                expected.popleft()
            if not expected:
                self._expected.pop(name, None)


class ClusterView:
    """One cluster's snapshot and placements, and the occupancy that they make together."""

    def __init__(self, ttl_seconds: float, *, healthy_seconds: float = -1.0) -> None:
        """Begin with an empty snapshot; a placement expires after *ttl_seconds*.

        While the snapshot is at most *healthy_seconds* old, it expires after a few seconds.
        """
        self._healthy_seconds = healthy_seconds
        self.snapshot = Snapshot()
        self.forecasts_as_of = 0.0
        self._ledger = Ledger(ttl_seconds=ttl_seconds)
        self._not_forecast = Ledger(ttl_seconds=ttl_seconds)
        """Placements that the forecasts in use do not contain yet."""
        self._live = LiveOccupancy()

    @property
    def occupancy(self) -> Occupancy:
        return self._live.occupancy

    def __len__(self) -> int:
        """Count the placements."""
        return len(self._ledger)

    def update(self, update: Update, now: float) -> tuple[Sequence[Arrival], Sequence[Arrival]]:
        """Apply an update; return the placements whose Workloads it has, and the expired ones."""
        self.snapshot = apply_update(self.snapshot, update)
        if update.synced:
            self.forecasts_as_of = update.forecasts_as_of
        seen = self._ledger.seen(update.seen, now)
        self._live.drop(seen)
        self._live.forget(self._not_forecast.seen(update.profiled))
        gone = self._drop_expired(now)
        self._live.adopt(self.snapshot)
        return seen, gone

    def expire(self, now: float) -> Sequence[Arrival]:
        """Drop and return the placements that expired without a Workload."""
        if gone := self._drop_expired(now):
            self._live.adopt(self.snapshot)
        return gone

    def enter(self, arrival: Arrival, now: float, peer: str = "") -> None:
        self._ledger.enter(arrival, now, peer)
        self._live.add(arrival)
        if self._live.foresee(arrival, now):
            self._not_forecast.enter(arrival, now)

    def room(self, arrival: Arrival, peer: str) -> int:
        """Return how many of its Workloads count."""
        return self._ledger.room(arrival, peer)

    def is_healthy(self, now: float) -> bool:
        return now - self.snapshot.as_of <= self._healthy_seconds

    def drop(self, placements: Iterable[Arrival]) -> None:
        """Drop placements that led to no Workload."""
        if gone := self._ledger.drop(placements):
            self._live.drop(gone)
            self._live.forget(self._not_forecast.drop(gone))
            self._live.adopt(self.snapshot)

    def knows(self, key: str) -> bool:
        return self._ledger.knows(key)

    def leave(self, seen: Iterable[SeenWorkload]) -> Sequence[tuple[SeenWorkload, Arrival]]:
        """Drop and return placements whose Workloads were observed in another cluster."""
        left = [(workload, gone) for workload in seen for gone in self._ledger.seen((workload,))]
        if gone := [arrival for _, arrival in left]:
            self._live.drop(gone)
            self._live.forget(gone)
            self._live.adopt(self.snapshot)
        return left

    def _drop_expired(self, now: float) -> Sequence[Arrival]:
        if gone := self._ledger.expire(now, healthy=self.is_healthy(now)):
            self._live.drop(gone)
            self._live.forget(self._not_forecast.drop(gone))
        if late := self._not_forecast.expire(now):
            self._live.forget(late)
        return gone


_WAITING_SECONDS = 3600.0
"""A placement that waits longer for the manager's quota, or was deleted, is forgotten."""


class ClusterViews:
    """The views of MultiKueue's worker clusters, with the placements that are sent to them."""

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
        heard = {name: view.snapshot.as_of for name, view in self._views.items()}
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
        waiting = {workload.key: workload for workload in seen if _is_long(here, workload)}
        for name, view in self._views.items():
            for workload, arrival in view.leave(tuple(waiting.values())):
                del waiting[workload.key]
                self._waiting.enter(replace(arrival, key=workload.key, cluster=name), now)

    def _send(self, reserved: Iterable[SeenWorkload], now: float) -> None:
        """Count Workloads in their clusters once the manager has reserved quota for them."""
        for workload in reserved:
            for arrival in self._waiting.seen((workload,)):
                if arrival.cluster in self._views:
                    # By now even a Job from generateName has its name.
                    self._views[arrival.cluster].enter(replace(arrival, key=workload.key), now)

    def _take(self, name: str, news: Update, now: float) -> None:
        self._unheard.pop(name, None)
        view = self._views.setdefault(name, ClusterView(self._ttl_seconds))
        view.update(news, now)
        self._waiting.seen(news.seen)
        for elsewhere in self._views.values():
            if elsewhere is not view:
                elsewhere.leave(news.seen)

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
        if counted_arrivals.is_kept_waiting(here, arrival):
            self._waiting.enter(replace(arrival, cluster=name), now)
        else:
            self._views[name].enter(arrival, now)

    def around(self, here: Occupancy) -> Occupancy:
        """Return the manager's occupancy with those of its worker clusters."""
        if not self._views and not self._unheard:
            return here
        occupancies = {name: view.occupancy for name, view in self._views.items()}
        return replace(here, clusters=occupancies, unheard=self._unheard)

    def _watch(self, names: tuple[str, ...], now: float) -> None:
        for name in self._views.keys() - set(names):
            del self._views[name]
        new = [name for name in names if name not in self._views]
        self._unheard = {name: self._unheard.get(name, now) for name in new}


def _is_long(here: Occupancy, seen: SeenWorkload) -> bool:
    """Return whether any Workload waits in the ClusterQueue that it is for."""
    queue = here.snapshot.setup.local_queues.get((seen.namespace, seen.local_queue))
    return queue is not None and here.held(queue.cluster_queue).pending > 0
