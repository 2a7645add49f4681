"""The watched state is the cluster's: within a second of events, and again after every outage."""

import dataclasses
import json
import os
import signal
import sys
import threading
import time

import pytest

from hack import paper
from hack.waiting import wait_for
from tests.conftest import FULL
from webhook.api.client import connect
from webhook.kueue.live_occupancy import OccupancyOfSnapshots
from webhook.model.queues import Held, Snapshot
from webhook.serving.observer_link import ObserverLink
from webhook.state.pipe import apply_update
from webhook.state.snapshot_file import fetch_snapshot

EVENT_SECONDS = 1.0 if FULL else 20.0
RETURN_SECONDS = 10.0 if FULL else 120.0
STALE_SECONDS = 15.0
SILENT_SECONDS = 600.0
QUIET_SECONDS = 180.0 if FULL else 20.0
OUTAGE_SECONDS = 30.0 if FULL else 17.0
PASSING = ("as_of", "generation", "currency")
"""Fields that pass with time, and what the settings say."""


class Observed:
    """What a server would know: the last snapshot, and the oldest it ever was."""

    def __init__(self, plane):
        settings = json.dumps({"kubeconfig": str(plane.kubeconfig)})
        self.lock = threading.Lock()
        self.snapshot, self.synced, self.relists, self.lines = Snapshot(), False, {}, []
        command = [sys.executable, "-m", "webhook.observer", settings]
        # A test stops the observer for as long as two starts of an API server take. One that were
        # replaced meanwhile, as silent, would list anew without having missed anything.
        self.link = ObserverLink(
            command, self.take, self.lines.append, silent_seconds=SILENT_SECONDS
        )
        self.client = connect(str(plane.kubeconfig))

    def take(self, update):
        with self.lock:
            self.snapshot = apply_update(self.snapshot, update)
            self.synced, self.relists = update.synced, update.relists

    @property
    def age_seconds(self):
        return time.monotonic() - self.snapshot.as_of

    def is_right(self):
        return self.synced and not self.wrong()

    def wrong(self):
        """Name what differs from the whole cluster, listed at this moment."""
        there = self.listed()
        names = [field.name for field in dataclasses.fields(Snapshot)]
        return [name for name in names if name not in PASSING and self.differs(name, there)]

    def listed(self):
        return OccupancyOfSnapshots()(fetch_snapshot(self.client, now=0.0, unix=0.0))

    def differs(self, name, there):
        return getattr(self.snapshot, name) != getattr(there, name)

    def wait_until_right(self, seconds):
        try:
            wait_for(self.is_right, "the state is the cluster's", timeout_seconds=seconds)
        except AssertionError:
            assert self.wrong() == []
            raise


@pytest.fixture(scope="module")
def observed(own_plane):
    for item in paper.queues(paper.Names()):
        own_plane.client.apply(item)
    found = Observed(own_plane)
    found.link.start()
    wait_for(lambda: found.synced, "the first sync")
    yield found
    found.link.stop()


def test_events_are_in_the_state_soon(own_plane, observed):
    names = paper.Names()
    own_plane.client.create_all([paper.heavy_job(f"event-{n}", names) for n in range(6)])

    def listed():
        held = observed.listed().held.get(names.gpu_cluster_queue, Held())
        return (held.reserving, held.pending) == (4, 2)

    def known():
        held = observed.snapshot.held[names.gpu_cluster_queue]
        return (held.reserving, held.pending) == (4, 2)

    wait_for(listed, "four Jobs reserve quota and two are pending")
    wait_for(known, "the state knows", timeout_seconds=EVENT_SECONDS)
    labels = {"a": "b"}
    own_plane.client.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "later", "labels": labels}}
    )
    wait_for(
        lambda: observed.snapshot.namespaces.get("later", {}).get("a") == "b",
        "the namespace is known",
        timeout_seconds=EVENT_SECONDS,
    )
    observed.wait_until_right(RETURN_SECONDS)


def test_a_quiet_cluster_does_not_look_stale(observed):
    until, oldest = time.monotonic() + QUIET_SECONDS, 0.0

    while time.monotonic() < until:
        oldest = max(oldest, observed.age_seconds)
        time.sleep(0.1)

    assert oldest < STALE_SECONDS
    assert observed.is_right()


def test_the_state_ages_while_the_api_server_is_down_and_is_right_soon_after(own_plane, observed):
    own_plane.kill("kube-apiserver")
    time.sleep(OUTAGE_SECONDS)
    age = observed.age_seconds
    own_plane.start("kube-apiserver")
    wait_for(
        lambda: observed.age_seconds < STALE_SECONDS and observed.is_right(),
        "the state is right again",
        timeout_seconds=RETURN_SECONDS,
    )

    assert age > STALE_SECONDS


def test_what_happened_before_a_compaction_is_known_after_it(own_plane, observed):
    """The observer sleeps while things change, and what it could resume from is compacted."""
    names = paper.Names()
    before = observed.relists["workloads"]
    # Cut off first: what a sleeping process is sent waits for it in the socket.
    own_plane.kill("kube-apiserver")
    os.kill(observed.link.pid, signal.SIGSTOP)
    own_plane.start("kube-apiserver")
    own_plane.client.create(paper.light_job("unseen", names))
    own_plane.client.delete("batch/v1", "Job", "event-5", namespace=names.namespace)
    own_plane.forget_versions()
    own_plane.kill("kube-apiserver")
    own_plane.start("kube-apiserver")

    os.kill(observed.link.pid, signal.SIGCONT)
    wait_for(
        lambda: observed.relists["workloads"] > before and observed.is_right(),
        "the state is right again, from a new list",
        timeout_seconds=RETURN_SECONDS,
    )


def test_an_observer_that_dies_is_replaced_and_knows_everything_again(observed):
    pid = observed.link.pid

    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: observed.link.pid not in (None, pid), "another observer")
    observed.wait_until_right(RETURN_SECONDS)
