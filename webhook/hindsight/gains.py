"""What decisions gained, by policy, namespace and kind, from the replays of the journal. Pure.

For a policy that enforces, what its decisions have gained; for one that observes or advises, what
they would have. Both compare two replays of the same arrivals, as docs/decisions/0015-journal.md
says. The controller publishes them as a record of savings.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby, islice
from statistics import fmean, median
from typing import Any, Final, TypeAlias

from webhook.hindsight import bills
from webhook.hindsight.bills import Bill
from webhook.hindsight.journal import JournalEntry
from webhook.hindsight.look_back import Hindsight, ReplayedJob, Rests
from webhook.hindsight.savings_record import (
    MOST_DECISIONS,
    MOST_HOURS,
    Gained,
    GainedHour,
    SavingsRecord,
    ShownDecision,
)
from webhook.model.costs.prices import Prices
from webhook.model.pods import EVERYTHING, Selector
from webhook.model.policy.fallback_policy import Mode
from webhook.model.reasons import Stayed, why_stayed
from webhook.model.words import rfc3339
from webhook.simulate.results import JobResult, totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """How far the replay of what happened is off, in percent."""

    jobs: int
    turnaround: float
    """Difference of the sum of all turnarounds."""
    makespan: float
    one_job: float
    """Median over Jobs, in percent of each one's own turnaround."""
    forecasts: int
    """Number of decisions whose forecast of the finish could be checked."""
    forecast: float | None
    """Their median error, in percent of the turnaround; None: none could be checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Makespans:
    """Seconds from the first arrival to the last end of all Jobs.

    None: not replayed, or none ended.
    """

    real: float | None = None
    happened: float | None = None
    static: float | None = None
    promised: float | None = None


def confidence_of(jobs: Sequence[ReplayedJob]) -> Confidence | None:
    pairs = [
        (job.happened.finish - job.entry.created, job.turnaround)
        for job in jobs
        if job.happened and job.happened.finish is not None and job.turnaround > 0
    ]
    real = sum(turnaround for _, turnaround in pairs)
    if not real:
        return None
    spans = makespans_of(jobs)
    makespan = (spans.happened or 0.0) / spans.real - 1 if spans.real else 0.0
    checked = list(_checked(jobs))
    return Confidence(
        jobs=len(pairs),
        turnaround=100 * (sum(modelled for modelled, _ in pairs) / real - 1),
        makespan=100 * makespan,
        one_job=100 * median(abs(modelled / seen - 1) for modelled, seen in pairs),
        forecasts=len(checked),
        forecast=100 * median(checked) if checked else None,
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


def makespans_of(jobs: Sequence[ReplayedJob]) -> Makespans:
    first = min((job.entry.created for job in jobs), default=0.0)
    return Makespans(
        real=_span((float(job.entry.finished) for job in jobs), first),
        happened=_span((job.happened.finish for job in jobs if job.happened), first),
        static=_span((job.static.finish for job in jobs if job.static), first),
        promised=_span((job.promised.finish for job in jobs if job.promised), first),
    )


def _span(ends: Iterable[float | None], first: float) -> float | None:
    ended = [end for end in ends if end is not None]
    return max(ended) - first if ended else None


_Group: TypeAlias = tuple[str, str, str, str]
"""Policy, namespace, kind, and the mode that held."""
NOBODY: Final = ""
"""In place of a policy: Jobs that none matches, in the queues that the others use."""
_NOTICED_SECONDS: Final = 1.0
"""A Job that ends later by less does not count as slower; times are in whole seconds."""
_NOTICED_PART: Final = 0.02
_ASSUMED_PART: Final = 0.3
"""Error of a run time that is based on a policy's slowdown alone, as in forecasts. All of one
policy are wrong in the same direction, so their errors add up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Jobs of one policy, namespace and kind; seconds are sums over those that have ended."""

    policy: str
    namespace: str
    kind: str
    mode: str
    """Empty for Jobs that no policy matches."""
    seen: int
    moved: int
    """Moved at their creation or later; under Observe and Advise, that would have been."""
    reconsidered: int
    """Moved while they were pending."""
    stayed: Mapping[str, int]
    """Reason to the number of Jobs."""
    over: int
    """That have ended, and count for what follows."""
    saved: float | None
    """None: unknown."""
    by_others: float
    """Part of *saved* of Jobs that were not moved, because others were; in seconds."""
    margin: float
    """Error of *saved*, in seconds."""
    slower: int
    assumed: int
    """Moved Jobs whose run time in the other option comes only from the policy."""
    unseen: int = 0
    """Seen Jobs that are in no replay, because a worker cluster's state is unknown."""
    bill: Bill = field(default_factory=Bill)
    """What they have cost."""

    @property
    def is_moved_known(self) -> bool:
        """Return whether it is known who would have moved."""
        return self.mode in ("Enforce", "") or self.unseen < self.seen

    @property
    def own(self) -> float | None:
        """Return the seconds that moved Jobs saved; None: unknown, or none was moved."""
        return None if self.saved is None or not self.moved else self.saved - self.by_others

    @property
    def mean(self) -> float | None:
        return None if self.saved is None or not self.over else self.saved / self.over


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterGains:
    """Jobs that ran in one worker cluster, or at the manager."""

    cluster: str
    """Empty: the manager."""
    started: int
    wait: float
    """Mean seconds from arrival to admission."""
    over: int
    """That have ended, and count for what follows."""
    saved: float | None
    """Sum over all of them, in seconds; None: unknown."""
    slower: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DayGains:
    """Jobs of policies that came on one day and have ended, without and with decisions."""

    day: str
    """As 2026-12-01, in UTC; empty: of all days."""
    is_enforced: bool
    """Whether it was so; else it would have been."""
    jobs: int
    moved: int
    before: float
    """Sum of the turnarounds without decisions, in seconds."""
    after: float
    device_hours: float
    """Hours of devices that were given back; negative: more were taken."""

    @property
    def percent(self) -> float:
        """Return by how many percent the Jobs were done sooner."""
        return 100 * (1 - self.after / self.before) if self.before else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    since: float
    until: float
    rows: tuple[Row, ...]
    confidence: Confidence | None
    """None: nothing was replayed."""
    makespans: Makespans = field(default_factory=Makespans)
    left_out: int = 0
    clusters: tuple[ClusterGains, ...] = ()
    """Empty: no Job is known to have run in a worker cluster."""
    unseen: tuple[str, ...] = ()
    """Worker clusters without a known state, so that Jobs were left out of replays."""
    currency: str = ""
    """What money is in; empty: not known."""
    days: tuple[DayGains, ...] = ()
    """By day; where policies enforce, what was gained, before what would have been."""
    whole: tuple[DayGains, ...] = ()
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
    over = [job for job in jobs if _is_compared(job)]
    confidence = confidence_of(over)
    part = abs(confidence.turnaround) / 100 if confidence else 0.0
    groups: defaultdict[_Group, list[ReplayedJob]] = defaultdict(list)
    for member in jobs:
        mode = member.mode if _policy(member) else ""
        groups[_policy(member), member.entry.namespace, member.entry.kind, mode].append(member)
    rows = [
        replace(_row(name, members, part), bill=_bill(members, hindsight.prices))
        for name, members in sorted(groups.items(), key=_order)
    ]
    return Gains(
        since=since,
        until=until,
        rows=tuple(rows),
        confidence=confidence,
        makespans=makespans_of(over),
        left_out=hindsight.left_out,
        clusters=tuple(_in_clusters(jobs)),
        unseen=tuple(sorted({name for job in jobs for name in job.unseen})),
        currency=hindsight.currency,
        days=tuple(_by_day(jobs, day_of)),
        whole=tuple(_by_day(jobs, lambda _: "")),
    )


