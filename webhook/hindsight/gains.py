"""What decisions gained, from the replays of the journal. Pure.

For a policy that enforces, what its decisions have gained; for one that observes or advises, what
they would have. Both compare two replays of the same arrivals, as docs/decisions/0015-journal.md
says. The report and the estimate show it; the controller publishes it as a record of savings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import median
from typing import Any, Final

from webhook.decide.decision_record import Recorded
from webhook.hindsight import bills
from webhook.hindsight.journal import JournalEntry
from webhook.hindsight.look_back import Hindsight, ReplayedJob, Rests
from webhook.hindsight.savings_record import (
    MOST_DECISIONS,
    MOST_HOURS,
    Gained,
    SavingsRecord,
    ShownDecision,
    Sum,
    Sums,
    added,
    rounded,
)
from webhook.model.costs.prices import Prices
from webhook.model.pods import EVERYTHING, Selector
from webhook.model.policy.fallback_policy import Mode
from webhook.model.reasons import Stayed, why_stayed
from webhook.model.words import rfc3339
from webhook.simulate.results import JobResult, totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """How far the replay of what happened is off, in percent; and how long all Jobs took."""

    jobs: int
    turnaround: float
    """Difference of the sum of all turnarounds."""
    one_job: float
    """Median over Jobs, in percent of each one's own turnaround."""
    forecasts: int
    """Number of decisions whose forecast of the finish could be checked."""
    forecast: float | None
    """Their median error, in percent of the turnaround; None: none could be checked."""
    real: float
    """Seconds from the first arrival to the last end of all Jobs; None in what follows: not
    replayed, or none ended."""
    happened: float | None
    static: float | None
    promised: float | None

    @property
    def makespan(self) -> float:
        """Return the difference of the time from the first arrival to the last end."""
        return 100 * ((self.happened or 0.0) / self.real - 1) if self.real else 0.0


def confidence_of(jobs: Sequence[ReplayedJob]) -> Confidence | None:
    """Compare the replay of what happened with it; None: nothing was replayed."""
    pairs = [
        (job.happened.finish - job.entry.created, job.turnaround)
        for job in jobs
        if job.happened and job.happened.finish is not None and job.turnaround > 0
    ]
    real = sum(turnaround for _, turnaround in pairs)
    if not real:
        return None
    checked = list(_checked(jobs))
    first = min(job.entry.created for job in jobs)
    return Confidence(
        jobs=len(pairs),
        turnaround=100 * (sum(modelled for modelled, _ in pairs) / real - 1),
        one_job=100 * median(abs(modelled / seen - 1) for modelled, seen in pairs),
        forecasts=len(checked),
        forecast=100 * median(checked) if checked else None,
        real=max(job.entry.finished for job in jobs) - first,
        happened=_makespan((job.happened for job in jobs), first),
        static=_makespan((job.static for job in jobs), first),
        promised=_makespan((job.promised for job in jobs), first),
    )


def _checked(jobs: Iterable[ReplayedJob]) -> Iterator[float]:
    """Yield by how much forecasts of finishes were off, as parts of the turnaround."""
    for job in jobs:
        entry = job.entry
        if entry.moves or not job.is_enforced or job.turnaround <= 0:
            continue
        taken = next((offer for offer in entry.options if offer.name == entry.option), None)
        if taken is not None and taken.finishes_in is not None:
            yield abs(taken.finishes_in - job.turnaround) / job.turnaround


def _makespan(results: Iterable[JobResult | None], first: float) -> float | None:
    ended = [result.finish for result in results if result and result.finish is not None]
    return max(ended) - first if ended else None


