"""When the Workloads of a cohort tree start and finish, as Kueue would admit them: an event loop.

Forecasts run it to its end on expected run times, ``simulate`` step by step on true ones. Trees
share no quota, so each has a Simulation of its own. It knows no clock: all times are seconds since
its beginning.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import floor, inf, sqrt
from typing import Final

from webhook.kueue.assignment import DomainsInUse, Oracle
from webhook.kueue.cycle import Contender, Cycles, Kept
from webhook.kueue.cycle_log import Change, CycleLog, Kind, Rank
from webhook.kueue.fair_sharing import LocalQueueUse
from webhook.kueue.flavor_plan import NOWHERE, Demand, demand_of
from webhook.kueue.preemption import TriedHead
from webhook.kueue.queue_lines import (
    ClusterQueueHeads,
    PendingGroup,
    QueueEntry,
    Shape,
    shape_of,
)
from webhook.kueue.quota import UsageTree
from webhook.kueue.quota_holders import QuotaHolders, StartedWorkloads
from webhook.model.quantity import Amounts
from webhook.model.queues import NEVER, ClusterQueue, KueueConfig, StopPolicy
from webhook.model.topologies import PlacedPods

EVICTION_SECONDS: Final = 1.0
"""For how long a preempted Workload still holds its quota, where nothing is known of it. Then it
waits again, and begins from the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running(PendingGroup):
    """Equal Workloads that hold quota in a ClusterQueue when a Simulation begins.

    What they wait for if they begin again is their demand; ``NOWHERE``: the flavors that they have.
    """

    usage: Amounts
    """Of all of them together."""
    priority: float = inf
    """Infinite: it is not known, and they are not preempted."""
    placed: tuple[PlacedPods, ...] = ()
    """Where the pods of all of them are in the domains of Topologies."""
    started_at: float | None = None
    """When they were admitted, on the clock of *now*; None: quota is reserved, but they are not."""
    seconds: float = inf
    """Expected run time that is left."""
    whole: tuple[float, float] | None = None
    """Seconds of a whole run and their standard deviation, for those that begin again; None: what
    is left."""
    order: float = -inf
    """Their place by age among those that wait: the least is the oldest."""
    reserved_at: float = 0.0
    """When they got their quota, in seconds since the beginning of the simulation: before it."""


