"""Worker clusters that come, change and go, over real threads and API servers that are played."""

import queue
import threading
import time
from collections import defaultdict

import pytest

from hack.waiting import POLL_SECONDS, WAIT_SECONDS, wait_for
from tests import builders
from tests.state.objects import cluster_queue, local_queue
from webhook.api.kubernetes_api import NotServed, Unreachable
from webhook.api.resources import SIGNING_KEYS
from webhook.api.watch import WatchUpdate
from webhook.model.costs.prices import CongestionPrices, ScarceCell
from webhook.model.forecasts import Basis, RunTime
from webhook.model.queues import MULTIKUEUE, AdmissionCheck, WorkerCluster
from webhook.model.snapshot_parts import OffSwitch
from webhook.state.cluster_watches import ClusterWatches, FromCluster, Kubeconfig
from webhook.state.pipe import Update, apply_update
from webhook.state.signing_keys import KeyRing
from webhook.state.snapshot import Snapshot, updated

QUEUES = {
    "clusterqueues": [cluster_queue("four-gpus")],
    "localqueues": [local_queue("gpu-lq", "four-gpus")],
}


LEARNED = RunTime(seconds=20.0, low=15.0, high=30.0, basis=Basis.LEARNED, runs=5)
THERE = RunTime(seconds=80.0, low=70.0, high=90.0, basis=Basis.LEARNED, runs=3)


class Played:
    """An API server that holds a few objects, or that does not answer."""

    def __init__(self, objects=None):
        self.objects = objects
        self.closed = threading.Event()

    def get(self, path, params=None):
        if self.objects is None:
            raise Unreachable("no answer")
        items = self.objects.get(path.rpartition("/")[2], [])
        return {"items": items, "metadata": {"resourceVersion": "1"}}

    def watch(self, path, params, *, read_seconds):
        if self.objects is None:
            raise Unreachable("no answer")
        self.closed.wait(POLL_SECONDS)
        return iter(())

    def kueue_version(self):
        return "v1beta2"

    def forget_versions(self):
        pass


class NoSecrets:
    def get(self, path, params=None):
        raise NotServed(path)


def without_keys():
    """Give a ring to readers that waits for no Secret."""
    ring = KeyRing()
    ring.take(WatchUpdate(kind=SIGNING_KEYS, at=0.0, entries=()))
    return ring


class Observer:
    """Does with the watches what the observer does."""

    def __init__(self, workers):
        self.told, self.logged = queue.SimpleQueue(), []
        self.snapshots = defaultdict(Snapshot)
        self.names = None
        self.watches = ClusterWatches(
            NoSecrets(),
            lambda kubeconfig: workers[kubeconfig["server"]],
            self.told.put,
            namespace="ours",
            kueue="kueue-system",
            ring=without_keys(),
        )
        self.follow()

    def follow(self, *names):
        clusters = {name: WorkerCluster() for name in names}
        self.watches.follow(updated(Snapshot(), worker_clusters=clusters))

    def reach(self, **servers):
        contents = (Kubeconfig(name, {"server": server}) for name, server in servers.items())
        self.told.put(FromCluster(None, tuple(contents)))

    def until(self, is_so):
        while not is_so():
            self.logged += self.watches.take(self.told.get(timeout=WAIT_SECONDS))
            update = self.watches.with_clusters(Update(), time.monotonic(), time.time())
            self.names = update.watched_clusters
            for name, each in update.clusters.items():
                if each.synced:
                    self.snapshots[name] = apply_update(self.snapshots[name], each)


@pytest.fixture
def observe():
    before = set(threading.enumerate())
    yield Observer
    wait_for(lambda: before.issuperset(threading.enumerate()), "its threads have ended")


def end(observer):
    observer.reach()
    observer.until(lambda: observer.names == ())


def test_a_worker_is_followed_from_its_kubeconfig_on_and_no_longer_than_it(observe):
    observer = observe({"first": Played(QUEUES)})

    observer.reach(gpu="first")
    observer.until(lambda: "gpu" in observer.snapshots)
    end(observer)

    assert list(observer.snapshots["gpu"].setup.cluster_queues) == ["four-gpus"]
    assert observer.logged == ["cluster gpu: watched", "cluster gpu: not watched any more"]


def test_what_is_told_is_taken_over_whether_or_not_anybody_reads_what_is_to_be_logged(observe):
    observer = observe({"first": Played(QUEUES)})
    observer.reach(gpu="first")

    observer.watches.take(observer.told.get(timeout=WAIT_SECONDS))

    assert observer.watches.with_clusters(Update(), 0.0, 0.0).watched_clusters == ("gpu",)
    end(observer)


def test_another_kubeconfig_begins_anew(observe):
    observer = observe({"first": Played({}), "second": Played(QUEUES)})
    observer.reach(gpu="first")
    observer.until(lambda: "gpu" in observer.snapshots)

    observer.reach(gpu="second")
    observer.until(lambda: observer.snapshots["gpu"].setup.cluster_queues)
    end(observer)

    assert observer.logged[:2] == ["cluster gpu: watched", "cluster gpu: watched anew"]


