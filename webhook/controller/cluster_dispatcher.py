"""Nominates worker clusters for Workloads that wait for one, as MultiKueue's external dispatcher.

One cluster at a time, the best by the policy of the Workload, and the next where that disappoints.
What was nominated and since when stands on the Workload, so a new leader goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf, isfinite
from typing import Final, NamedTuple

from webhook.api.kubernetes_api import ClusterError, KubernetesApi
from webhook.api.resources import Key
from webhook.api.watch import WatchUpdate
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.followed_watches import Happening, WatchedJob
from webhook.controller.job_events import EVENTS_A_MINUTE, RateLimit, event_on_job, post_event
from webhook.controller.starts_in_workers import StartsInWorkers
from webhook.controller.world import World
from webhook.decide import cluster_choice, remote_options
from webhook.decide.cluster_choice import (
    MARGIN_SECONDS,
    MEANINGS,
    AskedClusters,
    Nomination,
    UnplacedWorkload,
)
from webhook.decide.wishes import NONE, Wishes, remaining
from webhook.flow.ledger import ClusterViews
from webhook.model.faults import Attention, attempted
from webhook.model.fields import FieldError
from webhook.model.queues import Arrival, ClusterQueue, LocalQueue
from webhook.model.reasons import EventReason
from webhook.state import counted_arrivals, live_workload
from webhook.state.cluster_watches import ClusterWatches
from webhook.state.live_workload import clusters_of
from webhook.state.occupancy import Occupancy
from webhook.state.pipe import Update
from webhook.state.queue_counts import PendingArrivals
from webhook.state.snapshot import Snapshot
from webhook.state.workload import AwaitingCluster, Workload, awaiting

STEP_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 5.0
"""Between two looks at a Workload for which clusters are nominated."""
RETRY_SECONDS: Final = 5.0
"""After a failed write."""
MOST_AT_ONCE: Final = 100
"""Workloads that are looked at in one step; the others follow in the next."""
OVERDUE_SECONDS: Final = 30.0
"""With quota for so long, a Workload without a nominated cluster counts as forgotten."""


_FURTHER: Final = (Nomination.BETTER, Nomination.LATE, Nomination.LOST)
"""Why a cluster is asked beside others: its Job is told."""


class _Chosen(NamedTuple):
    """What is nominated beside what is."""

    clusters: tuple[str, ...]
    why: Nomination
    gain: str = ""
    """As in ``NextCluster``."""
    patient_until: float | None = None
    """As in ``AwaitingCluster``."""
    placed: Arrival | None = None
    """Its arrival there; None: in which of them it will run is not known."""

    @property
    def sentence(self) -> str:
        gain = f" ({self.gain})" if self.gain else ""
        return f"asks {', '.join(self.clusters)}: {MEANINGS[self.why]}{gain}"


class _JobWishes(NamedTuple):
    wishes: Wishes
    created: float
    """When the Job was, in seconds since 1970: its deadline counts from then."""


def _read_wishes(job: WatchedJob | None) -> _JobWishes | None:
    """Return what a Job asks for; None: nothing, or it cannot be read."""
    return _JobWishes(job.wishes, job.created) if job is not None and job.wishes != NONE else None


class ClusterDispatcher:
    def __init__(
        self,
        transport: KubernetesApi,
        workers: ClusterWatches | None,
        *,
        max_state_age: float,
        placement_ttl: float,
        is_leader: Callable[[], bool],
        metrics: ControllerMetrics,
    ) -> None:
        """Nominate while *is_leader*, which is called before each write.

        Without *workers* nothing is known of clusters but whether Kueue reaches them.
        """
        self._transport, self._workers = transport, workers
        self._max_state_age, self._is_leader = max_state_age, is_leader
        self._metrics = metrics
        self._starts = StartsInWorkers(workers) if workers is not None else None
        self._pace = RateLimit(EVENTS_A_MINUTE)
        self._views = ClusterViews(placement_ttl)
        self._arrivals = PendingArrivals()
        self._waiting: dict[Key, AwaitingCluster] = {}
        self._due: dict[Key, float] = {}
        """The monotonic time at which each is looked at again."""
        self._said: dict[Key, str] = {}
        self._wishes: dict[str, dict[Key, _JobWishes]] = {}
        """For each watch, what Jobs ask for; those that ask for nothing are not there."""
        self._error = ""

    def take(self, message: WatchUpdate) -> tuple[str, ...]:
        """Apply a watch update of Workloads; return the lines to log."""
        before, self._error = self._error, message.error
        if message.error:
            return () if before else (Attention(f"{message.kind}: {message.error}"),)
        if message.entries is not None:
            for key in self._waiting.keys() - {entry.key for entry in message.entries}:
                self._put(key, None)
            for entry in message.entries:
                self._put(entry.key, entry.value)
        elif message.event is not None:
            event_type, entry = message.event
            self._put(entry.key, None if event_type == "DELETED" else entry.value)
        return (f"{message.kind}: readable again",) if before else ()

    def take_jobs(self, message: WatchUpdate) -> tuple[str, ...]:
        """Apply a watch update of Jobs' metadata; return the lines to log, of which there are none.

        Kueue copies no annotation of a Job into its Workload, and its owner may change them.
        """
        if message.entries is not None:
            read = ((entry.key, _read_wishes(entry.value)) for entry in message.entries)
            self._wishes[message.kind] = {key: wished for key, wished in read if wished}
        elif message.event is not None:
            event_type, entry = message.event
            known = self._wishes.setdefault(message.kind, {})
            known.pop(entry.key, None)
            wished = _read_wishes(entry.value) if event_type != "DELETED" else None
            if wished is not None:
                known[entry.key] = wished
        return ()

    def _wishes_of(self, workload: Workload, unix: float) -> Wishes:
        """Return what the Job of a Workload asks for now."""
        key = workload.namespace, workload.job
        for known in self._wishes.values():
            if (wished := known.get(key)) is not None:
                return remaining(wished.wishes, unix - wished.created)
        return NONE

    def _put(self, key: Key, found: AwaitingCluster | None) -> None:
        if found is None:
            for known in (self._waiting, self._due, self._said):
                known.pop(key, None)
            return
        before = self._waiting.get(key)
        if before is None or before.nominated != found.nominated:
            self._due.pop(key, None)
        else:
            # What was expected when they were nominated holds.
            found = found._replace(patient_until=before.patient_until)
        self._waiting[key] = found

    def show(self, world: World) -> None:
        """Set how many Workloads have waited for long without a nominated cluster."""
        forgotten = sum(
            not found.nominated and world.unix - found.workload.reserved_at > OVERDUE_SECONDS
            for found in tuple(self._waiting.values())
            if clusters_of(found, world.snapshot)
        )
        self._metrics.forgotten.set(forgotten)

    def step(self, world: World) -> list[str]:
        """Nominate where it is time."""
        snapshot, now, unix = world.snapshot, world.now, world.unix
        # The manager's quota as if nobody held any: those who wait for a cluster have theirs.
        here = counted_arrivals.idle(snapshot)
        if self._workers is not None:
            self._workers.follow(snapshot)
            self._views.update(self._workers.with_clusters(Update(), now, unix), here, now)
            self._views.expire(now)
        if not snapshot.setup.kueue.own_dispatcher or not self._is_leader():
            return []
        self._arrivals.adopt(
            snapshot.cluster.limit_ranges, snapshot.cluster.overheads, snapshot.setup.kueue
        )
        due = sorted((at, key) for key in self._waiting if (at := self._due.get(key, -inf)) <= now)
        lines: list[str] = []
        for _, key in due[:MOST_AT_ONCE]:
            if not self._is_leader():
                break
            # Placements of this step count for those that follow.
            clusters = remote_options.fresh(self._views.around(here), now, self._max_state_age)
            lines += self._nominate(key, world, here, clusters)
        return lines

    def _nominate(
        self, key: Key, world: World, here: Occupancy, clusters: Occupancy
    ) -> Iterator[str]:
        """Look at one Workload; yield the line to log where there is something to say."""
        found = self._waiting[key]
        self._due[key] = world.now + AGAIN_SECONDS
        names = clusters_of(found, world.snapshot)
        if not names:
            return
        arrival = self._arrivals.of(found.workload)
        if arrival is not None:
            arrival = replace(arrival, job_class=found.workload.job_class)
        chosen = self._choose(key, names, arrival, world, clusters)
        if not chosen.clusters:
            return
        nominated = live_workload.with_added(found, chosen.clusters, names)
        problem = self._write(found, nominated)
        if problem is not None:
            self._due[key] = world.now + (RETRY_SECONDS if problem else STEP_SECONDS)
            if problem and self._said.get(key) != problem:
                self._said[key] = problem
                yield Attention(f"Workload {'/'.join(key)}: no cluster nominated: {problem}")
            return
        self._waiting[key] = found._replace(
            nominated=nominated, nominated_at=int(world.unix), patient_until=chosen.patient_until
        )
        if chosen.placed is not None:
            self._views.enter(chosen.placed, here, world.now)
        self._metrics.count_nomination(chosen.why)
        yield f"Workload {'/'.join(key)}: {chosen.sentence}"
        if chosen.why in _FURTHER:
            yield from self._tell(found, chosen.sentence, world)

    def _tell(self, found: AwaitingCluster, text: str, world: World) -> Iterator[str]:
        """Write an Event on the Job; yield the line to log if that fails."""
        workload = found.workload
        if not workload.job or not self._pace.lets_pass(world.now):
            return
        where = workload.namespace, workload.job
        asked = Happening(EventReason.CLUSTER_ASKED, text, world.unix, where, found.owner_uid)
        try:
            post_event(self._transport, event_on_job(asked, unix=world.unix))
        except ClusterError as error:
            yield f"Job {'/'.join(where)}: no Event written: {error}"

    def _choose(
        self,
        key: Key,
        names: Sequence[str],
        arrival: Arrival | None,
        world: World,
        clusters: Occupancy,
    ) -> _Chosen:
        """Return the clusters to add to those that are nominated, if any, and why."""
        found, snapshot = self._waiting[key], world.snapshot
        queues = _queues_of(found, snapshot)
        result = None
        is_off = snapshot.fallback.off is not None and snapshot.fallback.off.covers(key[0])
        if arrival is not None and queues is not None and not is_off:
            unplaced = UnplacedWorkload(
                arrival=arrival,
                local_queue=queues[0],
                cluster_queue=queues[1],
                flavors=found.workload.flavors,
                wishes=self._wishes_of(found.workload, world.unix),
                waits=dict(self._waits(key, world)),
            )
            result, _ = attempted(
                lambda: cluster_choice.prospects(unplaced, clusters, now=world.now, unix=world.unix)
            )
        if result is None or arrival is None:
            # Nothing may wait because of us, so all are asked, as Kueue itself does.
            others = tuple(name for name in names if name not in found.nominated)
            return _Chosen(others, Nomination.ALL)
        policy, _ = cluster_choice.decided_by(arrival, clusters)
        since = max(found.nominated_at, found.workload.reserved_at)
        asked = AskedClusters(found.nominated, since, found.patient_until)
        choice, until = cluster_choice.choose(result, policy, asked, world.unix)
        if choice is None:
            self._waiting[key] = found._replace(patient_until=until)
            return _Chosen((), Nomination.FIRST)
        placed = cluster_choice.placed_in(choice.cluster, arrival, result)
        return _Chosen((choice.cluster,), choice.why, choice.gain, until, placed)

    def _waits(self, key: Key, world: World) -> Iterator[tuple[str, float]]:
        """Yield the clusters that are nominated, with in how many seconds it starts there."""
        found = self._waiting[key]
        if self._starts is None:
            return
        for name in found.nominated:
            start = self._starts.of(name, key, world)
            if start is None and found.patient_until is not None:
                # Kueue has not written it there yet: what was expected holds.
                start = max(0.0, found.patient_until - MARGIN_SECONDS - world.unix)
            if start is not None and isfinite(start):
                yield name, start

    def _write(self, found: AwaitingCluster, nominated: Sequence[str]) -> str | None:
        """Write the nominated clusters; None: done, "": it has changed meanwhile, else why not."""
        workload = found.workload
        try:
            source = live_workload.read_anew(self._transport, workload)
            current = awaiting(source) if source is not None else None
            if source is None or current is None or current.nominated != found.nominated:
                return ""
            live_workload.nominate(self._transport, workload, source, nominated)
        except ClusterError as error:
            return "" if error.is_conflict else str(error)
        except FieldError as error:
            return str(error)
        return None


def _queues_of(
    found: AwaitingCluster, snapshot: Snapshot
) -> tuple[LocalQueue, ClusterQueue] | None:
    workload = found.workload
    local_queue = snapshot.setup.local_queues.get((workload.namespace, workload.queue))
    cluster_queue = snapshot.setup.cluster_queues.get(workload.cluster_queue)
    if local_queue is None or cluster_queue is None:
        return None
    return local_queue, cluster_queue
