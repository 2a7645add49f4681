"""The moves worth making, from pending Jobs, their policies and the contents of their queues.

Queues are forecast as they are and with some Jobs moved, and both are compared. It says which Jobs
may be moved and why others may not, and leaves the choice among moves to ``plan``. It reads no
objects and writes none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from webhook.decide import match, wishes
from webhook.kueue import forecast
from webhook.kueue.flavor_plan import demand
from webhook.kueue.queue_lines import PendingGroup, pending_group
from webhook.kueue.quota_holders import StartedWorkloads
from webhook.kueue.simulation import Running
from webhook.model.fields import FieldError
from webhook.model.job import Job, Owner, Pending
from webhook.model.policy.fallback_policy import (
    Adaptation,
    FallbackPolicy,
    Mode,
    Reconsider,
    seconds,
)
from webhook.model.queues import Arrival
from webhook.model.reasons import Obstacle, Skip
from webhook.reconsider import plan
from webhook.reconsider.offers import (
    AlikeNumbers,
    MoveOptions,
    MoveQuestion,
    ReconsiderInput,
    class_text_of_workload,
)
from webhook.reconsider.plan import (
    NEVER_SECONDS,
    MoveCandidate,
    Moved,
    MovesPlan,
    Outlook,
    Prospect,
    Rank,
    Way,
)
from webhook.state import forecast_input
from webhook.state.forecast_input import forecast_givens
from webhook.state.live_occupancy import LiveOccupancy
from webhook.state.occupancy import Occupancy
from webhook.state.snapshot import Snapshot
from webhook.state.workload import Workload


class Lineup:
    """Running and pending Workloads, with each Job that may be moved under its own key."""

    def __init__(self, world: ReconsiderInput, asked: Mapping[str, MoveQuestion]) -> None:
        self._world = world
        self._run_times = forecast_input.LentRunTimes(world.snapshot)
        clock = world.now - world.unix

        def key_of(workload: Workload) -> str:
            key = f"{workload.namespace}/{workload.job}" if workload.job else ""
            return key if key in asked else ""

        self._running: list[Running] = []
        self._waiting: list[PendingGroup] = []
        for name in sorted(world.contents):
            contents = world.contents[name]
            self._running += forecast_input.running_in(name, contents.holding, clock)
            self._waiting += forecast_input.queued(contents.waiting, clock, key_of=key_of)
        self._waiting.sort(key=lambda group: group.created)
        self.length = sum(group.count for group in self._waiting)
        self._created = {key: question.workload.queued_at for key, question in asked.items()}
        """Key to the age of a Job's Workload."""
        self._here = _class_texts(asked, world.snapshot)
        """Key to the class by which its run time is looked up where it is."""
        self.ranks = {key: question.rank for key, question in asked.items()}
        """Key to the rank for which its finish counts."""
        self._counts: defaultdict[Rank, int] = defaultdict(int)
        """Rank to the number of its pending Workloads."""
        self._waiting = [self._ranked(self._with_class(group)) for group in self._waiting]
        self._starts = forecast.PlannedStarts(
            forecast_givens(world.snapshot, self._run_times, world.now),
            self._running,
            self._waiting,
            world.contents,
        )
        self._as_it_is = self._prospect(self._starts.begun)
        self._ways: dict[str, tuple[Way, ...]] = {}
        # Options are assessed on the same forecasts that moves are compared by.
        self.occupancy = occupancy_of(replace(world.snapshot, forecasts=self._starts.forecasts))

    def with_starts(self, candidate: MoveCandidate) -> MoveCandidate:
        """Return a Job with when it would start in each option that it could be moved to.

        The oldest of those that differ only in name and age is to be asked for first.
        """
        if candidate.kind not in self._ways:
            self._ways[candidate.kind] = tuple(
                replace(way, starts=self._start_of(way, candidate.order)) for way in candidate.ways
            )
        return replace(candidate, ways=self._ways[candidate.kind])

    def _start_of(self, way: Way, created: int) -> float:
        """Return when a Job of this age would start where it goes, in seconds from now."""
        name, snapshot = way.cluster_queue, self._world.snapshot
        found = self.occupancy.start_times.start_of(
            name,
            demand(way.arrival.needs, snapshot.setup.cluster_queues[name], snapshot.setup),
            now=self._world.now,
            priority=way.arrival.priority,
            local_queue=way.arrival.local_queue_key,
            created=created,
        )
        return -inf if found is None else found.start.seconds

    def arrival(self, key: str, way: Way) -> Arrival:
        """Return what would be pending after a move."""
        # Kueue follows a move with the same Workload, whose creation time stays (decision 0013),
        # so the Job keeps its place in the order.
        return replace(way.arrival, key=key, created=self._created[key])

    def prospect(self, moved: Moved) -> Outlook:
        """Forecast when all pending Workloads finish if these Jobs were moved."""
        if not moved:
            return self._as_it_is
        waiting: list[PendingGroup] = []
        for group in self._waiting:
            if group.key not in moved:
                waiting.append(group)
                continue
            # The group stays with a count of 0, so that unknown run times are estimated alike.
            way = moved[group.key]
            arrival = self.arrival(group.key, way)
            waiting.append(pending_group(arrival, job_class=way.job_class))
            waiting.append(replace(group, count=0))
        return _MovedOutlook(self._starts.with_waiting(waiting), self._prospect)

    def _prospect(self, starts: Sequence[StartedWorkloads]) -> Prospect:
        """Sum up the finishes of a forecast, by rank."""
        # Workloads that never start are in no forecast, and count with NEVER_SECONDS each.
        of_ranks = {rank: count * NEVER_SECONDS for rank, count in self._counts.items()}
        for begun in starts:
            # Those that run and would be preempted begin again: they are not among who waits.
            rank = self.ranks.get(begun.key)
            if rank is not None:
                of_ranks[rank] += (begun.finish - NEVER_SECONDS) * begun.count
        return Prospect(
            finishes={begun.key: begun.finish for begun in starts},
            starts={begun.key: begun.at for begun in starts},
            total=sum(of_ranks.values()),
            of_ranks=of_ranks,
            next_start=min((begun.at for begun in starts), default=inf),
        )

    def _ranked(self, group: PendingGroup) -> PendingGroup:
        """Return a group with a key: a movable Job's own, or one for all others of its rank."""
        if group.key not in self._here:
            rank = Rank(group.policy, group.namespace, int(group.priority))
            group = replace(group, key=f"of {rank}")
            self.ranks[group.key] = rank
        self._counts[self.ranks[group.key]] += group.count
        return group

    def _with_class(self, group: PendingGroup) -> PendingGroup:
        """Return a movable Job's group with the class by which its policy expects run times."""
        job_class = self._here.get(group.key, group.job_class)
        return group if job_class == group.job_class else replace(group, job_class=job_class)


