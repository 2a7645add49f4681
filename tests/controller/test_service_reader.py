"""What the leading controller learns of services by their own metrics."""

from types import SimpleNamespace

import pytest

from tests.controller.fakes import AtOnce
from tests.controller.objects import Objects
from tests.controller.stepping import at
from tests.prometheus_server import prometheus, vector
from webhook.api.watch import WatchUpdate
from webhook.controller import device_reader, followed_watches
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.device_reader import ASK_SECONDS, MOST_METRICS, DeviceReader
from webhook.controller.records import Keeper
from webhook.controller.service_meter import SETTLED_SECONDS
from webhook.cost.learned_serving import fitted
from webhook.cost.service_level import ReplicaSpeed, level_at
from webhook.decide import decision_record
from webhook.decide.decision_record import RecordedOption
from webhook.jobs import BY_NAME
from webhook.learn.job_class import Mark, mark_text
from webhook.learn.run_records import read_shard
from webhook.learn.service_points import POINT_SECONDS, unpack_points
from webhook.model.decision import DecisionWith, Stay
from webhook.model.faults import Failures
from webhook.model.forecasts import JobClass
from webhook.model.job import DECISION
from webhook.model.policy.fallback_policy import Mode, read_policy
from webhook.model.queues import ClusterQueue, ResourceGroup
from webhook.model.words import rfc3339
from webhook.settings import PrometheusSettings
from webhook.state.snapshot import Snapshot, updated

BEGIN = 1_800_000_000
CLASS = Mark(JobClass("c1a55", "~c0a45e").at("team"), 1)
POLICY = {
    "apiVersion": "kueue-fallback.dev/v1alpha1",
    "kind": "FallbackPolicy",
    "metadata": {"name": "serving", "generation": 1},
    "spec": {
        "match": {"kinds": ["Deployment"], "jobSelector": {"matchLabels": {"app": "chat"}}},
        "options": [{"name": "gpu", "queue": "gpu-lq"}, {"name": "cpu", "queue": "cpu-lq"}],
        "strategy": {"type": "Cost"},
        "serving": {"requests": "chat_requests_total", "latency": "chat_seconds"},
    },
}


def queue(name, *flavors):
    group = ResourceGroup(resources=("nvidia.com/gpu",), flavors=flavors, quotas={})
    return ClusterQueue(name=name, groups=(group,))


def service(
    name="chat", kind="Deployment", *, cluster_queue="gpu-cq", since=BEGIN, moved=0, **decided
):
    """A service with a decision, as the watch of its metadata shows it."""
    history = (Stay(time=rfc3339(moved), option="gpu", reason="moved"),) if moved else ()
    given = {
        "mode": Mode.ENFORCE,
        "option": "gpu",
        "job_class": mark_text(CLASS),
        "options": (RecordedOption(name="gpu", queue="gpu-lq", cluster_queue=cluster_queue),),
        "moves": len(history),
        "history": history,
        **decided,
    }
    decision = DecisionWith(
        id="0123456789abcdef",
        time=rfc3339(since),
        policy="serving",
        reason="cheapest",
        from_queue="gpu-lq",
        state_age_seconds=0.0,
        **given,
    )
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "creationTimestamp": rfc3339(since),
        "annotations": {DECISION: decision_record.to_json(decision, {})},
    }
    watch = followed_watches.followed(BY_NAME[kind])
    return watch.kind, watch.read(watch.kind, {"metadata": metadata})


class World:
    """A Prometheus that knows what pods answer, and the controller that asks it."""

    def __init__(self, played, *services):
        self.unix = float(BEGIN) + SETTLED_SECONDS
        self.played, self.lines = played, []
        self.pods = {}
        """Pod to (requests a second, seconds); a value of None: NaN."""
        self.server, self.metrics = Objects(), ControllerMetrics()
        self.keeper = Keeper(self.server, "ours", is_leader=lambda: True)
        self.reader = DeviceReader(
            PrometheusSettings(url=played.url),
            is_leader=lambda: True,
            unix=lambda: self.unix,
            failures=Failures(self.lines.append),
            metrics=self.metrics,
            learn=self.keeper.learn,
        )
        queues = {"gpu-cq": queue("gpu-cq", "a100"), "mixed-cq": queue("mixed-cq", "a100", "h100")}
        self.snapshot = updated(Snapshot(), policies=(read_policy(POLICY),), cluster_queues=queues)
        for kind, entry in services:
            self.reader.take_jobs(WatchUpdate(kind=kind, at=0.0, event=("ADDED", entry)))
        played.answer = self.answer

    def answer(self, query):
        if "chat" not in query:
            return vector()
        which = 1 if "histogram" in query else 0
        return vector(
            *(
                ({"namespace": "team", "pod": pod}, "NaN" if pair[which] is None else pair[which])
                for pod, pair in self.pods.items()
            )
        )

    def step(self, seconds=0.0):
        self.unix += seconds
        self.reader.step(at(unix=self.unix, snapshot=self.snapshot))

    @property
    def learned(self):
        return {
            (key, place): unpack_points(packed)
            for key, record in self.keeper.records.items()
            for place, packed in record.served.items()
        }

    def asked(self):
        return [query for query in self.played.queries if "DCGM" not in query]


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(device_reader, "threading", SimpleNamespace(Thread=AtOnce))