NOBODY: Final = ""
"""In place of a policy: Jobs that none matches, in the queues that the others use."""
_NOTICED_SECONDS: Final = 1.0
"""A Job that ends later by less does not count as slower; times are in whole seconds."""
_NOTICED_PART: Final = 0.02
_ASSUMED_PART: Final = 0.3
"""Error of a run time that is based on a policy's slowdown alone, as in forecasts. All of one
policy are wrong in the same direction, so their errors add up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    since: float
    until: float
    rows: tuple[Gained, ...]
    """By policy, namespace, kind and the mode that held."""
    confidence: Confidence | None
    """None: nothing was replayed."""
    left_out: int = 0
    clusters: tuple[Gained, ...] = ()
    """By the worker cluster in which Jobs ran; empty: none is known to have run in one."""
    unseen: tuple[str, ...] = ()
    """Worker clusters without a known state, so that Jobs were left out of replays."""
    currency: str = ""
    """What money is in; empty: not known."""
    days: tuple[Gained, ...] = ()
    """Jobs of policies that are compared, by the day on which they came; where policies enforce,
    what was gained, before what would have been."""
    whole: tuple[Gained, ...] = ()
    """The same of all days together."""


def gains(
    hindsight: Hindsight,
    *,
    since: float,
    until: float,
    namespace: str | None = None,
    policy: str | None = None,
    selector: Selector = EVERYTHING,
) -> Gains:
    """Sum up the Jobs created from *since* on; earlier ones count only as load.

    *since* and *until* are in seconds since 1970. Only Jobs of *namespace* and of *policy* count
    (None: those of all), with labels as *selector* has it.
    """
    jobs = [
        job
        for job in hindsight.jobs
        if job.entry.created >= since
        and namespace in (None, job.entry.namespace)
        and policy in (None, _policy(job))
        and selector.matches(job.entry.labels)
    ]
    confidence = confidence_of([job for job in jobs if is_replayed(job)])
    each = gains_of(jobs, confidence, hindsight.prices)
    started = [gain for gain in each if gain.started]
    compared = [gain for gain in each if gain.jobs and gain.policy != NOBODY]
    rows = by(each, "policy", "namespace", "kind", "mode")
    return Gains(
        since=since,
        until=until,
        # Those that no policy matches come last.
        rows=tuple(sorted(rows, key=lambda row: row.policy == NOBODY)),
        confidence=confidence,
        left_out=hindsight.left_out,
        clusters=by(started, "cluster") if any(gain.cluster for gain in started) else (),
        unseen=tuple(sorted({name for job in jobs for name in job.unseen})),
        currency=hindsight.currency,
        days=tuple(_by_day(compared, day_of)),
        whole=tuple(_by_day(compared, lambda _: "")),
    )


def by(gains: Iterable[Gained], *names: str) -> tuple[Gained, ...]:
    """Add up gains by what they have in common, ascending."""
    groups: defaultdict[tuple[Any, ...], list[Gained]] = defaultdict(list)
    for gain in gains:
        groups[tuple(getattr(gain, name) for name in names)].append(gain)
    return tuple(
        added(members, **dict(zip(names, common, strict=True)))
        for common, members in sorted(groups.items())
    )


def day_of(gain: Gained) -> str:
    return rfc3339(gain.since)[: len("2026-12-01")]


def _by_day(gains: Iterable[Gained], day: Callable[[Gained], str]) -> Iterator[Gained]:
    """Sum up by what *day* makes of each, and whether it was so."""
    groups: defaultdict[tuple[bool, str], list[Gained]] = defaultdict(list)
    for gain in gains:
        groups[not gain.is_enforced, day(gain)].append(gain)
    for (is_promised, _), members in sorted(groups.items()):
        first = min(member.since for member in members)
        yield added(members, since=first, mode="" if is_promised else str(Mode.ENFORCE))


def _policy(job: ReplayedJob) -> str:
    if job.entry.policy:
        return job.entry.policy
    return job.policy.name if job.policy else NOBODY


def is_replayed(job: ReplayedJob) -> bool:
    """Return whether the replay of what happened can be compared with it."""
    return job.is_over and job.happened is not None and job.happened.finish is not None


def gains_of(
    jobs: Iterable[ReplayedJob], confidence: Confidence | None, prices: Mapping[str, Prices]
) -> list[Gained]:
    """Return what each Job has gained; *confidence* says how far replays are off."""
    # Only the replay of what happened can be checked: the other is taken to be off as much.
    part = abs(confidence.turnaround) / 100 if confidence else 0.0
    return [_gain(job, part, prices) for job in jobs]


def _gain(job: ReplayedJob, part: float, prices: Mapping[str, Prices]) -> Gained:
    entry, policy, is_moved = job.entry, _policy(job), _is_moved(job)
    why = "" if policy == NOBODY or is_moved else _why(job)
    late = bills.is_late(entry) if job.is_over else None
    spent = bills.spent_by(entry, prices) if job.is_over else None
    return Gained(
        policy=policy,
        namespace=entry.namespace,
        kind=entry.kind,
        mode=job.mode if policy != NOBODY else "",
        cluster=entry.cluster,
        since=entry.created,
        seen=1,
        unseen=int(bool(job.unseen)),
        started=int(bool(entry.admitted)),
        ended=int(job.is_over),
        moved=int(is_moved),
        reconsidered=int(entry.moves > 0),
        assumed=int(is_moved and _is_assumed(job)),
        stayed={why: 1} if why else {},
        waited_seconds=max(0.0, entry.admitted - entry.created) if entry.admitted else 0.0,
        spent=_sums(bills.amounts_of(spent)),
        saved=_sums(_saved(job, prices)) if job.is_over else {},
        late=int(bool(late)),
        deadlines=int(late is not None),
        **_compared(job, part),
    )


def _sums(amounts: Mapping[str, float]) -> Sums:
    return {kind: Sum(amount, 1) for kind, amount in amounts.items()}


def _compared(job: ReplayedJob, part: float) -> Mapping[str, Any]:
    """Return how long a Job took without and with decisions; nothing if that is not known.

    Its error is that of the replays, and that of a run time that was never observed.
    """
    turnarounds = _turnarounds(job)
    if turnarounds is None:
        return {}
    before, after = turnarounds
    margin = part * max(before, after)
    if _is_moved(job) and _is_assumed(job):
        margin += _ASSUMED_PART * _run_elsewhere(job)
    return {
        "jobs": 1,
        "before_seconds": before,
        "gained_seconds": max(0.0, before - after),
        "lost_seconds": max(0.0, after - before),
        "by_others_seconds": 0.0 if _is_moved(job) else before - after,
        "margin_seconds": margin,
        "slower": int(after - before > max(_NOTICED_SECONDS, _NOTICED_PART * after)),
        "device_hours": sum(hours_given_back([job]).values()) if is_replayed(job) else 0.0,
    }


def hours_given_back(jobs: Iterable[ReplayedJob]) -> Mapping[str, float]:
    """Return the hours of devices that Jobs held less with decisions than without, by flavor."""
    both = [(one, other) for one, other in map(_sides, jobs) if one and other]
    before, after = (totals([pair[side] for pair in both]).device_hours for side in (0, 1))
    return {
        flavor: before.get(flavor, 0.0) - after.get(flavor, 0.0)
        for flavor in sorted(before.keys() | after.keys())
    }


def _saved(job: ReplayedJob, prices: Mapping[str, Prices]) -> Mapping[str, float]:
    """Return what a decision saved: by two replays, else by what the decision expected."""
    if is_replayed(job):
        without, with_them = (bills.replayed_cost(side, prices) for side in _sides(job))
        return bills.saved(without, with_them)
    if job.happened is None and job.is_enforced and _is_moved(job):
        return bills.saved(job.entry.expected_cost, bills.spent_by(job.entry, prices))
    return {}


def _run_elsewhere(job: ReplayedJob) -> float:
    """Return how long it ran in the replay in which it ran elsewhere."""
    replayed = job.static if job.acts else job.promised
    if replayed is None or replayed.start is None or replayed.finish is None:
        return 0.0
    return replayed.finish - replayed.start


def _is_moved(job: ReplayedJob) -> bool:
    if job.acts:
        return job.entry.queue != job.submitted_queue
    return job.promised is not None and job.promised.is_moved


def _why(job: ReplayedJob) -> str:
    """Return why a Job was not moved."""
    entry = job.entry
    if not job.acts:
        return job.promised.why if job.promised else ""
    if not entry.policy:
        return str(Stayed.UNDECIDED)
    offers = [(each.name, each.rejected_for, each.passed_over_for) for each in entry.options]
    left_alone = entry.decision.left_alone if entry.decision is not None else None
    return why_stayed(entry.option, str(left_alone or ""), offers)


def _turnarounds(job: ReplayedJob) -> tuple[float, float] | None:
    """Return a Job's seconds from arrival to end, without and with decisions.

    None: it did not end, or not in both replays.
    """
    if not is_replayed(job):
        return _forecast_turnarounds(job)
    without, with_them = _sides(job)
    if without is None or with_them is None:
        return None
    if without.finish is None or with_them.finish is None:
        return None
    return without.finish - job.entry.created, with_them.finish - job.entry.created


def _forecast_turnarounds(job: ReplayedJob) -> tuple[float, float] | None:
    """Without a replay, compare with the decision's forecast for the queue it was submitted to."""
    if job.happened is not None or not (job.is_over and job.is_enforced and _is_moved(job)):
        return None
    offers = (offer for offer in job.entry.options if offer.queue == job.submitted_queue)
    expected = next((offer.finishes_in for offer in offers), None)
    return None if expected is None else (expected, job.turnaround)