@dataclass(frozen=True, slots=True)
class _MovedOutlook:
    """The forecast with some Jobs moved."""

    starts: forecast.OtherStarts
    summed: Callable[[Sequence[StartedWorkloads]], Prospect]

    def start_of(self, key: str) -> float:
        # Where a Job goes tells whether it is due, so what it leaves may not have to be forecast.
        return min(NEVER_SECONDS, self.starts.start_of(key))

    def whole(self) -> Prospect:
        return self.summed(self.starts.begun)


def _class_texts(asked: Mapping[str, MoveQuestion], snapshot: Snapshot) -> Mapping[str, str]:
    """Return the class by which the run time of each Job is looked up where it is."""
    known: dict[tuple[int, str, str], str] = {}
    texts = {}
    for key, question in asked.items():
        alike = question.alike, question.policy.name, question.option
        if alike not in known:
            known[alike] = class_text_of_workload(question, question.option, snapshot)
        texts[key] = known[alike]
    return texts


def occupancy_of(snapshot: Snapshot) -> Occupancy:
    """Return the occupancy of a snapshot with its pending Workloads counted in."""
    live = LiveOccupancy()
    live.adopt(snapshot)
    return live.occupancy


def policies_of(snapshot: Snapshot) -> tuple[FallbackPolicy, ...]:
    """Return the policies that move Jobs while they are pending."""
    # Restrained policies are in mode Observe here already: beside an untested Kueue nothing is
    # moved (decision 0019).
    return tuple(
        policy
        for policy in snapshot.fallback.policies
        if policy.spec.reconsider is not None and policy.spec.mode is Mode.ENFORCE
    )


