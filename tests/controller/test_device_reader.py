"""What the leading controller learns from a Prometheus, and that nothing else depends on it."""

import random
from types import SimpleNamespace

import pytest

from tests.controller.fakes import AtOnce
from tests.controller.objects import Objects
from tests.controller.stepping import at
from tests.learn.runs import ended
from tests.prometheus_server import labels, prometheus, vector
from webhook.api.resources import ReadObject
from webhook.api.watch import WatchUpdate
from webhook.controller import device_reader
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.device_reader import ASK_SECONDS, DeviceReader
from webhook.controller.records import RUNS, Keeper
from webhook.cost.cluster_prices import devices_of
from webhook.hindsight.entries import FinishedRun
from webhook.hindsight.journal import JournalEntry
from webhook.learn.device_runs import unpack, use_of
from webhook.learn.run_records import read_shard
from webhook.model.costs.prices import Prices
from webhook.model.faults import Failures
from webhook.model.queues import ResourceFlavor
from webhook.settings import PrometheusSettings
from webhook.state.snapshot import Snapshot, updated

GPU = "nvidia.com/gpu"
GIB, MIB = 1 << 30, 1 << 20
SIZE = 80 * 10**9
BEGIN = 1_800_000_000
SCRAPE = 30


class World:
    """Runs of Jobs whose use of memory is known, by time, and a Prometheus that scrapes it."""

    def __init__(self, played, *, labels_of=None, is_leader=True):
        self.unix = float(BEGIN)
        self.played, self.leads, self.lines = played, is_leader, []
        self.series = {}
        """Pod to (begin, its memory in MiB at each scrape)."""
        self.metrics = ControllerMetrics()
        self.failures = Failures(self.lines.append)
        self.server = Objects()
        self.keeper = Keeper(self.server, "ours", is_leader=lambda: True)
        self.reader = DeviceReader(
            PrometheusSettings(url=played.url),
            is_leader=lambda: self.leads,
            unix=lambda: self.unix,
            failures=self.failures,
            metrics=self.metrics,
            learn=self.keeper.learn,
        )
        flavors = [
            ResourceFlavor(name=name, node_labels=labels_of)
            for name, labels_of in {
                "a100": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"},
                "shared": {
                    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-SHARED",
                    "nvidia.com/gpu.replicas": "4",
                },
            }.items()
        ]
        self.snapshot = updated(Snapshot(), prices={"": Prices(devices=devices_of(flavors, ()))})
        played.answer = self.answer

    def answer(self, query):
        others = {"POWER": 300, "TENSOR": 0.3, "DRAM": 0.1}
        for name, value in others.items():
            if name in query:
                return vector(*((labels(pod), value) for pod in self.in_reach(960)))
        return vector(*((labels(pod), max(known)) for pod, known in self.in_reach(360).items()))

    def in_reach(self, seconds):
        found = {}
        for pod, (begin, trace) in self.series.items():
            times = [begin + SCRAPE * number for number in range(len(trace))]
            known = [
                value
                for at, value in zip(times, trace, strict=True)
                if self.unix - seconds < at <= self.unix
            ]
            if known:
                found[pod] = known
        return found

    def step(self):
        self.reader.step(at(unix=self.unix, snapshot=self.snapshot))

    def wait(self, seconds=ASK_SECONDS):
        until = self.unix + seconds
        while self.unix < until:
            self.unix = min(until, self.unix + SCRAPE)
            self.step()

    def run(self, name, trace, *, key="team/k", used=((("a100", GPU), 1),), succeeded=True):
        """Let a Job run that uses so much memory at each scrape, while others go on asking."""
        begin = int(self.unix)
        self.reader.take_jobs(WatchUpdate(kind="jobs", at=0.0, event=("ADDED", job(name))))
        self.series[f"{name}-abcde"] = begin, trace
        until = begin + SCRAPE * len(trace)
        self.wait(until - begin)
        self.reader.take_runs(over(name, begin, until, key=key, used=used, succeeded=succeeded))

    def count(self, name, **of):
        return self.metrics.registry.get_sample_value(f"kueue_fallback_{name}", of)


def job(name):
    return ReadObject(("team", name), object())


def over(name, begin, end, *, key, used, succeeded=True):
    past = JournalEntry(
        key=name,
        namespace="team",
        uid=name,
        name=name,
        created=begin,
        admitted=begin,
        finished=end,
        outcome="Succeeded",
        queue="lq",
        cluster_queue="cq",
        flavors="a100",
        submitted="[]",
        ran="[]",
        job_class=key,
        used=used,
    )
    uid = hash(name) & 0xFFFF
    run = ended(key, end, seconds=end - begin, uid=uid, succeeded=succeeded, flavors="a100")
    entry = ReadObject(("team", past.name), FinishedRun(run, past))
    return WatchUpdate(kind=RUNS.kind, at=0.0, event=("MODIFIED", entry))


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(device_reader, "threading", SimpleNamespace(Thread=AtOnce))


