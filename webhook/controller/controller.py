"""The controller's process: it leads or not, follows the cluster, and calls each part in a loop.

It follows what the webhook does, of Workloads only their runs, and the metadata of Jobs. All
replicas follow and judge, so that each can take over at once, but only the leader writes. What the
parts do (status, moves, events, records, savings, keys) is their own.
"""

from __future__ import annotations

import json
import queue
import random
import secrets
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeAlias

from webhook.api.calls import SHORT_SECONDS
from webhook.api.client import Client
from webhook.api.lease import Elector
from webhook.api.resources import NAMESPACES, POLICIES, TEAM_POLICIES, Resource
from webhook.api.watch import Follower, WatchUpdate
from webhook.controller import cluster_dispatcher, congestion_publisher, look_back_process
from webhook.controller.adviser import Adviser
from webhook.controller.cluster_dispatcher import ClusterDispatcher
from webhook.controller.congestion_publisher import CongestionPublisher
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.device_reader import DeviceReader
from webhook.controller.followed_watches import FollowedWatches
from webhook.controller.hold_keeper import HoldKeeper
from webhook.controller.job_events import JobEvents, RateLimit
from webhook.controller.leadership import Leadership
from webhook.controller.look_back_process import LookBack
from webhook.controller.mover import STEP_SECONDS, Mover
from webhook.controller.omission_keeper import OmissionKeeper
from webhook.controller.policy_keeper import PolicyKeeper
from webhook.controller.policy_status import reference_of
from webhook.controller.records import RUNS, Records, read_run
from webhook.controller.savings_publisher import SavingsPublisher
from webhook.controller.start_writer import StartWriter
from webhook.controller.unreviewed import MovedJobs, Unreviewed, UnreviewedJobs, fetching
from webhook.metric_table import policy_label
from webhook.model.faults import Attention, Failures, logged
from webhook.model.kueue_support import Restraint
from webhook.model.queues import Snapshot
from webhook.reconsider import pending_jobs
from webhook.server import lifecycle
from webhook.server.gunicorn_app import Server
from webhook.server.probes import create_probes
from webhook.settings import PrometheusSettings, Settings
from webhook.state.awaiting_cluster import AWAITING, read_awaiting
from webhook.state.cluster_watches import ClusterWatches, FromCluster, Reachable
from webhook.state.feed import Feed
from webhook.state.pipe import Update, apply_update
from webhook.state.signing_keys import KeyKeeper, KeyRing

COALESCE_SECONDS: Final = 0.2
"""Changes within so long are reconciled together."""
AGAIN_SECONDS: Final = 1.0
"""Until the next try after a failed one."""
IDLE_SECONDS: Final = 5.0
NAMED_A_MINUTE: Final = 10
"""Jobs created without a review that are named in the log; the others are only counted."""
_Message: TypeAlias = WatchUpdate | FromCluster | Reachable


