"""The watched state is the cluster's: soon after events, and again after every outage."""

import json
import os
import signal
import sys
import threading
import time

import pytest

from hack import paper
from hack.waiting import WaitedInVainError, wait_for
from tests.stopped import stopped
from webhook.api.client import Client
from webhook.model.queues import Held
from webhook.serving.observer_link import ObserverLink
from webhook.state.live_occupancy import OccupancyOfSnapshots
from webhook.state.pipe import apply_update
from webhook.state.snapshot import FIELDS, Snapshot, value_of
from webhook.state.snapshot_file import fetch_snapshot

STALE_SECONDS = 15.0
SILENT_SECONDS = 600.0
SIGNS = 5
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
        self.client = Client(str(plane.kubeconfig))

    def take(self, update):
        with self.lock:
            self.snapshot = apply_update(self.snapshot, update)
            self.synced, self.relists = update.synced, update.relists

    def __repr__(self):
        return f"wrong are {self.wrong()}, lists {self.relists}, log {self.lines}"

    @property
    def age_seconds(self):
        return time.monotonic() - self.snapshot.as_of

    def is_right(self):
        return self.synced and not self.wrong()

    def wrong(self):
        """Name what differs from the whole cluster, listed at this moment."""
        there = self.listed()
        return [name for name in FIELDS if name not in PASSING and self.differs(name, there)]

    def listed(self):
        return OccupancyOfSnapshots()(fetch_snapshot(self.client, now=0.0, unix=0.0))

    def differs(self, name, there):
        return value_of(self.snapshot, name) != value_of(there, name)

    def wait_until_right(self):
        try:
            wait_for(self.is_right, "the state is the cluster's")
        except WaitedInVainError:
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
        held = observed.listed().workloads.held.get(names.gpu_cluster_queue, Held())
        return (held.reserving, held.pending) == (4, 2)

    def known():
        held = observed.snapshot.workloads.held.get(names.gpu_cluster_queue, Held())
        return (held.reserving, held.pending) == (4, 2)

    wait_for(listed, "four Jobs reserve quota and two are pending")
    wait_for(known, "the state knows")
    labels = {"a": "b"}
    own_plane.client.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "later", "labels": labels}}
    )
    wait_for(
        lambda: observed.snapshot.cluster.namespaces.get("later", {}).get("a") == "b",
        "the namespace is known",
    )
    observed.wait_until_right()


def test_a_quiet_cluster_does_not_look_stale(observed):
    moments, ages = set(), []

    def is_told_again():
        moments.add(observed.snapshot.as_of)
        ages.append(observed.age_seconds)
        return len(moments) > SIGNS

    wait_for(is_told_again, "signs of life come though nothing changes")

    assert max(ages) < STALE_SECONDS
    assert observed.is_right()


def test_the_state_ages_while_the_api_server_is_down_and_is_right_soon_after(own_plane, observed):
    own_plane.kill("kube-apiserver")
    wait_for(lambda: observed.age_seconds > STALE_SECONDS, "the state is old")
    own_plane.start("kube-apiserver")
    wait_for(
        lambda: observed.age_seconds < STALE_SECONDS and observed.is_right(),
        "the state is right again",
    )


def test_what_happened_before_a_compaction_is_known_after_it(own_plane, observed):
    """The observer sleeps while things change, and what it could resume from is compacted."""
    names = paper.Names()
    before = observed.relists["workloads"]
    jobs = own_plane.client.list("batch/v1", "Job", namespace=names.namespace)
    # How soon one started that ran stays known, and could not be listed once it is gone.
    waits = next(job["metadata"]["name"] for job in jobs if job["spec"]["suspend"])
    # Cut off first: what a sleeping process is sent waits for it in the socket.
    own_plane.kill("kube-apiserver")
    with stopped(observed.link.pid):
        own_plane.start("kube-apiserver")
        own_plane.client.create(paper.light_job("unseen", names))
        own_plane.client.delete("batch/v1", "Job", waits, namespace=names.namespace)
        own_plane.forget_versions()

    wait_for(
        lambda: observed.relists["workloads"] > before and observed.is_right(),
        lambda: f"the state is right again, from a new list: {observed}",
    )


def test_an_observer_that_dies_is_replaced_and_knows_everything_again(observed):
    pid = observed.link.pid

    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: observed.link.pid not in (None, pid), "another observer")
    observed.wait_until_right()
