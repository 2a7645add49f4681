"""From pending Jobs and the queues they wait in to the moves that are worth making.

The forecasts are those that decisions are made on; here each candidate stands in them under a key
of its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot, inf

from webhook import surveys
from webhook.cluster.census import Census
from webhook.cluster.workload import Workload
from webhook.decide import expectations, forecast, match, moves, options, wishes
from webhook.decide.fold import Fold
from webhook.decide.forecast import Occupant, Queued
from webhook.decide.moves import Candidate, Move, Moved, Prospect, Way
from webhook.decide.occupancy import Occupancy
from webhook.decide.wishes import Wishes
from webhook.jobs import KINDS
from webhook.jobs.movable import obstacle
from webhook.model import job_class
from webhook.model.decision import Assessment
from webhook.model.fields import FieldError
from webhook.model.job import PRIORITY_LABEL
from webhook.model.moves import Obstacle
from webhook.model.pending import Pending
from webhook.model.policy import FallbackPolicy, Mode, MoveGain, Reconsider
from webhook.model.policy_values import seconds
from webhook.model.queues import Arrival, Snapshot

_KIND = KINDS["batch", "v1", "Job"]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """All that a look depends on, at one instant."""

    snapshot: Snapshot
    censuses: Mapping[str, Census]
    """Of the ClusterQueues of ``trees``."""
    workloads: Mapping[str, Sequence[Workload]]
    """``namespace/name`` of a Job to its Workloads."""
    now: float
    """On the clock of ``Snapshot.as_of``."""
    unix: float
    own_namespace: str = ""
    changes_resources: bool = True
    """The API server lets a suspended Job's resources change: Kubernetes 1.36 and later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    moves: tuple[Move, ...] = ()
    arrivals: tuple[Arrival, ...] = ()
    """What would stand in line after each of the moves."""
    candidates: int = 0
    obstacles: Mapping[tuple[str, Obstacle], int]
    """(policy, why) to the Jobs that cannot be moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A Job whose policy wants it to be looked at."""

    pending: Pending
    policy: FallbackPolicy
    rules: Reconsider
    option: str
    workload: Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """An option that a Job could be moved to, and what would then stand in line there."""

    way: Way
    arrival: Arrival
    job_class: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offers:
    """What Jobs of one kind could be moved to; the same for all of them."""

    runs: float
    job_class: str
    cluster_queue: str
    offers: tuple[_Offer, ...]
    obstacle: Obstacle | None = None
    """Why there is none."""


def policies_of(snapshot: Snapshot) -> tuple[FallbackPolicy, ...]:
    """List the policies whose Jobs are looked at while they are pending."""
    return tuple(
        policy
        for policy in snapshot.policies
        if policy.spec.reconsider is not None and policy.spec.mode is Mode.ENFORCE
    )


def trees(snapshot: Snapshot) -> frozenset[str]:
    """Name the ClusterQueues whose Workloads must be known."""
    return surveys.trees_of(policies_of(snapshot), snapshot)


def look(world: World, jobs: Iterable[Pending], *, most: int) -> Looked:
    """Choose at most *most* moves."""
    obstacles: Counter[tuple[str, Obstacle]] = Counter()
    asked: list[_Asked] = []
    for pending in jobs:
        found = _asked(pending, world)
        if isinstance(found, _Asked):
            asked.append(found)
        elif found is not None:
            obstacles[found] += 1
    if not asked or most < 1:
        return Looked(obstacles=obstacles)
    lines = _Lines(world, {each.pending.key: each for each in asked})
    catalog = _Catalog(world, lines)
    candidates = []
    for each in asked:
        offers = catalog.of(each)
        if offers.obstacle is not None:
            obstacles[each.policy.name, offers.obstacle] += 1
            continue
        candidates.append(_candidate(each, offers))
        lines.offer(each, offers)
    found_moves = moves.plan(candidates, lines.foresee, waiting=lines.length, most=most)
    return Looked(
        moves=found_moves,
        arrivals=tuple(lines.arrival(move) for move in found_moves),
        candidates=len(candidates),
        obstacles=obstacles,
    )


def _asked(pending: Pending, world: World) -> _Asked | tuple[str, Obstacle] | None:
    """Tell whether a Job may be moved; if not, by whose rules and why; None: nobody asks."""
    policy = _policy_of(pending, world)
    rules = policy.spec.reconsider if policy is not None else None
    if policy is None or rules is None or policy.spec.mode is not Mode.ENFORCE:
        return None
    if match.skip(pending.job, world.snapshot) is not None:
        return None
    option = pending.option or _option_by_queue(pending, policy, world.snapshot)
    if not option:
        return None
    because = pending.obstacle or _limited(pending, rules, world.unix)
    workload = _workload_of(pending, world)
    if because is None and isinstance(workload, Obstacle):
        because = workload
    if because is not None or isinstance(workload, Obstacle):
        return policy.name, because or Obstacle.NO_WORKLOAD
    return _Asked(pending=pending, policy=policy, rules=rules, option=option, workload=workload)