class Controller:
    """The loop; clients, elector, log and who looks back are passed in."""

    def __init__(
        self,
        settings: Settings,
        client: Client,
        *,
        jobs_client: Client,
        elector: Elector,
        log: Callable[[str], None],
        look_back: LookBack,
    ) -> None:
        self._settings = settings
        self._client = client
        self._jobs_client = jobs_client
        self._log = log
        self._ring = KeyRing()
        self._watches = FollowedWatches(settings, self._ring)
        self._messages: queue.SimpleQueue[_Message | None] = queue.SimpleQueue()
        self.leadership = Leadership(
            elector, on_change=lambda: self.put(None), log=log, uniform=random.uniform
        )
        self._term = 0
        """Our term of leading, as of the last step."""
        restraint = Restraint(
            stated_version=settings.kueue_version, enforces=settings.untested_kueue == "enforce"
        )
        self._feed = Feed(
            self._watches.always,
            time.monotonic(),
            complete=restraint,
            stated_version=settings.kueue_version,
            currency=settings.currency,
        )
        self._snapshot = Snapshot()
        self.metrics = ControllerMetrics()
        self._matching_at: float | None = None
        """When the first news of this step about policies or namespaces came, monotonic."""
        self._failures = Failures(log)
        self._survive = self._failures.survive
        self._create_parts(settings, client, look_back)
        self._takers = self._takers_by_kind()

    def _create_parts(self, settings: Settings, client: Client, look_back: LookBack) -> None:
        """Create what keeps and writes its own kind of objects while we lead."""
        self._policies = PolicyKeeper(
            client, settings, is_leader=self.is_leader, metrics=self.metrics, log=self._log
        )
        self._records = Records(
            client, settings, is_leader=self.is_leader, metrics=self.metrics, log=self._log
        )
        self._keys = KeyKeeper(client, settings.namespace, is_leader=self.is_leader, unix=time.time)
        self._savings = SavingsPublisher(
            client,
            settings.namespace,
            is_leader=self.is_leader,
            survive=self._failures.survive,
            log=self._log,
            look_back=look_back,
        )
        self._congestion = CongestionPublisher(
            client,
            settings.namespace,
            max_state_age=settings.max_state_age,
            is_leader=self.is_leader,
        )
        self._unreviewed = Unreviewed(fetching(client), settings.namespace)
        self._adviser = Adviser(
            client,
            fetching(client),
            max_state_age=settings.max_state_age,
            is_leader=self.is_leader,
            keys=self._ring.keys,
        )
        self._leavers = MovedJobs()
        self._events = JobEvents(
            client, is_leader=self.is_leader, unix=time.time, clock=time.monotonic
        )
        self._mover = Mover(
            client,
            settings.namespace,
            max_state_age=settings.max_state_age,
            min_gain_probability=settings.min_gain_probability,
            may_write=self.is_leader,
        )
        self._omissions = OmissionKeeper(
            client,
            settings.webhook_configuration,
            settings.namespace,
            is_leader=self.is_leader,
        )
        self._starts = StartWriter(
            client, max_state_age=settings.max_state_age, is_leader=self.is_leader
        )
        self._holds = HoldKeeper(client, settings.namespace, is_leader=self.is_leader)
        self._devices = self._reading_devices(settings.prometheus)
        self._dispatcher = self._dispatching(settings, client) if settings.dispatcher else None
        self._naming = RateLimit(NAMED_A_MINUTE, time.monotonic)

    def _reading_devices(self, settings: PrometheusSettings | None) -> DeviceReader | None:
        if settings is None:
            return None
        return DeviceReader(
            settings,
            is_leader=self.is_leader,
            unix=time.time,
            failures=self._failures,
            metrics=self.metrics,
        )

    def _dispatching(self, settings: Settings, client: Client) -> ClusterDispatcher:
        workers = ClusterWatches(
            client,
            Client,
            self.put,
            namespace=settings.namespace,
            kueue=settings.kueue_namespace,
            ring=self._ring,
        )
        return ClusterDispatcher(
            client,
            workers if settings.watch_workers else None,
            max_state_age=settings.max_state_age,
            placement_ttl=settings.placement_ttl,
            is_leader=self.is_leader,
        )

    def _takers_by_kind(self) -> Mapping[str, tuple[Callable[[WatchUpdate], tuple[str, ...]], ...]]:
        """Return who takes watch updates of what is no part of the snapshot."""
        of_metadata = (
            self._note_served,
            self._unreviewed.take,
            self._records.take_jobs,
            self._leavers.take,
            self._events.take,
            self._holds.take,
            self._adviser.take,
        )
        pending = map(pending_jobs.followed, self._watches.kinds.values())
        devices = self._devices
        measured = () if devices is None else (devices.take_jobs,)
        return {
            **dict.fromkeys(self._watches.kinds, (*of_metadata, *measured)),
            RUNS.kind: (
                self._records.take_runs,
                *(() if devices is None else (devices.take_runs,)),
            ),
            **({AWAITING.kind: (self._dispatcher.take,)} if self._dispatcher is not None else {}),
            **{resource.kind: (self._mover.take,) for resource in pending},
        }

    def _note_served(self, message: WatchUpdate) -> tuple[str, ...]:
        """Note whether a kind is served; policies that name it are judged again if that changes."""
        if self._watches.note_served(message):
            self._policies.is_due = True
        return ()

    def run(self) -> None:
        """Follow and step until the process ends."""
        followed = [(watched_resource, self._client) for watched_resource in self._watches.always]
        reading = self._ring.reading
        followed.append((replace(RUNS, read=reading(read_run)), self._client))
        followed += [(resource, self._jobs_client) for resource in self._watches.metadata()]
        if self._dispatcher is not None:
            followed.append((replace(AWAITING, read=reading(read_awaiting)), self._client))
            self._dispatcher.start()
        for resource, client in followed:
            self._follow(resource, client)
        while True:
            self.step()

    def put(self, message: _Message | None) -> None:
        """Queue a watch update, from any thread; None: start the next step."""
        self._messages.put(message)

    def step(self) -> None:
        """Apply the queued updates; reconcile the policies if a condition may have changed."""
        self._gather(AGAIN_SECONDS if self._policies.is_due else self._idle_seconds())
        update, _ = self._survive("state", self._take_update)
        self.metrics.failures.catch_up(self._failures.counts)
        if update is None:
            self._feed.publish_anew()
            return
        if not update.synced:
            return
        # Not earlier: a replica without state must not take the Lease from one that could act.
        self.leadership.start()
        self._note_term()
        # First of all: where a policy has begun to match, Jobs go by unasked until it is done.
        self._survive("namespaces", partial(self._omit, update))
        self._survive("nominations", self._nominate)
        self._survive("keys", lambda: self._log_all(self._keys.step(time.monotonic())))
        self._survive("jobs", lambda: self._judge_unreviewed(update.as_of))
        self._survive("prometheus", self._learn_of_devices)
        self._survive("records", lambda: self._records.step(self._feed, self._snapshot))
        self._survive("holds", self._release_held)
        self._survive("savings", self._publish_savings)
        self._survive("events", lambda: self._log_all(self._events.step()))
        self._survive("congestion", self._publish_congestion)
        self._survive("advice", self._advise)
        if self._watches.with_workloads:
            self._survive("starts", self._write_starts)
        if self._watches.with_pending:
            self._survive("moves", self._move)
        # Of what is switched on it is known soon whether it is served, or why that is not known.
        if self._watches.knows_served and self._policies.may_change(self._snapshot):
            self._survive(
                "policies", lambda: self._policies.step(self._snapshot, self._watches.unserved)
            )
        self.metrics.failures.catch_up(self._failures.counts)

    def _omit(self, update: Update) -> None:
        now = time.monotonic()
        is_sure = (
            self._settings.omit_unmatched
            and now - self._snapshot.as_of <= self._settings.max_state_age
            # Who can read a policy that we cannot must be asked.
            and not (update.problems.get(POLICIES) or update.problems.get(TEAM_POLICIES))
        )
        lines = self._omissions.step(self._snapshot, is_sure=is_sure, now=now, unix=time.time())
        self._log_all(lines)

    def _learn_of_devices(self) -> None:
        for key, record in self._devices.step(self._snapshot) if self._devices is not None else ():
            self._records.learn(key, record)
        self.metrics.measured.set(len(self._snapshot.device_uses))

    def _idle_seconds(self) -> float:
        if self._dispatcher is not None:
            return cluster_dispatcher.STEP_SECONDS
        return STEP_SECONDS if self._watches.with_workloads else IDLE_SECONDS

    def _take_update(self) -> Update:
        update = self._feed.update(time.monotonic(), time.time())
        self._snapshot = apply_update(self._snapshot, update)
        self._follow_pending()
        self._count(update)
        return update

    def is_leader(self) -> bool:
        """Return whether we may write; cheap, and to be called right before each write.

        A leadership gained during a step counts from the next step on.
        """
        return self._term > 0 and self.leadership.term() == self._term

    def not_ready(self) -> str:
        return self._feed.not_ready()

    def before_scrape(self) -> None:
        synced = self._feed.synced
        age = time.monotonic() - self._snapshot.as_of if synced else float("inf")
        self.metrics.watches.show(ready=synced, age=age)
        self.metrics.leader.set(self.leadership.is_leader())
        self.metrics.costs.show(self._snapshot.tariffs, time.time())
        self.metrics.show_held(*self._holds.counts(time.time()))
        if self._dispatcher is not None:
            self.metrics.forgotten.set(self._dispatcher.forgotten(self._snapshot, time.time()))

    def _follow(self, resource: Resource, client: Client) -> None:
        follower = Follower(
            resource,
            client,
            self.put,
            clock=time.monotonic,
            sleep=time.sleep,
            uniform=random.uniform,
        )
        threading.Thread(target=follower.run, name=resource.kind, daemon=True).start()

    def _follow_pending(self) -> None:
        """Start to follow what moves and prices depend on, the first time that there may be any."""
        by_cost = bool(congestion_publisher.followed(self._snapshot))
        by_cost = by_cost or self._adviser.follows(self._snapshot)
        begun = self._watches.begun(self._snapshot, moved=self._leavers.seen, by_cost=by_cost)
        for resource, is_needed in begun:
            if is_needed:
                self._feed.expect(resource.kind, time.monotonic())
            self._follow(resource, self._client)

    def _gather(self, wait: float) -> None:
        until = time.monotonic() + wait
        while (wait := until - time.monotonic()) > 0:
            try:
                message = self._messages.get(timeout=wait)
            except queue.Empty:
                return
            if message is None:
                return
            if not isinstance(message, WatchUpdate):
                self._take_from_cluster(message)
                continue
            self._ring.take(message)
            takers = self._takers.get(message.kind)
            for take in (self._feed.take,) if takers is None else (self._feed.hear, *takers):
                lines, _ = self._survive("messages", partial(take, message))
                self._log_all(lines or ())
            changed = message.entries is not None or message.event is not None
            if changed and message.kind in (POLICIES, TEAM_POLICIES, NAMESPACES):
                self._matching_at = min(self._matching_at or message.at, message.at)
            if takers is not None and not (changed and message.kind == AWAITING.kind):
                continue
            # A policy that cannot be read changes no snapshot, but its status must say so.
            if changed and message.kind in (POLICIES, TEAM_POLICIES):
                self._policies.is_due = True
            if changed:
                until = min(until, time.monotonic() + COALESCE_SECONDS)

    def _take_from_cluster(self, message: FromCluster | Reachable) -> None:
        if self._dispatcher is None:
            return
        lines, _ = self._survive("messages", partial(self._dispatcher.take_from_cluster, message))
        self._log_all(lines or ())

    def _log_all(self, lines: tuple[str, ...]) -> None:
        for line in lines:
            self._log(line)

    def _count(self, update: Update) -> None:
        self.metrics.watches.take(
            synced=update.synced,
            ages=update.ages,
            relists=update.relists,
            problems=update.problems,
        )

    def _note_term(self) -> None:
        """Reconcile everything again after we became the leader: due writes may be missing."""
        before, self._term = self._term, self.leadership.term()
        if self._term == before:
            return
        if before:
            self._log("leads no more: statuses, records of runs and Events are another's to write")
        if self._term:
            self._log("leads: writes statuses, records of runs and Events from now on")
            self._policies.is_due = True
            self._records.read_again()
            self._mover.begin()

    def _move(self) -> None:
        stepped = self._mover.step(
            self._feed, self._snapshot, now=time.monotonic(), unix=time.time()
        )
        gained: defaultdict[str, float] = defaultdict(float)
        for move in stepped.moved:
            # Moves by cost may let all be done later, and a counter cannot fall.
            gained[move.candidate.policy] += max(0.0, move.gain)
        self.metrics.show_moves(stepped.outcomes, gained, stepped.obstacles)
        self.metrics.in_flight.set(self._mover.in_flight)
        self._log_all(tuple(stepped.lines))

    def _release_held(self) -> None:
        now, unix = time.monotonic(), time.time()
        released = self._holds.step(self._snapshot, now=now, unix=unix)
        self.metrics.count_released(released.reasons)
        self._log_all(tuple(released.lines))

    def _nominate(self) -> None:
        if self._dispatcher is None:
            return
        dispatched = self._dispatcher.step(self._snapshot, now=time.monotonic(), unix=time.time())
        self.metrics.count_nominations(dispatched.nominations)
        self._log_all(tuple(dispatched.lines))

    def _publish_savings(self) -> None:
        # As policies are written: a restraint says nothing of what was decided before.
        if self._feed.counted is not None:
            self._savings.step(self._feed.counted.snapshot, self._records.journal_version)

    def _publish_congestion(self) -> None:
        self._congestion.note_ended(self._records.take_late())
        lines = self._congestion.step(
            self._feed, self._snapshot, now=time.monotonic(), unix=time.time()
        )
        self._log_all(lines)
        self.metrics.costs.show_congestion(self._snapshot.scarcity.at_moment(time.time()))

    def _advise(self) -> None:
        advised = self._adviser.step(
            self._feed, self._snapshot, now=time.monotonic(), unix=time.time()
        )
        if advised is not None:
            self.metrics.costs.show_advised(advised.savings)
            self._log_all(tuple(advised.lines))

    def _write_starts(self) -> None:
        now, unix = time.monotonic(), time.time()
        self._log_all(self._starts.step(self._feed, self._snapshot, now=now, unix=unix))

    def _judge_unreviewed(self, as_of: float) -> None:
        now = time.monotonic()
        at = now if self._matching_at is None else self._matching_at
        self._matching_at = None
        self._unreviewed.note(self._snapshot, time.time() - (now - at), at)
        if self.is_leader():
            self._report_unreviewed(self._unreviewed.step(as_of=as_of))
        else:
            self._unreviewed.leave(leader_at=self.leadership.heard_at)

    def _report_unreviewed(self, jobs: UnreviewedJobs) -> None:
        self.metrics.unjudged.inc(jobs.unjudged)
        self._policies.note_unreviewed(policy for policy, _ in jobs.unreviewed)
        for policy, name in jobs.unreviewed:
            self.metrics.unreviewed.labels(policy_label(policy)).inc()
            if self._naming.lets_pass():
                text = f"Job {name}: created without a review; {reference_of(policy)} matches"
                self._log(Attention(text))


