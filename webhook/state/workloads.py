"""All Workloads, each counted in its ClusterQueue; an event costs the same whatever their number.

It decides in which ClusterQueue each counts, and collects what others consume: new Workloads,
reservations, ended runs, obstacles. It must not know what is counted of them (``QueueCounts``).
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, TypeAlias

from webhook.api.resources import Key
from webhook.learn.run_records import WorkloadRun
from webhook.model.policy.fallback_policy import Option
from webhook.model.queues import LocalQueue, Stage, StopPolicy
from webhook.model.reasons import Obstacle
from webhook.state.queue_counts import QueueCounts
from webhook.state.workload import SeenWorkload, Workload, as_seen

_created = attrgetter("created")
_Change: TypeAlias = Callable[[QueueCounts, Key, Workload], None]
_MOST_RELATED: Final = 16
"""Most slices that replace one and the same Workload, or variants of one, that are known as such:
an event of one touches all, and whoever creates Workloads can name any. Kueue makes one slice, and
a variant for each flavor."""
STARTING_SECONDS: Final = 10
"""How long Kueue may take to start a Job after it has admitted its Workload."""
MOST_ARRIVED: Final = 256
"""Workloads kept of one ClusterQueue, the newest: each some hundred bytes."""
MOST_QUEUES: Final = 1024
"""ClusterQueues of which Workloads are kept."""
RECENT_SECONDS = 600
"""Workloads older than this (relative to the newest) are in no ledger: placements expire before."""


class ArrivedWorkloads:
    """The newest Workloads that got quota in each ClusterQueue, still there or not.

    They tell how often such come, so nothing is kept for that: a restart reads them again.
    """

    def __init__(self) -> None:
        self._of_queue: dict[str, list[Workload]] = {}

    def note(self, cluster_queue: str, workload: Workload) -> None:
        newest = self._of_queue.pop(cluster_queue, [])
        insort(newest, workload, key=_created)
        del newest[:-MOST_ARRIVED]
        # The queue to which one came last stands last.
        self._of_queue[cluster_queue] = newest
        if len(self._of_queue) > MOST_QUEUES:
            del self._of_queue[next(iter(self._of_queue))]

    def of(self, cluster_queue: str) -> tuple[Workload, ...]:
        """Return what is known of a ClusterQueue, the oldest first."""
        return tuple(self._of_queue.get(cluster_queue, ()))


class Workloads:
    def __init__(self) -> None:
        self.counts_of: dict[str, QueueCounts] = {}
        """ClusterQueue to its counts."""
        self.dirty: set[str] = set()
        """ClusterQueues whose counts have changed; the reader clears it."""
        self._records: dict[Key, Workload] = {}
        self._local_queues: dict[Key, LocalQueue] = {}
        self._options: dict[str, Sequence[Option]] = {}
        """Policy to its options."""
        self._by_eviction = True
        self._by_queue: defaultdict[Key, dict[Key, None]] = defaultdict(dict)
        """LocalQueue to its pending Workloads, which it assigns to a ClusterQueue; a set of them
        would take twice as much memory."""
        self._replaced: Counter[Key] = Counter()
        """Slices whose replacement holds quota: only the replacement's charge counts."""
        self._growing: defaultdict[Key, set[Key]] = defaultdict(set)
        """Slice to the pending ones that are to replace it."""
        self._variants: defaultdict[Key, set[Key]] = defaultdict(set)
        """Parent to its variants, of which one counts."""
        self._differences: dict[Key, Workload] = {}
        """Pending slices that are counted by what they ask for beyond those they replace, as they
        were counted."""
        self._seen: list[tuple[int, SeenWorkload]] = []
        self._reserved: list[SeenWorkload] = []
        self._ended: list[WorkloadRun] = []
        self._begun: list[WorkloadRun] = []
        self._arrived = ArrivedWorkloads()
        self.newest = 0
        """Seconds since 1970 of the last creation, admission or end."""
        self._obstacles = Obstacles()

    def all(self) -> Iterable[Workload]:
        return self._records.values()

    def put(self, key: Key, workload: Workload | None) -> None:
        """Apply a Workload as it is now; None: it was deleted."""
        before = self._records.get(key)
        if before == workload:
            return
        touched = self._touched(key, before, workload)
        for touched_key in touched:
            self._count(touched_key, QueueCounts.remove)
        self._store(key, before, workload)
        for touched_key in touched:
            self._count(touched_key, QueueCounts.add)

    def _touched(
        self, key: Key, before: Workload | None, after: Workload | None
    ) -> Collection[Key]:
        """Return the Workloads whose count a change may change: that one, and those related."""
        # Most are related to none, and there are tens of thousands at each start.
        if key not in self._growing and _is_alone(before) and _is_alone(after):
            return (key,)
        touched = {key, *_taken_over(before), *_taken_over(after), *self._growing.get(key, ())}
        touched.update(*(self._siblings(version) for version in (before, after)))
        return touched

    def replace(self, workloads: Mapping[Key, Workload]) -> None:
        for key in [key for key in self._records if key not in workloads]:
            self.put(key, None)
        for key, workload in workloads.items():
            self.put(key, workload)

    def put_local_queue(self, key: Key, local_queue: LocalQueue | None) -> None:
        """Recount a LocalQueue's pending Workloads: it was created, deleted, stopped or resumed."""
        if self._local_queues.get(key) == local_queue:
            return
        waiting = tuple(self._by_queue.get(key, ()))
        for pending_key in waiting:
            self._count(pending_key, QueueCounts.remove)
        if local_queue is None:
            self._local_queues.pop(key, None)
        else:
            self._local_queues[key] = local_queue
        for pending_key in waiting:
            self._count(pending_key, QueueCounts.add)

    def order_by_eviction(self, *, by_eviction: bool) -> None:
        """Queue Workloads that were not ready in time by their eviction, or by their creation."""
        if by_eviction == self._by_eviction:
            return
        touched = [key for key, workload in self._records.items() if workload.was_unready]
        for key in touched:
            self._count(key, QueueCounts.remove)
        self._by_eviction = by_eviction
        for key in touched:
            self._count(key, QueueCounts.add)

    def put_options(self, policy: str, options: Sequence[Option]) -> None:
        """Recount Workloads of a policy that its new options assign to another option."""
        before = self._options.get(policy, ())
        if before == options:
            return
        touched = []
        for key, workload in self._records.items():
            if workload.policy != policy:
                continue
            place = self._place(key, workload)
            if place and option_of_workload(workload, place, before) != option_of_workload(
                workload, place, options
            ):
                touched.append(key)
        for key in touched:
            self._count(key, QueueCounts.remove)
        self._options[policy] = options
        for key in touched:
            self._count(key, QueueCounts.add)

    def arrived(self, cluster_queue: str) -> tuple[Workload, ...]:
        """Return the newest Workloads that got quota in a ClusterQueue, the oldest first."""
        return self._arrived.of(cluster_queue)

    def obstacles(self) -> Mapping[Key, Obstacle]:
        """Return the obstacle of each Job that has one; the same object until that changes."""
        return self._obstacles.current(self.newest)

    def take_seen(self) -> tuple[SeenWorkload, ...]:
        """Return the Workloads that appeared since the last call."""
        oldest = self.newest - RECENT_SECONDS
        taken = tuple(seen for created, seen in self._seen if created >= oldest)
        self._seen.clear()
        return taken

    def take_reserved(self) -> tuple[SeenWorkload, ...]:
        """Return those that got quota since the last call and have AdmissionChecks to pass."""
        taken = tuple(self._reserved)
        self._reserved.clear()
        return taken

    def take_ended(self) -> tuple[WorkloadRun, ...]:
        """Return the runs that ended since the last call."""
        taken = tuple(self._ended)
        self._ended.clear()
        return taken

    def take_begun(self) -> tuple[WorkloadRun, ...]:
        """Return those whose start has become known since the last call."""
        taken = tuple(self._begun)
        self._begun.clear()
        return taken

    def _store(self, key: Key, before: Workload | None, after: Workload | None) -> None:
        if before is not None:
            self._index(key, before, -1)
        self._obstacles.put(key, before, after, self.newest)
        if after is None:
            self._records.pop(key, None)
            return
        self._records[key] = after
        self._index(key, after, 1)
        ended = after.run.run.finished if after.run is not None else 0
        self.newest = max(self.newest, after.created, after.admitted, ended)
        is_new = before is None or before.created != after.created
        if is_new and (seen := as_seen(after)):
            self._seen.append((after.created, seen))
        if _has_come(before, after):
            self._arrived.note(after.cluster_queue, after)
        if _has_reserved(before, after) and (seen := as_seen(after)):
            self._reserved.append(seen)
        if after.run is None or (before is not None and before.run == after.run):
            return
        if after.run.has_ended:
            self._ended.append(after.run)
        else:
            self._begun.append(after.run)

    def _index(self, key: Key, workload: Workload, step: int) -> None:
        if workload.stage is Stage.PENDING:
            queue = (workload.namespace, workload.queue)
            if step > 0:
                self._by_queue[queue][key] = None
            else:
                self._by_queue[queue].pop(key, None)
                if not self._by_queue[queue]:
                    del self._by_queue[queue]
            if workload.replaces:
                _enter(self._growing, _replaced(workload), key, step)
        if workload.parent:
            _enter(self._variants, (workload.namespace, workload.parent), key, step)
        for replaced in _taken_over(workload):
            self._replaced[replaced] += step
            if not self._replaced[replaced]:
                del self._replaced[replaced]

    def _siblings(self, workload: Workload | None) -> Collection[Key]:
        """Return the variants of a variant's parent; of any other none."""
        if workload is None or not workload.parent:
            return ()
        return self._variants.get((workload.namespace, workload.parent), ())

    def _is_spare(self, key: Key, workload: Workload) -> bool:
        """Return whether another variant counts for a pending one: Kueue admits one of them."""
        siblings = self._siblings(workload)
        if key not in siblings:
            return False
        found = [(sibling, self._records[sibling]) for sibling in siblings]
        if any(variant.stage is Stage.RESERVING for _, variant in found):
            return True
        pending = ((v.competes, other) for other, v in found if v.stage is Stage.PENDING)
        return min(pending, key=lambda variant: (not variant[0], variant[1]))[1] != key

    def _difference(self, key: Key, workload: Workload, cluster_queue: str) -> Workload:
        """Return a pending slice with what the one holds that it replaces."""
        # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/flavorassigner.go#L264
        old = self._records.get(_replaced(workload)) if workload.replaces else None
        if old is None or key not in self._growing.get(_replaced(workload), ()):
            return workload
        same = old.cluster_queue == cluster_queue and len(old.held) == len(workload.pod_sets)
        if old.stage is not Stage.RESERVING or not same:
            return workload
        return workload._replace(held=old.held)

    def _count(self, key: Key, change: _Change) -> None:
        workload = self._records.get(key)
        if workload is None:
            return
        cluster_queue = self._place(key, workload)
        if not cluster_queue:
            return
        if options := self._options.get(workload.policy):
            workload = option_of_workload(workload, cluster_queue, options)
        if workload.was_unready and not self._by_eviction:
            workload = workload._replace(evicted_at=0)
        if change is QueueCounts.remove:
            workload = self._differences.pop(key, workload)
        elif (slice_ := self._difference(key, workload, cluster_queue)) is not workload:
            self._differences[key] = workload = slice_
        if (counts := self.counts_of.get(cluster_queue)) is None:
            counts = self.counts_of[cluster_queue] = QueueCounts()
        change(counts, key, workload)
        self.dirty.add(cluster_queue)

    def _place(self, key: Key, workload: Workload) -> str:
        """Return the ClusterQueue that it counts in; empty: in none."""
        if workload.stage is Stage.RESERVING:
            return "" if key in self._replaced else workload.cluster_queue
        if workload.stage is Stage.NEITHER or (workload.parent and self._is_spare(key, workload)):
            return ""
        local_queue = self._local_queues.get((workload.namespace, workload.queue))
        if local_queue is None or local_queue.stop_policy is not StopPolicy.NONE:
            return ""
        return local_queue.cluster_queue


