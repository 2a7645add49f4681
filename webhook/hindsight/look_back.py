"""Replays a journal's entries: as it happened, without decisions, and as policies would decide.

A replay of what happened, beside what really happened, shows how far the others can be trusted;
errors that all of them share cancel out in their differences. How long a Job would have run
elsewhere follows from its own run and what is known of its class. Pure.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import chain
from math import inf
from statistics import fmean
from typing import Any, Final

from webhook.decide import match
from webhook.hindsight.journal import JournalEntry
from webhook.jobs import reduced
from webhook.kueue import multikueue
from webhook.kueue.durations import learned_on
from webhook.kueue.requests import needs
from webhook.learn import job_class
from webhook.learn.estimates import NOTHING, Learned, RunTimeLearner
from webhook.learn.expected_runs import slowdown_of
from webhook.learn.run_records import ClassRecord, Packed, pack_runs, unpack_runs
from webhook.model.costs.prices import Prices
from webhook.model.faults import attempted
from webhook.model.fields import FieldError
from webhook.model.forecasts import Estimates, JobClass
from webhook.model.job import QUEUE_LABEL, Job
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode, Option, sort_key
from webhook.model.queues import ClusterQueue
from webhook.simulate.replay import replay
from webhook.simulate.results import JobResult
from webhook.simulate.scenario import (
    STATIC,
    Arm,
    Scenario,
    Submission,
    Worker,
    emptied,
    enforced,
    templates_of,
)
from webhook.state.snapshot import Snapshot


class Rests(StrEnum):
    """What a run time on flavors other than the Job's own is based on, the most trusted first."""

    LEARNED = "learned"
    """Runs of its class on both flavors."""
    DECISION = "decision"
    """What was expected when it was decided."""
    SLOWDOWN = "slowdown"
    """The policy's slowdown."""
    SAME = "same"
    """Nothing: it is assumed to run as long as it did."""


def run_times(
    entry: JournalEntry,
    own_seconds: float,
    *,
    policy: FallbackPolicy | None,
    snapshot: Snapshot,
    learned: Estimates,
) -> tuple[Mapping[str, float], Mapping[str, Rests]]:
    """Return the Job's run time in seconds by flavor, and by option what it is based on.

    On its own flavors it is the *own_seconds* that it took.
    """
    # A replay may find that it asks for no quota, and so for no flavor.
    seconds = dict.fromkeys((*snapshot.setup.flavors, ""), own_seconds)
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
    return seconds, rests


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
    entry_class = JobClass(entry.job_class, entry.coarse)
    here, there = (learned_on(learned, entry_class, flavors) for flavors in (entry.flavors, flavor))
    if here is not None and there is not None and here.seconds > 0:
        return there.seconds / here.seconds, Rests.LEARNED
    expected = {offer.name: offer.runs for offer in entry.options if offer.runs}
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
        place = snapshot.setup.local_queues.get((namespace, option.queue))
        name = place.cluster_queue if place else ""
    return snapshot.setup.cluster_queues.get(name)


def _flavors(queue: ClusterQueue) -> Iterator[str]:
    for group in queue.groups:
        yield from group.flavors


@dataclass(frozen=True, slots=True, kw_only=True)
class LookBackInput:
    """What is known besides the entries."""

    snapshot: Snapshot
    """Queues and policies, as they are now; the contents of queues are ignored."""
    learned: Learned = NOTHING
    """What is known of runs by now."""
    now: float
    """Seconds since 1970."""
    workers: Mapping[str, Worker] = field(default_factory=dict)
    """The worker clusters whose queues are known, by name."""

    def ruled_by(self, policies: Iterable[FallbackPolicy]) -> LookBackInput:
        """Return it with these policies in place of those that are there."""
        ordered = tuple(sorted(policies, key=sort_key))
        return replace(self, snapshot=self.snapshot.with_policies(ordered))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedJob:
    """One Job with its result in each of the replays; None: it was not in this one."""

    entry: JournalEntry
    policy: FallbackPolicy | None
    """The policy that decided, or would; None: none matches."""
    submitted_queue: str
    run_seconds: Mapping[str, float] = field(default_factory=dict)
    """Its run time by flavor."""
    rests: Mapping[str, Rests] = field(default_factory=dict)
    """Option to what the run time there is based on."""
    mode: str = ""
    """The mode that held when it came; empty: no policy matches it."""
    unseen: tuple[str, ...] = ()
    """Worker clusters without a known state that it depends on: if any, it was in no replay."""
    happened: JobResult | None = None
    static: JobResult | None = None
    promised: JobResult | None = None

    @property
    def is_enforced(self) -> bool:
        return self.mode == Mode.ENFORCE

    @property
    def acts(self) -> bool:
        """Return whether it is compared with a replay without decisions."""
        return self.is_enforced or (self.policy is None and self.static is not None)

    @property
    def is_over(self) -> bool:
        return bool(self.entry.outcome and self.entry.admitted)

    @property
    def turnaround(self) -> float:
        return self.entry.finished - self.entry.created


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindsight:
    jobs: tuple[ReplayedJob, ...]
    """In the order of their creation."""
    left_out: int = 0
    """Jobs that a replay cannot submit: their queues are gone, or they cannot be read."""
    prices: Mapping[str, Prices] = field(default_factory=dict)
    """What resources cost, by cluster."""
    currency: str = ""
    """What money is in; empty: not known."""


