"""Servers nominate all worker clusters for what waits while no controller leads."""

import itertools

import pytest

from tests import builders
from tests.builders import cluster_queue
from tests.state.objects import condition, workload
from webhook.api.kubernetes_api import Refused, Unreachable
from webhook.model.faults import NOMINATIONS, Failures
from webhook.model.queues import MULTIKUEUE, AdmissionCheck, KueueConfig
from webhook.observer.leaderless import (
    AGAIN_SECONDS,
    LOOK_SECONDS,
    MOST_SECONDS,
    LeaderlessDispatcher,
)
from webhook.settings import Settings
from webhook.state.workload import read_workload

TIMEOUT = 60.0
API = "kueue.x-k8s.io/v1beta2"
BEGINS = (
    "no controller has led for 60 s: all worker clusters are nominated for what waits, until one "
    "does"
)
ROUND = 4
"""Looks after which everything that is due was done: one wants Workloads, the next has them."""


def waiting(name="a", *, nominated=(), state="Pending"):
    source = workload(name, conditions=(condition("QuotaReserved"),), admitted_to="gpu-cq")
    source["apiVersion"] = API
    source["metadata"] |= {"uid": name, "resourceVersion": "7"}
    source["status"]["admissionChecks"] = [{"name": "remote", "state": state}]
    if nominated:
        source["status"]["nominatedClusterNames"] = list(nominated)
    return source


class Cluster:
    """An API server with Workloads and the controllers' Lease, and one server's own thread."""

    def __init__(self, *sources, own=True):
        self.workloads = {source["metadata"]["name"]: source for source in sources}
        self.holder, self._versions, self.version = "first", itertools.count(1), 0
        self.written, self.answer, self.now, self.reads, self.lines = [], None, 0.0, 0, []
        self.failures = Failures(lambda text: self.lines.append(str(text)))
        settings = Settings(namespace="ours", dispatcher_timeout=TIMEOUT)
        self.part = LeaderlessDispatcher(self, settings, self.failures, clock=lambda: self.now)
        self.snapshot = builders.snapshot(
            cluster_queue("gpu-cq", {"a100": {"cpu": "100"}}, checks=("remote",)),
            checks={"remote": AdmissionCheck(controller=MULTIKUEUE, parameters="all")},
            multikueue_configs={"all": ("near", "far")},
            kueue=KueueConfig(own_dispatcher=own),
        )

    def kueue_version(self):
        return "v1beta2"

    def get(self, path, params):
        name = params["fieldSelector"].partition("=")[2]
        if path.endswith("/leases"):
            assert (path, name) == (
                "/apis/coordination.k8s.io/v1/namespaces/ours/leases",
                "kueue-fallback-controller",
            )
            return {"items": self._lease()}
        self.reads += 1
        return {"items": [self.workloads[name]] if name in self.workloads else []}

    def _lease(self):
        if self.holder is None:
            return []
        spec = {"holderIdentity": self.holder, "leaseDurationSeconds": 12}
        return [{"metadata": {"resourceVersion": str(self.version)}, "spec": spec}]

    def apply(self, path, body, *, manager):
        if self.answer is not None:
            raise self.answer
        name = body["metadata"]["name"]
        place = f"/apis/{API}/namespaces/team/workloads/{name}/status"
        assert (path, manager) == (place, "kueue-admission")
        nominated = body["status"]["nominatedClusterNames"]
        self.workloads[name]["status"]["nominatedClusterNames"] = nominated
        self.written.append((name, tuple(nominated)))

    def renew(self, holder="first"):
        self.holder, self.version = holder, next(self._versions)

    def look(self, seconds=LOOK_SECONDS):
        self.now += seconds
        self.part.offer(self.snapshot, lambda: map(read_workload, self.workloads.values()))
        self.part.step()

    def silent(self, seconds=TIMEOUT):
        """Look so long while nobody renews the Lease, and until what is due is done."""
        for _ in range(int(seconds / LOOK_SECONDS) + ROUND):
            self.look()