def _sides(job: ReplayedJob) -> tuple[JobResult | None, JobResult | None]:
    # Never a replay and the world: errors that two replays share cancel out (decision 0015).
    if job.acts:
        return job.static, job.happened
    return job.happened, job.promised


def _is_assumed(job: ReplayedJob) -> bool:
    """Return whether one of the two compared run times was never observed."""
    if job.acts:
        first = job.policy.spec.options[0].name if job.policy else ""
        basis = job.rests.get(first)
    else:
        option = job.promised.option if job.promised else ""
        basis = job.rests.get(option)
    return basis in (Rests.SLOWDOWN, Rests.SAME)


SINCE_SECONDS: Final = 86_400.0
"""Jobs from before count as load, but for no gain, as in ``report``."""
_HOUR: Final = 3600


def summed_up(hindsight: Hindsight, *, now: float) -> SavingsRecord:
    """Return what is published at *now*, in seconds since 1970; for Jobs in no replay, no gain."""
    since = max(
        now - SINCE_SECONDS, min((job.entry.created for job in hindsight.jobs), default=now)
    )
    decisions = [decision for job in hindsight.jobs if (decision := _decision(job)) is not None]
    newest = sorted(decisions, key=lambda past: (-past.at, past.recorded.id))
    # Gains of those in no replay would be the forecasts of their decisions.
    jobs = [job for job in hindsight.jobs if not job.unseen]
    recent = [job for job in jobs if job.entry.created >= since and is_replayed(job)]
    each = gains_of(jobs, confidence_of(recent), hindsight.prices)
    of_policies = [gain for gain in each if gain.policy != NOBODY]
    return SavingsRecord(
        as_of=now,
        gained=tuple(_gained([gain for gain in of_policies if gain.since >= since], since)),
        decisions=tuple(newest[:MOST_DECISIONS]),
        currency=hindsight.currency,
        hours=tuple(islice(_by_hour(of_policies), MOST_HOURS)),
    )


