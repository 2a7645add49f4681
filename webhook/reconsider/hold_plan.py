"""Plans when held Jobs are released: each at its cheapest start that still has room. Pure.

Room is a ClusterQueue's own quota, without what others usually use at that hour, and of which the
Jobs planned before have taken their part: released at one cheap hour, all would wait for one
another, and others for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt
from typing import Final, NamedTuple, TypeAlias

from webhook.cost import terms
from webhook.cost.terms import Span
from webhook.learn.others_use import OthersUse, QueueCell, ReleasedJob
from webhook.model.costs.prices import Prices
from webhook.model.holds import SLOT_SECONDS, Hold
from webhook.model.namespace_shares import in_turn
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode
from webhook.model.quantity import Amounts, FlavorResource
from webhook.model.queues import Held
from webhook.state.snapshot import Snapshot

MOST_PLANNED: Final = 500
"""Jobs that are planned anew at a time, the most urgent of each namespace first; the others keep
their plan."""
_SIGMAS_NOW: Final = 0.25
"""At a release room stays free for so many standard deviations of what runs."""
_WORTH_WAITING: Final = 0.02
"""A Job waits on for its planned start only while that saves so much of what it costs."""


class Release(StrEnum):
    """Why a held Job is released."""

    PLANNED = "planned"
    LATEST = "latest"
    NO_SAVING = "noSaving"
    POLICY = "policy"
    OFF = "off"
    ASKED = "asked"
    FAILING = "failing"
    UNKNOWN = "unknown"


MEANINGS: Final[Mapping[Release, str]] = {
    Release.PLANNED: "its hour has come",
    Release.LATEST: "its latest start has come",
    Release.NO_SAVING: "waiting on would save next to nothing",
    Release.POLICY: "its policy holds no Jobs any more",
    Release.OFF: "decisions are switched off",
    Release.ASKED: "it says that it is never to be held",
    Release.FAILING: "what it runs keeps failing in its option",
    Release.UNKNOWN: "no decision of ours says until when",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldJob:
    """A Job with our gate."""

    namespace: str
    name: str
    version: str
    """Its resourceVersion."""
    queue: str
    policy: str
    option: str
    others: str
    """The gates of others, as the annotation has them."""
    hold: Hold | None
    """None: no decision that is believed says until when."""
    refuses: bool = False
    """It says by now that it is never to be held."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


_BY_PLAN: Final = frozenset({Release.PLANNED, Release.NO_SAVING})


class PlannedStart(NamedTuple):
    """When a Job is to be released, in seconds since 1970."""

    at: float
    """Its cheapest start with room."""
    soonest: float
    """From when on it is released if there is room by then, as waiting on saves next to nothing."""


Plan: TypeAlias = Mapping[str, PlannedStart]
"""By the key of a held Job."""


class _Room:
    """What is left of quotas over time."""

    def __init__(self, snapshot: Snapshot, others: OthersUse, unix: float) -> None:
        self._snapshot, self._others, self._unix = snapshot, others, unix
        self._taken: Counter[tuple[QueueCell, int]] = Counter()
        """Cell and slot to what planned Jobs use then."""
        self._expected: dict[tuple[QueueCell, int], float] = {}
        """Cell and slot to what others are expected to use then: as far as it was asked for."""
        for released in others.released:
            for slot in _slots(unix, released.until):
                for cell, amount in released.usage.items():
                    self._taken[(released.queue, cell), slot] += amount

    def has(self, job: HeldJob, hold: Hold, start: float) -> bool:
        """Tell whether a Job that starts then would have room until its end."""
        quotas = _quotas(job, self._snapshot)
        return all(
            self._fits(used, slot, hold.usage[used[1]], quotas.get(used[1]))
            for used, slot in _cells(job, hold, self._snapshot, start)
        )

    def _fits(self, used: QueueCell, slot: int, wanted: int, quota: int | None) -> bool:
        # What is more than the quota has never room there, and is not planned by it.
        if quota is None or wanted > quota:
            return True
        place = used, slot
        if place not in self._expected:
            at = slot * SLOT_SECONDS
            self._expected[place] = self._others.expected(used, at, self._unix)
        return self._expected[place] + self._taken[place] + wanted <= quota

    def take(self, job: HeldJob, hold: Hold, start: float) -> None:
        for used, slot in _cells(job, hold, self._snapshot, start):
            self._taken[used, slot] += hold.usage[used[1]]