def day_of(job: ReplayedJob) -> str:
    return rfc3339(job.entry.created)[: len("2026-12-01")]


def _by_day(jobs: Sequence[ReplayedJob], day: Callable[[ReplayedJob], str]) -> Iterator[DayGains]:
    """Sum up the Jobs that some policy matches, by what *day* makes of each."""
    groups: defaultdict[tuple[bool, str], list[tuple[ReplayedJob, float, float]]]
    groups = defaultdict(list)
    for pair in _pairs(job for job in jobs if _policy(job) != NOBODY):
        groups[not pair[0].is_enforced, day(pair[0])].append(pair)
    for (is_promised, name), pairs in sorted(groups.items()):
        yield DayGains(
            day=name,
            is_enforced=not is_promised,
            jobs=len(pairs),
            moved=sum(_is_moved(job) for job, _, _ in pairs),
            before=sum(before for _, before, _ in pairs),
            after=sum(after for _, _, after in pairs),
            device_hours=_given_back([job for job, _, _ in pairs if _is_compared(job)]),
        )


def _given_back(jobs: Sequence[ReplayedJob]) -> float:
    """Return the hours of devices that Jobs held less with decisions than without."""
    both = [(one, other) for one, other in map(_sides, jobs) if one and other]
    without, with_them = (totals([pair[side] for pair in both]) for side in (0, 1))
    return sum(without.device_hours.values()) - sum(with_them.device_hours.values())