def _policy_of(pending: Pending, world: World) -> FallbackPolicy | None:
    snapshot = world.snapshot
    if pending.policy and pending.option:
        return next((each for each in snapshot.policies if each.name == pending.policy), None)
    try:
        policy = match.policy_for(pending.job, snapshot, own_namespace=world.own_namespace)
    except FieldError:
        return None
    rules = policy.spec.reconsider if policy is not None else None
    return policy if rules is not None and rules.adopt else None


def _option_by_queue(pending: Pending, policy: FallbackPolicy, snapshot: Snapshot) -> str:
    """Name the option that a Job without a decision is in: by its queue, changing nothing else."""
    local_queue = snapshot.local_queues.get((pending.job.namespace, pending.queue))
    for option in policy.spec.options:
        is_there = option.queue == pending.queue or (
            local_queue is not None and option.cluster_queue == local_queue.cluster_queue
        )
        if is_there and not option.adaptation.model_fields_set:
            return option.name
    return ""


def _limited(pending: Pending, rules: Reconsider, unix: float) -> Obstacle | None:
    if pending.moves >= rules.max_moves:
        return Obstacle.MAX_MOVES
    since = max(pending.created, pending.changed)
    return Obstacle.TOO_SOON if unix - since < seconds(rules.after) else None


def _workload_of(pending: Pending, world: World) -> Workload | Obstacle:
    found = world.workloads.get(pending.key, ())
    if not found:
        return Obstacle.NO_WORKLOAD
    if len(found) > 1:
        return Obstacle.SEVERAL_WORKLOADS
    workload = found[0]
    if workload.obstacle is not None:
        return workload.obstacle
    if workload.requeue_at > 0 and workload.requeue_at > world.unix:
        return Obstacle.BACKOFF
    return Obstacle.MISMATCH if workload.queue != pending.queue else workload


class _Lines:
    """Who runs and who waits, with each candidate under its key."""

    def __init__(self, world: World, asked: Mapping[str, _Asked]) -> None:
        self._world = world
        self._run_times = surveys.RunTimes(world.snapshot)
        clock = world.now - world.unix

        def key_of(workload: Workload) -> str:
            key = f"{workload.namespace}/{workload.job}" if workload.job else ""
            return key if key in asked else ""

        self._running: list[Occupant] = []
        self._waiting: list[Queued] = []
        for name in sorted(world.censuses):
            census = world.censuses[name]
            self._running += surveys.occupants(name, census.holding, clock)
            self._waiting += surveys.queued(census.waiting, clock, key_of=key_of)
        self._waiting.sort(key=lambda each: each.arrival.created)
        self.length = sum(each.arrival.count for each in self._waiting)
        self._offers: dict[tuple[str, str], Queued] = {}
        self._here: dict[str, str] = {}
        """Key to the class by which its run time is looked up where it is."""
        plan = self._planned(self._waiting)
        self.occupancy = _occupancy(replace(world.snapshot, profiles=plan.profiles))

    def offer(self, each: _Asked, offers: _Offers) -> None:
        """Take down what would stand in line if a Job were moved."""
        key = each.pending.key
        self._here[key] = offers.job_class
        for offer in offers.offers:
            arrival = replace(offer.arrival, key=key, created=each.workload.created)
            queued = Queued(arrival=arrival, job_class=offer.job_class)
            self._offers[key, offer.way.option] = queued

    def arrival(self, move: Move) -> Arrival:
        """Say what stands in line after a move."""
        return self._offers[move.candidate.key, move.way.option].arrival

    def foresee(self, moved: Moved) -> Prospect:
        waiting = [
            self._offers[key, moved[key].option]
            if (key := each.arrival.key) in moved
            else replace(each, job_class=self._here.get(key, each.job_class))
            for each in self._waiting
        ]
        plan = self._planned(waiting)
        finishes = {begun.key: begun.finish for begun in plan.begun}
        started = sum(begun.count for begun in plan.begun)
        total = sum(begun.finish * begun.count for begun in plan.begun)
        total += (self.length - started) * moves.NEVER_SECONDS
        return Prospect(finishes=finishes, total=total)

    def _planned(self, waiting: Sequence[Queued]) -> forecast.Planned:
        world = self._world
        return forecast.planned(
            world.snapshot, self._running, waiting, self._run_times, world.now, world.censuses
        )


def _occupancy(snapshot: Snapshot) -> Occupancy:
    fold = Fold()
    fold.adopt(snapshot)
    return fold.occupancy


