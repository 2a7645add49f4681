"""Moves pending Jobs: chooses moves, asks for them, waits for the Workload, and repairs races.

A move is one patch of an annotation, with the Job's resourceVersion; the edits are the webhook's.
It is done when the Workload shows it. Kueue may admit the Workload in its old queue at that moment:
see ``repairs``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.api import client
from webhook.api.kubernetes_api import ClusterError, Forbidden, KubernetesApi, NotServed, Refused
from webhook.api.resources import ReadObject
from webhook.api.watch import WatchUpdate
from webhook.controller import repairs
from webhook.controller.repairs import Instant, Repairs
from webhook.model.fields import FieldError
from webhook.model.job import Pending
from webhook.model.queues import Snapshot
from webhook.model.reasons import Obstacle
from webhook.reconsider import choose, offers, pending_jobs
from webhook.reconsider.plan import Move
from webhook.state.feed import Feed
from webhook.state.workload import Workload

STEP_SECONDS: Final = 2.0
JOBS_A_SECOND: Final = 1000
"""So many pending Jobs add a second between two choices: thousands cost a second of CPU."""
MOST_IN_FLIGHT: Final = 16
CONFIRM_SECONDS: Final = 20.0
"""A move that no Workload shows by then is given up; the Job is then judged as it is."""
REFUSED_SECONDS: Final = 60.0
"""Until a Job is tried again that the webhook or the API server refused to move."""
OLDER_SECONDS: Final = 600.0
_NEW_ENOUGH: Final = (1, 36)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """A move that was written and that no Workload shows yet."""

    move: Move
    queue: str
    since: float


@dataclass(slots=True, kw_only=True)
class Stepped:
    """The result of one step."""

    lines: list[str] = field(default_factory=list)
    moved: list[Move] = field(default_factory=list)
    """Confirmed."""
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(policy, outcome of a move) to how many: see ``model.reasons.OUTCOMES``."""
    obstacles: Mapping[tuple[str, Obstacle], int] | None = None
    """(policy, why) to the number of pending Jobs that cannot be moved; None: no moves chosen."""


