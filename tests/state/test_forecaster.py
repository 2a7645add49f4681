"""When forecasts are made, and what is published with them."""

from __future__ import annotations

import pytest

from tests.builders import CPU_OPTION, GPU_OPTION
from tests.state.feeds import changed, synced_feed
from tests.state.objects import PENDING, cluster_queue, local_queue, named, workload
from webhook.api import resources as kinds
from webhook.state import forecast_input, forecaster
from webhook.state.forecaster import Forecaster, ForecastResult

RULE = {
    "apiVersion": "kueue-fallback.dev/v1alpha1",
    **named("FallbackPolicy", "light-gpu"),
    "spec": {
        "match": {"jobSelector": {}},
        "options": [GPU_OPTION, CPU_OPTION],
        "strategy": {"type": "FinishTime", "finishTime": {"runTime": "20s"}},
    },
}
UNIX = 1795240800.0


class Bench:
    """A forecaster that makes its forecasts when it is told to, with the feed that it serves."""

    def __init__(self, *workloads):
        self.now, self.told, self.slept = 0.0, [], []
        self.cpu = iter([0.0, 0.1] * 100)
        self.feed = synced_feed(
            **{
                kinds.CLUSTER_QUEUES: [cluster_queue(cpu="4"), cluster_queue("idle-cq")],
                kinds.LOCAL_QUEUES: [local_queue(), local_queue("cpu-lq", "idle-cq")],
                kinds.FLAVORS: [named("ResourceFlavor", "a100", spec={})],
                kinds.POLICIES: [RULE],
                kinds.WORKLOADS: workloads,
            }
        )
        self.forecaster = Forecaster(
            self.told.append,
            clock=lambda: self.now,
            cpu=lambda: next(self.cpu),
            sleep=self.slept.append,
        )

    def offer(self):
        """Publish as the observer does; say how many forecasts there are to make then."""
        self.update = self.feed.update(self.now, UNIX + self.now)
        self.forecaster.offer(self.feed, UNIX + self.now)
        return self.forecaster.waiting

    def forecast(self):
        """Make the forecast, and take over what it comes to."""
        assert self.forecaster.waiting == 1
        self.forecaster.step()
        self.take()
        return self.feed.update(self.now, UNIX + self.now)

    def take(self):
        self.logged = [line for each in self.told for line in self.forecaster.take(each, self.feed)]
        self.told.clear()


def pending(name):
    return workload(name, conditions=(PENDING,), decision=f"id-{name}", guest=("light-gpu", "gpu"))


