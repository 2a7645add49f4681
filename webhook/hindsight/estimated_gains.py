"""What policies would have changed for Jobs that have ended, before anything is installed. Pure.

Two replays of the same arrivals are compared, as `report` does it: as it happened, and as the
policies would have decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Final

from webhook.hindsight.gains import Confidence, gains
from webhook.hindsight.journal import JournalEntry
from webhook.hindsight.look_back import Hindsight, ReplayedJob
from webhook.model.policy.fallback_policy import Mode
from webhook.model.words import span
from webhook.simulate.results import totals

_DAY: Final = 86_400.0
_SHORT_DAYS: Final = 2.0
"""Less of the past may miss a weekend, or a deadline that everybody has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanSeconds:
    """Means over Jobs, in seconds."""

    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What would have changed; sums are over the Jobs that ended in both replays."""

    jobs: int
    """That have ended and could be replayed."""
    matched: int
    """How many of these a policy matches."""
    moved: int
    hours_back: float
    """Hours of accelerators that Jobs would have left to others; below 0: more would be used."""
    hours_by_flavor: Mapping[str, float]
    """The same by flavor."""
    wait: MeanSeconds | None
    """Mean time from arrival to start; None: nothing was replayed."""
    turnaround: MeanSeconds | None
    saved: float
    """Seconds by which all together would have ended sooner."""
    margin: float
    """Error of *saved*, in seconds."""
    slower: int
    since: float
    until: float
    """First arrival and last end, in seconds since 1970."""
    confidence: Confidence | None
    stayed: Mapping[str, int] = field(default_factory=dict)
    """Why matched Jobs would have stayed, to their number."""
    doubts: tuple[str, ...] = ()
    """What keeps it from saying more."""


def undecided(entries: Iterable[JournalEntry]) -> list[JournalEntry]:
    """Return entries that are all compared with how they went, whoever decided them."""
    # What was enforced would else be compared with no decision, and the rest with how it went.
    return [
        entry
        if entry.decision is None
        else replace(entry, decision=replace(entry.decision, mode=Mode.OBSERVE))
        for entry in entries
    ]


def estimate(hindsight: Hindsight, *, left_out: int = 0) -> Estimate:
    """Sum up what the policies of a look back, which all observe, would have changed.

    Its entries are ``undecided``, so that every figure has the same baseline.

    *left_out*: Jobs of which nothing could be read.
    """
    hindsight = _all_replayed(hindsight)
    jobs = [job for job in hindsight.jobs if _has_both(job)]
    until = max((float(job.entry.finished) for job in jobs), default=0.0)
    since = min((job.entry.created for job in jobs), default=0.0)
    found = gains(hindsight, since=0.0, until=until)
    matched = [job for job in jobs if job.policy is not None]
    moved = sum(job.promised is not None and job.promised.is_moved for job in matched)
    hours = _hours_by_flavor(jobs)
    rows = [row for row in found.rows if row.saved is not None]
    doubts = _doubts(
        hindsight,
        jobs,
        assumed=sum(row.assumed for row in rows),
        left_out=hindsight.left_out + left_out,
        seconds=until - since,
    )
    return Estimate(
        jobs=len(jobs),
        matched=len(matched),
        moved=moved,
        hours_back=sum(hours.values()),
        hours_by_flavor=hours,
        wait=_means(jobs, is_wait=True),
        turnaround=_means(jobs, is_wait=False),
        saved=sum(row.saved or 0.0 for row in rows),
        margin=sum(row.margin for row in rows),
        slower=sum(row.slower for row in rows),
        since=since,
        until=until,
        confidence=found.confidence,
        stayed=sum((Counter(row.stayed) for row in found.rows), Counter()),
        doubts=tuple(doubts),
    )


def _all_replayed(hindsight: Hindsight) -> Hindsight:
    """Return a look back in which all go as they went where nothing was replayed for anybody."""
    if any(job.policy is not None for job in hindsight.jobs):
        return hindsight
    same = tuple(replace(job, promised=job.happened) for job in hindsight.jobs)
    return replace(hindsight, jobs=same)


def _has_both(job: ReplayedJob) -> bool:
    return all(
        result is not None and result.start is not None and result.finish is not None
        for result in (job.happened, job.promised)
    )


def _hours_by_flavor(jobs: Sequence[ReplayedJob]) -> Mapping[str, float]:
    before = totals([job.happened for job in jobs if job.happened is not None]).device_hours
    after = totals([job.promised for job in jobs if job.promised is not None]).device_hours
    return {
        flavor: before.get(flavor, 0.0) - after.get(flavor, 0.0)
        for flavor in sorted(before.keys() | after.keys())
    }


def _means(jobs: Sequence[ReplayedJob], *, is_wait: bool) -> MeanSeconds | None:
    if not jobs:
        return None
    before, after = (
        [
            (result.start if is_wait else result.finish) - job.entry.created
            for job in jobs
            for result in [job.happened if is_before else job.promised]
            if result is not None and result.start is not None and result.finish is not None
        ]
        for is_before in (True, False)
    )
    return MeanSeconds(before=fmean(before), after=fmean(after))


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
    if not found.jobs or found.wait is None or found.turnaround is None:
        return "No Job that has ended could be replayed."
    wait, done = found.wait, found.turnaround
    share = f"Of {found.jobs} Jobs in {span(found.until - found.since)}, {found.moved}"
    more = "given back" if found.hours_back >= 0 else "more used"
    gained = f"{abs(found.hours_back):.1f} GPU hours {more}"
    waited = f"mean wait {span(wait.after)} instead of {span(wait.before)}"
    took = f"Mean time until done: {span(done.after)} instead of {span(done.before)}"
    lines = [
        f"{share} would have moved: {gained}, {waited}.",
        f"{took}. Jobs done later: {found.slower}.",
    ]
    if found.saved < 0:
        may = "may have made" if -found.saved <= found.margin else "would have made"
        lines.append(f"This policy {may} Jobs later: do not use it as it is.")
    if not found.moved:
        lines += ["", *_why_not(found)]
    lines += ["", *_how_sure(found)]
    if found.doubts:
        lines += [
            "",
            "What keeps this from saying more:",
            *(f"  - {text}" for text in found.doubts),
        ]
    return "\n".join(lines)


def _why_not(found: Estimate) -> list[str]:
    if not found.matched:
        return ["The policy matches none of them."]
    reasons = sorted(found.stayed.items(), key=lambda pair: (-pair[1], pair[0]))
    return ["Why they stay:", *(f"  - {why}: {count}" for why, count in reasons)]


def _how_sure(found: Estimate) -> list[str]:
    sooner = "sooner" if found.saved >= 0 else "later"
    saved = f"{span(abs(found.saved))} {sooner} in sum"
    lines = [f"How sure: Jobs would be done {saved}, give or take {span(found.margin)}."]
    if (sure := found.confidence) is not None:
        off = f"{abs(sure.turnaround):.1f} % in total, and by {sure.one_job:.1f} %"
        lines.append(f"A replay of what really happened is off by {off} for the middle Job.")
    return lines


def as_json(found: Estimate) -> dict[str, Any]:
    sure = found.confidence
    return {
        "jobs": found.jobs,
        "matched": found.matched,
        "moved": found.moved,
        "slower": found.slower,
        "gpuHoursBack": found.hours_back,
        "gpuHoursBackByFlavor": dict(found.hours_by_flavor),
        "meanWait": _pair(found.wait),
        "meanTurnaround": _pair(found.turnaround),
        "savedSeconds": found.saved,
        "marginSeconds": found.margin,
        "since": found.since,
        "until": found.until,
        "replayErrorPercent": None if sure is None else sure.turnaround,
        "stayed": dict(found.stayed),
        "doubts": list(found.doubts),
    }


def _pair(means: MeanSeconds | None) -> dict[str, float] | None:
    return None if means is None else {"before": means.before, "after": means.after}
