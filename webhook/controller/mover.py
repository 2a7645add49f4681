"""Moves pending Jobs: chooses moves, asks for them, waits for the Workload, repairs what raced.

A move is one patch of an annotation, with the Job's resourceVersion; the edits are the webhook's.
It is done when the Workload shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final

from webhook.api import client
from webhook.api.kubernetes_api import ClusterError, Forbidden, KubernetesApi, NotServed, Refused
from webhook.api.resources import ReadObject
from webhook.api.watch import WatchUpdate
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.followed_watches import Happening
from webhook.controller.job_events import event_on_job, post_event
from webhook.controller.world import World
from webhook.jobs import BY_NAME
from webhook.learn.workload_runs import admitted_at, is_true, read_conditions, since
from webhook.model import fields
from webhook.model.faults import Attention
from webhook.model.fields import FieldError
from webhook.model.job import MOVE_REASON, MOVE_TO, OPTION_LABEL, Pending
from webhook.model.queues import Stage
from webhook.model.reasons import EventReason, Obstacle
from webhook.model.words import figure, span
from webhook.reconsider import choose, offers, pending_jobs
from webhook.reconsider.plan import Move
from webhook.state.live_workload import read_anew, workloads_path
from webhook.state.snapshot import Snapshot
from webhook.state.workload import REPAIR, Workload, read_workload

STEP_SECONDS: Final = 2.0
JOBS_A_SECOND: Final = 1000
"""So many pending Jobs add a second between two choices: thousands cost a second of CPU."""
MOST_IN_FLIGHT: Final = 16
CONFIRM_SECONDS: Final = 20.0
"""A move that no Workload shows by then is given up; the Job is then judged as it is."""
REFUSED_SECONDS: Final = 60.0
"""Until a Job is tried again that the webhook or the API server refused to move."""
OLDER_SECONDS: Final = 600.0


@dataclass(slots=True, kw_only=True)
class _Watch:
    """What a watch of one kind has brought."""

    at: float = -inf
    """When it was last alive, monotonic."""
    keys: set[str] = field(default_factory=set)
    """The Jobs."""
    error: str = ""


class Mover:
    def __init__(
        self,
        transport: KubernetesApi,
        own_namespace: str,
        *,
        max_state_age: float = 15.0,
        min_gain_probability: float = 0.8,
        may_write: Callable[[], bool] = lambda: True,
        metrics: ControllerMetrics,
    ) -> None:
        """Choose moves only while the state is at most *max_state_age* seconds old."""
        self._transport = transport
        self._own_namespace = own_namespace
        self._max_state_age = max_state_age
        self._min_gain_probability = min_gain_probability
        self._may_write = may_write
        self._metrics = metrics
        self._jobs: dict[str, Pending] = {}
        self._watches: dict[str, _Watch] = {}
        self._flying: dict[str, Move] = {}
        """Job to the move that was written and that no Workload shows yet."""
        self._confirmed = 1
        """Moves confirmed since one was lost, plus 1: so many may be in flight."""
        self._refused: dict[str, float] = {}
        """Job to the monotonic time from which it may be tried again."""
        self._repairs = Repairs(transport, may_write, metrics)
        self._next = 0.0
        self._older_until = 0.0
        self._version_known = False

    @property
    def in_flight(self) -> int:
        return len(self._flying)

    def take(self, message: WatchUpdate) -> tuple[str, ...]:
        """Apply a watch update of Jobs; return the lines to log."""
        watch = self._watches.setdefault(message.kind, _Watch())
        before, watch.error = watch.error, message.error
        if message.error:
            return () if before else (Attention(f"{message.kind}: {message.error}"),)
        watch.at = message.at
        if message.entries is not None:
            for key in watch.keys:
                del self._jobs[key]
            watch.keys.clear()
            for entry in message.entries:
                self._put(watch, entry)
        elif message.event is not None:
            event_type, entry = message.event
            self._put(watch, entry._replace(value=None) if event_type == "DELETED" else entry)
        return (f"{message.kind}: readable again",) if before else ()

    def _put(self, watch: _Watch, entry: ReadObject) -> None:
        key = "/".join(entry.key)
        if entry.value is not None:
            self._jobs[key] = entry.value
            watch.keys.add(key)
        elif key in watch.keys:
            del self._jobs[key]
            watch.keys.discard(key)

    def begin(self) -> None:
        """Reset after we became the leader: another's moves show in the state of their Jobs."""
        self._flying.clear()
        self._confirmed = 1

    def step(self, world: World) -> list[str]:
        """Follow up moves in flight and repairs; choose more moves if it is time."""
        lines: list[str] = []
        if self._watches and world.feed.lists_workloads and self._may_write():
            now, workloads = world.now, choose.by_job(world.feed.workloads())
            lines += self._follow_up(workloads, world)
            lines += self._repairs.step(self._jobs.values(), workloads, world)
            is_known = world.knows_workloads(self._max_state_age)
            if now >= self._next and is_known and choose.policies_of(world.snapshot):
                self._next = now + STEP_SECONDS + len(self._jobs) / JOBS_A_SECOND
                lines += self._choose(self._input(world, workloads))
        self._metrics.in_flight.set(self.in_flight)
        return lines

    def _input(
        self, world: World, workloads: Mapping[str, Sequence[Workload]]
    ) -> offers.ReconsiderInput:
        trees = choose.trees(world.snapshot)
        return offers.ReconsiderInput(
            snapshot=world.snapshot,
            contents={name: world.feed.contents_of(name) for name in trees},
            workloads=workloads,
            now=world.now,
            unix=world.unix,
            min_gain_probability=self._min_gain_probability,
            own_namespace=self._own_namespace,
            changes_resources=self._may_change_resources(world.now),
        )

    def _choose(self, world: offers.ReconsiderInput) -> list[str]:
        self._refused = {key: at for key, at in self._refused.items() if at > world.now}
        passed_over = {*self._refused, *self._flying, *self._silent(world.now)}
        jobs = [job for key, job in self._jobs.items() if key not in passed_over]
        most = min(self._confirmed, MOST_IN_FLIGHT) - len(self._flying)
        chosen = choose.choose_moves(world, jobs, most=most)
        self._metrics.show_obstacles(chosen.obstacles)
        lines: list[str] = []
        for move in chosen.moves:
            if not self._may_write():
                break
            lines += self._write(move, world.now)
        return lines

    def _silent(self, now: float) -> Iterator[str]:
        """Yield the Jobs of which no watch has told for as long as makes the state old."""
        for watch in self._watches.values():
            if now - watch.at > self._max_state_age:
                yield from watch.keys

    def _may_change_resources(self, now: float) -> bool:
        if not self._version_known:
            try:
                version = self._transport.get("/version")
            except ClusterError:
                return False
            is_new = client.lets_resources_change(version)
            self._version_known = True
            self._older_until = 0.0 if is_new else float("inf")
        return now >= self._older_until

    def _write(self, move: Move, now: float) -> list[str]:
        key, policy = move.candidate.key, move.candidate.policy
        job = self._jobs[key]
        try:
            kind = BY_NAME[job.job.kind]
            after = pending_jobs.read_job(ask(self._transport, job, move), kind)
        except (Refused, Forbidden, NotServed, FieldError, ValueError) as error:
            return self._note_refusal(move, error, now)
        except ClusterError as error:
            self._metrics.count_move(policy, "failed")
            return [Attention(f"Job {key}: not moved to {move.way.option}: {error}")]
        if after is None or after.option != move.way.option:
            self._refused[key] = now + REFUSED_SECONDS
            self._metrics.count_move(policy, "refused")
            return [f"Job {key}: the webhook did not move it to {move.way.option}"]
        self._jobs[key] = after
        self._flying[key] = replace(move, written_at=now, queue=after.queue)
        return []

    def _note_refusal(self, move: Move, error: Exception, now: float) -> list[str]:
        """Pass over a Job that alone is refused, so that it holds up no other."""
        key, policy = move.candidate.key, move.candidate.policy
        if isinstance(error, ClusterError) and error.is_conflict:
            # It has changed meanwhile, and may have been admitted. The next step judges it again.
            self._metrics.count_move(policy, "conflict")
            return []
        self._refused[key] = now + REFUSED_SECONDS
        kind = BY_NAME[self._jobs[key].job.kind]
        if kind.changes_with_kubernetes and isinstance(error, Refused) and error.keeps_template:
            self._older_until = max(self._older_until, now + OLDER_SECONDS)
        self._metrics.count_move(policy, "refused")
        return [Attention(f"Job {key}: not moved to {move.way.option}: {error}")]

    def _follow_up(
        self, workloads: Mapping[str, Sequence[Workload]], world: World
    ) -> Iterator[str]:
        for key, move in list(self._flying.items()):
            policy = move.candidate.policy
            if has_arrived(key, move.queue, workloads.get(key, ()), world.snapshot):
                del self._flying[key]
                self._confirmed += 1
                self._metrics.count_move(policy, "moved", gained=move.gain)
                yield f"Job {key}: {sentence(move)}"
            elif world.now - move.written_at > CONFIRM_SECONDS:
                del self._flying[key]
                self._confirmed = 1
                self._metrics.count_move(policy, "lost")
                yield f"Job {key}: its Workload does not show the move to {move.way.option}"