class _Catalog:
    """What Jobs could be moved to, worked out once for all that differ in name and age alone."""

    def __init__(self, world: World, lines: _Lines) -> None:
        self._world, self._occupancy = world, lines.occupancy
        self._known: dict[tuple[object, ...], tuple[object, _Offers]] = {}

    def of(self, each: _Asked) -> _Offers:
        job = each.pending.job
        key = (
            id(job.pod_sets),
            job.namespace,
            each.policy.name,
            each.option,
            each.pending.queue,
            tuple(sorted(job.labels.items())),
            tuple(sorted(job.annotations.items())),
            job.active_deadline_seconds,
            each.pending.created if wishes.DEADLINE in job.annotations else 0.0,
        )
        if key not in self._known:
            # The pod sets are kept with their id, so that it stays theirs.
            self._known[key] = job.pod_sets, self._work_out(each)
        return self._known[key][1]

    def _work_out(self, each: _Asked) -> _Offers:
        try:
            assessments = self._assess(each)
            policy_options = zip(each.policy.spec.options, assessments, strict=True)
            found = {option.name: item for option, item in policy_options}
            here = found[each.option]
            return self._offers(each, here, [item for item in found.values() if item is not here])
        except FieldError:
            return _none(Obstacle.OPTION_REFUSED)

    def _assess(self, each: _Asked) -> tuple[Assessment, ...]:
        job, policy = each.pending.job, each.policy
        found = options.assess(
            job,
            policy,
            self._occupancy,
            submitted=each.pending.queue,
            allowed=match.allowed_options(job, policy),
        )
        case = expectations.Case(
            job=job,
            policy=policy,
            occupancy=self._occupancy,
            job_class=job_class.of_job(job, policy.spec.job_class_label),
            wishes=_wishes(each, self._world.unix),
            now=self._world.now,
        )
        return expectations.expect(case, found)

    def _offers(self, each: _Asked, here: Assessment, others: Iterable[Assessment]) -> _Offers:
        runs, stands = _runs(here), here.job or each.pending.job
        if runs is None:
            return _none(Obstacle.OPTION_REFUSED)
        offers: list[_Offer] = []
        because = Obstacle.OPTION_REFUSED
        for item in others:
            there = _runs(item)
            if item.rejection is not None or there is None or item.job is None:
                continue
            against = obstacle(_KIND.edits(stands, item.job))
            if against is None and not self._world.changes_resources:
                same = stands.pod_sets == item.job.pod_sets
                against = None if same else Obstacle.OLDER_KUBERNETES
            if against is not None:
                because = against
                continue
            offer = self._offer(each, item, there)
            way = replace(offer.way, unsure=hypot(_half_width(here), _half_width(item)))
            offers.append(replace(offer, way=way))
        if not offers:
            return _none(because)
        return _Offers(
            runs=runs,
            job_class=_class_text(each, each.option),
            cluster_queue=here.cluster_queue,
            offers=tuple(offers),
        )

    def _offer(self, each: _Asked, item: Assessment, runs: float) -> _Offer:
        snapshot, job = self._world.snapshot, each.pending.job
        finish = item.forecast.finish if item.forecast is not None else None
        return _Offer(
            way=Way(
                option=item.option,
                cluster_queue=item.cluster_queue,
                runs=runs,
                priced=inf if finish is None else finish,
            ),
            arrival=Arrival(
                key="",
                namespace=job.namespace,
                local_queue=item.queue,
                needs=item.needs,
                priority=snapshot.priority_classes.get(job.labels.get(PRIORITY_LABEL, ""), 0),
                policy=each.policy.name,
                option=item.option,
            ),
            job_class=_class_text(each, item.option),
        )


def _none(because: Obstacle) -> _Offers:
    return _Offers(runs=0.0, job_class="", cluster_queue="", offers=(), obstacle=because)


def _runs(item: Assessment) -> float | None:
    run = item.forecast.run if item.forecast is not None else None
    return run.seconds if run is not None else None


def _half_width(item: Assessment) -> float:
    """Say by how much its start may be off; nothing is said of one that is never."""
    start = item.forecast.start if item.forecast is not None else None
    return 0.0 if start is None or start.high == inf else (start.high - start.low) / 2


def _class_text(each: _Asked, option: str) -> str:
    found = job_class.of_job(each.pending.job, each.policy.spec.job_class_label)
    return surveys.class_name(found, each.policy.name, option)


def _wishes(each: _Asked, unix: float) -> Wishes:
    """Read them as of now: a deadline comes nearer."""
    created = each.pending.created
    found = wishes.read_wishes(each.pending.job.annotations, created)
    if found.deadline is None:
        return found
    return replace(found, deadline=found.deadline - (unix - created))


def _candidate(each: _Asked, offers: _Offers) -> Candidate:
    gain: MoveGain = each.rules.minimum_gain
    return Candidate(
        key=each.pending.key,
        policy=each.policy.name,
        option=each.option,
        cluster_queue=offers.cluster_queue,
        runs=offers.runs,
        kind=f"{id(offers)}",
        order=each.workload.created,
        ways=tuple(offer.way for offer in offers.offers),
        moved=each.pending.moves,
        least_seconds=seconds(gain.time),
        least_part=gain.percent / 100,
    )


def by_job(workloads: Iterable[Workload]) -> Mapping[str, Sequence[Workload]]:
    """Find the Workloads of each Job."""
    found: defaultdict[str, list[Workload]] = defaultdict(list)
    for workload in workloads:
        if workload.job:
            found[f"{workload.namespace}/{workload.job}"].append(workload)
    return found
