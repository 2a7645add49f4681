"""The moves worth making, from pending Jobs, their policies and the contents of their queues.

It says which Jobs may be moved and why others may not, and leaves the choice among moves to
``plan``. It reads no objects and writes none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from webhook.decide import match
from webhook.model.fields import FieldError
from webhook.model.pending import Pending
from webhook.model.policy.fallback_policy import (
    Adaptation,
    FallbackPolicy,
    Mode,
    MoveGain,
    Reconsider,
    seconds,
)
from webhook.model.queues import Arrival, Snapshot
from webhook.model.reasons import Obstacle
from webhook.reconsider import plan
from webhook.reconsider.lineup import Lineup, rank_of
from webhook.reconsider.offers import JobOptions, MoveOptions, MoveQuestion, ReconsiderInput
from webhook.reconsider.plan import Move, MoveCandidate
from webhook.state import forecast_input
from webhook.state.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenMoves:
    """The moves of one reconsideration, and what was found out on the way."""

    moves: tuple[Move, ...] = ()
    arrivals: tuple[Arrival, ...] = ()
    """For each move what would be pending after it."""
    candidates: int = 0
    """Number of Jobs that could be moved."""
    obstacles: Mapping[tuple[str, Obstacle], int]
    """(policy, obstacle) to the number of Jobs that cannot be moved."""


def policies_of(snapshot: Snapshot) -> tuple[FallbackPolicy, ...]:
    """Return the policies that move Jobs while they are pending."""
    # Restrained policies are in mode Observe here already: beside an untested Kueue nothing is
    # moved (decision 0019).
    return tuple(
        policy
        for policy in snapshot.policies
        if policy.spec.reconsider is not None and policy.spec.mode is Mode.ENFORCE
    )


def trees(snapshot: Snapshot) -> frozenset[str]:
    """Name the ClusterQueues whose Workloads must be known: the trees of these policies' queues."""
    return forecast_input.trees_of(policies_of(snapshot), snapshot)


def choose_moves(world: ReconsiderInput, jobs: Iterable[Pending], *, most: int) -> ChosenMoves:
    """Return at most *most* moves, those that are worth most first."""
    obstacles: Counter[tuple[str, Obstacle]] = Counter()
    asked: list[MoveQuestion] = []
    for pending in jobs:
        found = _asked(pending, world)
        if isinstance(found, MoveQuestion):
            asked.append(found)
        elif found is not None:
            obstacles[found] += 1
    # The queues' contents are forecast only where a Job may be moved at all.
    if not asked or most < 1:
        return ChosenMoves(obstacles=obstacles)
    lines = Lineup(world, {each.pending.key: each for each in asked})
    catalog = MoveOptions(world, lines.occupancy)
    candidates = []
    for each in asked:
        offers = catalog.of(each)
        if offers.obstacle is not None:
            obstacles[each.policy.name, offers.obstacle] += 1
            continue
        candidates.append(_candidate(each, offers))
        lines.offer(each, offers)
    found_moves = plan.plan_moves(candidates, lines.foresee, waiting=lines.length, most=most)
    return ChosenMoves(
        moves=found_moves,
        arrivals=tuple(lines.arrival(move) for move in found_moves),
        candidates=len(candidates),
        obstacles=obstacles,
    )


def _asked(pending: Pending, world: ReconsiderInput) -> MoveQuestion | tuple[str, Obstacle] | None:
    """Return the question where a Job may be moved to, or its policy's name and the obstacle.

    None: no policy that reconsiders applies to the Job.
    """
    policy = _policy_of(pending, world)
    rules = policy.spec.reconsider if policy is not None else None
    if policy is None or rules is None or policy.spec.mode is not Mode.ENFORCE:
        return None
    if match.skip(pending.job, world.snapshot) is not None:
        return None
    # A Job without a decision can be moved only if it runs as some option would have it.
    option = pending.option or _option_by_queue(pending, policy, world.snapshot)
    if not option:
        return None
    because = pending.obstacle or _limited(pending, rules, world.unix)
    workload = _workload_of(pending, world)
    if because is None and isinstance(workload, Obstacle):
        because = workload
    if because is not None or isinstance(workload, Obstacle):
        return policy.name, because or Obstacle.NO_WORKLOAD
    return MoveQuestion(
        pending=pending, policy=policy, rules=rules, option=option, workload=workload
    )


def _policy_of(pending: Pending, world: ReconsiderInput) -> FallbackPolicy | None:
    """Return the policy that decided on a Job, or one that adopts it; None: there is none."""
    snapshot = world.snapshot
    if pending.policy and pending.option:
        return next((each for each in snapshot.policies if each.name == pending.policy), None)
    # A Job that was left as submitted belongs to whatever policy would match it now.
    try:
        policy = match.policy_for(pending.job, snapshot, own_namespace=world.own_namespace)
    except FieldError:
        return None
    rules = policy.spec.reconsider if policy is not None else None
    return policy if rules is not None and rules.adopt else None


def _option_by_queue(pending: Pending, policy: FallbackPolicy, snapshot: Snapshot) -> str:
    """Name the option whose queue a Job without a decision is in; empty: there is none.

    An option that changes more than the queue does not count: the Job lacks its changes.
    """
    local_queue = snapshot.local_queues.get((pending.job.namespace, pending.queue))
    for option in policy.spec.options:
        is_there = option.queue == pending.queue or (
            local_queue is not None and option.cluster_queue == local_queue.cluster_queue
        )
        if is_there and option.adaptation == Adaptation():
            return option.name
    return ""


def _limited(pending: Pending, rules: Reconsider, unix: float) -> Obstacle | None:
    """Return the limit that keeps a Job from being moved now; None: there is none."""
    # Both limits keep noise in forecasts from moving a Job to and fro (decision 0013).
    if pending.moves >= rules.max_moves:
        return Obstacle.MAX_MOVES
    since = max(pending.created, pending.changed)
    return Obstacle.TOO_SOON if unix - since < seconds(rules.after) else None


def _workload_of(pending: Pending, world: ReconsiderInput) -> Workload | Obstacle:
    """Return a Job's only Workload, or why it keeps the Job from being moved."""
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
    # Until Kueue has followed an earlier move, the Workload names the queue that was left.
    return Obstacle.MISMATCH if workload.queue != pending.queue else workload


def _candidate(each: MoveQuestion, offers: JobOptions) -> MoveCandidate:
    gain: MoveGain = each.rules.minimum_gain
    return MoveCandidate(
        key=each.pending.key,
        policy=each.policy.name,
        option=each.option,
        cluster_queue=offers.cluster_queue,
        runs=offers.runs,
        kind=str(offers.number),
        order=each.workload.created,
        ways=tuple(offer.way for offer in offers.offers),
        moved=each.pending.moves,
        least_seconds=seconds(gain.time),
        least_part=gain.percent / 100,
        rank=rank_of(each),
    )


def by_job(workloads: Iterable[Workload]) -> Mapping[str, Sequence[Workload]]:
    """Map ``namespace/name`` of each Job to its Workloads."""
    found: defaultdict[str, list[Workload]] = defaultdict(list)
    for workload in workloads:
        if workload.job:
            found[f"{workload.namespace}/{workload.job}"].append(workload)
    return found