def free(update):
    log, changes = update.changed["forecasts"].put["gpu-cq"].log, []
    for time, cpus, rests in zip(log.times, log.free[0], log.rests, strict=True):
        if rests and (not changes or changes[-1][1] != cpus // 1000):
            changes.append((round(time), cpus // 1000))
    return changes


def elsewhere(name):
    """Return a Workload in the queue next door."""
    found = pending(name)
    return {**found, "spec": {**found["spec"], "queueName": "cpu-lq"}}


def keys(seen):
    return [each.key for each in seen]


def test_a_placement_is_foreseen_when_the_forecasts_contain_its_workload():
    bench = Bench(pending("a"))
    bench.offer()
    assert (keys(bench.update.seen), keys(bench.update.profiled)) == (["id-a"], [])
    # What comes while the forecast is made is in the next one.
    bench.feed.take(changed(kinds.WORKLOADS, "ADDED", pending("b")))
    bench.offer()

    first = bench.forecast()
    bench.offer()
    second = bench.forecast()

    assert (keys(first.profiled), free(first)) == (["id-a"], [(0, 0), (20, 4)])
    assert (keys(second.profiled), free(second)) == (["id-b"], [(0, 0), (20, 4), (21, 0), (41, 4)])
    assert bench.feed.update(1.0, 0.0).profiled == ()


def test_nothing_is_forecast_while_a_forecast_is_made_or_rests():
    bench = Bench(pending("a"))
    found = [bench.offer(), bench.offer()]
    bench.forecaster.step()
    (done, rested), bench.told[:] = bench.told, []

    bench.forecaster.take(done, bench.feed)
    bench.feed.take(changed(kinds.WORKLOADS, "ADDED", pending("b")))
    found.append(bench.offer())
    bench.forecaster.take(rested, bench.feed)
    found.append(bench.offer())

    assert found == [1, 1, 0, 1]
    assert rested == ForecastResult()


def test_a_forecast_takes_a_quarter_of_a_cpu_and_no_rest_is_longer_than_half_a_second():
    bench = Bench(pending("a"))
    bench.offer()
    bench.forecast()
    bench.cpu = iter([0.0, 5.0])
    bench.feed.take(changed(kinds.WORKLOADS, "ADDED", pending("b")))
    bench.offer()
    bench.forecast()

    assert bench.slept == pytest.approx([0.3, 0.5])


def test_where_nothing_happens_a_forecast_is_made_anew_once_something_should_have():
    bench = Bench(pending("a"))
    bench.offer()
    bench.forecast()

    made = []
    for bench.now in (10.0, 20.0, 21.0, 29.0, 30.0):
        made.append(bench.offer())
        if made[-1]:
            bench.forecast()

    # The queue with somebody in it after 20 s, the idle one after 30.
    assert made == [0, 1, 0, 0, 1]


def test_all_is_forecast_anew_when_queues_change():
    bench = Bench()
    bench.offer()
    assert free(bench.forecast()) == [(0, 4)]

    bench.feed.take(changed(kinds.CLUSTER_QUEUES, "MODIFIED", cluster_queue(cpu="8")))
    bench.offer()

    assert free(bench.forecast()) == [(0, 8)]


def test_nothing_is_forecast_where_nobody_decides_by_it():
    bench = Bench(pending("a"))
    threshold = {"type": "Threshold", "threshold": [{"option": "gpu", "orPendingBelow": 10}]}
    rule = {**RULE, "spec": {**RULE["spec"], "strategy": threshold}}
    bench.offer()
    bench.forecast()

    bench.feed.take(changed(kinds.POLICIES, "MODIFIED", rule))
    bench.feed.take(changed(kinds.WORKLOADS, "ADDED", pending("b")))

    assert bench.offer() == 0
    assert bench.feed.contents_to_forecast(())[1] == (), "what nobody will ask for is not kept"


def test_trees_take_turns_and_each_says_itself_which_workloads_it_contains(monkeypatch):
    monkeypatch.setattr(forecaster, "AT_ONCE", 1)
    bench = Bench(pending("a"), elsewhere("b"))
    bench.offer()
    found = [bench.forecast()]
    bench.offer()
    found.append(bench.forecast())

    assert [sorted(update.changed["forecasts"].put) for update in found] == [
        ["gpu-cq"],
        ["idle-cq"],
    ]
    assert [keys(update.profiled) for update in found] == [["id-a"], ["id-b"]]
    assert bench.offer() == 0


def test_who_has_waited_longest_is_next(monkeypatch):
    monkeypatch.setattr(forecaster, "AT_ONCE", 1)
    bench = Bench(pending("a"), elsewhere("b"))
    for _ in range(2):
        bench.offer()
        bench.forecast()

    made = []
    # While the first of them is forecast, another one comes to its queue after the second.
    for bench.now, come in enumerate([elsewhere("c"), pending("d"), elsewhere("e")], start=1):
        bench.feed.take(changed(kinds.WORKLOADS, "ADDED", come))
        bench.offer()
    for _ in range(3):
        made.append(keys(bench.forecast().profiled))
        bench.offer()

    assert made == [["id-c"], ["id-d"], ["id-e"]]


def test_a_queue_in_which_nothing_happens_has_its_turn_among_those_in_which_much_does(monkeypatch):
    monkeypatch.setattr(forecaster, "AT_ONCE", 1)
    bench = Bench(pending("a"))
    bench.offer()
    bench.forecast()

    made = []
    for bench.now in range(1, 41):
        bench.feed.take(changed(kinds.WORKLOADS, "ADDED", pending(f"w{bench.now}")))
        bench.offer()
        made += bench.forecast().changed["forecasts"].put

    assert made.count("idle-cq") == 1


def test_forecasts_are_as_old_as_the_first_change_that_is_in_none():
    bench = Bench(pending("a"))
    ages = []

    def note():
        ages.append(bench.now - bench.forecaster.as_of(bench.now))

    for bench.now in (0.0, 1.0):
        bench.offer()
        note()
    bench.forecast()
    note()
    bench.feed.take(changed(kinds.WORKLOADS, "ADDED", pending("b")))
    for bench.now in (5.0, 6.0):
        bench.offer()
        note()
    bench.feed.take(changed(kinds.WORKLOADS, "ADDED", pending("c")))
    bench.now = 7.0
    bench.offer()
    bench.forecast()
    bench.now = 8.0
    note()

    assert ages == [0.0, 1.0, 0.0, 0.0, 1.0, 1.0]


@pytest.fixture
def break_forecasts(monkeypatch):
    """Let whatever a Workload of the queue gpu-lq says break its forecast."""
    class_text = forecast_input.class_text

    def broken(workload):
        if workload.queue == "gpu-lq":
            raise OverflowError("no such run time")
        return class_text(workload)

    with monkeypatch.context() as patched:
        patched.setattr(forecast_input, "class_text", broken)
        yield patched.undo


def test_what_breaks_a_forecast_costs_its_own_tree_alone_and_is_named_once(break_forecasts):
    bench = Bench(pending("a"), elsewhere("b"))
    bench.offer()

    profiles = bench.forecast().changed["forecasts"].put
    first = bench.logged
    bench.now = 40.0
    bench.offer()
    bench.forecast()

    assert set(profiles) == {"idle-cq"}
    (line,) = first
    assert line.startswith("queue gpu-cq cannot be forecast: OverflowError at ")
    assert bench.logged == []
    assert bench.forecaster.as_of(bench.now) == 0.0


def test_a_queue_has_no_forecast_from_before_its_forecast_broke(monkeypatch):
    bench = Bench(pending("a"))
    bench.offer()
    before = bench.forecast().changed["forecasts"].put
    monkeypatch.setattr(forecast_input, "queued", lambda *_: 1 / 0)
    bench.feed.take(changed(kinds.WORKLOADS, "ADDED", pending("b")))
    bench.offer()

    after = bench.forecast().changed["forecasts"]

    assert "gpu-cq" in before
    assert "gpu-cq" in after.gone


def test_a_forecast_is_tried_again_with_all_that_its_tree_holds(break_forecasts):
    bench = Bench(pending("a"))
    bench.offer()
    bench.forecast()
    bench.now = 29.0
    early = bench.offer()
    break_forecasts()
    bench.now = 31.0
    bench.offer()

    mended = bench.forecast()

    assert early == 0
    assert free(mended) == [(0, 0), (20, 4)]
    assert bench.forecaster.as_of(bench.now) == bench.now
