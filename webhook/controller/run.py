"""The controller's process: follows the cluster and looks at all policies when something changed.

It follows everything that the webhook does but the Workloads, which no condition depends on.
"""

from __future__ import annotations

import json
import os
import queue
import random
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from webhook import probes
from webhook.cluster.client import Client
from webhook.cluster.errors import ClusterError
from webhook.cluster.feed import Feed
from webhook.cluster.pipe import apply_update
from webhook.cluster.resources import POLICIES, WORKLOADS, Resource, watched
from webhook.cluster.watch import Follower, Message
from webhook.controller.reconcile import Look, look
from webhook.model.queues import Snapshot
from webhook.settings import Settings

COALESCE_SECONDS: Final = 0.2
"""Changes that come together cost one look."""
AGAIN_SECONDS: Final = 1.0
"""Until the next look after a failed one."""
IDLE_SECONDS: Final = 5.0


class Controller:
    """The loop; what it needs of the world comes in."""

    def __init__(self, settings: Settings, client: Client, log: Callable[[str], None]) -> None:
        self._settings = settings
        self._client = client
        self._log = log
        kinds = watched(namespace=settings.namespace, kueue_namespace=settings.kueue_namespace)
        self._resources = tuple(one for one in kinds if one.kind != WORKLOADS)
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._feed = Feed(self._resources, time.monotonic())
        self._snapshot = Snapshot()
        self._looked_at = -1
        """Generation of the snapshot at the last look."""
        self._due = False
        self.registry = CollectorRegistry()
        self._writes = Counter(
            "kueue_fallback_policy_status_writes",
            "Statuses of policies written, or tried to.",
            ("result",),
            registry=self.registry,
        )
        self._policies = Gauge(
            "kueue_fallback_policies",
            "Policies by their condition Ready.",
            ("ready",),
            registry=self.registry,
        )

    def run(self) -> None:
        """Follow and look until the process ends."""
        for resource in self._resources:
            thread = threading.Thread(target=self._follower(resource).run, name=resource.kind)
            thread.daemon = True
            thread.start()
        while True:
            self.step()

    def step(self) -> None:
        """Take what has come in; look at the policies if that may change a condition."""
        self._gather(AGAIN_SECONDS if self._due else IDLE_SECONDS)
        update = self._feed.update(time.monotonic())
        self._snapshot = apply_update(self._snapshot, update)
        if update.synced and (self._due or self._snapshot.generation != self._looked_at):
            self._look()

    def not_ready(self) -> str:
        return "" if self._feed.synced else "not synced yet"

    def _follower(self, resource: Resource) -> Follower:
        return Follower(
            resource,
            self._client,
            self._messages.put,
            clock=time.monotonic,
            sleep=time.sleep,
            uniform=random.uniform,
        )

    def _gather(self, wait: float) -> None:
        until = time.monotonic() + wait
        while (wait := until - time.monotonic()) > 0:
            try:
                message = self._messages.get(timeout=wait)
            except queue.Empty:
                return
            for line in self._feed.take(message):
                self._log(line)
            changed = message.entries is not None or message.event is not None
            # A policy that cannot be read changes no snapshot, yet its status must say so.
            self._due = self._due or (changed and message.kind == POLICIES)
            if changed:
                until = min(until, time.monotonic() + COALESCE_SECONDS)

    def _look(self) -> None:
        try:
            found = look(
                self._client,
                self._snapshot,
                own_namespace=self._settings.namespace,
                clock=_now,
            )
        except ClusterError as error:
            self._due = True
            self._log(f"policies: {error}")
            return
        self._due = found.again or bool(found.failed)
        self._looked_at = self._snapshot.generation
        self._report(found)

    def _report(self, found: Look) -> None:
        self._policies.labels("True").set(found.ready)
        self._policies.labels("False").set(found.not_ready)
        self._writes.labels("written").inc(len(found.written))
        self._writes.labels("failed").inc(len(found.failed))
        for name, condition in found.written:
            state = "ready" if condition.ready else f"not ready: {condition.message}"
            self._log(f"FallbackPolicy {name}: {state}")
        for name, message in found.failed:
            self._log(f"FallbackPolicy {name}: status not written: {message}")


def serve(settings: Settings) -> None:
    """Run the controller with its probes until the process ends."""
    threading.excepthook = _end_with
    controller = Controller(settings, Client(settings.kubeconfig), _log)
    table = probes.routes(controller.registry, not_ready=controller.not_ready)
    server: ThreadingHTTPServer = probes.serve(settings.metrics_listen, table)
    try:
        controller.run()
    finally:
        server.shutdown()


def _end_with(failure: threading.ExceptHookArgs) -> None:
    """Be started anew rather than go on with one resource unwatched."""
    threading.__excepthook__(failure)
    os._exit(70)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _log(text: str) -> None:
    line = json.dumps({"ts": round(time.time(), 3), "process": "controller", "msg": text})
    print(line, file=sys.stdout, flush=True)  # noqa: T201 - the log is standard output