def age_of(entry: JournalEntry) -> tuple[float, float, str]:
    """Return a sort key; Jobs created in the same second are ordered by their admission."""
    return entry.created, entry.admitted or float("inf"), entry.key


def _scenario(
    jobs: Sequence[ReplayedJob],
    runs: Mapping[str, Mapping[str, float]],
    world: LookBackInput,
    manifest: Callable[[JournalEntry], Mapping[str, Any]],
    at: Callable[[JournalEntry], float],
) -> Scenario:
    """Return a scenario in which the Jobs come as *manifest* has them, *at* some time."""
    entries = sorted((job.entry for job in jobs), key=lambda entry: (at(entry), age_of(entry)))
    names, templates = templates_of(map(manifest, entries))
    submissions = tuple(
        Submission(at=at(entry), name=entry.key, template=name, run_seconds=runs[entry.key])
        for entry, name in zip(entries, names, strict=True)
    )
    return Scenario(
        name="journal",
        snapshot=world.snapshot.with_policies(()),
        policies=(),
        templates=templates,
        submissions=submissions,
        workers=world.workers,
    )


def _known_before(jobs: Sequence[ReplayedJob], world: LookBackInput) -> RunTimeLearner:
    """Return what was known of runs when the first Job came, by the classes of a replay.

    A replay's Jobs are reduced, and so their classes have other names.
    """
    first = min((job.entry.created for job in jobs), default=0.0)
    policies = {job.policy.name: job.policy for job in jobs if job.policy}
    learner = RunTimeLearner()
    done: set[tuple[str, str]] = set()
    for entry in (job.entry for job in jobs):
        record = world.learned.records.get(entry.job_class)
        if record is None or (entry.job_class, entry.submitted) in done:
            continue
        done.add((entry.job_class, entry.submitted))
        submitted = reduced.kind_named(entry.kind).read(submitted_manifest(entry))
        by_policies = (
            match.class_of(submitted, policy, world.snapshot) for policy in policies.values()
        )
        for replayed_class in {job_class.of_job(submitted), *by_policies}:
            if (kept := _before(record, first, replayed_class.coarse)).last:
                learner.merge(replayed_class.key, kept)
    return learner


def _before(record: ClassRecord, unix: float, coarse: str) -> ClassRecord:
    return ClassRecord(
        coarse=coarse,
        runs=_over(record.runs, unix),
        starts=_over(record.starts, unix),
        dispatches=_over(record.dispatches, unix),
    )


def _over(runs: Mapping[str, Packed], unix: float) -> Mapping[str, Packed]:
    """Keep only the runs that were over at *unix*, in seconds since 1970."""
    kept = {
        place: pack_runs(run for run in unpack_runs(packed) if run.finished < unix)
        for place, packed in runs.items()
    }
    return {place: packed for place, packed in kept.items() if packed}


def _went(entry: JournalEntry) -> float:
    return entry.decided if entry.moves else entry.created


def submitted_manifest(entry: JournalEntry) -> dict[str, Any]:
    """Return the Job as it was submitted."""
    return _manifest(entry, entry.submitted, entry.labels)


def ran_manifest(entry: JournalEntry) -> dict[str, Any]:
    """Return the Job as it ran, so that without any policy it goes where it went."""
    return _manifest(entry, entry.ran, {**entry.labels, QUEUE_LABEL: entry.queue})


def _manifest(entry: JournalEntry, spec: str, labels: Mapping[str, str]) -> dict[str, Any]:
    metadata = {
        "namespace": entry.namespace,
        "labels": dict(labels),
        "annotations": dict(entry.annotations),
    }
    return {"kind": entry.kind, "metadata": metadata, "spec": json.loads(spec)}


WAITED_SECONDS: Final = 2.0
"""A Job that waited at least so long got quota that another gave back."""
HANDED_OVER_SECONDS: Final = 10.0
"""A longer gap has other causes than the handover of quota."""


