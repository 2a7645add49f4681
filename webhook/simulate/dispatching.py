"""The leading controller as MultiKueue's dispatcher in a replay: which clusters are asked when.

The choices are those of ``cluster_choice``. It looks when something has changed, and once a minute
for what changes with time alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Final

from webhook.decide import cluster_choice
from webhook.decide.cluster_choice import AskedClusters, UnplacedWorkload
from webhook.decide.wishes import Wishes
from webhook.kueue import multikueue
from webhook.model.queues import Arrival
from webhook.simulate.replayed_forecasts import QueuedJob
from webhook.simulate.site import Site, Workers

STEP_SECONDS: Final = 5.0
"""Least time between two looks, as in the controller."""
QUIET_SECONDS: Final = 60.0
_JUST_AFTER: Final = 1.0


@dataclass(slots=True, kw_only=True)
class _Unplaced:
    coming: QueuedJob
    names: Sequence[str]
    """The clusters behind its queue."""
    asked: AskedClusters
    may_move_from: float = 0.0
    """When a better cluster may be asked, in seconds since 1970."""


class Dispatching:
    def __init__(
        self, manager: Site, workers: Workers, wishes_of: Callable[[str, float], Wishes]
    ) -> None:
        """Dispatch only if Kueue's configuration names our dispatcher.

        *wishes_of* returns what a Job asks for, by its name and the time.
        """
        self.is_on = manager.snapshot.setup.kueue.own_dispatcher
        self._manager, self._workers, self._wishes_of = manager, workers, wishes_of
        self._unplaced: dict[str, _Unplaced] = {}
        self._last = -inf
        self.next_step = inf
        """When to look again; inf: all clusters are asked, or nobody waits."""

    def add(self, coming: QueuedJob, now: float) -> None:
        """Nominate for a Workload that has quota at the manager, from *now* on."""
        setup = self._manager.snapshot.setup
        self._unplaced[coming.key] = _Unplaced(
            coming=coming,
            names=multikueue.behind(setup.cluster_queues[coming.cluster_queue], setup),
            asked=AskedClusters(since=self._manager.forecasts.unix(now)),
        )
        self.next_step = now

    def drop(self, key: str) -> None:
        """Forget a Workload that a cluster has taken."""
        self._unplaced.pop(key, None)

    def change(self, now: float) -> None:
        """Note that a queue of a cluster changed."""
        if self._unplaced:
            self.next_step = min(self.next_step, max(now, self._last + STEP_SECONDS))

    def step(self, now: float) -> Iterator[tuple[float, int]]:
        """Nominate where it is time; yield as ``Workers.send``."""
        self._last, waits = now, dict(self._workers.waits(now))
        for key, unplaced in self._unplaced.items():
            if (arrival := self._next(key, unplaced, waits, now)) is not None:
                yield from self._workers.send(unplaced.coming, arrival, now)
        self.next_step = now + min(self._rests(now), default=inf)

    def _rests(self, now: float) -> Iterator[float]:
        """Yield for how long nothing changes for each that may yet be sent elsewhere."""
        unix = self._manager.forecasts.unix(now)
        for unplaced in self._unplaced.values():
            if len(unplaced.asked.clusters) < len(unplaced.names):
                times = unplaced.may_move_from, (unplaced.asked.patient_until or 0.0) + _JUST_AFTER
                yield min([QUIET_SECONDS, *(at - unix for at in times if at > unix)])

    def _next(
        self,
        key: str,
        unplaced: _Unplaced,
        waits: Mapping[str, Mapping[str, float]],
        now: float,
    ) -> Arrival | None:
        """Return the Workload's arrival in the cluster that is nominated now, if any."""
        asked, unix = unplaced.asked, self._manager.forecasts.unix(now)
        if len(asked.clusters) == len(unplaced.names):
            return None
        view = self._workers.dispatched(now)
        queued, setup = unplaced.coming, self._manager.snapshot.setup
        place = queued.arrival.namespace, queued.arrival.local_queue
        wanted = UnplacedWorkload(
            arrival=replace(queued.arrival, job_class=queued.job_class),
            local_queue=setup.local_queues[place],
            cluster_queue=setup.cluster_queues[queued.cluster_queue],
            flavors=queued.sent_by,
            wishes=self._wishes_of(key, now),
            waits={
                name: waits[name][key]
                for name in asked.clusters
                if isfinite(waits.get(name, {}).get(key, inf))
            },
        )
        found = cluster_choice.prospects(wanted, view, now=now, unix=unix)
        policy, _ = cluster_choice.decided_by(wanted.arrival, view)
        choice, until = cluster_choice.choose(found, policy, asked, unix)
        if choice is None:
            unplaced.asked = asked._replace(patient_until=until)
            return None
        unplaced.asked = AskedClusters((*asked.clusters, choice.cluster), unix, until)
        unplaced.may_move_from = unix + cluster_choice.stays(policy)
        return cluster_choice.placed_in(choice.cluster, wanted.arrival, found)