def _in_clusters(jobs: Iterable[ReplayedJob]) -> Iterator[ClusterGains]:
    places: defaultdict[str, list[ReplayedJob]] = defaultdict(list)
    for job in jobs:
        if job.entry.admitted:
            places[job.entry.cluster].append(job)
    for name, members in sorted(places.items()) if places.keys() - {""} else ():
        pairs = list(_pairs(members))
        yield ClusterGains(
            cluster=name,
            started=len(members),
            wait=fmean(
                max(0.0, member.entry.admitted - member.entry.created) for member in members
            ),
            over=len(pairs),
            saved=sum(before - after for _, before, after in pairs) if pairs else None,
            slower=_slower(pairs),
        )


def _order(group: tuple[_Group, Sequence[ReplayedJob]]) -> tuple[bool, _Group]:
    named, _ = group
    return named[0] == NOBODY, named


def _policy(job: ReplayedJob) -> str:
    if job.entry.policy:
        return job.entry.policy
    return job.policy.name if job.policy else NOBODY


def _is_compared(job: ReplayedJob) -> bool:
    return job.is_over and job.happened is not None and job.happened.finish is not None


def _row(name: _Group, members: Sequence[ReplayedJob], part: float) -> Row:
    policy, namespace, kind, mode = name
    stayed = Counter(why for member in members if (why := _why(member)))
    moved = [member for member in members if _is_moved(member)]
    pairs = list(_pairs(members))
    saved = sum(before - after for _, before, after in pairs)
    return Row(
        policy=policy,
        namespace=namespace,
        kind=kind,
        mode=mode,
        seen=len(members),
        moved=len(moved),
        reconsidered=sum(member.entry.moves > 0 for member in members),
        stayed=dict(sorted(stayed.items())) if policy else {},
        over=len(pairs),
        saved=saved if pairs else None,
        by_others=sum(before - after for job, before, after in pairs if not _is_moved(job)),
        margin=_margin(pairs, part),
        slower=_slower(pairs),
        assumed=sum(_is_assumed(member) for member in moved),
        unseen=sum(bool(member.unseen) for member in members),
    )


def _bill(members: Sequence[ReplayedJob], prices: Mapping[str, Prices]) -> Bill:
    over = [member for member in members if member.is_over]
    late = [is_late for member in over if (is_late := bills.is_late(member.entry)) is not None]
    spent = (bills.amounts_of(bills.spent_by(member.entry, prices)) for member in over)
    return Bill(
        jobs=len(over),
        spent=bills.summed(spent),
        saved=bills.summed(_saved(member, prices) for member in over),
        late=sum(late),
        deadlines=len(late),
    )


def _saved(member: ReplayedJob, prices: Mapping[str, Prices]) -> Mapping[str, float]:
    """Return what a decision saved: by two replays, else by what the decision expected."""
    if _is_compared(member):
        without, with_them = (bills.replayed_cost(side, prices) for side in _sides(member))
        return bills.saved(without, with_them)
    if member.happened is None and member.is_enforced and _is_moved(member):
        return bills.saved(member.entry.expected_cost, bills.spent_by(member.entry, prices))
    return {}


def _slower(pairs: Iterable[tuple[ReplayedJob, float, float]]) -> int:
    return sum(_is_noticed(after - before, after) for _, before, after in pairs)


def _margin(pairs: Iterable[tuple[ReplayedJob, float, float]], part: float) -> float:
    """Return, in seconds, the error of the replays plus that of run times never observed."""
    margin = 0.0
    for job, before, after in pairs:
        margin += part * max(before, after)
        if _is_moved(job) and _is_assumed(job):
            margin += _ASSUMED_PART * _run_elsewhere(job)
    return margin


