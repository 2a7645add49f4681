"""The leading controller's congestion prices: computed, published, read, and run out."""

import json
from dataclasses import replace
from functools import partial

import pytest

from tests.controller.stepping import at
from tests.state.feeds import REQUIRED, changed, listed, synced_feed
from tests.state.objects import PENDING, cluster_queue, local_queue, reserving, workload
from webhook.api import published
from webhook.api.kubernetes_api import NotServed, Unreachable
from webhook.api.resources import CONGESTION
from webhook.api.watch import WatchUpdate
from webhook.controller.congestion_publisher import RETRY_SECONDS, CongestionPublisher
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.cost.congestion import STEP_SECONDS
from webhook.model.costs.prices import LASTS_SECONDS, ScarceCell
from webhook.model.fields import FieldError
from webhook.state.forecast_input import ForecastInput, ForecastInputs
from webhook.state.pipe import apply_update
from webhook.state.published_congestion import read_congestion
from webhook.state.run_records_reader import path_of
from webhook.state.snapshot import Snapshot

UNIX = 1_796_112_000.0
CPU = ScarceCell("queue gpu-cq", "a100", "cpu")
POLICY = {
    "metadata": {"name": "by-cost"},
    "spec": {
        "mode": "Enforce",
        "match": {"jobSelector": {}},
        "options": [{"name": "gpu", "queue": "gpu-lq"}],
        "strategy": {"type": "Cost"},
    },
}


class Cluster:
    """An API server that holds one ConfigMap, behind a feed that reads it."""

    def __init__(self, *, waiting=3, leads=True, workers=None, policy=POLICY, late=()):
        self.leads, self.refuses, self.stored, self.written = leads, False, None, 0
        running = reserving("runs", cpu="8")
        pending = [
            workload(f"waits-{number}", conditions=(PENDING,), cpu="8") for number in range(waiting)
        ]
        self.workers, self.metrics = workers, ControllerMetrics()
        self.feed = synced_feed(
            clusterqueues=[cluster_queue(cpu="8")],
            localqueues=[local_queue()],
            resourceflavors=[{"metadata": {"name": "a100"}}],
            fallbackpolicies=[policy],
            workloads=[running, *pending],
        )
        self.snapshot, self.late = Snapshot(), late
        self.publisher = self.replica()

    def replica(self):
        return CongestionPublisher(
            partial(published.overwrite, self, path_of("ours")),
            self.workers,
            max_state_age=15.0,
            is_leader=lambda: self.leads,
            take_late=lambda: self.late,
            metrics=self.metrics,
        )

    @property
    def shown(self):
        """The price that the metric has."""
        labels = {name: getattr(CPU, name) for name in ("tree", "flavor", "resource", "cluster")}
        return self.metrics.registry.get_sample_value("kueue_fallback_congestion_price", labels)

    def patch(self, path, body):
        if self.refuses:
            raise Unreachable("no route")
        if self.stored is None:
            raise NotServed(path)
        self._store(body)

    def post(self, path, body):
        self._store(body)

    def _store(self, body):
        self.stored, self.written = body, self.written + 1

    def step(self, seconds, publisher=None, *, age=0.0):
        """Let a replica step, so many seconds after the start, on a state of this age."""
        if self.stored is not None:
            self.feed.take(listed(CONGESTION, self.stored, at=seconds - age))
        for kind in REQUIRED:
            self.feed.take(WatchUpdate(kind=kind, at=seconds - age))
        update = self.feed.update(seconds, UNIX + seconds)
        self.snapshot = apply_update(self.snapshot, update)
        replica = publisher or self.publisher
        given = at(seconds, UNIX + seconds, snapshot=self.snapshot, feed=self.feed)
        return replica.step(given)

    @property
    def price(self):
        return 0.0 if self.stored is None else read_congestion(self.stored).prices.get(CPU, 0.0)


def test_each_minute_what_is_waited_for_becomes_dearer_for_all_who_decide():
    cluster = Cluster()

    cluster.step(1.0)
    first = cluster.price
    cluster.step(30.0)
    again = cluster.price
    cluster.step(61.0 + STEP_SECONDS)

    assert 0 < first == again < cluster.price
    assert cluster.written == 2
    assert cluster.snapshot.costs.congestion == {"gpu-cq": {("a100", "cpu"): pytest.approx(first)}}


def test_without_a_congestion_price_lateness_becomes_dearer_all_the_same():
    cost = {"congestion": {"type": "None"}, "lateness": {"adapt": {}}}
    spec = {**POLICY["spec"], "strategy": {"type": "Cost", "cost": cost}}
    cluster = Cluster(policy={**POLICY, "spec": spec}, late=[("by-cost", True)] * 20)

    cluster.step(1.0)

    published = read_congestion(cluster.stored)
    assert (published.prices, published.weights) == ({}, {"by-cost": 1.1})


def test_another_leader_goes_on_where_the_last_one_stopped():
    cluster = Cluster()
    cluster.step(1.0)
    first = cluster.price

    cluster.step(70.0, cluster.replica())

    assert cluster.price == pytest.approx(2 * first)