class Simulation:
    """The running and pending Workloads of one cohort tree, event by event.

    *grain* is the part of the time since the beginning within which events share one moment: 0 is
    exact. Each start then gets the time of a release within the grain, so that quota neither lies
    idle in between nor is used twice.
    """

    unix: float | None = None
    """When the simulation begins, in seconds since 1970. Where the caller sets it, times of
    reservation are whole seconds of that clock, as Kueue compares them."""
    most_tries: float = inf
    """After so many tries of heads nobody preempts any more."""
    gave_up = False
    """Nobody preempts any more."""
    log: CycleLog | None = None
    """The cycles, if the caller sets it before Workloads are added; None: nobody looks them up."""
    _use: LocalQueueUse | None = None
    _used: Mapping[str, float] = {}
    """What LocalQueues had used as the last cycle began."""
    _is_first = True
    _order = 0

    def __init__(  # noqa: PLR0913 - how it is run
        self,
        tree: UsageTree,
        queues: Iterable[ClusterQueue],
        *,
        kueue: KueueConfig,
        grain: float = 0.0,
        came_one_by_one: bool = True,
        oracle_of: Callable[[ClusterQueueHeads], Oracle] | None = None,
        domains: DomainsInUse | None = None,
    ) -> None:
        """Begin with nothing running or pending.

        *came_one_by_one*: those that are added before the first cycle came before now, so Kueue
        took them by priority and age. *oracle_of* says whom a head may preempt, and then nobody is
        preempted; None: the Workloads that are added. *domains*: of the Topologies in which they
        are placed, with what others hold there.
        """
        self.tree = tree
        self.now = 0.0
        """Seconds since the beginning of the simulation."""
        self.begun: list[StartedWorkloads] = []
        """What has started since the caller last emptied this list."""
        self.ended: list[StartedWorkloads] = []
        """What has finished since the caller last emptied this list."""
        self.preempted: list[StartedWorkloads] = []
        """What was preempted since the caller last emptied this list."""
        self.running = 0
        """Number of Workloads that hold quota."""
        self.spread = 0.0
        """Standard deviation of the time at which quota was last released, in seconds."""
        self.eviction_seconds = EVICTION_SECONDS
        """For how long Workloads that are preempted still hold their quota; the caller may set it
        before the first step."""
        self.shapes: dict[tuple[str, Demand | int], tuple[Demand, Shape]] = {}
        """Demands in the tree's indices, by ClusterQueue and what is asked, and by its id, which is
        faster; the caller may share them among the Simulations of copies of one tree."""
        self.batch_seconds = kueue.requeue_seconds
        self._queues = {queue.name: queue for queue in queues if queue.name in tree.leaves}
        self._grain = grain
        self._batch_at = inf
        """When Kueue's next requeue batch comes; inf: none."""
        self._freed = 0
        """Number of Workloads that have given their quota back since the last requeue batch."""
        self._shift = 0.0
        """Variance of later starts that runs cause which have finished, in seconds squared."""
        self._runs: list[tuple[float, int, StartedWorkloads]] = []
        """A heap of what holds quota, by when it finishes."""
        self._evicted: list[tuple[float, int, StartedWorkloads]] = []
        """A heap of the groups that lose their quota, by when they do."""
        self._arrivals: list[tuple[float, int, str, QueueEntry]] = []
        self._holders = None if oracle_of is not None else self._quota_holders(kueue)
        self._cycles = Cycles(
            tree,
            kueue,
            holders=self._holders,
            came_one_by_one=came_one_by_one,
            are_joined=bool(grain),
            oracle_of=oracle_of,
            domains=domains,
        )
        self._domains = domains

    def _quota_holders(self, kueue: KueueConfig) -> QuotaHolders | None:
        """Return who may be preempted; None: no ClusterQueue of the tree may preempt."""
        if not any(map(may_preempt, self._queues.values())):
            return None
        of_leaf = {self.tree.leaves[name]: queue for name, queue in self._queues.items()}
        return QuotaHolders(self.tree, of_leaf, kueue)

    @property
    def tries(self) -> int:
        """Number of heads that were tried."""
        return self._cycles.tries

    @property
    def preempts(self) -> bool:
        """Whether some ClusterQueue of the tree may preempt."""
        return self._holders is not None

    @property
    def evicts(self) -> bool:
        """Whether Workloads that were preempted still have to stop."""
        return bool(self._evicted)

    @property
    def is_settled(self) -> bool:
        """Whether all that is pending was tried since quota was last released."""
        return self._batch_at == inf

    @property
    def kept(self) -> Sequence[Kept]:
        """Quota set aside for heads after the last cycle."""
        return self._cycles.kept

    def holding(self) -> Iterator[StartedWorkloads]:
        """Yield the groups that hold quota and run, in no order."""
        return (run for _, _, run in self._runs if not run.is_evicted)

    def waiting(self) -> Iterator[ClusterQueueHeads]:
        """Return the queues in which Workloads are pending now."""
        return self._cycles.waiting()

    def tried(self) -> Iterator[ClusterQueueHeads]:
        """Return the heads behind which others of their ClusterQueues wait."""
        return self._cycles.tried()

    def order_by_use(self, use: LocalQueueUse) -> None:
        """Serve LocalQueues by what they have used, before Workloads are added."""
        self._use = use
        self._cycles.order_by_use(use)
        if self._holders is not None:
            self._holders.preemptions.order_by_use(use.amounts)

    def add_running(self, run: Running) -> None:
        """Add Workloads that hold quota already, and charge it.

        Raises:
            KeyError: their ClusterQueue is not in this tree.

        """
        if self._holders is not None and run.count > 1:
            for part in _each(run):
                self.add_running(part)
            return
        # Usage of a flavor that has no quota in this tree limits nobody.
        taken = self.tree.taken(run.usage)
        leaf = self.tree.leaves[run.cluster_queue]
        self.tree.charge(leaf, taken)
        group = StartedWorkloads(
            key=run.key,
            cluster_queue=run.cluster_queue,
            leaf=leaf,
            usage=taken,
            count=run.count,
            variance=run.spread**2,
            local_queue=run.local_queue,
            placed=run.placed,
        )
        if self._domains is not None:
            self._domains.shift(run.placed, 1)
        if self._use is not None:
            self._use.hold(run.local_queue, taken, 1)
        if self._holders is not None and run.priority < inf:
            group.entry = self._entry_of(run)
            self._holders.hold(
                group,
                priority=run.priority,
                order=run.order,
                reserved_at=self.now + run.reserved_at,
                uid=run.uid,
            )
        self._run(self.now + run.seconds, group)
        self._log_change(group, 1)

    def _entry_of(self, run: Running) -> QueueEntry:
        """Return as what Workloads wait that held quota before the simulation began."""
        seconds, spread = run.whole or (run.seconds, run.spread)
        # What else would do than the flavors that they had is not always known.
        asked = demand_of(run.usage) if run.demand is NOWHERE else run.demand
        waiting = replace(run, demand=asked, seconds=seconds, spread=spread)
        return QueueEntry(self._shape_of(run.cluster_queue, waiting.demand), waiting, 1)

    def add_waiting(self, waiting: PendingGroup, *, age: int | None = None) -> None:
        """Queue Workloads; those of one priority count as older the earlier they are added.

        After the first cycle they compete from the next event on, which may be now. Those of an
        unknown or stopped ClusterQueue are ignored. *age* replaces the order of adding, the least
        is the oldest; it must be given for all Workloads of a Simulation or for none.
        """
        queue = self._queues.get(waiting.cluster_queue)
        if queue is None or not is_open(queue):
            return
        key = waiting.cluster_queue, id(waiting.demand)
        if key not in self.shapes:
            # The demand is kept beside its id: a freed one's id could be given to another demand.
            self.shapes[key] = waiting.demand, self._shape_of(queue.name, waiting.demand)
        entry = QueueEntry(self.shapes[key][1], waiting, waiting.count)
        # Age stands for the creation time by which Kueue orders Workloads of one priority.
        self._order += 1
        order = self._order if age is None else age
        if waiting.at > self.now or not self._is_first:
            heapq.heappush(self._arrivals, (waiting.at, order, queue.name, entry))
        else:
            self._cycles.join(queue, entry, order)

    def withdraw(self, key: str) -> None:
        """Remove the pending Workloads with this key, if there are any.

        Those that are preempted and still stop give their quota back, and do not wait again.
        """
        for _, _, group in self._evicted:
            if group.entry is not None and group.entry.waiting.key == key:
                group.entry = None
                return
        # Without an arrival of this key it has joined a queue.
        left = [arrival for arrival in self._arrivals if arrival[3].waiting.key != key]
        if len(left) < len(self._arrivals):
            self._arrivals = left
            heapq.heapify(self._arrivals)
        else:
            self._cycles.withdraw(key)

    def end(self, key: str, at: float) -> None:
        """Let the group with this key finish at *at*, whatever was expected when it started.

        Nothing happens where none is running: it may have been preempted as soon as it started.
        """
        for number, (_, order, run) in enumerate(self._runs):
            if run.at > -inf and run.key == key and not run.is_evicted:
                run.finish = at
                self._runs[number] = at, order, run
                heapq.heapify(self._runs)
                return

    def stop(self, key: str, at: float) -> None:
        """Let the preempted Workloads with this key give their quota back at *at*."""
        self._evicted = [
            (at if group.entry is not None and group.entry.waiting.key == key else due, n, group)
            for due, n, group in self._evicted
        ]
        heapq.heapify(self._evicted)

    def next_event(self) -> float:
        """Return the time of the next event, the first cycle included; inf: there is none.

        In seconds since the beginning of the simulation.
        """
        if self._is_first:
            return self.now
        while self._runs and self._runs[0][2].is_evicted:
            heapq.heappop(self._runs)
        heaps = (self._runs, self._arrivals, self._evicted)
        first = min((heap[0][0] for heap in heaps if heap), default=inf)
        return max(self.now, min(first, self._batch_at))

    def run(self) -> None:
        """Go on until nothing is to come any more."""
        while self.step():
            pass

    def step(self) -> bool:
        """Advance to the next event and all within the grain after it, then run cycles.

        The first step runs the first cycles without advancing. Return False, and do nothing, where
        there is no event.
        """
        at = self.next_event()
        if at == inf:
            return False
        if self.tries > self.most_tries and self.preempts and not self.gave_up:
            self.gave_up = True
            self._cycles.stop_preempting()
        if self._is_first:
            self._is_first = False
            self._moment((), wakes=True)
        elif self._grain:
            self._moment(self._advance(at + self._grain * at), wakes=True)
        elif self._batch_at <= at:
            # What is released, or comes, at the same moment is too late for the batch.
            self.now, self._batch_at = at, inf
            self._moment((), wakes=True)
        else:
            self._advance(at)
            self._moment((), wakes=not self.batch_seconds)
        return True

    def rest(self, awake: frozenset[str], *, preemptors: frozenset[str] = frozenset()) -> None:
        """Begin with all tried in vain but those with these keys.

        *preemptors* are the keys of those who have last preempted in their ClusterQueues: they come
        first there until they start.
        """
        self._cycles.rest(awake, preemptors)

    def follow(
        self,
        at: float,
        *,
        wakes: bool,
        drawn: Mapping[str, str],
        victims: Collection[str] = (),
        changed: Collection[str] = (),
    ) -> Sequence[tuple[str, str]]:
        """Run one cycle at a time at which Kueue was seen to run one.

        *wakes*: a requeue batch has come since the last. *drawn*: ClusterQueue to the key of its
        head, where Kueue's order does not say who it is. *victims*: UIDs of those that are
        preempted first, where it does not say who is. *changed*: ClusterQueues in which Kueue has
        seen written, since the last cycle, that a Workload has got or lost quota. Returns who
        would have been a head, and who was drawn instead.
        """
        cycles = self._cycles
        self._advance(at)
        self.now, self._batch_at, self._is_first = at, inf, False
        cycles.drawn = {self.tree.leaves[name]: key for name, key in drawn.items()}
        if self._holders is not None:
            self._holders.preemptions.draw(victims)
        cycles.note_changes(changed)
        if wakes:
            cycles.wake()
        self._note_all(self._started())
        return cycles.overruled

    def _advance(self, until: float) -> list[tuple[float, int]]:
        """Release quota and let Workloads come up to *until*.

        Return (time, number of Workloads) of each release.
        """
        releases = self._release(until)
        self._stop_evicted(until)
        # Arrivals within the grain compete in the same cycle, so that their order is Kueue's.
        while self._arrivals and self._arrivals[0][0] <= until:
            at, order, name, entry = heapq.heappop(self._arrivals)
            self.now = max(self.now, at)
            self._cycles.join(self._queues[name], entry, order)
        return releases

    def _release(self, until: float) -> list[tuple[float, int]]:
        """Let runs end up to *until*, and return (time, number of Workloads) of each end."""
        releases: list[tuple[float, int]] = []
        last, variance = None, 0.0
        while self._runs and self._runs[0][0] <= until:
            at, _, run = heapq.heappop(self._runs)
            if run.is_evicted:
                continue
            self.now = max(self.now, at)
            if run.at > -inf:
                self.ended.append(run)
            self._free(run, at)
            releases.append((at, run.count))
            last, variance = run, variance + run.variance * run.count
        if last is not None:
            self.spread = sqrt(self._shift + last.variance)
        # An error of a run shifts later starts by its part of all that run. Quota that waits for a
        # requeue batch is as good as taken.
        self._shift += variance / max(1, self.running + self._freed) ** 2
        freed = sum(count for _, count in releases)
        self.running -= freed
        self._freed += freed
        return releases

    def _free(self, group: StartedWorkloads, at: float) -> None:
        """Let a group give its quota back, and expect a requeue batch after it."""
        self.tree.charge(group.leaf, group.usage, -1)
        self._log_change(group, -1)
        if self._holders is not None:
            self._holders.release(group)
        if self._domains is not None:
            self._domains.shift(group.placed, -1)
        if self._use is not None:
            self._use.advance(at)
            self._use.hold(group.local_queue, group.usage, -1)
        if self.batch_seconds and not self._grain:
            self._batch_at = min(self._batch_at, at + self.batch_seconds)

    def _stop_evicted(self, until: float) -> None:
        """Release the quota of those that were preempted, and let them wait again."""
        while self._evicted and self._evicted[0][0] <= until:
            at, _, group = heapq.heappop(self._evicted)
            self.now = max(self.now, at)
            order = -inf if group.holder is None else group.holder.queued_at
            self._free(group, at)
            if group.entry is not None:
                waiting = group.entry.waiting
                entry = QueueEntry(group.entry.shape, waiting, 1)
                self._cycles.join(self._queues[waiting.cluster_queue], entry, order)

    def _moment(self, releases: Sequence[tuple[float, int]], *, wakes: bool) -> None:
        """Run cycles until the next one would be as the last; *releases* are those before them.

        *wakes*: a requeue batch comes.
        """
        cycles, started = self._cycles, list[Contender]()
        cycles.begin()
        if wakes:
            self._freed = 0
            cycles.wake()
        while cycles.is_awake and not cycles.rest_if_in_vain():
            now = self._started()
            self._log_cycle(wakes=wakes)
            wakes = False
            if self._grain:
                started += now
                self._log_starts(now)
            else:
                self._note_all(now)
            if not cycles.goes_on:
                break
        self._log_rest(wakes=wakes)
        moments = _moments_of(releases, started, self.now, self.batch_seconds)
        for start, at in zip(started, moments, strict=True):
            # A release may lie before a Workload began to compete.
            run = self._note(start, max(start.entry.waiting.at, at))
            if self.log is not None and run.holder is not None:
                # What it takes is in the log already.
                self.log.note(Change(run.leaf, (), 1, run.holder))

    def _note_all(self, started: Iterable[Contender]) -> None:
        """Let those run from now on that have got quota."""
        for start in started:
            self._log_change(self._note(start, self.now), 1)

    def _started(self) -> list[Contender]:
        """Run one cycle; return what reserves quota in it, and evict whom it preempts."""
        if self._use is not None:
            self._use.advance(self.now)
            self._used = dict(self._use.amounts)
        started = self._cycles.starts()
        if self._holders is not None:
            for head in self._cycles.preempted:
                self._evict(head, self._holders)
        return started

    def _evict(self, head: Contender, holders: QuotaHolders) -> None:
        """Let the victims of a head stop, as far as they are not about to already."""
        for group in holders.evict(head.victims):
            group.preempted_at, group.preempted_by = self.now, head.entry.waiting.key
            self.running -= 1
            self._order += 1
            heapq.heappush(self._evicted, (self.now + self.eviction_seconds, self._order, group))
            self._log_change(group, 0)
            if group.entry is not None:
                self.preempted.append(group)

    def _note(self, start: Contender, at: float) -> StartedWorkloads:
        """Let a group run from *at* on, for as long as runs take on its flavors."""
        waiting, fitting = start.entry.waiting, start.fitting
        seconds, spread = waiting.seconds, waiting.spread
        if waiting.by_flavors:
            key = ",".join(sorted(set(fitting.flavors)))
            seconds, spread = waiting.by_flavors.get(key, (seconds, spread))
        taken = fitting.taken
        if start.count > 1:
            taken = tuple((cell, amount * start.count) for cell, amount in taken)
        run = StartedWorkloads(
            at=at,
            key=waiting.key,
            cluster_queue=start.heads.queue.name,
            flavors=fitting.flavors,
            leaf=start.leaf,
            usage=taken,
            count=start.count,
            spread=self.spread if at > 0.0 else 0.0,
            variance=spread * spread,
            placed=fitting.placed,
            entry=start.entry,
            local_queue=waiting.local_queue,
        )
        self.begun.append(run)
        if self._holders is not None:
            self._holders.hold(
                run,
                priority=waiting.priority,
                order=start.queued_at,
                reserved_at=at if self.unix is None else floor(self.unix + at) - self.unix,
                uid=waiting.uid,
            )
        self._run(at + seconds, run)
        return run

    def _run(self, until: float, run: StartedWorkloads) -> None:
        self.running += run.count
        run.finish = until
        self._order += 1
        heapq.heappush(self._runs, (until, self._order, run))

    def _log_change(self, group: StartedWorkloads, sign: int) -> None:
        if self.log is not None:
            taken = group.usage if sign else ()
            placed = group.placed if sign else ()
            self.log.note(Change(group.leaf, taken, sign, group.holder, placed))

    def _log_starts(self, started: Iterable[Contender]) -> None:
        """Log what starts in a cycle before it is known when in the moment."""
        for start in started:
            taken = tuple((cell, amount * start.count) for cell, amount in start.taken)
            if self.log is not None:
                self.log.note(Change(start.leaf, taken, 1, placed=start.fitting.placed))

    def _log_cycle(self, *, wakes: bool) -> None:
        if self.log is not None:
            cycles = self._cycles
            self._log(cycles.heads, cycles.served, cycles.began, rests=False, wakes=wakes)

    def _log_rest(self, *, wakes: bool) -> None:
        """Log what a moment leaves for those who come after it."""
        if self.log is not None:
            if self._use is not None:
                self._used = dict(self._use.amounts)
            heads, served = self._cycles.still_tried()
            asleep = self._cycles.asleep()
            self._log(heads, served, self.tree.used, asleep=asleep, rests=True, wakes=wakes)

    def _log(
        self,
        heads: Sequence[tuple[int, Rank]],
        served: Sequence[TriedHead],
        used: Sequence[int],
        *,
        rests: bool,
        wakes: bool,
        asleep: frozenset[Kind] = frozenset(),
    ) -> None:
        if self.log is not None:
            self.log.add(
                self.now,
                rests=rests,
                wakes=wakes,
                spread=self.spread,
                heads=heads,
                served=served,
                use=self._used,
                used=used,
                asleep=asleep,
            )

    def _shape_of(self, cluster_queue: str, demand: Demand) -> Shape:
        """Return the Shape of all equal demands: who asks for the same waits as one."""
        key = cluster_queue, demand
        if key not in self.shapes:
            self.shapes[key] = demand, shape_of(self.tree, self.tree.leaves[cluster_queue], demand)
        return self.shapes[key][1]