def _run_elsewhere(job: ReplayedJob) -> float:
    """Return how long it ran in the replay in which it ran elsewhere."""
    replayed = job.static if job.acts else job.promised
    if replayed is None or replayed.start is None or replayed.finish is None:
        return 0.0
    return replayed.finish - replayed.start


def _is_noticed(later: float, turnaround: float) -> bool:
    return later > max(_NOTICED_SECONDS, _NOTICED_PART * turnaround)


def _is_moved(job: ReplayedJob) -> bool:
    if job.acts:
        return job.entry.queue != job.submitted_queue
    return job.promised is not None and job.promised.is_moved


def _why(job: ReplayedJob) -> str:
    if _is_moved(job):
        return ""
    entry = job.entry
    if not job.acts:
        return job.promised.why if job.promised else ""
    if not entry.policy:
        return str(Stayed.UNDECIDED)
    offers = [(each.name, each.rejected_for, each.passed_over_for) for each in entry.options]
    left_alone = entry.decision.left_alone if entry.decision is not None else ""
    return why_stayed(entry.option, left_alone, offers)


def _pairs(members: Iterable[ReplayedJob]) -> Iterator[tuple[ReplayedJob, float, float]]:
    """Yield turnarounds without and with decisions, of Jobs that ended in both replays."""
    for member in members:
        if not _is_compared(member):
            yield from _by_forecast(member)
            continue
        without, with_them = _sides(member)
        if without is None or with_them is None:
            continue
        if without.finish is not None and with_them.finish is not None:
            created = member.entry.created
            yield member, without.finish - created, with_them.finish - created


def _by_forecast(job: ReplayedJob) -> Iterator[tuple[ReplayedJob, float, float]]:
    """Without a replay, compare with the decision's forecast for the queue it was submitted to."""
    if job.happened is not None or not (job.is_over and job.is_enforced):
        return
    offers = (offer for offer in job.entry.options if offer.queue == job.submitted_queue)
    expected = next((offer.finishes_in for offer in offers), None)
    if expected is not None and _is_moved(job):
        yield job, expected, job.turnaround


def _sides(job: ReplayedJob) -> tuple[JobResult | None, JobResult | None]:
    if job.acts:
        return job.static, job.happened
    return job.happened, job.promised


def _is_assumed(job: ReplayedJob) -> bool:
    """Return whether one of the two compared run times was never observed."""
    if job.acts:
        first = job.policy.spec.options[0].name if job.policy else ""
        basis = job.elsewhere.rests.get(first)
    else:
        option = job.promised.option if job.promised else ""
        basis = job.elsewhere.rests.get(option)
    return basis in (Rests.SLOWDOWN, Rests.SAME)


SINCE_SECONDS: Final = 86_400.0
"""Jobs from before count as load, but for no gain, as in ``report``."""


def summed_up(hindsight: Hindsight, *, now: float) -> SavingsRecord:
    """Return what is published at *now*, in seconds since 1970; for Jobs in no replay, no gain."""
    since = max(
        now - SINCE_SECONDS, min((job.entry.created for job in hindsight.jobs), default=now)
    )
    decisions = [decision for job in hindsight.jobs if (decision := _decision(job)) is not None]
    newest = sorted(decisions, key=lambda past: (-past.at, past.id))
    return SavingsRecord(
        as_of=now,
        gained=tuple(_gained(hindsight, since=since, until=now)),
        decisions=tuple(newest[:MOST_DECISIONS]),
        currency=hindsight.currency,
        hours=tuple(islice(_by_hour(hindsight.jobs), MOST_HOURS)),
    )


_HOUR: Final = 3600


