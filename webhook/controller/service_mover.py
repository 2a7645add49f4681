"""Moves services that serve, by asking the webhook, and puts back those that do not get ready.

All that is known of a move stands on the service itself, so neither a restart nor another leader
forgets one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from webhook.api.kubernetes_api import ClusterError, Forbidden, KubernetesApi, NotServed, Refused
from webhook.api.watch import WatchUpdate
from webhook.controller import mover
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.world import World
from webhook.jobs import BY_NAME
from webhook.model.faults import Attention
from webhook.model.fields import FieldError
from webhook.model.job import Pending
from webhook.reconsider import choose, pending_jobs
from webhook.reconsider.service_moves import ServiceMove, choose_service_moves

STEP_SECONDS: Final = 5.0
SERVICES_A_SECOND: Final = 100
"""So many services add a second between two choices."""


class ServiceMover:
    def __init__(
        self,
        transport: KubernetesApi,
        *,
        max_state_age: float,
        may_write: Callable[[], bool],
        metrics: ControllerMetrics,
    ) -> None:
        """Choose moves only while the state is at most *max_state_age* seconds old."""
        self._transport = transport
        self._max_state_age = max_state_age
        self._may_write = may_write
        self._metrics = metrics
        self._services: dict[str, Pending] = {}
        self._at = 0.0
        """When the watch was last alive, monotonic."""
        self._error = ""
        self._refused: dict[str, float] = {}
        """Service to the monotonic time from which it may be tried again."""
        self._next = 0.0

    def take(self, message: WatchUpdate) -> tuple[str, ...]:
        """Apply a watch update of services; return the lines to log."""
        before, self._error = self._error, message.error
        if message.error:
            return () if before else (Attention(f"{message.kind}: {message.error}"),)
        self._at = message.at
        if message.entries is not None:
            self._services.clear()
        changed = [(entry, entry.value) for entry in message.entries or ()]
        if message.event is not None:
            event_type, entry = message.event
            changed.append((entry, None if event_type == "DELETED" else entry.value))
        for entry, service in changed:
            key = "/".join(entry.key)
            if service is None:
                self._services.pop(key, None)
            else:
                self._services[key] = service
        return (f"{message.kind}: readable again",) if before else ()

    def step(self, world: World) -> list[str]:
        """Choose moves if it is time, and ask for them; return the lines to log."""
        is_known = world.knows_workloads(self._max_state_age)
        is_alive = world.now - self._at <= self._max_state_age
        if not (self._services and is_known and is_alive and world.now >= self._next):
            return []
        if not choose.policies_of(world.snapshot) or not self._may_write():
            return []
        self._next = world.now + STEP_SECONDS + len(self._services) / SERVICES_A_SECOND
        self._refused = {key: at for key, at in self._refused.items() if at > world.now}
        services = [each for key, each in self._services.items() if key not in self._refused]
        occupancy = choose.occupancy_of(world.snapshot)
        chosen = choose_service_moves(services, occupancy, now=world.now, unix=world.unix)
        self._metrics.show_obstacles(chosen.obstacles, of="services")
        return [self._write(move, world.now) for move in chosen.moves if self._may_write()]

    def _write(self, move: ServiceMove, now: float) -> str:
        service = move.service
        done, kind = f"moved to {move.option}", BY_NAME[service.job.kind]
        try:
            source = mover.wish(self._transport, service, move.option, move.why, {})
            after = pending_jobs.read_job(source, kind)
        except (ClusterError, FieldError, ValueError) as error:
            return self._note(move, error, now)
        if after is None or after.option != move.option:
            self._refused[service.key] = now + mover.REFUSED_SECONDS
            self._metrics.count_move(move.policy, "refused")
            return f"{service.key}: the webhook did not move it to {move.option}"
        self._services[service.key] = after
        self._metrics.count_move(move.policy, "putBack" if move.is_back else "moved")
        return f"{service.key}: {done}: {move.why}"

    def _note(self, move: ServiceMove, error: Exception, now: float) -> str:
        """Count a move that was not made, and pass over a service that alone is refused."""
        if isinstance(error, ClusterError) and error.is_conflict:
            # It has changed meanwhile: the next step judges it again.
            self._metrics.count_move(move.policy, "conflict")
            return f"{move.service.key}: it has changed just when it was to be moved"
        is_refused = not isinstance(error, ClusterError) or isinstance(
            error, (Refused, Forbidden, NotServed)
        )
        if is_refused:
            self._refused[move.service.key] = now + mover.REFUSED_SECONDS
        self._metrics.count_move(move.policy, "refused" if is_refused else "failed")
        return Attention(f"{move.service.key}: not moved to {move.option}: {error}")