def option_of_workload(
    workload: Workload, cluster_queue: str, options: Sequence[Option]
) -> Workload:
    """Return the Workload with the option of its queue, if its mark names another one.

    *options* are the policy's, *cluster_queue* the one in which it counts. If no option fits, the
    mark is kept.
    """
    there = [option.name for option in options if _is_of(option, workload, cluster_queue)]
    if not there or workload.option in there:
        return workload
    return workload._replace(option=there[0])


def _is_of(option: Option, workload: Workload, cluster_queue: str) -> bool:
    if option.queue:
        return option.queue == workload.queue
    return option.cluster_queue == cluster_queue


def _is_alone(workload: Workload | None) -> bool:
    return workload is None or not (workload.replaces or workload.parent)


def _taken_over(workload: Workload | None) -> Iterable[Key]:
    if workload is None or not workload.replaces or workload.stage is not Stage.RESERVING:
        return ()
    return (_replaced(workload),)


def _enter(index: defaultdict[Key, set[Key]], of: Key, key: Key, step: int) -> None:
    """Add a Workload to those of another one of its namespace, or with a step of -1 remove it."""
    entered = index[of]
    if step < 0:
        entered.discard(key)
    elif len(entered) < _MOST_RELATED and of[0] == key[0]:
        entered.add(key)
    if not entered:
        del index[of]