def ask(transport: KubernetesApi, job: Pending, move: Move) -> Mapping[str, Any]:
    """Ask the webhook for a move by one annotation; return the Job as patched.

    Raises:
        Refused: the Job has changed since, or the patch was rejected.
        ClusterError: the write failed otherwise.

    """
    # This label makes the API server call the webhook, which corrects its value.
    labels = {} if job.option else {OPTION_LABEL: move.candidate.option}
    return wish(transport, job, move.way.option, _because(move), labels)


def wish(
    transport: KubernetesApi, job: Pending, option: str, why: str, labels: Mapping[str, str]
) -> Mapping[str, Any]:
    """Ask the webhook for a move to *option*, as ``ask`` does, and set *labels*."""
    kind = BY_NAME[job.job.kind]
    metadata: dict[str, Any] = {
        "resourceVersion": job.version,
        "annotations": {MOVE_TO: option, MOVE_REASON: why},
    }
    if labels:
        metadata["labels"] = labels
    return transport.patch(kind.path(job.job.namespace, job.job.name), {"metadata": metadata})


def _because(move: Move) -> str:
    before = "never" if move.before == inf else f"in {span(move.before)}"
    gained = f"are done {span(move.gain)} sooner in total"
    if move.saved is not None:
        gained = f"cost {figure(move.saved)} less in total"
    return f"done in {span(move.after)}, not {before}; pending Jobs {gained}"


