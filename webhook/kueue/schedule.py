"""The one event loop: when Workloads of a cohort tree start and finish, as Kueue would start them.

Forecasts run it to its end on expected run times, ``simulate`` step by step on true ones. Trees do
not touch one another, so each has a Schedule of its own. Preemption is not modelled.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt

from webhook.kueue.flavor_plan import Demand
from webhook.kueue.queue_lines import (
    ClusterQueueHeads,
    PendingGroup,
    QueueEntry,
    Shape,
    is_strict,
    shape_of,
)
from webhook.kueue.quota import Taken, UsageTree
from webhook.kueue.scheduling_cycle import SchedulingCycle, StartedGroup, Turn, with_set_aside
from webhook.model.queues import Amounts, ClusterQueue, KueueConfig, StopPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedWorkloads:
    """Workloads that started, or finished."""

    at: float
    key: str
    cluster_queue: str
    flavors: tuple[str, ...]
    usage: Taken
    count: int
    finish: float


@dataclass(slots=True, kw_only=True)
class RunningGroup:
    leaf: int
    taken: Taken
    count: int
    variance: float
    priority: int | None = None
    """None: it is not known."""
    begun: StartedWorkloads | None = None
    is_over: bool = False
    """Its quota lies idle."""


class Runs:
    """A heap of runs.

    *idle*: for how many seconds quota lies idle that a leaf releases. If *live*, as it happens:
    not where nobody waits, and until the tree's next look; else always, as newcomers find it who
    wait for it from now on.
    """

    def __init__(self, idle: Mapping[int, float], *, live: bool = False) -> None:
        self.ended: list[StartedWorkloads] = []
        """What is over, if live, since it was last emptied;"""
        self.released: list[StartedWorkloads] = []
        """and whose quota no longer lies idle."""
        self._idle, self._is_live = idle, live
        self._heap: list[tuple[float, int, RunningGroup]] = []
        self._order = 0
        self._looks_at = -inf
        """When what was released is looked at again."""

    def add(self, until: float, run: RunningGroup) -> None:
        self._push(until if self._is_live else until + self._idle[run.leaf], run)

    def end(self, key: str, at: float) -> None:
        """Let what runs under a key end: how long it would was not known when it began."""
        number, (_, order, run) = next(
            (number, each)
            for number, each in enumerate(self._heap)
            if each[2].begun is not None and each[2].begun.key == key
        )
        if run.begun is not None:
            run.begun = replace(run.begun, finish=at)
        self._heap[number] = at, order, run
        heapq.heapify(self._heap)

    def next_at(self) -> float:
        """Say when a run is over or its quota looked at, whichever is first; inf: never."""
        return self._heap[0][0] if self._heap else inf

    def pop(self, is_awaited: Callable[[], bool]) -> tuple[float, RunningGroup | None]:
        """Go on to the next of these moments; None: the run is over, and its quota lies idle."""
        at, _, run = heapq.heappop(self._heap)
        if not self._is_live or run.begun is None:
            return at, run
        if not run.is_over:
            run.is_over = True
            self.ended.append(run.begun)
            idle = self._idle[run.leaf]
            if idle and is_awaited():
                if self._looks_at <= at:
                    self._looks_at = at + idle
                self._push(self._looks_at, run)
                return at, None
        self.released.append(run.begun)
        return at, run

    def _push(self, at: float, run: RunningGroup) -> None:
        self._order += 1
        heapq.heappush(self._heap, (at, self._order, run))


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Workloads that hold quota, and for how many seconds from now on."""

    cluster_queue: str
    usage: Amounts
    """Of all of them together."""
    seconds: float
    spread: float = 0.0
    """One sigma of ``seconds``."""
    count: int = 1
    key: str = ""
    priority: int | None = None
    """None: it is not known."""