def trees(snapshot: Snapshot) -> frozenset[str]:
    """Return the ClusterQueues whose Workloads must be known: all in trees of these policies."""
    return forecast_input.trees_of(policies_of(snapshot), snapshot)


def choose_moves(world: ReconsiderInput, jobs: Iterable[Pending], *, most: int) -> MovesPlan:
    """Return at most *most* moves, those that are worth most first."""
    obstacles: Counter[tuple[str, Obstacle]] = Counter()
    asked: dict[str, MoveQuestion] = {}
    quiet_seconds = inf
    questions = _Questions(world)
    for pending in jobs:
        answer = questions.of(pending)
        if isinstance(answer, MoveQuestion):
            asked[pending.key] = answer
            # Of a Job with a deadline fewer options are in time from one moment to the next.
            if wishes.DEADLINE in pending.job.annotations:
                quiet_seconds = 0.0
        elif answer is not None:
            obstacles[answer] += 1
            quiet_seconds = min(quiet_seconds, _passes_in(answer, pending, world))
    # The queues' contents are forecast only where a Job may be moved at all.
    if not asked or most < 1:
        return MovesPlan(obstacles=obstacles, quiet_seconds=quiet_seconds)
    lines = Lineup(world, asked)
    catalog = MoveOptions(world, lines.occupancy)
    candidates = []
    for question in asked.values():
        candidate = catalog.of(question)
        if isinstance(candidate, Obstacle):
            obstacles[question.policy.name, candidate] += 1
            continue
        candidates.append(lines.with_starts(candidate))
    planned = plan.plan_moves(candidates, lines.prospect, waiting=lines.length, most=most)
    moves = tuple(
        replace(move, way=replace(move.way, arrival=lines.arrival(move.candidate.key, move.way)))
        for move in planned.moves
    )
    quiet_seconds = min(quiet_seconds, planned.quiet_seconds)
    return MovesPlan(moves=moves, obstacles=obstacles, quiet_seconds=quiet_seconds)


def _passes_in(answer: tuple[str, Obstacle], pending: Pending, world: ReconsiderInput) -> float:
    """Return in how many seconds an obstacle passes by itself; inf: it does not."""
    policy_name, obstacle = answer
    if obstacle is Obstacle.BACKOFF:
        return world.workloads[pending.key][0].requeue_at - world.unix
    if obstacle is not Obstacle.TOO_SOON:
        return inf
    policy = next(
        policy for policy in world.snapshot.fallback.policies if policy.name == policy_name
    )
    rules = policy.spec.reconsider or Reconsider()
    return max(pending.created, pending.changed) + seconds(rules.after) - world.unix