def _gained(gains: Iterable[Gained], since: float) -> Iterator[Gained]:
    """Yield what Jobs have gained by policy and namespace, in the mode that holds there now."""
    places: defaultdict[tuple[str, str], list[Gained]] = defaultdict(list)
    for gain in gains:
        places[gain.policy, gain.namespace].append(gain)
    for (policy, namespace), members in sorted(places.items()):
        # What an earlier mode brought, or would have brought, is no gain of this one.
        mode = members[-1].mode
        total = added(
            (member for member in members if member.mode == mode),
            policy=policy,
            namespace=namespace,
            mode=mode,
            since=since,
        )
        if total.jobs:
            yield replace(total, spent=_brief(total.spent), saved=_brief(total.saved))


def _brief(sums: Sums) -> Sums:
    amounts = rounded(sums)
    return {kind: Sum(amounts[kind], total.jobs) for kind, total in sums.items()}


def _by_hour(gains: Iterable[Gained]) -> Iterator[Gained]:
    """Yield what Jobs have gained by the hour in which they came, the newest first."""
    hours: defaultdict[tuple[int, str, str, bool], list[Gained]] = defaultdict(list)
    for gain in gains:
        if gain.jobs:
            hour = int(gain.since // _HOUR)
            hours[-hour, gain.policy, gain.namespace, gain.is_enforced].append(gain)
    for (newest, policy, namespace, _), members in sorted(hours.items()):
        since, mode = float(-newest * _HOUR), members[-1].mode
        yield added(members, since=since, policy=policy, namespace=namespace, mode=mode)


def _decision(job: ReplayedJob) -> ShownDecision | None:
    """Return the advice that the Job carries, or a replay's decision for one that carries none."""
    entry = job.entry
    if entry.decision is not None and entry.mode == Mode.ADVISE:
        return _advised(entry, entry.decision)
    replayed, policy = job.promised, job.policy
    if entry.policy or policy is None or policy.spec.mode is not Mode.OBSERVE or replayed is None:
        return None
    stays = f"leave it where it is ({replayed.why})"
    taken = f"send it to {replayed.queue} ({replayed.option})" if replayed.is_moved else stays
    recorded = Recorded(
        id=_id(entry),
        time=rfc3339(entry.created),
        policy=policy.name,
        mode=policy.spec.mode,
        option=replayed.option or None,
        reason=f"a replay of the journal would {taken}",
        from_queue=job.submitted_queue,
        state_age_seconds=0.0,
    )
    return ShownDecision(
        recorded=recorded,
        at=entry.created,
        namespace=entry.namespace,
        job=entry.reference,
        kind=entry.kind,
        queue=replayed.queue,
        is_replayed=True,
    )


def _advised(entry: JournalEntry, decision: Recorded) -> ShownDecision:
    queues = {offer.name: offer.queue for offer in decision.options}
    queue = queues.get(entry.option) or entry.queue
    taken = f"sending it to {queue} ({entry.option})" if entry.option else "leaving it"
    reason = f"advised {taken}, as the journal tells"
    return ShownDecision(
        recorded=replace(decision, id=_id(entry), reason=reason),
        at=entry.decided,
        namespace=entry.namespace,
        job=entry.reference,
        kind=entry.kind,
        queue=queue,
    )


def _id(entry: JournalEntry) -> str:
    """Return an id of its Job; the decision's own is not in the journal."""
    return f"job-{entry.uid or entry.key}"