def reason(job: HeldJob, snapshot: Snapshot, start: float, unix: float) -> Release | None:
    """Return why a Job is released at *unix* where its plan lets it from *start* on; None: not.

    What ends a hold does not need prices or a plan: the latest start stands on the Job.
    """
    if job.hold is None:
        return Release.UNKNOWN
    if job.refuses:
        return Release.ASKED
    if snapshot.fallback.off is not None and snapshot.fallback.off.covers(job.namespace):
        return Release.OFF
    if _rules(job, snapshot) is None:
        return Release.POLICY
    if (job.hold.job_class, job.policy, job.option) in snapshot.learned.failing:
        return Release.FAILING
    if unix >= job.hold.latest:
        return Release.LATEST
    if unix >= start:
        return Release.PLANNED if start >= job.hold.until else Release.NO_SAVING
    return None


def due(
    jobs: Iterable[HeldJob], snapshot: Snapshot, planned: Plan, unix: float
) -> Iterator[tuple[HeldJob, Release]]:
    """Yield the Jobs that are released at *unix*, the most urgent first, and why.

    A Job whose hour has come waits on while there is no room for it beside others, as far as its
    latest start lets it: more of them may run now than usual at that hour.
    """
    taken: Counter[tuple[str, FlavorResource]] = Counter()
    for job in sorted(jobs, key=_urgency):
        until = job.hold.until if job.hold is not None else 0.0
        start = planned[job.key].soonest if job.key in planned else until
        why = reason(job, snapshot, start, unix)
        if why is None or (why in _BY_PLAN and not _fits_now(job, snapshot, taken)):
            continue
        queue = cluster_queue_of(job, snapshot)
        for cell, amount in _usage(job).items():
            taken[queue, cell] += amount
        yield job, why


def _urgency(job: HeldJob) -> tuple[float, str]:
    return (0.0 if job.hold is None else job.hold.latest), job.key


def _usage(job: HeldJob) -> Amounts:
    return job.hold.usage if job.hold is not None else {}


def _fits_now(
    job: HeldJob, snapshot: Snapshot, taken: Mapping[tuple[str, FlavorResource], int]
) -> bool:
    """Return whether a Job has room in its ClusterQueue's own quota now, and leaves some."""
    queue, quotas = cluster_queue_of(job, snapshot), _quotas(job, snapshot)
    held = snapshot.workloads.held.get(queue, Held())
    for cell, wanted in _usage(job).items():
        quota = quotas.get(cell)
        if quota is None or wanted > quota:
            continue
        if held.pending:
            return False
        used = held.usage.get(cell, 0) + taken[queue, cell]
        left = quota - used - wanted
        if used and left < _SIGMAS_NOW * sqrt(used * wanted):
            return False
    return True


def _rules(job: HeldJob, snapshot: Snapshot) -> FallbackPolicy | None:
    """Return the policy of a Job, if it still holds Jobs."""
    policy = next(
        (policy for policy in snapshot.fallback.policies if policy.name == job.policy), None
    )
    return policy if policy is not None and _holds(policy) else None


def _holds(policy: FallbackPolicy) -> bool:
    return policy.spec.mode is Mode.ENFORCE and policy.spec.strategy.hold is not None


def plan(
    jobs: Iterable[HeldJob],
    snapshot: Snapshot,
    unix: float,
    before: Plan,
    others: OthersUse | None = None,
) -> Plan:
    """Return when each Job is to be released; *before* is the plan until now.

    *others*: what those use who are not held; None: nothing is known of it.
    """
    others = others or OthersUse()
    room = _Room(snapshot, others, unix)
    known = [(job, job.hold) for job in jobs if job.hold is not None]
    planned = {job.key: before.get(job.key) or _by_decision(hold) for job, hold in known}
    for job, hold in _planned_anew(known):
        if costs := _costs(job, hold, snapshot, unix):
            start = _cheapest(job, hold, costs, room)
            most = costs[start] + _WORTH_WAITING * hold.of
            planned[job.key] = PlannedStart(start, _soonest(costs, start, most))
        room.take(job, hold, planned[job.key].at)
    return planned


def _planned_anew(known: Iterable[tuple[HeldJob, Hold]]) -> list[tuple[HeldJob, Hold]]:
    """Return the Jobs that are planned anew, the most urgent first."""

    def urgency(pair: tuple[HeldJob, Hold]) -> tuple[float, str]:
        return _urgency(pair[0])

    taken = in_turn(sorted(known, key=urgency), lambda pair: pair[0].namespace)[:MOST_PLANNED]
    return sorted(taken, key=urgency)