@pytest.fixture
def played():
    with prometheus() as server:
        yield server


def test_what_all_pods_of_a_service_answer_is_a_point_of_its_class_where_it_runs(played):
    world = World(played, service())
    world.pods = {
        "chat-7d4f9c-abcde": (3.0, 0.125),
        "chat-7d4f9c-fghij": (1.0, 0.25),
        "chat-7d4f9c-klmno": (0.0, None),
        "chat-large-7d4f9c-abcde": (9.0, 9.0),
        "other": (9.0, 9.0),
    }
    world.step()

    (((key, place), (seen,)),) = world.learned.items()
    assert (key, place) == ("team/c1a55", "a100/gpu")
    assert (seen.at, seen.replicas, seen.rate) == (int(world.unix), 3, 4.0)
    assert seen.latency == (3 * 0.125 + 1 * 0.25) / 4
    assert world.keeper.records[key].name == "deployment/chat"
    assert world.asked() == [
        "sum by (namespace, pod) (rate(chat_requests_total[5m]))",
        "histogram_quantile(0.95, sum by (namespace, pod, le) (rate(chat_seconds_bucket[5m])))",
    ]


def test_services_are_asked_for_every_quarter_of_an_hour(played):
    world = World(played, service())
    for _ in range(7):
        world.step()
        world.step(ASK_SECONDS)

    assert len(world.asked()) == 2 * 3
    assert POINT_SECONDS == 3 * ASK_SECONDS


def test_nobody_asks_for_metrics_of_a_policy_that_has_no_service(played):
    world = World(played)
    world.step()

    assert world.asked() == []


def test_a_day_of_points_tells_what_a_replica_does_and_is_written_with_the_records(played):
    world, speed = World(played, service()), ReplicaSpeed(per_second=20.0, latency=0.08)
    for number in range(48):
        rate = 2 * (4 + 14 * number / 47)
        seconds = level_at(rate, 2, speed).latency
        world.pods = {f"chat-7d4f9c-abcd{pod}": (rate / 2, seconds) for pod in "ef"}
        world.step(POINT_SECONDS)
    world.keeper.step(0.0)

    stored = {}
    for source in world.server.held.values():
        stored |= read_shard(source)
    found = fitted(stored["team/c1a55"].served["a100/gpu"])
    assert found.per_second == pytest.approx(20.0, rel=0.06)
    assert found.latency == pytest.approx(0.08, rel=0.06)
    assert found.points == 48


@pytest.mark.parametrize(
    "given",
    [
        {"since": BEGIN + 1},
        {"moved": BEGIN + 1},
        {"mode": Mode.ADVISE},
        {"option": None},
        {"job_class": ""},
        {"job_class": "whatever somebody wrote"},
        {"cluster_queue": "mixed-cq"},
        {"cluster_queue": "gone-cq"},
        {"options": (RecordedOption(name="gpu", cluster_queue="gpu-cq", cluster="far"),)},
    ],
)
def test_nothing_is_learned_while_it_is_not_known_what_runs_where(played, given):
    world = World(played, service(**given))
    world.pods = {"chat-7d4f9c-abcde": (3.0, 0.125)}
    world.step()

    assert world.learned == {}


@pytest.mark.parametrize(
    "pods",
    [
        {"chat-7d4f9c-abcde": (0.0, None)},
        {"chat-7d4f9c-abcde": (3.0, None)},
        {"chat-7d4f9c-abcde": (3.0, 0.1), "chat-7d4f9c-fghij": ("-1", 0.1)},
        {"chat-7d4f9c-abcde": ("1e30", 0.1)},
        {"chat-abcde": (3.0, 0.1)},
    ],
    ids=["no requests", "no latency", "negative", "too many", "no pod of it"],
)
def test_answers_that_tell_nothing_or_lie_are_left_out(played, pods):
    world = World(played, service())
    world.pods = pods
    world.step()

    assert world.learned == {}


@pytest.mark.parametrize("kind", ["StatefulSet", "LeaderWorkerSet"])
def test_pods_of_other_services_are_told_by_their_numbers(played, kind):
    world = World(played, service(kind=kind))
    world.pods = {"chat-0": (3.0, 0.125), "chat-1": (1.0, 0.125), "chat-0-1": (9.0, 9.0)}
    world.step()

    ((seen,),) = world.learned.values()
    assert (seen.replicas, seen.rate, seen.latency) == (2, 4.0, 0.125)


def test_a_prometheus_that_fails_is_said_once_and_what_devices_do_is_asked_all_the_same(played):
    world = World(played, service())
    played.answer = lambda query: (500, b"") if "chat" in query else vector()
    for _ in range(4):
        world.step()
        world.step(POINT_SECONDS)

    assert world.lines == ["prometheus: it answers 500; said once"]
    assert world.learned == {}
    assert len(world.played.queries) > len(world.asked())


def test_of_very_many_pairs_of_metrics_the_first_are_asked_for(played):
    world = World(played, service())
    policies = []
    for number in range(MOST_METRICS + 3):
        serving = {"requests": f"chat_{number}", "latency": "chat_seconds"}
        spec = {**POLICY["spec"], "serving": serving}
        policies.append(read_policy({**POLICY, "spec": spec}))
    world.snapshot = updated(world.snapshot, policies=tuple(policies))
    world.step()

    assert len(world.asked()) == 2 * MOST_METRICS
