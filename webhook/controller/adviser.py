"""Says of running Jobs, by an Event and a metric, that the rest of them would cost less elsewhere.

Only the leader does, once a minute, of Jobs that can go on from a checkpoint. It moves none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from webhook.api.kubernetes_api import ClusterError, KubernetesApi
from webhook.api.watch import WatchUpdate
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.followed_watches import Happening
from webhook.controller.job_events import event_on_job, post_event
from webhook.controller.unreviewed import Fetch
from webhook.controller.world import World
from webhook.cost.congestion import is_off
from webhook.jobs import referred
from webhook.model.faults import Attention
from webhook.model.fields import FieldError
from webhook.model.job import Pending
from webhook.model.queues import Stage
from webhook.model.reasons import EventReason
from webhook.model.signatures import SigningKeys
from webhook.reconsider import advice, pending_jobs
from webhook.reconsider.advice import Advice
from webhook.reconsider.choose import by_job
from webhook.reconsider.offers import ReconsiderInput
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.feed import Feed
from webhook.state.forecast_input import ForecastInput, ForecastInputs, trees_of
from webhook.state.snapshot import Snapshot
from webhook.state.workload import Workload

STEP_SECONDS: Final = 60.0
NOBODY_SECONDS: Final = 5.0
"""Until the next step while no Job runs that could be advised."""
MOST_READ: Final = 100
"""Jobs in one step, each by a call; of more some wait for the next."""
_COMMAND: Final = "`kubectl fallback advise {} -n {}` prints how, once it has a checkpoint"


class Adviser:
    def __init__(
        self,
        transport: KubernetesApi,
        fetch: Fetch,
        *,
        max_state_age: float,
        is_leader: Callable[[], bool],
        keys: Callable[[], SigningKeys | None],
        metrics: ControllerMetrics,
    ) -> None:
        """*is_leader* is called before each write; *keys* are as for ``read_decided_job``."""
        self._transport, self._fetch = transport, fetch
        self._max_state_age = max_state_age
        self._is_leader, self._keys, self._metrics = is_leader, keys, metrics
        self._jobs: dict[str, dict[str, None]] = {}
        """For each watch, the keys of the Jobs that can continue from a checkpoint."""
        self._found: dict[str, Advice] = {}
        self._told: dict[str, int] = {}
        """Job to the admission of the run of which an Event tells."""
        self._last, self._next = "", 0.0
        """The Job that was read last, and when the next step is due."""

    def take(self, message: WatchUpdate) -> tuple[str, ...]:
        """Apply a watch update of Jobs; return the lines to log, of which there are none."""
        if message.entries is not None:
            self._jobs[message.kind] = {
                "/".join(entry.key): None
                for entry in message.entries
                if getattr(entry.value, "resumes", False)
            }
        elif message.event is not None:
            event_type, entry = message.event
            known, key = self._jobs.setdefault(message.kind, {}), "/".join(entry.key)
            if event_type != "DELETED" and getattr(entry.value, "resumes", False):
                known[key] = None
            else:
                known.pop(key, None)
        return ()

    def follows(self, snapshot: Snapshot) -> bool:
        """Tell whether Workloads must be known: some Job may be advised."""
        return any(self._jobs.values()) and any(map(advice.is_advised, snapshot.fallback.policies))

    def step(self, world: World) -> list[str]:
        """Look at the running Jobs if it is time; return the lines to log."""
        if world.now < self._next:
            return []
        self._next = world.now + NOBODY_SECONDS
        lines: list[str] = []
        if self._may_advise(world):
            lines += self._advise(world)
        else:
            self._found.clear()
        self._metrics.costs.show_advised(self._savings())
        return lines

    def _may_advise(self, world: World) -> bool:
        snapshot = world.snapshot
        is_known = world.knows_workloads(self._max_state_age)
        may_be_any = is_known and self.follows(snapshot) and not is_off(snapshot.fallback.off)
        return may_be_any and self._is_leader()

    def _advise(self, world: World) -> list[str]:
        running = self._running(world.feed)
        self._found = {key: found for key, found in self._found.items() if key in running}
        self._told = {key: at for key, at in self._told.items() if key in running}
        lines: list[str] = []
        if running:
            self._next = world.now + STEP_SECONDS
            try:
                self._look(running, world)
            except ClusterError as error:
                lines.append(Attention(f"advice: {error}"))
            lines += self._tell(running, world.snapshot, world.unix)
        return lines

    def _running(self, feed: Feed) -> dict[str, Workload]:
        """Return the running Jobs that can go on from a checkpoint, in order, with their Workloads.

        The order begins after the one that was read last.
        """
        wanted = {key for keys in self._jobs.values() for key in keys}
        found = {
            f"{workload.namespace}/{workload.job}": workload
            for workload in feed.workloads()
            if workload.stage is Stage.RESERVING and workload.admitted
        }
        keys = sorted(wanted & found.keys(), key=lambda key: (key <= self._last, key))
        return {key: found[key] for key in keys}

    def _look(self, running: Mapping[str, Workload], world: World) -> None:
        feed, snapshot, now, unix = world.feed, world.snapshot, world.now, world.unix
        looked = tuple(islice(running, MOST_READ))
        jobs = tuple(self._read(looked))
        policies = filter(advice.is_advised, snapshot.fallback.policies)
        counted = {name: feed.contents_of(name) for name in trees_of(policies, snapshot)}
        forecast = ForecastInput(snapshot=snapshot, counted=counted, now=now, unix=unix)
        snapshot = replace(snapshot, forecasts=ForecastInputs().forecasts(forecast))
        given = ReconsiderInput(
            snapshot=snapshot,
            contents=counted,
            workloads=by_job(feed.workloads()),
            now=now,
            unix=unix,
        )
        for key in looked:
            self._found.pop(key, None)
        advised = advice.advise(jobs, given, occupancy_of(snapshot, ()))
        self._found |= {found.job.key: found for found in advised}
        self._last = looked[-1]

    def _read(self, keys: Sequence[str]) -> Iterator[Pending]:
        for key in keys:
            namespace, _, reference = key.partition("/")
            source = self._fetch(namespace, reference)
            if source is None:
                continue
            try:
                kind, _ = referred(reference)
                job = pending_jobs.read_unfinished(source, kind, self._keys())
            except FieldError:
                # What cannot be read was never decided.
                continue
            if job is not None:
                yield job

    def _tell(
        self, running: Mapping[str, Workload], snapshot: Snapshot, unix: float
    ) -> Iterator[str]:
        """Write an Event of each Job that is advised, once for each of its runs."""
        for key, found in self._found.items():
            begun = running[key].admitted
            if self._told.get(key) == begun:
                continue
            if not self._is_leader():
                return
            where = found.job.job.namespace, found.job.job.reference
            how = _COMMAND.format(found.job.job.reference, found.job.job.namespace)
            text = f"{found.sentence(snapshot.costs.currency)}; {how}"
            advised = Happening(EventReason.ADVISED, text, begun, where, found.job.uid)
            try:
                post_event(self._transport, event_on_job(advised, unix=unix))
            except ClusterError as error:
                yield Attention(f"Job {key}: no Event written: {error}")
            else:
                self._told[key] = begun

    def _savings(self) -> Mapping[str, float]:
        savings: dict[str, float] = {}
        for found in self._found.values():
            savings[found.job.policy] = savings.get(found.job.policy, 0.0) + found.saves
        return savings
