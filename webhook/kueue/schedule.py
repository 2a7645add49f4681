"""When the Workloads of a cohort tree start and finish, as Kueue would admit them: an event loop.

Forecasts run it to its end on expected run times, ``simulate`` step by step on true ones. Trees
share no quota, so each has a Schedule of its own. It knows no clock: all times are seconds since
the beginning of the schedule.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import floor, inf, sqrt
from typing import Final

from webhook.kueue.assignment import Oracle
from webhook.kueue.cycle_preemptions import CyclePreemptions, IssuedPreemptions
from webhook.kueue.exact_cycles import ExactCycles
from webhook.kueue.fair_rounds import LocalQueueUse
from webhook.kueue.flavor_plan import Demand, demand_of
from webhook.kueue.lone_queue_cycle import LoneQueueCycle
from webhook.kueue.newcomer_turns import NewcomerTurns
from webhook.kueue.obtainable_quota import ObtainableQuota
from webhook.kueue.preemption import PreemptionReason
from webhook.kueue.queue_heads import (
    ClusterQueueHeads,
    PendingGroup,
    QueueEntry,
    Shape,
    is_strict,
    shape_of,
)
from webhook.kueue.quota import Taken, UsageTree
from webhook.kueue.quota_holders import QuotaHolders, RunningGroup, StartedWorkloads
from webhook.kueue.quota_releases import (
    ReleaseMoments,
    RequeueBatch,
    Runs,
    batch_seconds,
    may_preempt,
)
from webhook.kueue.scheduling_cycle import (
    SchedulingCycle,
    StartedGroup,
)
from webhook.kueue.turns import Kept, with_set_aside
from webhook.model.queues import (
    Amounts,
    ClusterQueue,
    KueueConfig,
    Preemption,
    StopPolicy,
)

EVICTION_SECONDS: Final = 1.0
"""For how long a preempted Workload still holds its quota, where nothing is known of it."""
_SHARED = "events share cycles here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """What becomes of Workloads that are preempted."""

    seconds: float = EVICTION_SECONDS
    """For how long they still hold their quota."""
    resumes: bool = False
    """They go on with what they have left to run; False: from the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptedWorkloads:
    """Equal Workloads that were preempted together."""

    at: float
    """When their preemption was issued, in seconds since the beginning of the schedule."""
    key: str
    cluster_queue: str
    count: int
    usage: Taken
    """Of all of them together."""
    reason: PreemptionReason
    by: str
    """The key of the Workload that preempts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Workloads that hold quota when they are added to a Schedule."""

    cluster_queue: str
    usage: Amounts
    """Of all of them together."""
    seconds: float
    """Expected run time that is left."""
    spread: float = 0.0
    """Standard deviation of ``seconds``, in seconds."""
    count: int = 1
    key: str = ""
    priority: int | None = None
    """None: it is not known, and they are not preempted."""
    order: float = -inf
    """Their place by age among those that wait: the least is the oldest."""
    reserved_at: float = 0.0
    """When they got their quota, in seconds since the beginning of the schedule: before it."""
    uid: str = ""
    local_queue: str = ""
    """``namespace/name``"""
    demand: Demand | None = None
    """What they wait for if they begin again; None: the flavors that they have."""
    whole: tuple[float, float] | None = None
    """Seconds of a whole run and their standard deviation, for those that begin again; None: what
    is left."""


