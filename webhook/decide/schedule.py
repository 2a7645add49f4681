"""The one event loop: when Workloads of a cohort tree start and finish, as Kueue would start them.

Forecasts run it to its end on expected run times, ``simulate`` step by step on true ones. Trees do
not touch one another, so each has a Schedule of its own. Preemption is not modelled.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt

from webhook.decide import lines
from webhook.decide.demand import Demand
from webhook.decide.lines import Entry, Fitting, Line
from webhook.decide.tree import Taken, Tree
from webhook.model.queues import Amounts, ClusterQueue, Queueing, StopPolicy


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Equal Workloads that want quota, one after another."""

    cluster_queue: str
    demand: Demand
    seconds: float
    """Expected run time."""
    spread: float = 0.0
    """One sigma of ``seconds``."""
    by_flavors: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Flavors, joined by commas, to seconds and spread where they differ."""
    priority: int = 0
    count: int = 1
    at: float = 0.0
    """When it begins to compete."""
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """Workloads that started, or finished."""

    at: float
    key: str
    cluster_queue: str
    flavors: tuple[str, ...]
    usage: Taken
    count: int
    finish: float


@dataclass(slots=True, kw_only=True)
class _Run:
    leaf: int
    taken: Taken
    count: int
    variance: float
    begun: Begun | None = None


@dataclass(slots=True, kw_only=True)
class _Start:
    """Found in one look; when exactly is known once all of the look are."""

    line: Line
    entry: Entry
    found: Fitting
    count: int


class Schedule:
    """The Workloads of one tree.

    *grain* is the part of the time since the beginning within which events are looked at together:
    0 is exact. Within a grain each start gets the moment of a release of that grain, so that
    quota is neither idle in between nor used twice.
    """

    def __init__(
        self,
        tree: Tree,
        queues: Iterable[ClusterQueue],
        *,
        grain: float = 0.0,
        fair_sharing: bool = False,
        keep: bool = False,
    ) -> None:
        self.tree = tree
        self.now = 0.0
        self.begun: list[Begun] = []
        """What started since it was last emptied, if kept."""
        self.ended: list[Begun] = []
        self.running = 0
        self.done_variance = 0.0
        """Of the run times that have ended."""
        self.spread = 0.0
        """One sigma of ``now``, as the moment at which quota was released."""
        self.waits: dict[str, dict[int, float]] = {}
        """StrictFIFO ClusterQueue to priority to when the last of it started."""
        self.kept: Sequence[tuple[int, Taken]] = ()
        """What is set aside for heads after the last look: (node, amounts)."""
        self._queues = {queue.name: queue for queue in queues if queue.name in tree.leaves}
        self._grain, self._fair_sharing, self._keep = grain, fair_sharing, keep
        self._lines: dict[object, Line] = {}
        self._parts: dict[tuple[str, int], tuple[Demand, lines.Parts]] = {}
        self._runs: list[tuple[float, int, _Run]] = []
        self._arrivals: list[tuple[float, int, str, Entry]] = []
        self._order = 0
        self._is_first = True
        self._has_cohort = any(parent >= 0 for parent in tree.parents)
        self._sets_aside = self._has_cohort and any(
            queue.queueing is Queueing.STRICT for queue in self._queues.values()
        )

    def add_running(self, run: Running) -> None:
        """Let Workloads run that started before."""
        indices = self.tree.indices
        taken = tuple((indices[cell], n) for cell, n in run.usage.items() if cell in indices)
        leaf = self.tree.leaves[run.cluster_queue]
        self.tree.charge(leaf, taken)
        self._run(
            self.now + run.seconds,
            _Run(leaf=leaf, taken=taken, count=run.count, variance=run.spread**2),
        )

    def add_waiting(self, waiting: Waiting) -> None:
        """Let Workloads wait; those of one priority in the order in which they are added."""
        queue = self._queues.get(waiting.cluster_queue)
        if queue is None or not is_open(queue):
            return
        entry = Entry(
            parts=self._parts_of(waiting),
            count=waiting.count,
            seconds=waiting.seconds,
            variance=waiting.spread**2,
            priority=waiting.priority,
            at=waiting.at,
            by_flavors=waiting.by_flavors,
            key=waiting.key,
        )
        self._order += 1
        if waiting.at > self.now:
            heapq.heappush(self._arrivals, (waiting.at, self._order, queue.name, entry))
        else:
            self._join(queue, entry, self._order)

    def next_event(self) -> float:
        """Say when something happens next; inf: never."""
        times = [heap[0][0] for heap in (self._runs, self._arrivals) if heap]
        return max(self.now, min(times, default=inf))

    def look(self) -> int:
        """Start what fits now, and say how many."""
        return self._begin(())

    def step(self) -> None:
        """Go on to the next event, and to those within the grain after it."""
        first = self.next_event()
        until = first + self._grain * first
        if self._is_first and first > self.now:
            self.look()
            return
        releases = self._release(until)
        while self._arrivals and self._arrivals[0][0] <= until:
            at, order, name, entry = heapq.heappop(self._arrivals)
            self.now = max(self.now, at)
            self._join(self._queues[name], entry, order)
        self._begin(releases)

    def pending(self) -> list[Line]:
        """List those who wait now."""
        return [line for line in self._lines.values() if line.entries]

    def _release(self, until: float) -> list[tuple[float, int]]:
        releases: list[tuple[float, int]] = []
        variance = 0.0
        while self._runs and self._runs[0][0] <= until:
            at, _, run = heapq.heappop(self._runs)
            self.tree.charge(run.leaf, [(cell, -amount) for cell, amount in run.taken])
            releases.append((at, run.count))
            self.spread = sqrt(self.done_variance / max(1, self.running) ** 2 + run.variance)
            variance += run.variance * run.count
            self.now = max(self.now, at)
            if self._keep and run.begun is not None:
                self.ended.append(run.begun)
        self.done_variance += variance
        self.running -= sum(count for _, count in releases)
        return releases

    def _begin(self, releases: Sequence[tuple[float, int]]) -> int:
        found = self._starts()
        self._is_first = False
        moments = _Moments(releases, sum(start.count for start in found), self.now)
        for start in found:
            self._note(start, max(start.entry.at, moments.of(start.count)))
        return len(found)

    def _note(self, start: _Start, at: float) -> None:
        entry, line, found = start.entry, start.line, start.found
        seconds, variance = entry.seconds, entry.variance
        if entry.by_flavors:
            key = ",".join(sorted(set(found.flavors)))
            seconds, spread = entry.by_flavors.get(key, (seconds, sqrt(variance)))
            variance = spread**2
        taken = tuple((cell, amount * start.count) for cell, amount in found.taken)
        run = _Run(leaf=line.leaf, taken=taken, count=start.count, variance=variance)
        if self._keep:
            run.begun = Begun(
                at=at,
                key=entry.key,
                cluster_queue=line.queue.name,
                flavors=found.flavors,
                usage=taken,
                count=start.count,
                finish=at + seconds,
            )
            self.begun.append(run.begun)
        if line.is_strict:
            last = self.waits.setdefault(line.queue.name, {})
            last[entry.priority] = max(last.get(entry.priority, 0.0), at)
        self._run(at + seconds, run)

    def _run(self, until: float, run: _Run) -> None:
        self._order += 1
        self.running += run.count
        heapq.heappush(self._runs, (until, self._order, run))

    def _starts(self) -> list[_Start]:
        """Look at the first of each line: own quota first, then priority, then age.

        At the very first look age alone counts within a priority, as in ``decide.occupancy``: most
        of those who wait then have just come, and Kueue has taken them one by one.
        """
        started: list[_Start] = []
        kept: list[tuple[int, int, int, Taken]] = []
        ready = self._ready()
        while ready:
            key, line = heapq.heappop(ready)
            found = lines.fitting(self.tree, line)
            if found is None:
                continue
            if found.fits and (again := self._key(line, found)) > key:
                heapq.heappush(ready, (again, line))
                continue
            if not found.fits or self._is_kept_out(line, found, kept):
                if line.is_strict and not found.fits and self._sets_aside:
                    aside = lines.set_aside(self.tree, line, found, fair_sharing=self._fair_sharing)
                    kept.append((found.height, -line.first().priority, line.leaf, aside))
                continue
            started.append(self._take(line, found, is_alone=not kept))
            if line.entries and (next_found := self._found(line)) is not None:
                heapq.heappush(ready, (self._key(line, next_found), line))
        self.kept = [(leaf, aside) for _, _, leaf, aside in kept if aside]
        return started

    def _ready(self) -> list[tuple[tuple[int, int, int], Line]]:
        found = [
            (self._key(line, fitting), line)
            for line in self._lines.values()
            if line.entries and (fitting := self._found(line)) is not None
        ]
        heapq.heapify(found)
        return found

    def _found(self, line: Line) -> Fitting | None:
        """See how the first of a line fits; None where it need not be looked at again."""
        if not lines.has_room(self.tree, line) and not (self._sets_aside and line.is_strict):
            return None
        found = lines.fitting(self.tree, line)
        if found is None or found.fits or (self._sets_aside and line.is_strict):
            return found
        return None

    def _take(self, line: Line, found: Fitting, *, is_alone: bool) -> _Start:
        entry = line.first()
        keeps_height = self._has_cohort and not self._is_first
        count = lines.alike(self.tree, line, found, keeps_height=keeps_height) if is_alone else 1
        self.tree.charge(line.leaf, [(cell, amount * count) for cell, amount in found.taken])
        line.take(count)
        return _Start(line=line, entry=entry, found=found, count=count)

    def _key(self, line: Line, found: Fitting) -> tuple[int, int, int]:
        priority, order, _ = line.entries[0]
        return (0 if self._is_first else found.height, priority, order)

    def _is_kept_out(
        self, line: Line, found: Fitting, kept: Sequence[tuple[int, int, int, Taken]]
    ) -> bool:
        """Tell whether it fits only with what is set aside for heads that come before it."""
        mine = (found.height, -line.first().priority)
        before = [(leaf, aside) for height, order, leaf, aside in kept if (height, order) <= mine]
        if not before:
            return False
        for leaf, aside in before:
            self.tree.charge(leaf, aside)
        room = self.tree.room(line.leaf, found.taken)
        for leaf, aside in before:
            self.tree.charge(leaf, [(cell, -amount) for cell, amount in aside])
        return room < 1

    def _join(self, queue: ClusterQueue, entry: Entry, order: int) -> None:
        strict = queue.queueing is Queueing.STRICT
        key = queue.name if strict else (queue.name, entry.parts)
        line = self._lines.get(key)
        if line is None:
            line = Line(queue=queue, leaf=self.tree.leaves[queue.name])
            self._lines[key] = line
        line.add(entry, order)

    def _parts_of(self, waiting: Waiting) -> lines.Parts:
        key = waiting.cluster_queue, id(waiting.demand)
        if key not in self._parts:
            leaf = self.tree.leaves[waiting.cluster_queue]
            # The demand is kept with its id, so that it stays its own.
            self._parts[key] = waiting.demand, lines.parts_of(self.tree, leaf, waiting.demand)
        return self._parts[key][1]


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

    def of(self, count: int) -> float:
        """Return the mean moment of the next *count* starts.

        Starts that need several releases each have the moment of the last one of them.
        """
        if len(self._counts) == 1:
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
