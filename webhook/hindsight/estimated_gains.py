"""What policies would have changed for Jobs that have ended, before anything is installed. Pure.

Two replays of the same arrivals are compared, as `report` does it: as it happened, and as the
policies would have decided. Where nobody has a policy yet, one is suggested from what Jobs with
accelerators waited for and the queues that there are; what it assumes is said beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from webhook.adapt.accelerators import is_accelerator
from webhook.hindsight.gains import (
    Confidence,
    confidence_of,
    gains_of,
    hours_given_back,
    is_replayed,
)
from webhook.hindsight.journal import JournalEntry
from webhook.hindsight.look_back import Hindsight, ReplayedJob
from webhook.hindsight.savings_record import Gained, added
from webhook.model.job import PLAIN
from webhook.model.queues import ClusterQueue
from webhook.model.words import span
from webhook.simulate.results import JobResult
from webhook.state.snapshot import Snapshot

_DAY: Final = 86_400.0
_SHORT_DAYS: Final = 2.0
"""Less of the past may miss a weekend, or a deadline that everybody has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What would have changed for the Jobs that have ended and could be replayed."""

    gain: Gained
    """Every figure is of the same Jobs: those that ended in both replays."""
    matched: int
    """How many of these a policy matches."""
    waited_before: float
    """Seconds from arrival to start, without the policies; a sum, as the next."""
    waited_after: float
    hours_by_flavor: Mapping[str, float]
    """Hours of accelerators that Jobs would have left to others; below 0: more would be used."""
    since: float
    until: float
    """First arrival and last end, in seconds since 1970."""
    confidence: Confidence | None
    doubts: tuple[str, ...] = ()
    """What keeps it from saying more."""


def estimate(hindsight: Hindsight, *, left_out: int = 0) -> Estimate:
    """Sum up what the policies of a look back would have changed.

    It is one *as_observed*, so that every figure has the same baseline.

    *left_out*: Jobs of which nothing could be read.
    """
    confidence = confidence_of([job for job in hindsight.jobs if is_replayed(job)])
    each = gains_of(hindsight.jobs, confidence, {})
    compared = [pair for pair in zip(hindsight.jobs, each, strict=True) if pair[1].jobs]
    jobs = [job for job, _ in compared]
    gain = added(each_gain for _, each_gain in compared)
    until = max((float(job.entry.finished) for job in jobs), default=0.0)
    since = min((job.entry.created for job in jobs), default=0.0)
    doubts = _doubts(
        hindsight,
        jobs,
        assumed=gain.assumed,
        left_out=hindsight.left_out + left_out,
        seconds=until - since,
    )
    return Estimate(
        gain=gain,
        matched=sum(job.policy is not None for job in jobs),
        waited_before=sum(_waited(job.happened) for job in jobs),
        waited_after=sum(_waited(job.promised) for job in jobs),
        hours_by_flavor=hours_given_back(jobs),
        since=since,
        until=until,
        confidence=confidence,
        doubts=tuple(doubts),
    )


def _waited(result: JobResult | None) -> float:
    return 0.0 if result is None or result.start is None else result.start - result.arrival


def _doubts(
    hindsight: Hindsight,
    jobs: Sequence[ReplayedJob],
    *,
    assumed: int,
    left_out: int,
    seconds: float,
) -> list[str]:
    doubts = []
    if seconds < _SHORT_DAYS * _DAY:
        doubts.append(f"the Jobs that are still there span {span(seconds)} only")
    if assumed:
        doubts.append(
            f"how long {assumed} of the moved Jobs run elsewhere is taken from the policy's "
            "slowdown: no such run was seen"
        )
    if left_out:
        doubts.append(
            f"{left_out} Jobs are left out: their queues are gone, or they cannot be read"
        )
    if decided := sum(bool(job.entry.policy) for job in jobs):
        doubts.append(f"{decided} Jobs were decided already: all is compared with how they went")
    if unfinished := sum(not job.entry.outcome for job in hindsight.jobs):
        doubts.append(f"{unfinished} Jobs have not ended; they count only as load")
    unseen = sorted({name for job in hindsight.jobs for name in job.unseen})
    if unseen:
        doubts.append(f"nothing is known of worker clusters: {', '.join(unseen)}")
    return doubts


def as_text(found: Estimate) -> str:
    """Return the estimate for people: what would have changed, how sure, and what is missing."""
    gain = found.gain
    if not gain.jobs:
        return "No Job that has ended could be replayed."
    share = f"Of {gain.jobs} Jobs in {span(found.until - found.since)}, {gain.moved}"
    more = "given back" if gain.device_hours >= 0 else "more used"
    gained = f"{abs(gain.device_hours):.1f} GPU hours {more}"
    waited = f"mean wait {_not_but(found.waited_before, found.waited_after, gain.jobs)}"
    took = _not_but(gain.before_seconds, gain.after_seconds, gain.jobs)
    lines = [
        f"{share} would have moved: {gained}, {waited}.",
        f"Mean time until done: {took}. Jobs done later: {gain.slower}.",
    ]
    if gain.saved_seconds < 0:
        may = "may have made" if -gain.saved_seconds <= gain.margin_seconds else "would have made"
        lines.append(f"This policy {may} Jobs later: do not use it as it is.")
    if not gain.moved:
        lines += ["", *_why_not(found)]
    lines += ["", *_how_sure(found)]
    if found.doubts:
        lines += [
            "",
            "What keeps this from saying more:",
            *(f"  - {text}" for text in found.doubts),
        ]
    return "\n".join(lines)


def _not_but(before: float, after: float, jobs: int) -> str:
    return f"{span(after / jobs)} instead of {span(before / jobs)}"


def _why_not(found: Estimate) -> list[str]:
    if not found.matched:
        return ["The policy matches none of them."]
    reasons = sorted(found.gain.stayed.items(), key=lambda pair: (-pair[1], pair[0]))
    return ["Why they stay:", *(f"  - {why}: {count}" for why, count in reasons)]


def _how_sure(found: Estimate) -> list[str]:
    seconds, margin = found.gain.saved_seconds, found.gain.margin_seconds
    saved = f"{span(abs(seconds))} {'sooner' if seconds >= 0 else 'later'} in sum"
    lines = [f"How sure: Jobs would be done {saved}, give or take {span(margin)}."]
    if (sure := found.confidence) is not None:
        off = f"{abs(sure.turnaround):.1f} % in total, and by {sure.one_job:.1f} %"
        lines.append(f"A replay of what really happened is off by {off} for the middle Job.")
    return lines


def as_json(found: Estimate) -> dict[str, Any]:
    sure, gain = found.confidence, found.gain
    return {
        "jobs": gain.jobs,
        "matched": found.matched,
        "moved": gain.moved,
        "slower": gain.slower,
        "gpuHoursBack": gain.device_hours,
        "gpuHoursBackByFlavor": dict(found.hours_by_flavor),
        "meanWait": _means(found.waited_before, found.waited_after, gain.jobs),
        "meanTurnaround": _means(gain.before_seconds, gain.after_seconds, gain.jobs),
        "savedSeconds": gain.saved_seconds,
        "marginSeconds": gain.margin_seconds,
        "since": found.since,
        "until": found.until,
        "replayErrorPercent": None if sure is None else sure.turnaround,
        "stayed": dict(gain.stayed),
        "doubts": list(found.doubts),
    }


def _means(before: float, after: float, jobs: int) -> dict[str, float] | None:
    return {"before": before / jobs, "after": after / jobs} if jobs else None


NAME: Final = "suggested"
WITHOUT_DEVICES: Final = 4.0
"""How many times as long a Job is assumed to run without its accelerators."""
_CPU: Final = "cpu"


def suggest(
    entries: Iterable[JournalEntry], snapshot: Snapshot
) -> tuple[Mapping[str, Any], Sequence[str]] | None:
    """Return a policy for the LocalQueue in which Jobs with accelerators waited most.

    With it come sentences, one for each thing that is assumed. None: no Job had any accelerator,
    or its namespaces have no other queue that could take them.
    """
    waited: defaultdict[str, float] = defaultdict(float)
    namespaces: defaultdict[str, set[str]] = defaultdict(set)
    resources: defaultdict[str, set[str]] = defaultdict(set)
    for entry in entries:
        devices = {resource for (_, resource), _ in entry.used if is_accelerator(resource)}
        if entry.kind == PLAIN and entry.admitted and devices:
            waited[entry.queue] += entry.admitted - entry.created
            namespaces[entry.queue].add(entry.namespace)
            resources[entry.queue] |= devices
    for queue in sorted(waited, key=lambda name: (-waited[name], name)):
        others = _others(queue, namespaces[queue], resources[queue], snapshot)
        if others:
            return _suggestion(queue, others)
    return None


_Other = tuple[str, bool]
"""A LocalQueue's name, and whether its ClusterQueue has the same accelerators."""