def look_back(
    entries: Iterable[JournalEntry],
    world: LookBackInput,
    *,
    as_observed: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> Hindsight:
    """Replay *entries*: as it was, without any decision, and as all policies would decide.

    With *as_observed* all are compared with how they went, as if the policies had only observed,
    whoever decided them and whatever the policies' modes. In each replay, *progress* gets the
    number of Jobs that have arrived.
    """
    world = replace(world, snapshot=emptied(world.snapshot))
    latest = tuple(_latest(entries))
    handover = _handover(latest)
    # Whatever is wrong with one, all others are replayed.
    read = (attempted(partial(_replayed_job, entry, world)) for entry in sorted(latest, key=age_of))
    known = [job for job, _ in read if job is not None]
    began = {} if as_observed else _enforced_from(latest)
    jobs = [replace(job, mode=_mode(job, began, as_observed=as_observed)) for job in known]
    # A replay adds itself the time after which Kueue requeues what waits for released quota.
    besides = max(0.0, handover - world.snapshot.setup.kueue.requeue_seconds)
    runs = {
        job.entry.key: {flavors: took + besides for flavors, took in job.run_seconds.items()}
        for job in jobs
    }

    replayed = _replayed(jobs, runs, world, as_observed=as_observed, progress=progress)
    return Hindsight(
        jobs=tuple(_without_guesses(replayed, world)),
        left_out=len(latest) - len(jobs),
        prices=world.snapshot.costs.prices,
        currency=world.snapshot.costs.currency,
    )


def _replayed(
    jobs: Sequence[ReplayedJob],
    runs: Mapping[str, Mapping[str, float]],
    world: LookBackInput,
    *,
    as_observed: bool,
    progress: Callable[[int], None],
) -> list[ReplayedJob]:
    """Return the Jobs with their results in each replay that some of them need."""

    def run(
        scenario: Scenario, arm: Arm, run_times: RunTimeLearner | None = None
    ) -> Mapping[str, JobResult]:
        scenario = replace(scenario, policies=arm.policies)
        results = replay(scenario, arm, progress=progress, run_times=run_times)
        return {result.name: result for result in results.jobs}

    # Each Job in the LocalQueue that it got, from when it got there.
    as_it_was = _scenario(jobs, runs, world, ran_manifest, _went)
    submitted = _scenario(jobs, runs, world, submitted_manifest, lambda entry: entry.created)
    happened = run(as_it_was, Arm(name="as it was"))
    static: Mapping[str, JobResult] = {}
    promised: Mapping[str, JobResult] = {}
    # A replay of a full journal takes some ten seconds, so each is made only if it is compared.
    if any(job.is_enforced for job in jobs):
        static = run(submitted, Arm(name=STATIC))
    if any(job.policy and not job.is_enforced for job in jobs):
        arm = enforced("as policies say", world.snapshot.fallback.policies)
        promised = run(submitted, arm, _known_before(jobs, world))
    elif as_observed:
        promised = happened
    return [
        replace(
            job,
            happened=happened.get(job.entry.key),
            static=static.get(job.entry.key),
            promised=promised.get(job.entry.key),
        )
        for job in jobs
    ]


def _mode(job: ReplayedJob, began: Mapping[str, float], *, as_observed: bool) -> str:
    """Return the mode that held; *began*: when each policy was first seen to be enforced."""
    entry, policy = job.entry, job.policy
    if as_observed:
        return str(Mode.OBSERVE) if policy else ""
    if entry.mode or policy is None:
        return entry.mode
    mode = policy.spec.mode
    # Without a decision it came before the policy was enforced, or it was not reviewed.
    is_earlier = mode == Mode.ENFORCE and entry.created < began.get(policy.name, inf)
    return str(Mode.OBSERVE if is_earlier else mode)


def _enforced_from(entries: Iterable[JournalEntry]) -> Mapping[str, float]:
    """Return when each policy's first enforced decision was made, as far as the entries tell."""
    began: dict[str, float] = {}
    for entry in entries:
        if entry.policy and entry.mode == Mode.ENFORCE:
            began[entry.policy] = min(entry.created, began.get(entry.policy, inf))
    return began


def _without_guesses(jobs: Sequence[ReplayedJob], world: LookBackInput) -> Iterator[ReplayedJob]:
    """Drop the results of Jobs that depend on worker clusters without a known state.

    A replay by policies depends on all of these clusters, one without decisions only on the Job's
    own.
    """
    unseen = [_unseen(job, world) for job in jobs]
    all_unseen = tuple(sorted(set(chain.from_iterable(unseen))))
    for replayed, own in zip(jobs, unseen, strict=True):
        names = own if replayed.acts else all_unseen
        nothing = replace(replayed, unseen=names, happened=None, static=None, promised=None)
        yield nothing if names else replayed


def _unseen(job: ReplayedJob, world: LookBackInput) -> tuple[str, ...]:
    snapshot, entry = world.snapshot, job.entry
    options = job.policy.spec.options if job.policy else ()
    names = {
        entry.queue,
        job.submitted_queue,
        *(option.queue for option in options if option.queue),
    }
    places = (snapshot.setup.local_queues.get((entry.namespace, name or "")) for name in names)
    queues = {place.cluster_queue for place in places if place is not None}
    queues |= {option.cluster_queue for option in options if option.cluster_queue}
    clusters = {entry.cluster} - {""} - world.workers.keys()
    for name in queues & snapshot.setup.cluster_queues.keys():
        clusters.update(
            multikueue.unknown(snapshot.setup.cluster_queues[name], snapshot.setup, world.workers)
        )
    return tuple(sorted(clusters))


def without_replay(entries: Iterable[JournalEntry]) -> Hindsight:
    """Return the entries without any replay, for when queues and policies are not known."""
    latest = sorted(_latest(entries), key=age_of)
    return Hindsight(
        jobs=tuple(
            ReplayedJob(
                entry=entry,
                policy=None,
                submitted_queue=entry.labels.get(QUEUE_LABEL, ""),
                mode=entry.mode,
            )
            for entry in latest
        )
    )


def _latest(entries: Iterable[JournalEntry]) -> Iterator[JournalEntry]:
    """Keep one Workload of each Job: of several that it had one after another, the last."""
    by_job: dict[str, JournalEntry] = {}
    for entry in entries:
        key = entry.uid or entry.key
        before = by_job.get(key)
        if before is None or _rank(entry) > _rank(before):
            by_job[key] = entry
    # A Workload that never held quota has kept no other waiting.
    return (latest for latest in by_job.values() if latest.admitted or not latest.outcome)


def _rank(entry: JournalEntry) -> tuple[bool, float]:
    return bool(entry.admitted), entry.created


def _handover(entries: Sequence[JournalEntry]) -> float:
    """Return for how many seconds, on average, quota is idle between two Jobs if one waits."""
    by_queue: defaultdict[str, list[JournalEntry]] = defaultdict(list)
    for entry in entries:
        by_queue[entry.cluster_queue].append(entry)
    gaps = []
    for members in by_queue.values():
        ends = sorted(member.finished for member in members if member.outcome)
        for entry in members:
            if not entry.admitted or entry.admitted - entry.created < WAITED_SECONDS:
                continue
            index = bisect_right(ends, entry.admitted)
            if index and entry.admitted - ends[index - 1] <= HANDED_OVER_SECONDS:
                gaps.append(entry.admitted - ends[index - 1])
    return fmean(gaps) if gaps else 0.0


def _replayed_job(entry: JournalEntry, world: LookBackInput) -> ReplayedJob | None:
    """Read an entry as a Job; None: no replay can submit it."""
    snapshot = world.snapshot
    kind = reduced.kind_named(entry.kind)
    job, ran = (kind.read(manifest(entry)) for manifest in (submitted_manifest, ran_manifest))
    if not (_is_whole(job, snapshot) and _is_whole(ran, snapshot)):
        return None
    queue = match.submission(job, snapshot)
    for name in {queue, entry.queue}:
        place = snapshot.setup.local_queues.get((entry.namespace, name))
        if place is None or place.cluster_queue not in snapshot.setup.cluster_queues:
            return None
    policy = _policy(entry, job, snapshot)
    run_seconds, rests = run_times(
        entry,
        _own_seconds(entry, world),
        policy=policy,
        snapshot=snapshot,
        learned=world.learned.estimates,
    )
    return ReplayedJob(
        entry=entry, policy=policy, submitted_queue=queue, run_seconds=run_seconds, rests=rests
    )


def _is_whole(job: Job, snapshot: Snapshot) -> bool:
    """Return whether a review would read all of a Job.

    Raises:
        FieldError: a quantity cannot be read.

    """
    needs(job, snapshot.cluster, snapshot.setup.kueue)
    return all(pod_set.template.containers for pod_set in job.pod_sets)


def _policy(entry: JournalEntry, job: Job, snapshot: Snapshot) -> FallbackPolicy | None:
    named = match.named(entry.policy, entry.namespace, snapshot)
    if named is not None or match.skip(job, snapshot) is not None:
        return named
    try:
        return match.policy_for(job, snapshot)
    except FieldError:
        return None


def _own_seconds(entry: JournalEntry, world: LookBackInput) -> float:
    """Return how long it ran, or is expected to run if it is not finished."""
    if entry.outcome:
        return max(0.0, float(entry.finished - entry.admitted))
    known = world.learned.estimates.get((entry.job_class, entry.flavors))
    expected = [offer.runs for offer in entry.options if offer.name == entry.option and offer.runs]
    usual = known.seconds if known else next(iter(expected), 0.0)
    return max(usual, world.now - entry.admitted if entry.admitted else 0.0)