def test_another_kubeconfig_leaves_no_moment_without_forecasts(observe):
    queues = {**QUEUES, "localqueues": [local_queue("new-lq", "four-gpus")]}
    observer = observe({"first": Played(QUEUES), "second": Played(queues)})
    rule = builders.policy(strategy={"finishTime": {"runTime": "20s"}})
    clusters = {"gpu": WorkerCluster()}
    observer.reach(gpu="first")
    observer.until(lambda: "gpu" in observer.snapshots)
    observer.watches.follow(updated(Snapshot(), policies=(rule,), worker_clusters=clusters))
    observer.until(lambda: observer.snapshots["gpu"].forecasts)

    observer.reach(gpu="second")
    observer.until(lambda: ("team", "new-lq") in observer.snapshots["gpu"].setup.local_queues)
    at_first = observer.snapshots["gpu"].forecasts
    end(observer)

    assert list(at_first) == ["four-gpus"]


def test_one_that_does_not_answer_is_no_business_of_the_others(observe):
    observer = observe({"first": Played(QUEUES), "gone": Played()})

    observer.reach(gpu="first", other="gone")
    observer.until(lambda: "gpu" in observer.snapshots)
    counted = observer.watches.counted()
    end(observer)

    assert counted["other"] is None
    assert list(counted["gpu"].setup.cluster_queues) == ["four-gpus"]
    assert observer.watches.counted() == {}

    assert "other" not in observer.snapshots
    assert "cluster other: clusterqueues: no answer" in observer.logged


def test_what_is_wrong_with_a_kubeconfig_is_said_once(observe):
    observer = observe({})
    unusable = FromCluster(None, (Kubeconfig("gpu", None, "there is no Secret"),))
    observer.told.put(unusable)
    observer.told.put(unusable)

    observer.until(observer.told.empty)

    assert observer.logged == ["cluster gpu: not watched: there is no Secret"]
    assert observer.names == ()


def test_which_are_watched_is_not_said_before_all_were_looked_for(observe):
    observer = observe({"first": Played(QUEUES)})
    observer.follow("gpu")

    observer.told.put(FromCluster(None, ()))
    observer.until(observer.told.empty)
    before = observer.names
    observer.reach(gpu="first")
    observer.until(lambda: observer.names is not None)
    after = observer.names
    observer.follow()
    end(observer)

    assert (before, after) == (None, ("gpu",))


def test_the_managers_policies_say_what_is_forecast(observe):
    observer = observe({"first": Played(QUEUES)})
    observer.reach(gpu="first")
    observer.until(lambda: "gpu" in observer.snapshots)
    rule = builders.policy(strategy={"finishTime": {"runTime": "20s"}})
    clusters = {"gpu": WorkerCluster()}

    observer.watches.follow(updated(Snapshot(), policies=(rule,), worker_clusters=clusters))
    observer.until(lambda: observer.snapshots["gpu"].forecasts)
    end(observer)

    assert list(observer.snapshots["gpu"].forecasts) == ["four-gpus"]


def test_what_the_manager_recorded_of_runs_stands_in_until_some_are_seen_there(observe):
    observer = observe({"first": Played(QUEUES)})
    observer.reach(gpu="first")
    remote, local = (
        builders.cluster_queue("gpu-cq", {"remote": {"cpu": "8"}}, checks=("remote",)),
        builders.cluster_queue("cpu-cq", {"default": {"cpu": "8"}}),
    )
    check = AdmissionCheck(controller=MULTIKUEUE, parameters="all")
    manager = builders.snapshot(
        remote,
        local,
        checks={"remote": check},
        worker_clusters={"gpu": WorkerCluster()},
        run_times={
            ("a", "remote"): LEARNED,
            ("a", "remote@gpu"): THERE,
            ("c", "remote"): LEARNED,
            ("c", "remote@other"): THERE,
            ("b", "default"): LEARNED,
        },
        start_delays={("", "remote@gpu"): THERE},
    )

    observer.until(lambda: "gpu" in observer.snapshots)
    observer.watches.follow(manager)
    observer.until(lambda: observer.snapshots["gpu"].learned.run_times)
    end(observer)

    assert observer.snapshots["gpu"].learned.run_times == {
        ("a", "a100"): THERE,
        ("c", "a100"): LEARNED,
    }
    assert observer.snapshots["gpu"].learned.start_delays == {("", "a100"): THERE}


def test_what_the_manager_published_as_scarce_there_counts_until_it_is_switched_off(observe):
    observer = observe({"first": Played(QUEUES)})
    observer.reach(gpu="first")
    observer.until(lambda: "gpu" in observer.snapshots)
    place = ScarceCell("queue four-gpus", "a100", "nvidia.com/gpu", "gpu")
    others = place._replace(cluster="other")
    known = CongestionPrices(at=time.time(), prices={place: 2.0, others: 9.0})
    manager = updated(Snapshot(), worker_clusters={"gpu": WorkerCluster()}, scarcity=known)

    observer.watches.follow(manager)
    observer.until(lambda: observer.snapshots["gpu"].costs.congestion)
    found = observer.snapshots["gpu"].costs.congestion
    observer.watches.follow(updated(manager, off=OffSwitch()))
    observer.until(lambda: not observer.snapshots["gpu"].costs.congestion)
    end(observer)

    assert found == {"four-gpus": {("a100", "nvidia.com/gpu"): 2.0}}
