"""The worker clusters behind MultiKueue as the handler sees them, each with its own placements.

A Job that goes to a cluster is counted there until its Workload has come, which takes a second or
two; at the manager it is counted like any other.
"""

from __future__ import annotations

from dataclasses import replace

from webhook.cluster.pipe import Update
from webhook.decide import remotes
from webhook.decide.occupancy import Occupancy
from webhook.model.queues import Arrival
from webhook.standing import Standing


class Clusters:
    def __init__(self, ttl_seconds: float) -> None:
        self._ttl_seconds = ttl_seconds
        self._standings: dict[str, Standing] = {}
        self._unheard: dict[str, float] = {}
        """Clusters that are watched and have told nothing yet, and since when they are."""

    def __len__(self) -> int:
        return len(self._standings)

    def ages(self, now: float) -> dict[str, float]:
        """Tell for how many seconds each cluster may have been silent."""
        heard = {name: each.snapshot.as_of for name, each in self._standings.items()}
        return {name: max(0.0, now - at) for name, at in {**self._unheard, **heard}.items()}

    def update(self, update: Update, now: float) -> None:
        """Take over what was published of worker clusters; those not watched any more go."""
        if update.watched_clusters is not None:
            self._watch(update.watched_clusters, now)
        for name, news in update.clusters.items():
            if not news.synced:
                # What was known before stands, and grows old.
                continue
            self._unheard.pop(name, None)
            standing = self._standings.setdefault(name, Standing(self._ttl_seconds))
            standing.update(news, now)
            for other in self._standings.values():
                if other is not standing:
                    other.leave(news.seen)

    def expire(self, now: float) -> None:
        for standing in self._standings.values():
            standing.expire(now)

    def enter(self, arrival: Arrival, here: Occupancy, now: float) -> None:
        """Count a placement in the cluster that it goes to, if it goes to one that is known."""
        if not self._standings:
            return
        place = arrival.namespace, arrival.local_queue
        name = arrival.cluster or remotes.likely(self.around(here), place)
        if name in self._standings:
            self._standings[name].enter(arrival, now)

    def around(self, here: Occupancy) -> Occupancy:
        """Add the worker clusters to their manager."""
        if not self._standings and not self._unheard:
            return here
        found = {name: standing.occupancy for name, standing in self._standings.items()}
        return replace(here, clusters=found, unheard=self._unheard)

    def _watch(self, names: tuple[str, ...], now: float) -> None:
        for name in self._standings.keys() - set(names):
            del self._standings[name]
        new = [name for name in names if name not in self._standings]
        self._unheard = {name: self._unheard.get(name, now) for name in new}