def sentence(move: Move) -> str:
    return f"moved from {move.candidate.option} to {move.way.option}: {_because(move)}"


def has_arrived(key: str, queue: str, workloads: Sequence[Workload], snapshot: Snapshot) -> bool:
    """Return whether a Workload is in the Job's new queue, and holds no quota elsewhere."""
    local_queue = snapshot.setup.local_queues.get((key.split("/", maxsplit=1)[0], queue))
    return any(
        workload.queue == queue
        and (
            workload.stage is not Stage.RESERVING
            or (local_queue is not None and workload.cluster_queue == local_queue.cluster_queue)
        )
        for workload in workloads
    )


RACE_SECONDS: Final = 60.0
"""Longest time between a move and a reservation that raced it, either way, as Kueue records when it
chose and not when it wrote; and the longest for which such a Workload may have been admitted."""
LOST_SECONDS: Final = 20.0
"""After a move; a Workload that then still holds quota in its old queue is reported and stays."""
AGAIN_SECONDS: Final = 5.0
"""Until a Workload that does not show what was written to it is checked again."""


class Repairs:
    """Repairs Workloads that raced a move, and lets deactivated ones follow theirs.

    Kueue writes an admission without a resourceVersion, so one that it chose before a move may land
    after it. Then the Workload is deactivated until it has given its quota back, and activated
    again in its new queue. A Workload that somebody else deactivated follows its moved Job, and
    stays so. What is to be done shows on Job and Workload alone, so restarts and leaders do not
    matter.
    """

    def __init__(
        self, transport: KubernetesApi, may_write: Callable[[], bool], metrics: ControllerMetrics
    ) -> None:
        self._transport = transport
        self._may_write = may_write
        self._metrics = metrics
        self._later: dict[tuple[str, str], float] = {}
        """(Job, action) to the monotonic time from which it may be repeated."""

    def step(
        self, jobs: Iterable[Pending], workloads: Mapping[str, Sequence[Workload]], at: World
    ) -> list[str]:
        """Check all Jobs that were moved or undone while they were pending, and repair races.

        Return the lines to log.
        """
        self._later = {action: until for action, until in self._later.items() if until > at.now}
        lines: list[str] = []
        for job in jobs:
            if job.has_left:
                for workload in workloads.get(job.key, ()):
                    lines += self._judge(workload, job, at)
        return lines

    def _judge(self, workload: Workload, job: Pending, at: World) -> list[str]:
        if workload.is_repaired:
            if workload.stage is not Stage.RESERVING and self._is_due(job, "activate", at):
                return self._activate(workload, job)
        elif is_left_behind(workload, job):
            if self._is_due(job, "follow", at):
                return self._let_follow(workload, job)
        elif job.left is not None and is_overtaken(workload, job, at):
            if workload.queue == job.queue and self._is_due(job, "take back", at):
                return self._take_back(workload, job, at)
            if at.unix - job.left.unix > LOST_SECONDS and self._is_due(job, "tell", at):
                self._later[job.key, "tell"] = at.now + RACE_SECONDS
                return self._tell(workload, job, at.unix)
        return []

    def _is_due(self, job: Pending, what: str, at: World) -> bool:
        if (job.key, what) in self._later or not self._may_write():
            return False
        self._later[job.key, what] = at.now + AGAIN_SECONDS
        return True

    def _activate(self, workload: Workload, job: Pending) -> list[str]:
        wanted = {"metadata": {"annotations": {REPAIR: None}}, "spec": {"active": True}}
        try:
            to_workload(self._transport, workload, wanted)
        except ClusterError as error:
            return [f"Job {job.key}: its Workload is not activated: {error}"]
        return []

    def _let_follow(self, workload: Workload, job: Pending) -> list[str]:
        """Write a Job's queue into its deactivated Workload, which stays so."""
        try:
            source = read_anew(self._transport, workload)
            if source is None or not is_left_behind(read_workload(source), job):
                return []
            metadata = {"resourceVersion": _version(source)}
            to_workload(
                self._transport, workload, {"metadata": metadata, "spec": {"queueName": job.queue}}
            )
        except (ClusterError, FieldError) as error:
            if isinstance(error, ClusterError) and error.is_conflict:
                # It has changed: the next step checks it again.
                del self._later[job.key, "follow"]
                return []
            return [f"Job {job.key}: its deactivated Workload does not follow: {error}"]
        return [f"Job {job.key}: its deactivated Workload follows it to {job.queue}"]

    def _take_back(self, workload: Workload, job: Pending, at: World) -> list[str]:
        """Read the Workload again, as it may be running by now; deactivate it if it still raced."""
        try:
            source = read_anew(self._transport, workload)
            if source is None or not is_raced(source, job, at):
                return []
            to_workload(self._transport, workload, _deactivated(source, workload))
        except (ClusterError, FieldError) as error:
            if isinstance(error, ClusterError) and error.is_conflict:
                # It has changed: the next step checks it again.
                del self._later[job.key, "take back"]
                return []
            return [Attention(f"Job {job.key}: its Workload is not repaired: {error}")]
        self._metrics.count_move(job.policy or job.undone, "repaired")
        where = f"admitted in ClusterQueue {workload.cluster_queue}"
        return [f"Job {job.key}: {where} after it was moved to {job.queue}; taken back from there"]

    def _tell(self, workload: Workload, job: Pending, unix: float) -> list[str]:
        text = (
            f"sent to LocalQueue {job.queue} just when Kueue gave it quota in ClusterQueue "
            f"{workload.cluster_queue}: it goes on there"
        )
        where = job.job.namespace, job.job.reference
        since = job.left.unix if job.left else 0.0
        lost = Happening(EventReason.MOVE_LOST, text, since, where, job.uid)
        try:
            post_event(self._transport, event_on_job(lost, unix=unix))
        except ClusterError as error:
            return [f"Job {job.key}: no Event written: {error}"]
        return [f"Job {job.key}: {text}"]