def _replaced(workload: Workload) -> Key:
    """Return the slice that a Workload replaces."""
    namespace, _, name = workload.replaces.rpartition("/")
    return namespace or workload.namespace, name


def _has_come(before: Workload | None, after: Workload) -> bool:
    """Return whether a Workload has got its first quota, or is seen for the first time after it."""
    # One that was evicted waits again, but comes no second time; nor does one that grows.
    has_had = before is not None and (before.charge or before.is_evicted)
    return bool(after.charge) and not has_had and not after.replaces


def _has_reserved(before: Workload | None, after: Workload) -> bool:
    """Return whether it has just got quota and still has AdmissionChecks to pass."""
    held = before is not None and before.stage is Stage.RESERVING
    checked = after.run is not None and after.run.reserved > 0
    return checked and after.stage is Stage.RESERVING and not held


class Obstacles:
    """Keeps what hinders the moves of Jobs: Workloads in, one event at a time; obstacles out.

    Time is that of the newest event.
    """

    def __init__(self) -> None:
        self._by_job: dict[Key, dict[Key, Obstacle]] = {}
        """Job to those of its Workloads that are obstacles."""
        self._starting: dict[Key, Workload] = {}
        """Workloads that have just been admitted."""
        self._published: Mapping[Key, Obstacle] = {}
        self._changed: set[Key] = set()
        """Jobs."""

    def put(self, key: Key, before: Workload | None, after: Workload | None, newest: int) -> None:
        """Apply a Workload as it is now; *after* None: it was deleted.

        *newest* is the time of the last event on any Workload, in seconds since 1970.
        """
        self._forget(key, before)
        if after is None or not after.job or after.obstacle in (None, Obstacle.FINISHED):
            return
        if after.obstacle is Obstacle.QUOTA_RESERVED and after.admitted:
            if after.admitted < newest - STARTING_SECONDS:
                return
            self._starting[key] = after
        job = after.namespace, after.job
        self._by_job.setdefault(job, {})[key] = after.obstacle
        self._changed.add(job)

    def current(self, newest: int) -> Mapping[Key, Obstacle]:
        """Return the obstacle of each Job that has one.

        The same object as long as nothing changes.
        """
        started = newest - STARTING_SECONDS
        for key, workload in list(self._starting.items()):
            if workload.admitted < started:
                self._forget(key, workload)
        if self._changed:
            published = dict(self._published)
            for job in self._changed:
                if job in self._by_job:
                    published[job] = next(iter(self._by_job[job].values()))
                else:
                    published.pop(job, None)
            self._published = published
            self._changed.clear()
        return self._published

    def _forget(self, key: Key, workload: Workload | None) -> None:
        self._starting.pop(key, None)
        if workload is None:
            return
        job = workload.namespace, workload.job
        of_job = self._by_job.get(job, {})
        if of_job.pop(key, None) is not None:
            self._changed.add(job)
            if not of_job:
                del self._by_job[job]