@pytest.fixture
def world():
    with prometheus() as played:
        found = World(played)
        found.step()
        yield found


def uses(world):
    known = ((key, use_of(record.measured)) for key, record in world.keeper.records.items())
    return {key: use for key, use in known if use is not None}


def test_needs_are_the_highest_use_with_headroom_whatever_the_runs_look_like(world):
    # As Stable Diffusion was served on Alibaba's GPUs (GenTD26): 19 to 40 GB, in steps.
    chance = random.Random(7)
    highest = {}
    for number in range(8):
        key = f"team/{number}"
        for run in range(5):
            middle = chance.choice([2_000, 9_000, 18_600, 24_800, 32_500])
            trace = [
                max(100.0, chance.gauss(middle, middle / 6)) for _ in range(chance.randint(4, 60))
            ]
            highest[key] = max(highest.get(key, 0.0), *trace)
            world.run(f"serve-{number}-{run}", trace, key=key)
            world.wait(chance.randint(60, 400))
    world.wait()

    assert len(uses(world)) == len(highest)
    for key, peak in highest.items():
        need = uses(world)[key].need
        assert peak * MIB <= need <= peak * MIB * 1.15 + 513 * MIB


def test_what_is_learned_is_written_with_the_records_of_runs(world):
    world.run("train", [8192.0] * 40)
    world.wait()

    world.keeper.step(0.0)

    stored = {}
    for source in world.server.held.values():
        stored |= read_shard(source)
    ((_, _, mebibytes, part, watts, bound),) = unpack(
        stored["team/k"].measured["NVIDIA-A100-SXM4-80GB"]
    )
    assert (mebibytes, part) == (8192, round(1000 * 8192 * MIB / SIZE))
    assert (watts, bound) == (300, 75)
    assert uses(world)["team/k"].need is None


@pytest.mark.parametrize(
    "used",
    [
        ((("a100", "nvidia.com/mig-1g.10gb"), 1),),
        ((("shared", GPU), 1),),
        ((("a100", "nvidia.com/gpu.shared"), 1),),
        ((("a100", GPU), 1), (("a100", "nvidia.com/gpumem"), 8000)),
        ((("cpu", "cpu"), 1000),),
        (),
    ],
)
def test_a_run_that_had_no_whole_device_to_itself_is_not_learned(world, used):
    world.run("train", [8192.0] * 12, used=used)
    world.wait()

    assert uses(world) == {}


def test_who_does_not_lead_asks_nobody():
    with prometheus() as played:
        world = World(played, is_leader=False)
        world.wait()

        assert played.queries == []


def test_two_queries_are_asked_in_five_minutes_and_the_others_take_turns(world):
    for _ in range(3):
        world.wait(seconds=1)
    first = len(world.played.queries)
    for _ in range(3):
        world.wait()

    asked = [query.partition("DCGM_FI_")[2].partition("[")[0] for query in world.played.queries]
    assert first == 2
    assert asked == [
        *("DEV_FB_USED", "DEV_POWER_USAGE"),
        *("DEV_FB_USED", "PROF_PIPE_TENSOR_ACTIVE"),
        *("DEV_FB_USED", "PROF_DRAM_ACTIVE"),
        *("DEV_FB_USED", "DEV_POWER_USAGE"),
    ]


@pytest.mark.parametrize("value", ["-5", "NaN", "+Inf", "1e30", "90000"])
def test_of_a_prometheus_that_lies_nothing_is_learned(world, value):
    honest = world.played.answer
    world.run("train", [8192.0] * 12)
    world.played.answer = lambda query: vector((labels("train-abcde"), value))
    world.wait()
    world.played.answer = honest

    assert uses(world) == {}


def test_what_ended_before_answers_came_again_is_not_learned(world):
    world.played.answer = lambda query: (500, b"")
    world.run("lost", [8192.0] * 30)
    world.played.answer = world.answer
    world.wait()
    world.run("kept", [8192.0] * 12)
    world.wait()

    assert uses(world)["team/k"].runs == 1
    assert world.count("prometheus_queries_total", result="failed") > 0
    assert world.lines == ["prometheus: it answers 500; said once"]


def test_a_run_that_failed_is_not_learned(world):
    world.run("train", [8192.0] * 12, succeeded=False)
    world.wait()

    assert uses(world) == {}