def _others(
    queue: str, namespaces: set[str], devices: set[str], snapshot: Snapshot
) -> Sequence[_Other]:
    """Return the other queues that each of the namespaces has, the same accelerators first."""
    targets: dict[str, list[ClusterQueue]] = defaultdict(list)
    for (namespace, name), local_queue in snapshot.setup.local_queues.items():
        cluster_queue = snapshot.setup.cluster_queues.get(local_queue.cluster_queue)
        if namespace in namespaces and name != queue and cluster_queue is not None:
            targets[name].append(cluster_queue)
    everywhere = {name: found for name, found in targets.items() if len(found) == len(namespaces)}
    same = [name for name, found in everywhere.items() if all(map(_has(devices), found))]
    without = [
        name
        for name, found in everywhere.items()
        if not any(is_accelerator(resource) for queue in found for resource in _resources(queue))
        and all(map(_has({_CPU}), found))
    ]
    return [*((name, True) for name in sorted(same)), *((name, False) for name in sorted(without))]


def _has(wanted: set[str]) -> Any:
    return lambda queue: wanted <= _resources(queue)


def _resources(queue: ClusterQueue) -> set[str]:
    return {resource for group in queue.groups for _, resource in group.quotas}


def _suggestion(queue: str, others: Sequence[_Other]) -> tuple[Mapping[str, Any], Sequence[str]]:
    options: list[Mapping[str, Any]] = [{"name": queue, "queue": queue}]
    assumed = []
    for name, has_same in others:
        if has_same:
            options.append({"name": name, "queue": name, "slowdown": 1})
            assumed.append(f"Jobs run as fast in {name} as in {queue}")
        else:
            adaptation = {"accelerator": "Remove"}
            slower = WITHOUT_DEVICES
            options.append(
                {"name": name, "queue": name, "slowdown": slower, "adaptation": adaptation}
            )
            assumed.append(
                f"Jobs run {slower:g} times as long in {name} without accelerators, and can do so"
            )
    manifest = {
        "apiVersion": "kueue-fallback.dev/v1alpha1",
        "kind": "FallbackPolicy",
        "metadata": {"name": NAME},
        "spec": {
            "mode": "Observe",
            "match": {"jobSelector": {}},
            "options": options,
            "strategy": {"type": "FinishTime"},
        },
    }
    return manifest, assumed