class _Questions:
    """Asks of pending Jobs where they may be moved to."""

    def __init__(self, world: ReconsiderInput) -> None:
        self._world = world
        self._alike = AlikeNumbers()
        self._skips: dict[tuple[int, Owner | None, str | None], Skip | None] = {}
        self._policies = {
            policy.name: policy for policy in reversed(world.snapshot.fallback.policies)
        }

    def of(self, pending: Pending) -> MoveQuestion | tuple[str, Obstacle] | None:
        """Return the question where a Job may be moved to, or its policy's name and the obstacle.

        None: no policy that reconsiders applies to the Job.
        """
        world, policy = self._world, self._policy_of(pending)
        rules = policy.spec.reconsider if policy is not None else None
        if policy is None or rules is None or policy.spec.mode is not Mode.ENFORCE:
            return None
        alike = self._alike.of(pending.job)
        if self._skip(pending.job, alike) is not None:
            return None
        # A Job without a decision can be moved only if it runs as some option would have it.
        option = pending.option or _option_by_queue(pending, policy, world.snapshot)
        if not option:
            return None
        because = pending.obstacle or limit_on(pending, rules, world.unix)
        workload = _workload_of(pending, world)
        if because is None and isinstance(workload, Obstacle):
            because = workload
        if because is not None or isinstance(workload, Obstacle):
            return policy.name, because or Obstacle.NO_WORKLOAD
        return MoveQuestion(
            pending=pending,
            policy=policy,
            option=option,
            workload=workload,
            alike=alike,
        )

    def _policy_of(self, pending: Pending) -> FallbackPolicy | None:
        """Return the policy that decided on a Job, or one that adopts it; None: there is none."""
        if pending.policy and pending.option:
            return self._policies.get(pending.policy)
        # A Job that was left as submitted belongs to whatever policy would match it now.
        world = self._world
        try:
            policy = match.policy_for(
                pending.job, world.snapshot, own_namespace=world.own_namespace
            )
        except FieldError:
            return None
        rules = policy.spec.reconsider if policy is not None else None
        return policy if rules is not None and rules.adopt else None

    def _skip(self, job: Job, alike: int) -> Skip | None:
        key = alike, job.owner, job.managed_by
        if key not in self._skips:
            self._skips[key] = match.skip(job, self._world.snapshot)
        return self._skips[key]


def _option_by_queue(pending: Pending, policy: FallbackPolicy, snapshot: Snapshot) -> str:
    """Name the option whose queue a Job without a decision is in; empty: there is none.

    An option that changes more than the queue does not count: the Job lacks its changes.
    """
    local_queue = snapshot.setup.local_queues.get((pending.job.namespace, pending.queue))
    for option in policy.spec.options:
        is_there = option.queue == pending.queue or (
            local_queue is not None and option.cluster_queue == local_queue.cluster_queue
        )
        if is_there and option.adaptation == Adaptation():
            return option.name
    return ""


def limit_on(pending: Pending, rules: Reconsider, unix: float) -> Obstacle | None:
    """Return the limit that keeps a Job from being moved now; None: there is none."""
    # Both limits keep noise in forecasts from moving a Job to and fro (decision 0013).
    if pending.moves >= rules.max_moves:
        return Obstacle.MAX_MOVES
    since = max(pending.created, pending.changed)
    return Obstacle.TOO_SOON if unix - since < seconds(rules.after) else None


def _workload_of(pending: Pending, world: ReconsiderInput) -> Workload | Obstacle:
    """Return a Job's only Workload, or why it keeps the Job from being moved."""
    workloads = world.workloads.get(pending.key, ())
    if not workloads:
        return Obstacle.NO_WORKLOAD
    if len(workloads) > 1:
        return Obstacle.SEVERAL_WORKLOADS
    workload = workloads[0]
    # Of one that was evicted, some changes are taken up: which, the options tell.
    if workload.obstacle not in (None, Obstacle.EVICTED):
        return workload.obstacle
    if workload.requeue_at > world.unix:
        return Obstacle.BACKOFF
    # Until Kueue has followed an earlier move, the Workload names the queue that was left.
    return Obstacle.MISMATCH if workload.queue != pending.queue else workload


def by_job(workloads: Iterable[Workload]) -> Mapping[str, Sequence[Workload]]:
    """Map ``namespace/name`` of each Job to its Workloads."""
    grouped: defaultdict[str, list[Workload]] = defaultdict(list)
    for workload in workloads:
        if workload.job:
            grouped[f"{workload.namespace}/{workload.job}"].append(workload)
    return grouped