def _by_hour(jobs: Iterable[ReplayedJob]) -> Iterator[GainedHour]:
    """Yield what Jobs of policies have gained by the hour in which they came, the newest first."""
    groups: defaultdict[tuple[int, str, str, bool], list[float]] = defaultdict(list)
    replayed = (job for job in jobs if not job.unseen and _policy(job) != NOBODY)
    for job, before, after in _pairs(replayed):
        hour = int(job.entry.created // _HOUR)
        key = (-hour, _policy(job), job.entry.namespace, job.is_enforced)
        groups[key].append(before - after)
    for (newest, policy, namespace, is_enforced), gained in sorted(groups.items()):
        yield GainedHour(
            at=-newest * _HOUR,
            policy=policy,
            namespace=namespace,
            is_enforced=is_enforced,
            jobs=len(gained),
            gained_seconds=sum(seconds for seconds in gained if seconds > 0),
            lost_seconds=-sum(seconds for seconds in gained if seconds < 0),
        )


def _gained(hindsight: Hindsight, *, since: float, until: float) -> Iterator[Gained]:
    # Gains of the others would be the forecasts of their decisions.
    jobs = tuple(job for job in hindsight.jobs if not job.unseen)
    rows = gains(replace(hindsight, jobs=jobs), since=since, until=until).rows
    known = (row for row in rows if row.policy and row.saved is not None)
    compared: defaultdict[tuple[str, str], list[ReplayedJob]] = defaultdict(list)
    newest = {(_policy(job), job.entry.namespace): job.mode for job in jobs}
    for job in jobs:
        place = _policy(job), job.entry.namespace
        if job.entry.created >= since and _is_compared(job) and job.mode == newest[place]:
            compared[place].append(job)
    for (policy, namespace), group in groupby(known, lambda row: (row.policy, row.namespace)):
        # What an earlier mode brought, or would have brought, is no gain of this one.
        of_all_kinds = [row for row in group if row.mode == newest[policy, namespace]]
        if not of_all_kinds:
            continue
        yield Gained(
            policy=policy,
            namespace=namespace,
            mode=of_all_kinds[-1].mode,
            since=since,
            jobs=sum(row.over for row in of_all_kinds),
            moved=sum(row.moved for row in of_all_kinds),
            saved_seconds=sum(row.saved or 0.0 for row in of_all_kinds),
            margin_seconds=sum(row.margin for row in of_all_kinds),
            slower=sum(row.slower for row in of_all_kinds),
            device_hours=_given_back(compared[policy, namespace]),
            **_billed([row.bill for row in of_all_kinds]),
        )


def _billed(of_kinds: Sequence[Bill]) -> Mapping[str, Any]:
    """Return what is published of bills, added up."""
    spent, saved = (
        bills.added(getattr(bill, name) for bill in of_kinds) for name in ("spent", "saved")
    )
    return {
        "spent": {kind: total.rounded for kind, total in spent.items()},
        "saved": {kind: total.rounded for kind, total in saved.items()},
        "late": sum(bill.late for bill in of_kinds),
        "deadlines": sum(bill.deadlines for bill in of_kinds),
    }


def _decision(job: ReplayedJob) -> ShownDecision | None:
    """Return the advice that the Job carries, or a replay's decision for one that carries none."""
    entry = job.entry
    if entry.mode == Mode.ADVISE:
        return _advised(entry)
    replayed, policy = job.promised, job.policy
    if entry.policy or policy is None or policy.spec.mode is not Mode.OBSERVE or replayed is None:
        return None
    stays = f"leave it where it is ({replayed.why})"
    taken = f"send it to {replayed.queue} ({replayed.option})" if replayed.is_moved else stays
    return _of_its_job(entry)(
        at=entry.created,
        policy=policy.name,
        mode=str(policy.spec.mode),
        option=replayed.option,
        queue=replayed.queue,
        reason=f"a replay of the journal would {taken}",
        is_replayed=True,
    )


def _advised(entry: JournalEntry) -> ShownDecision:
    queues = {offer.name: offer.queue for offer in entry.options}
    queue = queues.get(entry.option) or entry.queue
    taken = f"sending it to {queue} ({entry.option})" if entry.option else "leaving it"
    return _of_its_job(entry)(
        at=entry.decided,
        policy=entry.policy,
        mode=entry.mode,
        option=entry.option,
        queue=queue,
        reason=f"advised {taken}, as the journal tells",
        options=entry.options,
    )


def _of_its_job(entry: JournalEntry) -> partial[ShownDecision]:
    """Return a decision as far as the Job says it; the decision's own id is not in the journal."""
    id_ = f"job-{entry.uid or entry.key}"
    job, kind = entry.reference, entry.kind
    return partial(ShownDecision, id=id_, namespace=entry.namespace, job=job, kind=kind)