def is_open(queue: ClusterQueue) -> bool:
    """Return whether Kueue admits Workloads in this ClusterQueue."""
    # ``stopPolicy`` Hold and HoldAndDrain both keep pending Workloads from being admitted.
    return queue.active and queue.stop_policy is StopPolicy.NONE


def may_preempt(queue: ClusterQueue) -> bool:
    """Return whether some policy of a ClusterQueue lets its Workloads preempt others."""
    policies = queue.preemption
    return policies.within_cluster_queue != NEVER or policies.reclaim_within_cohort != NEVER


def _each(run: Running) -> Iterator[Running]:
    """Yield equal Workloads one by one, as they may be preempted one by one."""
    usage = {cell: amount // run.count for cell, amount in run.usage.items()}
    placed = len(run.placed) // run.count
    return (
        replace(run, usage=usage, count=1, placed=run.placed[number * placed :][:placed])
        for number in range(run.count)
    )


def _moments_of(
    releases: Sequence[tuple[float, int]],
    started: Sequence[Contender],
    now: float,
    idle: float,
) -> Iterator[float]:
    """Yield when each group starts of a moment that several events share: *idle* after a release.

    The releases are shared out in order and in equal parts, and each group waits for all its own.
    """
    ends = list(accumulate(count for _, count in releases))
    wanted = sum(start.count for start in started)
    place = 0
    for start in started:
        place += start.count
        if not releases:
            yield now
            continue
        number = bisect_left(ends, place * ends[-1] / wanted)
        yield releases[number][0] + idle
