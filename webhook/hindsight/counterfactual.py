"""How long a Job would have run elsewhere, from its own run and what is known of its class.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from webhook.hindsight.journal import JournalEntry
from webhook.kueue.durations import learned_on
from webhook.learn.expected_runs import slowdown_of
from webhook.model.forecasts import Estimates, JobClass
from webhook.model.policy.fallback_policy import FallbackPolicy, Option
from webhook.model.queues import ClusterQueue, Snapshot


class Rests(StrEnum):
    """What such a run time is based on, the most trusted first."""

    LEARNED = "learned"
    """Runs of its class on both flavors."""
    DECISION = "decision"
    """What was expected when it was decided."""
    SLOWDOWN = "slowdown"
    """The policy's slowdown."""
    SAME = "same"
    """Nothing: it is assumed to run as long as it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """One Job's run times in seconds, by flavor; and by option what they are based on."""

    seconds: Mapping[str, float]
    rests: Mapping[str, Rests]


def elsewhere(
    entry: JournalEntry,
    own_seconds: float,
    *,
    policy: FallbackPolicy | None,
    snapshot: Snapshot,
    learned: Estimates,
) -> Elsewhere:
    """Return the Job's run time on every flavor; on its own, the *own_seconds* that it took."""
    seconds = dict.fromkeys(snapshot.flavors, own_seconds)
    rests: dict[str, Rests] = {}
    options = policy.spec.options if policy else ()
    own = _own(entry, options)
    for option in options:
        queue = _cluster_queue(option, entry.namespace, snapshot)
        for flavor in () if queue is None else _flavors(queue):
            if flavor in entry.flavors.split(","):
                continue
            ratio, basis = _ratio(entry, policy, own, option, flavor, learned)
            seconds[flavor] = own_seconds * ratio
            rests[option.name] = basis
    seconds[entry.flavors] = own_seconds
    return Elsewhere(seconds=seconds, rests=rests)


def _own(entry: JournalEntry, options: tuple[Option, ...]) -> Option | None:
    """Return the option that it ran in, decided or not; None: in no option."""
    named = (option for option in options if option.name == entry.option)
    placed = (option for option in options if option.queue == entry.queue)
    return next(placed, None) or next(named, None)


def _ratio(
    entry: JournalEntry,
    policy: FallbackPolicy | None,
    own: Option | None,
    other: Option,
    flavor: str,
    learned: Estimates,
) -> tuple[float, Rests]:
    job_class = JobClass(entry.job_class, entry.coarse)
    here, there = (learned_on(learned, job_class, each) for each in (entry.flavors, flavor))
    if here is not None and there is not None and here.seconds > 0:
        return there.seconds / here.seconds, Rests.LEARNED
    expected = {offer.option: offer.runs for offer in entry.offers if offer.runs}
    if own is not None and expected.get(own.name) and expected.get(other.name):
        return (expected[other.name] or 0.0) / (expected[own.name] or 1.0), Rests.DECISION
    if policy is not None and own is not None:
        slower, base = slowdown_of(policy, other), slowdown_of(policy, own)
        if slower and base:
            return slower / base, Rests.SLOWDOWN
    return 1.0, Rests.SAME


def _cluster_queue(option: Option, namespace: str, snapshot: Snapshot) -> ClusterQueue | None:
    name = option.cluster_queue or ""
    if option.queue:
        place = snapshot.local_queues.get((namespace, option.queue))
        name = place.cluster_queue if place else ""
    return snapshot.cluster_queues.get(name)


def _flavors(queue: ClusterQueue) -> Iterator[str]:
    for group in queue.groups:
        yield from group.flavors
