"""The controller's process: it leads or not, follows the cluster, and calls each part in a loop.

It follows what the webhook does, of Workloads only their runs, and the metadata of Jobs. All
replicas follow and judge, so that each can take over at once, but only the leader writes. What the
parts do (status, moves, events, records, savings, keys) is their own; ``parts`` lists them.
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
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import Final, TypeAlias

from webhook.api.calls import SHORT_SECONDS
from webhook.api.client import Client
from webhook.api.lease import Elector, Leadership
from webhook.api.resources import Resource
from webhook.api.watch import Follower, WatchUpdate
from webhook.controller import look_back_process, parts
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.followed_watches import FollowedWatches
from webhook.controller.look_back_process import LookBack
from webhook.controller.world import Lines, Take, World
from webhook.model.faults import Failures, logged
from webhook.server import lifecycle
from webhook.server.gunicorn_app import Server
from webhook.server.probes import create_probes
from webhook.settings import Settings
from webhook.state.feed import Feed
from webhook.state.pipe import Update, apply_update
from webhook.state.signing_keys import KeyRing
from webhook.state.snapshot import Restraint, Snapshot

COALESCE_SECONDS: Final = 0.2
"""Changes within so long are reconciled together."""
IDLE_SECONDS: Final = 5.0
_Message: TypeAlias = WatchUpdate | Callable[[], Lines]


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
        self._failures = Failures(log)
        surroundings = parts.Surroundings(
            settings=settings,
            client=client,
            watches=self._watches,
            ring=self._ring,
            metrics=self.metrics,
            failures=self._failures,
            is_leader=self.is_leader,
            leader_at=lambda: self.leadership.heard_at,
            put=self.put,
            look_back=look_back,
        )
        self.parts = parts.table(surroundings)
        self._takers = self._takers_by_kind()
        self._apart = frozenset(
            (*self._watches.kinds, *self._watches.pending, *(each.kind for each in self._own()))
        )
        """The kinds that are no part of the snapshot."""
        self._hastening = frozenset(part.hastened_by for part in self.parts)

    def _takers_by_kind(self) -> Mapping[str, list[Take]]:
        takers: defaultdict[str, list[Take]] = defaultdict(list)
        for part in self.parts:
            for kind, take in part.takes.items():
                takers[kind].append(take)
        return takers

    def _own(self) -> list[Resource]:
        return [resource for part in self.parts for resource in part.follows]

    def run(self) -> None:
        """Follow and step until the process ends."""
        for part in self.parts:
            part.start()
        for resource in (*self._watches.always, *self._own()):
            self._follow(resource, self._client)
        for resource in self._watches.metadata():
            self._follow(resource, self._jobs_client)
        while True:
            self.step()

    def put(self, message: _Message | None) -> None:
        """Queue a watch update or what else is to be done, from any thread.

        None: start the next step.
        """
        self._messages.put(message)

    def step(self) -> None:
        """Take over the queued messages, and have each part do what is due."""
        self._gather(min(IDLE_SECONDS, *(part.wait() for part in self.parts)))
        update, _ = self._failures.survive("state", self._take_update)
        self.metrics.failures.catch_up(self._failures.counts)
        if update is None:
            self._feed.publish_anew()
            return
        if not update.synced:
            return
        # Not earlier: a replica without state must not take the Lease from one that could act.
        self.leadership.start()
        self._note_term()
        for part in self.parts:
            self._attempt(part.name, partial(part.step, self._world(update.problems)))
        self.metrics.failures.catch_up(self._failures.counts)

    def _attempt(self, name: str, work: Callable[[], Lines]) -> None:
        """Do a part of a turn and log what happened; if it fails, the others are done all the same.

        *name* is as metrics and the log name the part.
        """
        lines, _ = self._failures.survive(name, work)
        for line in lines or ():
            self._log(line)

    def _world(self, problems: Mapping[str, int]) -> World:
        return World(
            snapshot=self._snapshot,
            feed=self._feed,
            now=time.monotonic(),
            unix=time.time(),
            problems=problems,
        )

    def _take_update(self) -> Update:
        update = self._feed.update(time.monotonic(), time.time())
        self._snapshot = apply_update(self._snapshot, update)
        self._follow_pending()
        self.metrics.watches.take(
            synced=update.synced,
            ages=update.ages,
            relists=update.relists,
            problems=update.problems,
        )
        return update

    def is_leader(self) -> bool:
        """Return whether we may write; cheap, and to be called right before each write.

        A leadership gained during a step counts from the next step on.
        """
        return self._term > 0 and self.leadership.term() == self._term

    def not_ready(self) -> str:
        return self._feed.not_ready()

    def before_scrape(self) -> None:
        world, synced = self._world({}), self._feed.synced
        age = world.now - world.snapshot.as_of if synced else inf
        self.metrics.watches.show(ready=synced, age=age)
        self.metrics.leader.set(self.leadership.is_leader())
        self.metrics.costs.show(world.snapshot.costs.tariffs, world.unix)
        self.metrics.measured.set(len(world.snapshot.learned.device_uses))
        for part in self.parts:
            part.show(world)

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
        for_others = any(part.follows_workloads(self._snapshot) for part in self.parts)
        for resource, is_needed in self._watches.begun(self._snapshot, for_others=for_others):
            if is_needed:
                self._feed.expect(resource.kind, time.monotonic())
            self._follow(resource, self._client)

    def _gather(self, wait: float) -> None:
        """Take over messages until it is time for a turn: soon after a change of the snapshot."""
        until = time.monotonic() + wait
        while (wait := until - time.monotonic()) > 0:
            try:
                message = self._messages.get(timeout=wait)
            except queue.Empty:
                return
            if message is None:
                return
            if not isinstance(message, WatchUpdate):
                self._attempt("messages", message)
            elif self._takes_change(message):
                until = min(until, time.monotonic() + COALESCE_SECONDS)

    def _takes_change(self, message: WatchUpdate) -> bool:
        """Hand a watch update to all who take it; return whether a turn is to follow soon."""
        self._ring.take(message)
        kind, is_apart = message.kind, message.kind in self._apart
        first = self._feed.hear if is_apart else self._feed.take
        for take in (first, self._watches.take, *self._takers.get(kind, ())):
            self._attempt("messages", partial(take, message))
        has_changed = message.entries is not None or message.event is not None
        return has_changed and (not is_apart or kind in self._hastening)

    def _note_term(self) -> None:
        """Reconcile everything again after we became the leader: due writes may be missing."""
        before, self._term = self._term, self.leadership.term()
        if self._term == before:
            return
        if before:
            self._log("leads no more: statuses, records of runs and Events are another's to write")
        if self._term:
            self._log("leads: writes statuses, records of runs and Events from now on")
            for part in self.parts:
                part.begin()


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