def test_nobody_is_asked_while_a_controller_leads():
    cluster = Cluster(waiting())

    for _ in range(50):
        cluster.renew()
        cluster.look()

    assert (cluster.written, cluster.reads, cluster.lines) == ([], 0, [])
    assert cluster.part.silent_seconds == 0


@pytest.mark.parametrize("holder", ["first", "", None])
def test_all_clusters_are_asked_when_none_has_led_for_the_admins_time(holder):
    cluster = Cluster(waiting("a"), waiting("b", nominated=("far",)), waiting("c", state="Ready"))
    cluster.holder = holder

    for _ in range(int(TIMEOUT / LOOK_SECONDS)):
        cluster.look()
    before = list(cluster.written)
    cluster.silent(0)

    assert before == []
    assert cluster.written == [("a", ("near", "far")), ("b", ("far", "near"))]
    assert cluster.lines == [
        BEGINS,
        "Workload team/a: asks near, far: no controller leads",
        "Workload team/b: asks near: no controller leads",
    ]


def test_what_is_nominated_everywhere_is_read_seldom_and_what_comes_is_asked_for():
    cluster = Cluster(waiting("a"))
    cluster.silent()
    reads = cluster.reads

    cluster.workloads["b"] = waiting("b")
    cluster.silent(0)
    of_new = cluster.reads - reads
    cluster.silent(AGAIN_SECONDS)

    assert of_new == 1
    assert cluster.written == [("a", ("near", "far")), ("b", ("near", "far"))]
    assert cluster.reads > reads + 2


def test_a_leader_has_it_back_when_it_has_renewed_the_lease():
    cluster = Cluster(waiting("a"))
    cluster.silent()
    cluster.renew("second")
    cluster.look()
    acquired = cluster.part.silent_seconds
    cluster.workloads["b"] = waiting("b")

    for _ in range(ROUND):
        cluster.renew("second")
        cluster.look()

    assert acquired > TIMEOUT
    assert cluster.part.silent_seconds == 0
    assert cluster.written == [("a", ("near", "far"))]
    assert cluster.lines[-1] == "a controller leads: it nominates worker clusters from now on"


def test_a_leader_that_comes_back_meanwhile_stops_the_next_write():
    cluster = Cluster(waiting("a"), waiting("b"))
    apply = cluster.apply

    def while_another_begins(*given, **named):
        apply(*given, **named)
        cluster.renew()

    cluster.apply = while_another_begins
    cluster.silent()

    assert cluster.written == [("a", ("near", "far"))]


def test_controllers_that_take_the_lease_and_die_do_not_lead():
    cluster = Cluster(waiting())

    for number in range(int(TIMEOUT / LOOK_SECONDS) + ROUND):
        cluster.renew(f"controller-{number}")
        cluster.look()

    assert cluster.written == [("a", ("near", "far"))]


def test_an_outage_of_the_api_server_is_no_silence_of_a_leader():
    cluster = Cluster(waiting())
    cluster.look()
    cluster.look()

    cluster.look(10 * TIMEOUT)

    assert cluster.part.silent_seconds == LOOK_SECONDS + MOST_SECONDS
    assert cluster.written == []


def test_without_kueues_word_that_we_are_its_dispatcher_nothing_is_read():
    cluster = Cluster(waiting(), own=False)

    cluster.silent()

    assert (cluster.written, cluster.reads, cluster.part.silent_seconds) == ([], 0, 0)


def test_a_write_that_fails_keeps_no_other_from_its_own_and_is_counted():
    cluster = Cluster(waiting("a"))
    cluster.answer = Unreachable("no answer")
    cluster.silent()
    cluster.answer = None
    cluster.silent(AGAIN_SECONDS)

    assert cluster.failures.counts[NOMINATIONS] > 0
    assert cluster.lines.count("nominations: no answer; said once") == 1
    assert cluster.written == [("a", ("near", "far"))]


def test_who_has_written_first_is_not_written_over():
    cluster = Cluster(waiting("a"))
    cluster.answer = Refused(409, "has been modified")

    cluster.silent()

    assert cluster.written == []
    assert cluster.failures.counts == {}