def test_a_replica_that_does_not_lead_writes_nothing_and_prices_run_out():
    cluster = Cluster()
    cluster.step(1.0)
    cluster.leads = False

    cluster.step(LASTS_SECONDS)
    before = cluster.snapshot.costs.congestion
    cluster.step(LASTS_SECONDS + 2)

    assert cluster.written == 1
    assert before
    assert cluster.snapshot.costs.congestion == {}


def test_the_off_switch_takes_them_off_at_once():
    cluster = Cluster()
    cluster.step(1.0)

    switch = {"metadata": {"namespace": "ours", "name": "kueue-fallback-off"}}
    cluster.feed.take(changed("kueue-fallback-off", "ADDED", switch))
    cluster.step(70.0)

    assert cluster.snapshot.costs.congestion == {}
    assert cluster.price == 0.0


def test_no_price_is_left_of_a_policy_that_is_gone():
    cluster = Cluster()
    cluster.step(1.0)
    cluster.step(2.0)
    assert cluster.shown == cluster.price > 0

    cluster.feed.take(changed("fallbackpolicies", "DELETED", POLICY))
    cluster.step(3.0)
    cluster.step(4.0)

    published = read_congestion(cluster.stored)
    assert (published.prices, published.waits, cluster.shown) == ({}, {}, None)
    assert cluster.snapshot.costs.congestion == {}
    # There is nothing more to write.
    assert cluster.written == 2


def test_a_failed_write_is_told_once_and_tried_again():
    cluster = Cluster()
    cluster.refuses = True

    lines = [cluster.step(1.0), cluster.step(2.0), cluster.step(2.0 + RETRY_SECONDS)]

    assert lines == [("congestion prices: no route",), (), ()]
    cluster.refuses = False
    cluster.step(3.0 + 2 * RETRY_SECONDS)
    assert cluster.price > 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        json.dumps({"at": "monday"}),
        json.dumps({"at": "2026-01-01T00:00:00Z", "prices": [{"tree": "a"}]}),
        json.dumps(
            {
                "at": "2026-01-01T00:00:00Z",
                "prices": [{"tree": "a", "flavor": "b", "resource": "c", "price": -1}],
            }
        ),
    ],
)
def test_what_somebody_else_wrote_there_is_refused(text):
    with pytest.raises(FieldError):
        read_congestion({"data": {"prices.json": text}})


def test_on_a_state_of_long_ago_prices_stay_as_they_are():
    cluster = Cluster()
    cluster.step(1.0)

    cluster.step(70.0, age=16.0)

    assert cluster.written == 1


class Workers:
    """One watched worker cluster, ``far``, which holds the same as the cluster of this feed."""

    def __init__(self):
        self.feed, self.snapshot = Cluster().feed, None

    def observe(self, seconds):
        for kind in REQUIRED:
            self.feed.take(WatchUpdate(kind=kind, at=seconds))
        unix = UNIX + seconds
        self.feed.update(seconds, unix)
        known = self.feed.counted
        given = ForecastInput(
            snapshot=known,
            counted={"gpu-cq": self.feed.contents_of("gpu-cq")},
            now=seconds,
            unix=unix,
        )
        self.snapshot = replace(known, forecasts=ForecastInputs().forecasts(given))

    def counted(self):
        return {"far": self.snapshot}

    def contents_of(self, cluster, cluster_queue):
        return {"far": self.feed}[cluster].contents_of(cluster_queue)


def sending():
    """Return a cluster whose one queue, with all quota free, leads to ``far`` by MultiKueue."""
    cluster = Cluster(waiting=0, workers=Workers())
    checks = {"admissionChecks": [{"name": "remote"}]}
    check = {
        "controllerName": "kueue.x-k8s.io/multikueue",
        "parameters": {"kind": "MultiKueueConfig", "name": "all"},
    }
    for kind, name, spec in (
        ("admissionchecks", "remote", check),
        ("multikueueconfigs", "all", {"clusters": ["far"]}),
        ("multikueueclusters", "far", {}),
    ):
        cluster.feed.take(listed(kind, {"metadata": {"name": name}, "spec": spec}))
    cluster.feed.take(
        listed("clusterqueues", cluster_queue(cpu="80", admissionChecksStrategy=checks))
    )
    return cluster


def in_far(cluster):
    prices = read_congestion(cluster.stored).prices
    return {cell.cluster: price for cell, price in prices.items()}


def test_what_is_waited_for_in_a_watched_worker_becomes_dearer_there_alone():
    cluster = sending()

    cluster.workers.observe(1.0)
    cluster.step(1.0)
    first = in_far(cluster)
    cluster.workers.observe(62.0)
    cluster.step(62.0)

    assert list(first) == ["far"]
    assert in_far(cluster) == {"far": pytest.approx(2 * first["far"])}


def test_prices_of_a_worker_that_is_silent_stay_as_they_are_until_it_is_not_watched():
    cluster = sending()
    cluster.workers.observe(1.0)
    cluster.step(1.0)
    first = in_far(cluster)

    cluster.step(62.0)
    silent = in_far(cluster)
    cluster.workers.snapshot = None
    cluster.step(123.0)
    unknown = in_far(cluster)
    cluster.workers.counted = dict
    cluster.step(184.0)

    assert first
    assert silent == unknown == first
    assert in_far(cluster) == {}