class Mover:
    def __init__(
        self,
        transport: KubernetesApi,
        own_namespace: str,
        *,
        max_state_age: float = 15.0,
        min_gain_probability: float = 0.8,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        """Choose moves only while the state is at most *max_state_age* seconds old."""
        self._transport = transport
        self._own_namespace = own_namespace
        self._max_state_age = max_state_age
        self._min_gain_probability = min_gain_probability
        self._may_write = may_write
        self._jobs: dict[str, Pending] = {}
        self._listed = False
        self._flying: dict[str, Flight] = {}
        self._confirmed = 1
        """Moves confirmed since one was lost, plus 1: so many may be in flight."""
        self._refused: dict[str, float] = {}
        """Job to the monotonic time from which it may be tried again."""
        self._repairs = Repairs(transport, may_write)
        self._next = 0.0
        self._older_until = 0.0
        self._version_known = False
        self._error = ""

    @property
    def in_flight(self) -> int:
        return len(self._flying)

    def take(self, message: WatchUpdate) -> tuple[str, ...]:
        """Apply a watch update of Jobs; return the lines to log."""
        before, self._error = self._error, message.error
        if message.error:
            return () if before else (f"{message.kind}: {message.error}",)
        if message.entries is not None:
            self._jobs = {
                _text(entry): entry.value for entry in message.entries if entry.value is not None
            }
            self._listed = True
        elif message.event is not None:
            event_type, entry = message.event
            if event_type == "DELETED" or entry.value is None:
                self._jobs.pop(_text(entry), None)
            else:
                self._jobs[_text(entry)] = entry.value
        return (f"{message.kind}: readable again",) if before else ()

    def begin(self) -> None:
        """Reset after we became the leader: another's moves show in the state of their Jobs."""
        self._flying.clear()
        self._confirmed = 1

    def step(self, feed: Feed, snapshot: Snapshot, *, now: float, unix: float) -> Stepped:
        """Follow up moves in flight and repairs; choose more moves if it is time.

        *now* is monotonic, *unix* the same instant in seconds since 1970.
        """
        stepped = Stepped()
        policies = choose.policies_of(snapshot)
        if not self._listed or not feed.lists_workloads or not self._may_write():
            return stepped
        workloads = choose.by_job(feed.workloads())
        self._follow_up(workloads, snapshot, now=now, stepped=stepped)
        at = Instant(snapshot=snapshot, now=now, unix=unix)
        repaired = self._repairs.step(self._jobs.values(), workloads, at)
        stepped.lines += repaired.lines
        stepped.outcomes.update((policy, "repaired") for policy in repaired.policies)
        is_fresh = now - snapshot.as_of <= self._max_state_age
        if now >= self._next and policies and is_fresh:
            self._next = now + STEP_SECONDS + len(self._jobs) / JOBS_A_SECOND
            self._choose(_world(feed, snapshot, workloads, now=now, unix=unix), stepped)
        return stepped

    def _choose(self, world: offers.ReconsiderInput, stepped: Stepped) -> None:
        world = replace(
            world,
            min_gain_probability=self._min_gain_probability,
            own_namespace=self._own_namespace,
            changes_resources=self._may_change_resources(world.now),
        )
        self._refused = {key: at for key, at in self._refused.items() if at > world.now}
        passed_over = {*self._refused, *self._flying}
        jobs = [job for key, job in self._jobs.items() if key not in passed_over]
        most = min(self._confirmed, MOST_IN_FLIGHT) - len(self._flying)
        chosen = choose.choose_moves(world, jobs, most=most)
        stepped.obstacles = chosen.obstacles
        for move in chosen.moves:
            if not self._may_write():
                return
            self._write(move, world, stepped)

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

    def _write(self, move: Move, world: offers.ReconsiderInput, stepped: Stepped) -> None:
        key, policy = move.candidate.key, move.candidate.policy
        job = self._jobs[key]
        try:
            after = pending_jobs.read_job(repairs.ask(self._transport, job, move))
        except (Refused, Forbidden, NotServed, FieldError, ValueError) as error:
            self._note_refusal(move, error, world.now, stepped)
            return
        except ClusterError as error:
            stepped.outcomes[policy, "failed"] += 1
            stepped.lines.append(f"Job {key}: not moved to {move.way.option}: {error}")
            return
        if after is None or after.option != move.way.option:
            self._refused[key] = world.now + REFUSED_SECONDS
            stepped.outcomes[policy, "refused"] += 1
            stepped.lines.append(f"Job {key}: the webhook did not move it to {move.way.option}")
            return
        self._jobs[key] = after
        self._flying[key] = Flight(move=move, queue=after.queue, since=world.now)

    def _note_refusal(self, move: Move, error: Exception, now: float, stepped: Stepped) -> None:
        """Pass over a Job that alone is refused, so that it holds up no other."""
        key, policy = move.candidate.key, move.candidate.policy
        if isinstance(error, ClusterError) and error.is_conflict:
            # It has changed meanwhile, and may have been admitted. The next step judges it again.
            stepped.outcomes[policy, "conflict"] += 1
            return
        self._refused[key] = now + REFUSED_SECONDS
        if isinstance(error, Refused) and error.keeps_template:
            self._older_until = max(self._older_until, now + OLDER_SECONDS)
        stepped.outcomes[policy, "refused"] += 1
        stepped.lines.append(f"Job {key}: not moved to {move.way.option}: {error}")

    def _follow_up(
        self,
        workloads: Mapping[str, Sequence[Workload]],
        snapshot: Snapshot,
        *,
        now: float,
        stepped: Stepped,
    ) -> None:
        for key, flight in list(self._flying.items()):
            policy = flight.move.candidate.policy
            if repairs.has_arrived(key, flight.queue, workloads.get(key, ()), snapshot):
                del self._flying[key]
                self._confirmed += 1
                stepped.moved.append(flight.move)
                stepped.outcomes[policy, "moved"] += 1
                stepped.lines.append(f"Job {key}: {repairs.sentence(flight.move)}")
            elif now - flight.since > CONFIRM_SECONDS:
                del self._flying[key]
                self._confirmed = 1
                stepped.outcomes[policy, "lost"] += 1
                stepped.lines.append(
                    f"Job {key}: its Workload does not show the move to {flight.move.way.option}"
                )


def _world(
    feed: Feed,
    snapshot: Snapshot,
    workloads: Mapping[str, Sequence[Workload]],
    *,
    now: float,
    unix: float,
) -> offers.ReconsiderInput:
    return offers.ReconsiderInput(
        snapshot=snapshot,
        contents={name: feed.contents_of(name) for name in choose.trees(snapshot)},
        workloads=workloads,
        now=now,
        unix=unix,
    )


def _text(entry: ReadObject) -> str:
    return "/".join(entry.key)