class Schedule:
    """The running and pending Workloads of one cohort tree, event by event.

    *kueue* says whether sharing is fair, and how long released quota lies idle. *grain* is the
    part of the time since the beginning within which events share one scheduling cycle: 0 is
    exact. Each start then gets the time of a release within the grain, so that quota neither lies
    idle in between nor is used twice.

    *keep* records what starts; *live* also what finishes, step by step (see ``Runs``).
    """

    unix: float | None = None
    """When the schedule begins, in seconds since 1970. Where the caller sets it, times of
    reservation are whole seconds of that clock, as Kueue compares them."""
    _use: LocalQueueUse | None = None
    _is_first = True
    _order = 0

    def __init__(  # noqa: PLR0913 - how it is run and what is recorded
        self,
        tree: UsageTree,
        queues: Iterable[ClusterQueue],
        *,
        kueue: KueueConfig,
        grain: float = 0.0,
        keep: bool = False,
        live: bool = False,
        oracle_of: Callable[[ClusterQueueHeads], Oracle] | None = None,
    ) -> None:
        """Begin with nothing running or pending.

        *oracle_of* says whom a head may preempt, and then nobody is preempted; None: the Workloads
        that are added.
        """
        self.tree = tree
        self.now = 0.0
        """Seconds since the beginning of the schedule."""
        self.begun: list[StartedWorkloads] = []
        """With *keep* or *live*, what has started since the caller last emptied this list."""
        self.started: list[StartedGroup] = []
        """What the last cycle has started."""
        self.running = 0
        """Number of Workloads that hold quota."""
        self.done_variance = 0.0
        """Sum of the variances of the runs that have finished, in seconds squared."""
        self.spread = 0.0
        """Standard deviation of the time at which quota was last released, in seconds."""
        self.waits: dict[str, dict[float, float]] = {}
        """ClusterQueue to priority to when the last Workload with it started."""
        self._queues = {queue.name: queue for queue in queues if queue.name in tree.leaves}
        self._grain, self._keep = grain, keep or live
        self._batch = RequeueBatch(0.0 if grain else batch_seconds(self._queues.values(), kueue))
        self.runs = Runs(self._idle_seconds(kueue), live=live)
        self.preempted: list[PreemptedWorkloads] = []
        """With *keep* or *live*, what was preempted since the caller last emptied this list."""
        self.eviction = Eviction()
        """The caller may set it before the first step."""
        self._evicted: list[tuple[float, int, RunningGroup]] = []
        """A heap of the groups that lose their quota, by when they do."""
        self._holders = None if oracle_of is not None else self._quota_holders(kueue)
        self._preemptions = None if self._holders is None else CyclePreemptions(tree, self._holders)
        self._exact = (
            None
            if grain
            else ExactCycles(tree, kueue, preemptions=self._preemptions, came_one_by_one=not live)
        )
        self._cycle = self._exact or self._shared_cycle(kueue, oracle_of)
        if oracle_of is not None:
            self._cycle.claims.oracle_of = oracle_of
        self.shapes: dict[tuple[str, Demand | int], tuple[Demand, Shape]] = {}
        """Demands in the tree's indices, by ClusterQueue and what is asked, and by its id, which is
        faster; the caller may share them among the Schedules of copies of one tree."""
        self._arrivals: list[tuple[float, int, str, QueueEntry]] = []

    def _shared_cycle(
        self,
        kueue: KueueConfig,
        oracle_of: Callable[[ClusterQueueHeads], Oracle] | None,
    ) -> SchedulingCycle | LoneQueueCycle:
        """Return the cycles that events share."""
        tree, queues = self.tree, self._queues.values()
        is_alone = len(tree.heights) == 1 and not any(queue.usage_based for queue in queues)
        if is_alone and self._preemptions is None and oracle_of is None:
            return LoneQueueCycle(tree, kueue)
        return SchedulingCycle(tree, queues, kueue, preemptions=self._preemptions)

    def _idle_seconds(self, kueue: KueueConfig) -> Mapping[int, float]:
        """Return for how long quota lies idle that each ClusterQueue releases, by its node."""
        return {
            self.tree.leaves[queue.name]: 0.0
            if is_strict(queue) or self._batch.seconds
            else kueue.requeue_seconds
            for queue in self._queues.values()
        }

    def _quota_holders(self, kueue: KueueConfig) -> QuotaHolders | None:
        """Return who may be preempted; None: no ClusterQueue of the tree may preempt."""
        if not any(map(may_preempt, self._queues.values())):
            return None
        of_leaf = {self.tree.leaves[name]: queue for name, queue in self._queues.items()}
        return QuotaHolders(self.tree, of_leaf, kueue)

    @cached_property
    def _obtainable(self) -> ObtainableQuota | None:
        """Return what newcomers may preempt for; None: no ClusterQueue of the tree may preempt."""
        return None if self._holders is None else ObtainableQuota(self.tree, self._holders)

    @property
    def is_exact(self) -> bool:
        """Whether each of Kueue's cycles is run."""
        return self._exact is not None

    @property
    def tries(self) -> int:
        """Number of heads that were tried, if each of Kueue's cycles is run."""
        return 0 if self._exact is None else self._exact.tries

    @property
    def preempts(self) -> bool:
        """Whether some ClusterQueue of the tree may preempt."""
        return self._holders is not None

    @property
    def preemptors(self) -> Sequence[str]:
        """Return the ClusterQueues whose Workloads may preempt others."""
        return [name for name, queue in self._queues.items() if may_preempt(queue)]

    @property
    def preemption_policies(self) -> Mapping[int, Preemption]:
        """Return the policy of each ClusterQueue, by its node."""
        return {self.tree.leaves[name]: queue.preemption for name, queue in self._queues.items()}

    @property
    def evicts(self) -> bool:
        """Whether Workloads that were preempted still have to stop."""
        return bool(self._evicted)

    def lowest(self) -> Sequence[float]:
        """Return the lowest priority that holds quota, by node, in a tree that may preempt."""
        return [] if self._holders is None else self._holders.lowest[:]

    def obtainable(
        self, cluster_queue: str, priority: int, *, by_search: bool = False
    ) -> Sequence[int]:
        """Return what a newcomer could have of each cell now, with what it would preempt.

        What is set aside for heads it could not. *by_search*: as in ``ObtainableQuota``.
        """
        leaf, tree = self.tree.leaves[cluster_queue], self.tree
        used, tree.used[:] = tree.used[:], with_set_aside(tree, self._cycle.kept)
        if self._obtainable is None:
            row: Sequence[int] = [tree.available(leaf, cell) for cell in range(tree.width)]
        else:
            row = self._obtainable.of(leaf, priority, by_search=by_search)
        tree.used[:] = used
        return row

    def order_by_use(self, use: LocalQueueUse) -> None:
        """Serve LocalQueues by what they have used, before Workloads are added."""
        self._use = use
        self._cycle.order_by_use(use)
        if self._holders is not None:
            self._holders.order_by_use(use.amounts)

    def add_running(self, run: Running) -> None:
        """Add Workloads that hold quota already, and charge it.

        Raises:
            KeyError: their ClusterQueue is not in this tree.

        """
        indices = self.tree.indices
        # Usage of a flavor that has no quota in this tree limits nobody.
        taken = tuple((indices[cell], n) for cell, n in run.usage.items() if cell in indices)
        leaf = self.tree.leaves[run.cluster_queue]
        self.tree.charge(leaf, taken)
        group = RunningGroup(
            leaf=leaf,
            taken=taken,
            count=run.count,
            variance=run.spread**2,
            priority=run.priority,
            order=run.order,
            reserved_at=self.now + run.reserved_at,
            uid=run.uid,
            local_queue=run.local_queue,
        )
        if self._use is not None:
            self._use.hold(run.local_queue, taken, 1)
        if self._holders is not None and run.priority is not None:
            group.entry = self._entry_of(run)
        self._run(self.now + run.seconds, group)

    def _entry_of(self, run: Running) -> QueueEntry:
        """Return as what Workloads wait that held quota before the schedule began."""
        seconds, spread = run.whole or (run.seconds, run.spread)
        waiting = PendingGroup(
            cluster_queue=run.cluster_queue,
            # What else would do than the flavors that they had is not always known.
            demand=run.demand or demand_of(run.usage, run.count),
            seconds=seconds,
            spread=spread,
            priority=run.priority or 0,
            count=run.count,
            key=run.key,
            uid=run.uid,
            local_queue=run.local_queue,
        )
        return QueueEntry(self._shape_of(run.cluster_queue, waiting.demand), waiting, run.count)

    def add_waiting(self, waiting: PendingGroup, *, age: int | None = None) -> None:
        """Queue Workloads; those of one priority count as older the earlier they are added.

        After the first cycle they compete from the next event on, which may be now. Those of an
        unknown or stopped ClusterQueue are ignored. *age* replaces the order of adding, the least
        is the oldest; it must be given for all Workloads of a Schedule or for none.
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
            self._cycle.join(queue, entry, order)

    def withdraw(self, key: str) -> None:
        """Remove the pending Workloads with this key, if there are any, from an exact schedule.

        Those that are preempted and still stop give their quota back, and do not wait again.
        """
        if self._exact is None:
            raise TypeError(_SHARED)
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
            self._exact.withdraw(key)

    def next_event(self) -> float:
        """Return the time of the next event, the first cycle included; inf: there is none.

        In seconds since the beginning of the schedule.
        """
        if self._is_first:
            return self.now
        first = min(self.runs.next_at(), self._batch.at)
        if self._arrivals:
            first = min(first, self._arrivals[0][0])
        if self._evicted:
            first = min(first, self._evicted[0][0])
        return max(self.now, first)

    def start_what_fits(self) -> int:
        """Run a scheduling cycle now, and return how many groups of equal Workloads started."""
        return self._begin(())

    def step(self) -> bool:
        """Advance to the next event and all within the grain after it, then run one cycle.

        The first step runs the first cycle without advancing. Return False, and do nothing, where
        there is no event.
        """
        if self._is_first:
            self.start_what_fits()
            return True
        first = self.next_event()
        if first == inf:
            return False
        if self._batch.at <= first:
            # What is released, or comes, at the same moment is too late for the batch.
            self.now, self._batch.at = first, inf
            self._begin((), wakes=True)
        else:
            self._begin(self._advance(first + self._grain * first), wakes=not self._batch.seconds)
        return True

    def rest(self, awake: frozenset[str], *, preemptors: frozenset[str] = frozenset()) -> None:
        """Begin an exact schedule with all tried in vain but those with these keys.

        *preemptors* are the keys of those who have last preempted in their ClusterQueues: they come
        first there until they start.
        """
        if self._exact is not None:
            self._exact.rest(awake, preemptors)

    def follow(
        self,
        at: float,
        *,
        wakes: bool,
        drawn: Mapping[str, str],
        victims: Collection[str] = (),
        changed: Collection[str] = (),
    ) -> Sequence[tuple[str, str]]:
        """Run one cycle at a time at which Kueue was seen to run one, in an exact schedule.

        *wakes*: a requeue batch has come since the last. *drawn*: ClusterQueue to the key of its
        head, where Kueue's order does not say who it is. *victims*: UIDs of those that are
        preempted first, where it does not say who is. *changed*: ClusterQueues in which Kueue has
        seen written, since the last cycle, that a Workload has got or lost quota. Returns who
        would have been a head, and who was drawn instead.
        """
        cycles = self._exact
        if cycles is None:
            raise TypeError(_SHARED)
        self._advance(at)
        self.now, self._batch.at, self._is_first = at, inf, False
        cycles.drawn = {self.tree.leaves[name]: key for name, key in drawn.items()}
        if self._holders is not None:
            self._holders.preemptions.draw(victims)
        cycles.note_changes(changed)
        if wakes:
            cycles.wake()
        self._note_all(self._started())
        return cycles.overruled

    def _advance(self, until: float) -> list[tuple[float, int]]:
        """Release quota and let Workloads come up to *until*; return the releases."""
        releases = self._release(until)
        if self._holders is not None:
            self._stop_evicted(until)
        # Arrivals within the grain compete in the same cycle, so that their order is Kueue's.
        while self._arrivals and self._arrivals[0][0] <= until:
            at, order, name, entry = heapq.heappop(self._arrivals)
            self.now = max(self.now, at)
            self._cycle.join(self._queues[name], entry, order)
        return releases

    @property
    def is_settled(self) -> bool:
        """Whether all that is pending was tried since quota was last released."""
        return self._batch.at == inf

    def stop(self, key: str, at: float) -> None:
        """Let the preempted Workloads with this key give their quota back at *at*."""
        self._evicted = [
            (at if group.entry is not None and group.entry.waiting.key == key else due, n, group)
            for due, n, group in self._evicted
        ]
        heapq.heapify(self._evicted)

    def waiting(self) -> Iterator[ClusterQueueHeads]:
        """Return the queues in which Workloads are pending now."""
        return self._cycle.waiting()

    def tried(self) -> Iterator[ClusterQueueHeads]:
        """Return the heads behind which others of their ClusterQueues wait, if it is exact."""
        if self._exact is None:
            raise TypeError(_SHARED)
        return self._exact.tried()

    @property
    def kept(self) -> Sequence[Kept]:
        """Quota set aside for heads after the last cycle."""
        return self._cycle.kept

    def awaited(self) -> Collection[int]:
        """Return the ClusterQueues, by node, in which a head waits for its victims.

        Nobody else of them is tried meanwhile.
        """
        if self._exact is not None:
            return self._exact.awaited()
        return () if self._preemptions is None else self._preemptions.awaited()

    def newcomer_turns(self) -> NewcomerTurns:
        """Return what tells the usage at the turns of newcomers."""
        by_use = None
        if self._use is not None:
            by_use = [
                (self.tree.leaves[name], local_queue)
                for local_queue, name in self._use.cluster_queues.items()
                # In front of a StrictFIFO queue a newcomer would block who waits.
                if not is_strict(self._queues[name])
            ]
        return NewcomerTurns(self.tree, self._cycle, preemptions=self._preemptions, by_use=by_use)

    def asked(self) -> Mapping[int, Taken]:
        """Return by ClusterQueue what one of the Workloads uses that hold quota there."""
        return {run.leaf: run.each for run in self.runs.holding()}

    def priorities(self) -> tuple[float, ...]:
        """Return the priorities of all that are pending or still to come, the highest first.

        Workloads that hold quota and may have to give it back count among them.
        """
        waiting: set[float] = {
            entry.waiting.priority for heads in self.waiting() for _, _, entry in heads.entries
        }
        coming = {entry.waiting.priority for _, _, _, entry in self._arrivals}
        held = set() if self._holders is None else self._holders.priorities()
        return tuple(sorted(waiting | coming | held, reverse=True))

    def _release(self, until: float) -> list[tuple[float, int]]:
        """Release quota up to *until*, and return (time, number of Workloads) of each release."""
        releases: list[tuple[float, int]] = []
        leaves: set[int] = set()
        last, variance = None, 0.0
        waits_for_batch = self._batch.seconds > 0
        runs, is_awaited, released = self.runs, self._cycle.is_awaited, 0
        while runs.next_at() <= until:
            at, run = runs.pop(is_awaited)
            self.now = max(self.now, at)
            if run is None:
                continue
            self._free(run, at)
            if waits_for_batch:
                self._batch.expect(at)
            leaves.add(run.leaf)
            releases.append((at, run.count))
            released += run.count
            last, variance = run, variance + run.variance * run.count
        if last is not None:
            # Errors of earlier runs shift later starts, averaged over all Workloads that run.
            self.spread = sqrt(self.done_variance / max(1, self.running) ** 2 + last.variance)
        for leaf in leaves:
            self._cycle.released(leaf)
        self.done_variance += variance
        self.running -= released
        return releases

    def _evict(self, issued: IssuedPreemptions, holders: QuotaHolders) -> None:
        """Let the victims of a head stop, as far as they are not about to already."""
        reasons = {victim.holder.key: victim.reason for victim in issued.victims}
        for group in holders.evict(issued.victims):
            self.running -= group.count
            self._order += 1
            heapq.heappush(self._evicted, (self.now + self.eviction.seconds, self._order, group))
            if self._keep and group.entry is not None:
                self.preempted.append(
                    PreemptedWorkloads(
                        at=self.now,
                        key=group.entry.waiting.key,
                        cluster_queue=group.entry.waiting.cluster_queue,
                        count=group.count,
                        usage=group.taken,
                        reason=reasons[group.holders[0].key],
                        by=issued.key,
                    )
                )

    def _free(self, group: RunningGroup, at: float) -> None:
        """Let a group give its quota back."""
        self.tree.charge(group.leaf, group.taken, -1)
        if self._holders is not None:
            self._holders.release(group)
        if self._use is not None:
            self._use.advance(at)
            self._use.hold(group.local_queue, group.taken, -1)

    def _stop_evicted(self, until: float) -> None:
        """Release the quota of those that were preempted, and let them wait again."""
        while self._evicted and self._evicted[0][0] <= until:
            at, _, group = heapq.heappop(self._evicted)
            self.now = max(self.now, at)
            self._free(group, at)
            self._batch.expect(at)
            self._cycle.released(group.leaf)
            if group.entry is not None:
                waiting = group.entry.waiting
                if self.eviction.resumes:
                    left = max(0.0, group.ends_at - at + self.eviction.seconds)
                    waiting = replace(waiting, seconds=left, by_flavors={})
                entry = QueueEntry(group.entry.shape, waiting, group.count)
                self._cycle.join(self._queues[waiting.cluster_queue], entry, group.order)

    def _begin(self, releases: Sequence[tuple[float, int]], *, wakes: bool = True) -> int:
        """Run cycles, and return how many groups started; *releases* are those before them.

        *wakes*: a requeue batch comes, or none is waited for.
        """
        self.started = []
        if self._exact is None:
            self._note_all(self._started(), releases)
            # In Kueue's next cycles, those behind them in their ClusterQueues may preempt, too.
            while self._cycle.goes_on:
                self._note_all(self._started())
        else:
            self._run_exactly(self._exact, wakes=wakes)
        self._is_first = False
        return len(self.started)

    def _run_exactly(self, cycles: ExactCycles, *, wakes: bool) -> None:
        """Run cycles until the next one would be as the last."""
        cycles.begin()
        if wakes:
            cycles.wake()
        while cycles.is_awake and not cycles.rest_if_in_vain():
            self._note_all(self._started())
            if not cycles.goes_on:
                break

    def _note_all(
        self, started: Sequence[StartedGroup], releases: Sequence[tuple[float, int]] = ()
    ) -> None:
        """Let those run that have got quota: of these releases, or now."""
        if not started:
            return
        # Most often one starts, so it is not summed up over.
        count = started[0].count
        if len(started) > 1:
            count = sum(start.count for start in started)
        moments = ReleaseMoments(releases, count, self.now)
        for start in started:
            # The mean of the releases may lie before a Workload began to compete.
            self._note(start, max(start.entry.waiting.at, moments.of(start.count)))
        self.started += started

    def _started(self) -> list[StartedGroup]:
        """Run one cycle; return what reserves quota in it, and evict whom it preempts."""
        if self._use is not None:
            self._use.advance(self.now)
        started = self._cycle.starts()
        if self._holders is not None:
            for issued in self._cycle.preempted:
                self._evict(issued, self._holders)
        return started

    def _note(self, start: StartedGroup, at: float) -> None:
        """Let a group run from *at* on, for as long as runs take on its flavors."""
        waiting, heads, fitting = start.entry.waiting, start.heads, start.found
        seconds, spread = waiting.seconds, waiting.spread
        if waiting.by_flavors:
            key = ",".join(sorted(set(fitting.flavors)))
            seconds, spread = waiting.by_flavors.get(key, (seconds, spread))
        taken = fitting.taken
        if start.count > 1:
            taken = tuple((cell, amount * start.count) for cell, amount in taken)
        run = RunningGroup(
            leaf=heads.leaf,
            taken=taken,
            count=start.count,
            variance=spread * spread,
            priority=waiting.priority,
            entry=start.entry,
            order=start.order,
            reserved_at=at if self.unix is None else floor(self.unix + at) - self.unix,
            uid=waiting.uid,
            local_queue=waiting.local_queue,
        )
        if self._keep:
            run.begun = StartedWorkloads(
                at=at,
                key=waiting.key,
                cluster_queue=heads.queue.name,
                flavors=fitting.flavors,
                usage=taken,
                count=start.count,
                finish=at + seconds,
                spread=self.spread if at > 0.0 else 0.0,
            )
            self.begun.append(run.begun)
        last = self.waits.setdefault(heads.queue.name, {})
        last[waiting.priority] = max(last.get(waiting.priority, 0.0), at)
        self._run(at + seconds, run)

    def _run(self, until: float, run: RunningGroup) -> None:
        self.running += run.count
        run.ends_at = until
        if self._holders is not None:
            self._holders.hold(run)
        self.runs.add(until, run)

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