class Schedule:
    """The Workloads of one tree.

    *kueue*: whether sharing is fair, and how long released quota lies idle. *grain* is the part of
    the time since the beginning within which events are looked at together: 0 is exact. Within a
    grain each start gets the moment of a release of that grain, so that quota is neither idle in
    between nor used twice.

    *keep*: take down who starts; *live*: and who ends, step by step as it happens (see ``Runs``).
    """

    def __init__(
        self,
        tree: UsageTree,
        queues: Iterable[ClusterQueue],
        *,
        kueue: KueueConfig,
        grain: float = 0.0,
        keep: bool = False,
        live: bool = False,
    ) -> None:
        self.tree = tree
        self.now = 0.0
        self.begun: list[StartedWorkloads] = []
        """What started since it was last emptied, if kept."""
        self.running = 0
        self.done_variance = 0.0
        """Of the run times that have ended."""
        self.spread = 0.0
        """One sigma of ``now``, as the moment at which quota was released."""
        self.waits: dict[str, dict[int, float]] = {}
        """ClusterQueue to priority to when the last of it started."""
        self._queues = {queue.name: queue for queue in queues if queue.name in tree.leaves}
        self._grain, self._keep = grain, keep or live
        idle = {
            tree.leaves[queue.name]: 0.0 if is_strict(queue) else kueue.requeue_seconds
            for queue in self._queues.values()
        }
        self.runs = Runs(idle, live=live)
        self._hall = SchedulingCycle(tree, self._queues.values(), fair_sharing=kueue.fair_sharing)
        self._shapes: dict[tuple[str, int], tuple[Demand, Shape]] = {}
        self._arrivals: list[tuple[float, int, str, QueueEntry]] = []
        self._order = 0
        self._is_first = True

    def add_running(self, run: Running) -> None:
        """Let Workloads run that started before."""
        indices = self.tree.indices
        taken = tuple((indices[cell], n) for cell, n in run.usage.items() if cell in indices)
        leaf = self.tree.leaves[run.cluster_queue]
        self.tree.charge(leaf, taken)
        self._hall.claims.hold(leaf, run.priority, run.count)
        self._run(
            self.now + run.seconds,
            RunningGroup(
                leaf=leaf,
                taken=taken,
                count=run.count,
                variance=run.spread**2,
                priority=run.priority,
            ),
        )

    def add_waiting(self, waiting: PendingGroup, *, age: int | None = None) -> None:
        """Let Workloads wait; those of one priority in the order in which they are added.

        After the first look they are looked at with the next event, which may be now. *age*: the
        place in that order, the least the oldest; for all of a Schedule or for none.
        """
        queue = self._queues.get(waiting.cluster_queue)
        if queue is None or not is_open(queue):
            return
        entry = QueueEntry(self._shape_of(waiting), waiting, waiting.count)
        self._order += 1
        order = self._order if age is None else age
        if waiting.at > self.now or not self._is_first:
            heapq.heappush(self._arrivals, (waiting.at, order, queue.name, entry))
        else:
            self._hall.join(queue, entry, order)

    def withdraw(self, key: str) -> None:
        """Take a Workload away that waits; what can never start does not even wait."""
        left = [each for each in self._arrivals if each[3].waiting.key != key]
        if len(left) < len(self._arrivals):
            self._arrivals = left
            heapq.heapify(self._arrivals)
        else:
            self._hall.withdraw(key)

    def next_event(self) -> float:
        """Say when something happens next, the first look included; inf: never."""
        if self._is_first:
            return self.now
        arrival = self._arrivals[0][0] if self._arrivals else inf
        return max(self.now, min(arrival, self.runs.next_at()))

    def start_what_fits(self) -> int:
        """Start what fits now, and say how many."""
        return self._begin(())

    def step(self) -> None:
        """Go on to the next event, and to those within the grain after it."""
        if self._is_first:
            self.start_what_fits()
            return
        first = self.next_event()
        until = first + self._grain * first
        releases = self._release(until)
        while self._arrivals and self._arrivals[0][0] <= until:
            at, order, name, entry = heapq.heappop(self._arrivals)
            self.now = max(self.now, at)
            self._hall.join(self._queues[name], entry, order)
        self._begin(releases)

    def waiting(self) -> Iterator[ClusterQueueHeads]:
        """List those who wait now."""
        return self._hall.waiting()

    @property
    def kept(self) -> Sequence[tuple[int, Taken]]:
        """What is set aside for heads after the last look: (node, amounts)."""
        return [(leaf, aside) for _, _, leaf, aside in self._hall.kept]

    def attend(self, turns: Sequence[Turn]) -> None:
        """Let each look from now on tell what is used at these turns; the first come first."""
        self._hall.turns = turns

    def used(self) -> tuple[list[int], list[list[int]]]:
        """Copy what is used after the last look, and what was at each turn that is attended."""
        after = with_set_aside(self.tree, self._hall.kept)
        before = self._hall.before
        return after, before + [after] * (len(self._hall.turns) - len(before))

    def priorities(self) -> tuple[int, ...]:
        """List the priorities of those who wait or will, the highest first."""
        waiting = {each.waiting.priority for line in self.waiting() for _, _, each in line.entries}
        coming = {entry.waiting.priority for _, _, _, entry in self._arrivals}
        return tuple(sorted(waiting | coming, reverse=True))

    def _release(self, until: float) -> list[tuple[float, int]]:
        releases: list[tuple[float, int]] = []
        leaves: set[int] = set()
        variance = 0.0
        while self.runs.next_at() <= until:
            at, run = self.runs.pop(self._hall.is_awaited)
            self.now = max(self.now, at)
            if run is None:
                continue
            self.tree.charge(run.leaf, run.taken, -1)
            self._hall.claims.hold(run.leaf, run.priority, -run.count)
            leaves.add(run.leaf)
            releases.append((at, run.count))
            self.spread = sqrt(self.done_variance / max(1, self.running) ** 2 + run.variance)
            variance += run.variance * run.count
        for leaf in leaves:
            self._hall.released(leaf)
        self.done_variance += variance
        self.running -= sum(count for _, count in releases)
        return releases

    def _begin(self, releases: Sequence[tuple[float, int]]) -> int:
        found = self._hall.starts()
        self._is_first = False
        moments = _Moments(releases, sum(start.count for start in found), self.now)
        for start in found:
            self._note(start, max(start.entry.waiting.at, moments.of(start.count)))
        return len(found)

    def _note(self, start: StartedGroup, at: float) -> None:
        waiting, line, found = start.entry.waiting, start.line, start.found
        seconds, spread = waiting.seconds, waiting.spread
        if waiting.by_flavors:
            key = ",".join(sorted(set(found.flavors)))
            seconds, spread = waiting.by_flavors.get(key, (seconds, spread))
        taken = tuple((cell, amount * start.count) for cell, amount in found.taken)
        run = RunningGroup(
            leaf=line.leaf,
            taken=taken,
            count=start.count,
            variance=spread * spread,
            priority=waiting.priority,
        )
        if self._keep:
            run.begun = StartedWorkloads(
                at=at,
                key=waiting.key,
                cluster_queue=line.queue.name,
                flavors=found.flavors,
                usage=taken,
                count=start.count,
                finish=at + seconds,
            )
            self.begun.append(run.begun)
        last = self.waits.setdefault(line.queue.name, {})
        last[waiting.priority] = max(last.get(waiting.priority, 0.0), at)
        self._run(at + seconds, run)

    def _run(self, until: float, run: RunningGroup) -> None:
        self.running += run.count
        self.runs.add(until, run)

    def _shape_of(self, waiting: PendingGroup) -> Shape:
        key = waiting.cluster_queue, id(waiting.demand)
        if key not in self._shapes:
            leaf = self.tree.leaves[waiting.cluster_queue]
            # The demand is kept with its id, so that it stays its own.
            self._shapes[key] = waiting.demand, shape_of(self.tree, leaf, waiting.demand)
        return self._shapes[key][1]


