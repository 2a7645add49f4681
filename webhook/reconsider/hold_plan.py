"""Plans when held Jobs are released: each at its cheapest start that still has room. Pure.

Room is a ClusterQueue's own quota, of which the Jobs planned before have taken their part: released
at one cheap hour, all would wait for one another. What others will use is not foreseen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from webhook.cost import terms
from webhook.cost.terms import Span
from webhook.model.costs.prices import Prices
from webhook.model.holds import Hold
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode
from webhook.model.queues import FlavorResource, Snapshot

SLOT_SECONDS: Final = 900.0
MOST_PLANNED: Final = 500
"""Jobs that are planned anew at a time, the most urgent first; the others keep their plan."""
_FULL: Final = 0.95
"""The part of a quota that is planned for held Jobs."""
_BETTER: Final = 0.05
"""A plan changes only for so much of what the Job costs, so that it does not flap."""
_GRAMS_A_KILOGRAM: Final = 1000.0


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


Plan: TypeAlias = Mapping[str, float]
"""Key of a held Job to when it is released, in seconds since 1970."""
_Taken = defaultdict[tuple[str, FlavorResource, int], int]
"""ClusterQueue, flavor and resource, and slot to what planned Jobs use then."""


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


def _rules(job: HeldJob, snapshot: Snapshot) -> FallbackPolicy | None:
    """Return the policy of a Job, if it still holds Jobs."""
    policy = next((policy for policy in snapshot.policies if policy.name == job.policy), None)
    if policy is None or policy.spec.mode is not Mode.ENFORCE:
        return None
    least_cost = policy.spec.strategy.least_cost
    return policy if least_cost is not None and least_cost.hold is not None else None


def plan(jobs: Iterable[HeldJob], snapshot: Snapshot, unix: float, before: Plan) -> Plan:
    """Return when each Job is to be released; *before* is the plan until now."""
    taken: _Taken = defaultdict(int)
    known = [(job, job.hold) for job in jobs if job.hold is not None]
    ordered = sorted(known, key=lambda pair: (pair[1].latest, pair[0].key))
    planned = {job.key: min(before.get(job.key, hold.until), hold.latest) for job, hold in ordered}
    for job, hold in ordered[:MOST_PLANNED]:
        start = _start(job, hold, snapshot, taken, unix, before.get(job.key, hold.until))
        planned[job.key] = start
        for cell in _cells(job, hold, snapshot, start):
            taken[cell] += hold.usage[cell[1]]
    return planned


def _start(
    job: HeldJob, hold: Hold, snapshot: Snapshot, taken: _Taken, unix: float, before: float
) -> float:
    """Return the cheapest start with room; *before* unless another is much better."""
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
    best = next((at for at in by_cost if _has_room(job, hold, snapshot, taken, at)), None)
    if best is None:
        return hold.latest
    kept = max(before, unix)
    present = _cost(hold, prices, carbon_price, kept)
    is_kept = present is not None and present - priced[best] <= _BETTER * hold.of
    if is_kept and kept <= hold.latest and _has_room(job, hold, snapshot, taken, kept):
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
    carbon = carbon_price * (cost.carbon_grams or 0.0) / _GRAMS_A_KILOGRAM
    if cost.paid is None and not carbon:
        return None
    return (cost.paid or 0.0) + carbon


def _has_room(job: HeldJob, hold: Hold, snapshot: Snapshot, taken: _Taken, start: float) -> bool:
    quotas = _quotas(job, snapshot)
    return all(
        cell[1] not in quotas
        or not taken[cell]
        or taken[cell] + hold.usage[cell[1]] <= _FULL * quotas[cell[1]]
        for cell in _cells(job, hold, snapshot, start)
    )


def _cells(
    job: HeldJob, hold: Hold, snapshot: Snapshot, start: float
) -> Iterator[tuple[str, FlavorResource, int]]:
    """Yield what a Job uses in each slot of its run."""
    queue = _cluster_queue(job, snapshot)
    first, last = int(start // SLOT_SECONDS), int((start + hold.seconds) // SLOT_SECONDS)
    for slot in range(first, last + 1):
        for used in hold.usage:
            yield queue, used, slot


def _cluster_queue(job: HeldJob, snapshot: Snapshot) -> str:
    place = snapshot.local_queues.get((job.namespace, job.queue))
    return place.cluster_queue if place is not None else ""


def _quotas(job: HeldJob, snapshot: Snapshot) -> Mapping[FlavorResource, int]:
    queue = snapshot.cluster_queues.get(_cluster_queue(job, snapshot))
    groups = queue.groups if queue is not None else ()
    return {cell: quota.nominal for group in groups for cell, quota in group.quotas.items()}
