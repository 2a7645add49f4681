"""When the leader looks at Nodes and Pods, and what becomes of what it finds."""

import json
from types import SimpleNamespace

import pytest

from tests.controller.fakes import AtOnce
from tests.controller.stepping import at, values
from tests.state.feeds import REQUIRED, listed, synced_feed
from tests.state.objects import PENDING, cluster_queue, local_queue, workload
from webhook.api.kubernetes_api import Forbidden, NotServed
from webhook.api.resources import CONGESTION
from webhook.api.watch import WatchUpdate
from webhook.controller import fragmentation_publisher
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.fragmentation_publisher import FragmentationPublisher
from webhook.hindsight.freed_slices import UNFINISHED_PODS
from webhook.model.faults import Failures
from webhook.settings import Settings
from webhook.state.run_records_reader import path_of

HALF, SEVENTH = "nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.5gb"
UNIX = 1_796_112_000.0
PLACE = f"{path_of('ours')}/{CONGESTION}"


def node(name, allocatable):
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu.count": "1"}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}


def pod(name, resource, amount="1", **spec):
    container = {"name": "main", "resources": {"limits": {resource: amount}}}
    return {
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"containers": [container], **spec},
        "status": {"phase": "Running" if "nodeName" in spec else "Pending"},
    }


def waits(name, resource, count):
    """A pending Workload of so many pods with a slice each."""
    found = workload(name, conditions=(PENDING,), count=count)
    (container,) = found["spec"]["podSets"][0]["template"]["spec"]["containers"]
    container["resources"] = {"requests": {resource: "1"}, "limits": {resource: "1"}}
    return found


class Leader:
    """A publisher whose threads run at once, and the API server, which has two Nodes."""

    nodes = (node("halves", {HALF: "2"}), node("sevenths", {SEVENTH: "7"}))
    pods = (
        pod("a", HALF, nodeName="halves"),
        pod("b", HALF, nodeName="halves"),
        pod("c", SEVENTH, "3", nodeName="sevenths"),
        # Kueue has admitted one, but no Node has room; the other waits with its Workload.
        pod("homeless", HALF),
        pod("gated", HALF, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]),
    )

    def __init__(self):
        self.leads, self.forbidden, self.lines, self.asked = True, False, [], []
        self.held, self.metrics = None, ControllerMetrics()
        self.meanwhile = lambda: None
        self.feed = synced_feed(clusterqueues=[cluster_queue()], localqueues=[local_queue()])
        self.feed.take(listed("workloads", waits("wide", HALF, 2)))
        self.publisher = FragmentationPublisher(
            self,
            Settings(namespace="ours", fragmentation_minutes=10),
            is_leader=lambda: self.leads,
            failures=Failures(self.lines.append),
            metrics=self.metrics,
        )

    def get(self, path, params):
        self.asked.append((path, params.get("fieldSelector")))
        if self.forbidden:
            raise Forbidden(path, f"{path} may not be listed")
        items = {"/api/v1/nodes": self.nodes, "/api/v1/pods": self.pods}[path]
        if path.endswith("pods"):
            self.meanwhile()
        return {"items": [*items]}

    def patch(self, path, body):
        if self.held is None:
            raise NotServed(path)
        self.held = body

    def post(self, path, body):
        assert path == path_of("ours")
        self.held = body

    def step(self, seconds, *, age=0.0):
        """Step so many seconds after the start; return what was asked."""
        self.asked = []
        for kind in REQUIRED:
            self.feed.take(WatchUpdate(kind=kind, at=seconds - age))
        snapshot = SimpleNamespace(as_of=seconds - age)
        self.publisher.step(at(seconds, UNIX + seconds, snapshot=snapshot, feed=self.feed))
        return self.asked


@pytest.fixture
def leader(monkeypatch):
    threads = SimpleNamespace(Thread=AtOnce)
    monkeypatch.setattr(fragmentation_publisher, "threading", threads)
    return Leader()


def test_what_waits_for_slices_is_published_with_whose_end_frees_them(leader):
    asked = leader.step(1.0)

    assert sorted(asked) == [("/api/v1/nodes", None), ("/api/v1/pods", UNFINISHED_PODS)]
    found = json.loads(leader.held["data"]["slices.json"])
    assert found == {
        "at": "2026-12-01T08:00:01Z",
        "until": "2026-12-01T08:21:01Z",
        "sizes": [
            {
                "resource": SEVENTH,
                "waiting": 0,
                "free": 4,
                "blocked": 0,
                "unusable": 0,
                "nodes": {},
                "freed": [],
            },
            {
                # Two pods of the Workload, and the one that has no Node.
                "resource": HALF,
                "waiting": 3,
                "free": 0,
                "blocked": 1,
                "unusable": 0.571,
                "nodes": {"sevenths": 0.571},
                "freed": [{"node": "halves", "mustEnd": ["team/a"], "cutAnew": False}],
            },
        ],
        "cuts": [
            {
                "node": "sevenths",
                "before": {SEVENTH: 7},
                "after": {HALF: 2},
                "mustEnd": ["team/c"],
            }
        ],
    }
    assert values(leader.metrics, "controller_blocked_slices") == {HALF: 1}
    assert values(leader.metrics, "controller_unusable_device_parts") == {
        HALF: pytest.approx(4 / 7)
    }


def test_it_looks_again_after_so_many_minutes(leader):
    assert [bool(leader.step(seconds)) for seconds in (1.0, 600.0, 602.0)] == [True, False, True]


def test_who_does_not_lead_asks_nothing_and_shows_nothing(leader):
    leader.step(1.0)
    leader.leads = False

    assert leader.step(700.0) == []
    assert values(leader.metrics, "controller_blocked_slices") == {}


def test_who_leads_no_more_when_it_is_known_writes_nothing(leader):
    leader.meanwhile = lambda: setattr(leader, "leads", False)

    assert leader.step(1.0) != []
    assert (leader.held, leader.lines) == (None, [])


def test_while_workloads_are_not_known_nobody_looks(leader):
    assert leader.step(100.0, age=60.0) == []


def test_a_missing_right_is_logged_once_and_nothing_old_is_shown(leader):
    leader.step(1.0)
    leader.forbidden = True

    leader.step(700.0)
    leader.step(1400.0)

    assert leader.lines == ["fragmentation: /api/v1/pods may not be listed"]
    assert values(leader.metrics, "controller_blocked_slices") == {}