def serve(settings: Settings) -> None:
    """Run the controller with its probes until the process ends."""
    threading.excepthook = lifecycle.end_with
    elector = Elector(
        Client(settings.kubeconfig, answer_seconds=SHORT_SECONDS),
        settings.namespace,
        identity=f"{socket.gethostname()}_{secrets.token_hex(4)}",
        clock=time.monotonic,
        stamp=stamp,
    )
    controller = Controller(
        settings,
        Client(settings.kubeconfig),
        jobs_client=Client(settings.kubeconfig, metadata_only=True),
        elector=elector,
        log=_log,
        look_back=partial(look_back_process.run, settings.kubeconfig),
    )
    app = create_probes(
        controller.metrics.registry,
        not_ready=controller.not_ready,
        notice=controller.leadership.notice,
        before_scrape=controller.before_scrape,
    )
    server = Server(
        listen=(settings.metrics_listen,), load_application=lambda: app, with_tls=0
    ).worker_of_this_process()
    threading.Thread(target=server.run, name="probes", daemon=True).start()
    try:
        controller.run()
    finally:
        controller.leadership.stop()


def stamp() -> str:
    """Return the current time in the form of a Lease."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _log(text: str) -> None:
    line = json.dumps(logged("controller", text, time.time()))
    print(line, file=sys.stdout, flush=True)  # noqa: T201 - the log is standard output