def _cheapest(job: HeldJob, hold: Hold, costs: Mapping[float, float], room: _Room) -> float:
    """Return the cheapest start with room; of a Job that has none, which waits for it: of all."""
    # The cheapest are tried first, as few of them have no room.
    by_cost = sorted(costs, key=lambda start: (costs[start], start))
    return next((start for start in by_cost if room.has(job, hold, start)), by_cost[0])


def _costs(job: HeldJob, hold: Hold, snapshot: Snapshot, unix: float) -> Mapping[float, float]:
    """Return what a Job would cost by its start, the earliest first; empty: it is not known."""
    prices, policy = snapshot.costs.prices.get(""), _rules(job, snapshot)
    if prices is None or policy is None or policy.spec.strategy.least_cost is None:
        return {}
    carbon_price = float(policy.spec.strategy.least_cost.carbon_price)
    return {
        start: cost
        for start in _starts(unix, hold)
        if (cost := _cost(hold, prices, carbon_price, start)) is not None
    }


def _by_decision(hold: Hold) -> PlannedStart:
    start = min(hold.until, hold.latest)
    return PlannedStart(start, start)


def _soonest(costs: Mapping[float, float], start: float, most: float) -> float:
    """Return from when on a Job costs at most so much, at any start until *start*."""
    dear = [sooner for sooner, cost in costs.items() if sooner <= start and cost > most]
    return next(sooner for sooner in costs if not dear or sooner > dear[-1])


def _starts(unix: float, hold: Hold) -> list[float]:
    """Return now and the beginning of each slot until the latest start.

    Of less than a slot there may be none: then the start of the decision is one of them.
    """
    first = (unix // SLOT_SECONDS + 1) * SLOT_SECONDS
    count = max(0, int((hold.latest - first) // SLOT_SECONDS) + 1)
    starts = [unix, *(first + number * SLOT_SECONDS for number in range(count))]
    if unix < hold.until <= hold.latest < unix + SLOT_SECONDS:
        starts.append(hold.until)
    return sorted(starts)


def _cost(hold: Hold, prices: Prices, carbon_price: float, start: float) -> float | None:
    """Return money, and CO2 by its price; None: nothing of it is known."""
    end = start + hold.seconds
    cost = terms.cost_of(hold.usage, prices, Span(reserved=start, begun=start, end=end))
    return cost.paid_with(carbon_price)


def _cells(
    job: HeldJob, hold: Hold, snapshot: Snapshot, start: float
) -> Iterator[tuple[QueueCell, int]]:
    """Yield what a Job uses in each slot of its run."""
    queue = cluster_queue_of(job, snapshot)
    for slot in _slots(start, start + hold.seconds):
        for cell in hold.usage:
            yield (queue, cell), slot


def _slots(begin: float, end: float) -> range:
    """Return the slots of a run: at least one, and the last only where half of it is used."""
    first = int(begin // SLOT_SECONDS)
    return range(first, max(first + 1, round(end / SLOT_SECONDS)))


def released(job: HeldJob, hold: Hold, snapshot: Snapshot, unix: float) -> ReleasedJob:
    """Return what a Job that is released now uses from then on, which others do not."""
    return ReleasedJob(unix + hold.seconds, cluster_queue_of(job, snapshot), hold.usage)


def contents_of_holding_queues(snapshot: Snapshot) -> Mapping[str, Held]:
    """Return what the ClusterQueues hold to which policies with `hold` lead."""
    queues = {
        option.queue
        for policy in snapshot.fallback.policies
        if _holds(policy)
        for option in policy.spec.options
    }
    names = {
        place.cluster_queue
        for (_, name), place in snapshot.setup.local_queues.items()
        if name in queues
    }
    return {name: snapshot.workloads.held.get(name, Held()) for name in sorted(names)}


def cluster_queue_of(job: HeldJob, snapshot: Snapshot) -> str:
    place = snapshot.setup.local_queues.get((job.namespace, job.queue))
    return place.cluster_queue if place is not None else ""


def _quotas(job: HeldJob, snapshot: Snapshot) -> Mapping[FlavorResource, int]:
    queue = snapshot.setup.cluster_queues.get(cluster_queue_of(job, snapshot))
    groups = queue.groups if queue is not None else ()
    return {cell: quota.nominal for group in groups for cell, quota in group.quotas.items()}
