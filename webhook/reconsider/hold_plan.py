"""Plans when held Jobs are released: each at its cheapest start that still has room. Pure.

Room is a ClusterQueue's own quota, without what others usually use at that hour, and of which the
Jobs planned before have taken their part: released at one cheap hour, all would wait for one
another, and others for them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt
from typing import Final, TypeAlias

from webhook.cost import terms
from webhook.cost.terms import Span
from webhook.model.costs.prices import HOUR, Prices
from webhook.model.holds import SLOT_SECONDS, Hold
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode
from webhook.model.queues import Amounts, FlavorResource, Held, Snapshot

MOST_PLANNED: Final = 500
"""Jobs that are planned anew at a time, the most urgent first; the others keep their plan."""
_FULL: Final = 0.95
"""The part of a quota that is planned for held Jobs."""
_SIGMAS: Final = 1.0
"""Room is kept for so many standard deviations of Jobs of the same size that come by chance."""
_SIGMAS_NOW: Final = 0.5
"""At a release as many as this stay free for those who come next; how many run then is known."""
_BETTER: Final = 0.05
"""A plan changes only for so much of what the Job costs, so that it does not flap."""


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
    Release.NO_SAVING: "no later hour is cheaper any more",
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
Plan: TypeAlias = Mapping[str, float]
"""Key of a held Job to when it is released, in seconds since 1970."""
HOURS: Final = 24
TypicalUse: TypeAlias = Mapping[tuple[str, FlavorResource], Sequence[float]]
"""ClusterQueue, and flavor and resource, to what others use there in each hour of the day, UTC."""
_NOTHING: Final = (0.0,) * HOURS
_LEARNED_AT_ONCE: Final = 0.02
"""Each minute counts so much: an hour of a day weighs about as much as all before it."""


class OthersUse:
    """What those use who are not held, by hour of the day: learned while somebody leads.

    Until an hour was seen, what is used now stands for it.
    """

    def __init__(self) -> None:
        self.typical: dict[tuple[str, FlavorResource], list[float]] = {}
        self.released: list[tuple[float, str, Amounts]] = []
        """Jobs that were held: until when they run, and what they hold in which ClusterQueue."""

    def note_released(self, job: HeldJob, snapshot: Snapshot, unix: float) -> None:
        """Note that a Job begins to use its quota, which others do not."""
        if job.hold is not None:
            queue = cluster_queue_of(job, snapshot)
            self.released.append((unix + job.hold.seconds, queue, job.hold.usage))

    def note(self, snapshot: Snapshot, unix: float) -> None:
        """Learn from what is used now."""
        self.released = [entry for entry in self.released if entry[0] > unix]
        ours: Counter[tuple[str, FlavorResource]] = Counter()
        for _, queue, usage in self.released:
            for cell, amount in usage.items():
                ours[queue, cell] += amount
        hour = int(unix // HOUR) % HOURS
        for queue, held in snapshot.held.items():
            for cell, amount in held.usage.items():
                others = float(max(0, amount - ours[queue, cell]))
                hours = self.typical.setdefault((queue, cell), [others] * HOURS)
                hours[hour] += _LEARNED_AT_ONCE * (others - hours[hour])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """What is left of quotas over time."""

    snapshot: Snapshot
    typical: TypicalUse
    taken: defaultdict[tuple[str, FlavorResource, int], int]
    """ClusterQueue, flavor and resource, and slot to what planned Jobs use then."""

    def has(self, job: HeldJob, hold: Hold, start: float) -> bool:
        """Tell whether a Job that starts then would have room until its end."""
        quotas = _quotas(job, self.snapshot)
        return all(
            self._fits(cell, hold.usage[cell[1]], quotas.get(cell[1]))
            for cell in _cells(job, hold, self.snapshot, start)
        )

    def _fits(self, cell: tuple[str, FlavorResource, int], wanted: int, quota: int | None) -> bool:
        # What is more than the quota has never room there, and is not planned by it.
        if quota is None or wanted > quota:
            return True
        queue, used, slot = cell
        hour = int(slot * SLOT_SECONDS // HOUR) % HOURS
        others = self.typical.get((queue, used), _NOTHING)[hour]
        # Others come by chance, and so now and then some more of them than usual.
        others += _SIGMAS * sqrt(others * wanted)
        return self.taken[cell] + wanted + others <= max(_FULL * quota, wanted)

    def take(self, job: HeldJob, hold: Hold, start: float) -> None:
        for cell in _cells(job, hold, self.snapshot, start):
            self.taken[cell] += hold.usage[cell[1]]

    def take_until(self, queue: str, usage: Amounts, begin: float, end: float) -> None:
        for slot in _slots(begin, end):
            for used, amount in usage.items():
                self.taken[queue, used, slot] += amount


def reason(job: HeldJob, snapshot: Snapshot, start: float, unix: float) -> Release | None:
    """Return why a Job is released at *unix* where its planned start is *start*; None: it is not.

    What ends a hold does not need prices or a plan: the latest start stands on the Job.
    """
    if job.hold is None:
        return Release.UNKNOWN
    if job.refuses:
        return Release.ASKED
    if snapshot.off is not None and snapshot.off.covers(job.namespace):
        return Release.OFF
    if _rules(job, snapshot) is None:
        return Release.POLICY
    if (job.hold.job_class, job.policy, job.option) in snapshot.failing:
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
        why = reason(job, snapshot, planned.get(job.key, until), unix)
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
    held = snapshot.held.get(queue, Held())
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
    policy = next((policy for policy in snapshot.policies if policy.name == job.policy), None)
    if policy is None or policy.spec.mode is not Mode.ENFORCE:
        return None
    least_cost = policy.spec.strategy.least_cost
    return policy if least_cost is not None and least_cost.hold is not None else None


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
    room = _Room(snapshot=snapshot, typical=others.typical, taken=defaultdict(int))
    for until, queue, usage in others.released:
        room.take_until(queue, usage, unix, until)
    known = [(job, job.hold) for job in jobs if job.hold is not None]
    ordered = sorted(known, key=lambda pair: (pair[1].latest, pair[0].key))
    planned = {job.key: min(before.get(job.key, hold.until), hold.latest) for job, hold in ordered}
    for job, hold in ordered[:MOST_PLANNED]:
        start = _start(job, hold, room, unix, before.get(job.key, hold.until))
        planned[job.key] = start
        room.take(job, hold, start)
    return planned


def _start(job: HeldJob, hold: Hold, room: _Room, unix: float, before: float) -> float:
    """Return the cheapest start with room; *before* unless another is much better."""
    snapshot = room.snapshot
    prices, policy = snapshot.prices.get(""), _rules(job, snapshot)
    if prices is None or policy is None or policy.spec.strategy.least_cost is None:
        return min(before, hold.latest)
    carbon_price = float(policy.spec.strategy.least_cost.carbon_price)
    priced = {
        start: cost
        for start in _starts(unix, hold.latest)
        if (cost := _cost(hold, prices, carbon_price, start)) is not None
    }
    if not priced:
        return min(before, hold.latest)
    # The cheapest are tried first, as few of them have no room.
    by_cost = sorted(priced, key=lambda start: (priced[start], start))
    best = next((start for start in by_cost if room.has(job, hold, start)), None)
    if best is None:
        return hold.latest
    kept = max(before, unix)
    present = _cost(hold, prices, carbon_price, kept)
    is_kept = present is not None and present - priced[best] <= _BETTER * hold.of
    if is_kept and kept <= hold.latest and room.has(job, hold, kept):
        return kept
    return best


def _starts(unix: float, latest: float) -> Iterator[float]:
    """Yield now and the beginning of each slot until *latest*."""
    yield unix
    start = (unix // SLOT_SECONDS + 1) * SLOT_SECONDS
    while start <= latest:
        yield start
        start += SLOT_SECONDS


def _cost(hold: Hold, prices: Prices, carbon_price: float, start: float) -> float | None:
    """Return money, and CO2 by its price; None: nothing of it is known."""
    end = start + hold.seconds
    cost = terms.cost_of(hold.usage, prices, Span(reserved=start, begun=start, end=end))
    return cost.paid_with(carbon_price)


def _cells(
    job: HeldJob, hold: Hold, snapshot: Snapshot, start: float
) -> Iterator[tuple[str, FlavorResource, int]]:
    """Yield what a Job uses in each slot of its run."""
    queue = cluster_queue_of(job, snapshot)
    for slot in _slots(start, start + hold.seconds):
        for used in hold.usage:
            yield queue, used, slot


def _slots(begin: float, end: float) -> range:
    """Return the slots of a run: at least one, and the last only where half of it is used."""
    first = int(begin // SLOT_SECONDS)
    return range(first, max(first + 1, round(end / SLOT_SECONDS)))


def cluster_queue_of(job: HeldJob, snapshot: Snapshot) -> str:
    place = snapshot.local_queues.get((job.namespace, job.queue))
    return place.cluster_queue if place is not None else ""


def _quotas(job: HeldJob, snapshot: Snapshot) -> Mapping[FlavorResource, int]:
    queue = snapshot.cluster_queues.get(cluster_queue_of(job, snapshot))
    groups = queue.groups if queue is not None else ()
    return {cell: quota.nominal for group in groups for cell, quota in group.quotas.items()}