def is_left_behind(workload: Workload, job: Pending) -> bool:
    """Return whether it is deactivated, without quota, in a queue that its Job was moved from.

    Kueue follows a changed queue only of a Workload that was never evicted, and the eviction of a
    deactivated one is not over before it gets quota again.
    """
    is_deactivated = workload.obstacle is Obstacle.DEACTIVATED
    return is_deactivated and job.left is not None and workload.queue != job.queue != ""


def is_overtaken(workload: Workload, job: Pending, at: World) -> bool:
    """Return whether it holds quota where its Job was until a move or an undo in the last minute.

    Where a LocalQueue points by now makes no difference: what counts is which ClusterQueues the
    Job's other options had when it was moved.
    """
    if workload.stage is not Stage.RESERVING or job.left is None:
        return False
    if abs(at.unix - job.left.unix) > RACE_SECONDS:
        return False
    local_queue = at.snapshot.setup.local_queues.get((workload.namespace, job.queue))
    return (
        local_queue is not None
        and workload.cluster_queue != local_queue.cluster_queue
        and workload.cluster_queue in job.left.cluster_queues
    )


def is_raced(source: Mapping[str, Any], job: Pending, at: World) -> bool:
    """Return whether the Workload, as just read, raced a move, and nothing of it has run for long.

    Raises:
        FieldError: it cannot be read.

    """
    workload = read_workload(source)
    if job.left is None or workload.queue != job.queue or not is_overtaken(workload, job, at):
        return False
    conditions = read_conditions(fields.mapping(source, "status", ""))
    reserved, admitted = since(conditions, "QuotaReserved"), admitted_at(conditions)
    if not reserved or abs(reserved - job.left.unix) > RACE_SECONDS:
        return False
    if is_true(conditions, "PodsReady") or job.has_ready_pods:
        return False
    return all(not begun or at.unix - begun <= RACE_SECONDS for begun in (admitted, job.started))


def _deactivated(source: Mapping[str, Any], workload: Workload) -> dict[str, Any]:
    # Kueue evicts an inactive Workload, which frees its quota: docs/decisions/0013-moves.md.
    return {
        "metadata": {
            "resourceVersion": _version(source),
            "annotations": {REPAIR: workload.cluster_queue},
        },
        "spec": {"active": False},
    }


def _version(source: Mapping[str, Any]) -> str:
    return fields.text(fields.mapping(source, "metadata", ""), "resourceVersion", "metadata")


def to_workload(transport: KubernetesApi, workload: Workload, wanted: Mapping[str, Any]) -> None:
    transport.patch(f"{workloads_path(transport, workload)}/{workload.name}", wanted)