class _Moments:
    """Deals the moments of releases out to starts in order, in equal shares."""

    def __init__(self, releases: Sequence[tuple[float, int]], starts: int, now: float) -> None:
        self._now = now
        self._sums = [0.0]
        self._counts = [0]
        for at, count in releases:
            self._sums.append(self._sums[-1] + at * count)
            self._counts.append(self._counts[-1] + count)
        self._starts, self._dealt = starts, 0
        self._is_one = not releases or releases[0][0] == releases[-1][0] == now

    def of(self, count: int) -> float:
        """Return the mean moment of the next *count* starts.

        Starts that need several releases each have the moment of the last one of them.
        """
        if self._is_one:
            return self._now
        share = self._counts[-1] / self._starts
        low, high = self._dealt * share, (self._dealt + count) * share
        self._dealt += count
        if share > 1:
            low = high - 1
        return (self._sum_to(high) - self._sum_to(low)) / (high - low)

    def _sum_to(self, position: float) -> float:
        """Add up the moments of the first releases, a part of the last one included."""
        index = min(bisect_left(self._counts, position), len(self._counts) - 1)
        if index == 0:
            return 0.0
        width = self._counts[index] - self._counts[index - 1]
        part = (position - self._counts[index - 1]) / width
        return self._sums[index - 1] + part * (self._sums[index] - self._sums[index - 1])


def is_open(queue: ClusterQueue) -> bool:
    """Tell whether Kueue starts anybody in it."""
    return queue.active and queue.stop_policy is StopPolicy.NONE
