from __future__ import annotations

import json
from dataclasses import replace
from math import inf

import pytest

from tests.decide.decisions import CPU, GPU, LOST, annotation, decision
from webhook.commands import decision_table
from webhook.commands.decision_table import state_of
from webhook.jobs import BY_NAME
from webhook.model.costs.prices import Cost
from webhook.model.decision import Assessment, Decided, Fit, Rejection, Skipped
from webhook.model.forecasts import Basis, Forecast, RunTime, Start
from webhook.model.holds import Hold
from webhook.model.reasons import Skip, Stayed


def table(*given):
    return "\n".join(map(str, decision_table.table(*given)))


def as_text(*given):
    return [str(line) for line in decision_table.as_text(*given)]


def test_the_table_shows_each_option_with_its_numbers_and_reasons():
    found = table(Decided(decision=decision()))

    indent = " " * 62
    assert found.splitlines() == [
        "Policy light-gpu (Enforce): sent to cpu-lq (cpu): starts now; gpu-lq has 12 pending",
        "",
        "  OPTION  QUEUE    CLUSTERQUEUE  FITS     PENDING  RESERVING  WHY",
        (
            "  gpu     gpu-lq   gpu-cq        waits    12       4          "
            "needs nvidia.com/gpu 1 (flavor t4), 0"
        ),
        indent + "free",
        "> cpu     cpu-lq   cpu-cq        now      0        1          flavor default",
        (
            "  spot    spot-lq  -             refused  -        -          "
            "queueNotFound: LocalQueue spot-lq not"
        ),
        indent + "found in namespace team",
    ]


def test_where_an_option_has_a_cluster_it_has_a_column():
    remote = replace(GPU, cluster="worker-1")

    counted = table(Decided(decision=decision(remote, CPU)), 120)
    start = Start(seconds=0.0, low=0.0, high=0.0)
    foreseen = replace(CPU, forecast=Forecast(start=start))
    forecast = table(Decided(decision=decision(remote, foreseen)), 120)

    rows = [line.split()[:6] for line in counted.splitlines()[2:] if line[2:3].strip()]
    assert rows == [
        ["OPTION", "QUEUE", "CLUSTERQUEUE", "CLUSTER", "FITS", "PENDING"],
        ["gpu", "gpu-lq", "gpu-cq", "worker-1", "waits", "12"],
        [">", "cpu", "cpu-lq", "cpu-cq", "-", "now"],
    ]
    rows = [line.split()[:6] for line in forecast.splitlines()[2:] if line[2:3].strip()]
    assert rows == [
        ["OPTION", "QUEUE", "CLUSTERQUEUE", "CLUSTER", "PENDING", "STARTS"],
        ["gpu", "gpu-lq", "gpu-cq", "worker-1", "12", "-"],
        [">", "cpu", "cpu-lq", "cpu-cq", "-", "0"],
    ]


def test_long_names_are_wrapped_beside_their_reasons():
    long = Assessment(
        option="a" * 40,
        queue="b" * 40,
        cluster_queue="c" * 40,
        fit=Fit.MAY_PREEMPT,
        pending=1234567,
        reserving=123456789,
        detail="needs " + "d" * 60 + " and " + "e" * 60,
    )

    found = table(Decided(decision=decision(long)))

    assert max(len(line) for line in found.splitlines()) <= 100
    rows = "".join(found.splitlines()[3:])
    assert [rows.count(letter) for letter in "bc"] == [40, 40]


def test_a_job_that_is_passed_over_has_no_table():
    found = table(Skipped(skip=Skip.NO_POLICY, warnings=("a warning",)))

    assert found == "Left untouched: no policy matches this Job.\na warning"


@pytest.mark.parametrize(("victims", "words"), [(2, "preempts 2"), (0, "may preempt")])
def test_a_forecast_says_whom_the_job_would_preempt(victims, words):
    run = RunTime(seconds=20.0, low=18.0, high=23.0, basis=Basis.POLICY)
    start = Start(seconds=1.0, low=1.0, high=1.0, preempts=True)
    gpu = replace(GPU, preempts=victims, forecast=Forecast(start=start, run=run, finish=21.0))

    found = table(Decided(decision=decision(gpu, reason="stays")))

    assert f"run: the policy; {words}" in " ".join(found.split())


def test_where_there_are_forecasts_the_table_has_starts_runs_and_finishes():
    waits = Start(seconds=184.0, low=170.0, high=200.0, preempted_by=2, uncertain=("preemption",))
    learned = RunTime(seconds=20.0, low=18.0, high=23.0, basis=Basis.LEARNED, runs=31)
    slow = RunTime(seconds=70.0, low=50.0, high=98.0, basis=Basis.POLICY)
    now = Start(seconds=0.0, low=0.0, high=0.0)
    never = Start(seconds=inf, low=inf, high=inf)
    gpu = Forecast(start=waits, run=learned, finish=204.0, finish_low=189.0, finish_high=220.0)
    cpu = Forecast(start=now, run=slow, finish=70.0, finish_low=50.0, finish_high=98.0)
    tpu = Assessment(option="tpu", queue="tpu-lq", forecast=Forecast(start=never))
    options = replace(GPU, forecast=gpu), replace(CPU, forecast=cpu), tpu, LOST

    found = table(Decided(decision=decision(*options, reason="sent to cpu-lq (cpu): starts now")))

    indent = " " * 68
    assert found.splitlines()[2:] == [
        "  OPTION  QUEUE    CLUSTERQUEUE  PENDING  STARTS   RUNS   DONE      WHY",
        (
            "  gpu     gpu-lq   gpu-cq        12       in 3m4s  20s    in 3m24s  "
            "run: learned from 31 runs; done"
        ),
        indent + "within 3m9s to 3m40s; may be",
        indent + "preempted by 2; uncertain:",
        indent + "preemption",
        (
            "> cpu     cpu-lq   cpu-cq        0        now      1m10s  in 1m10s  "
            "run: the policy; done within 50s"
        ),
        indent + "to 1m38s",
        "  tpu     tpu-lq   -             -        never    -      -         no run time is known",
        (
            "  spot    spot-lq  -             -        -        -      -         "
            "queueNotFound: LocalQueue"
        ),
        indent + "spot-lq not found in namespace",
        indent + "team",
    ]


@pytest.mark.parametrize("name", ["Deployment", "StatefulSet", "LeaderWorkerSet"])
@pytest.mark.parametrize(("ready", "state"), [(0, "pending"), (2, "started")])
def test_what_serves_has_started_once_pods_are_ready(name, ready, state):
    kind = BY_NAME[name]
    source = {"status": {"readyReplicas": ready}}
    inner = source
    for key in kind.suspend[:-1]:
        inner = inner.setdefault(key, {})
    inner[kind.suspend[-1]] = "serving"

    assert kind.is_suspended(source)
    assert state_of(source, kind) == state


def passed_over():
    """A decision that stays with the first option though the second would be done sooner."""
    passed = Rejection(reason=Stayed.SMALL_GAIN, detail="9s sooner is less than the minimum")
    run = RunTime(seconds=20.0, low=18.0, high=23.0, basis=Basis.POLICY)
    start = Start(seconds=0.0, low=0.0, high=0.0)
    forecast = Forecast(start=start, run=run, finish=20.0)
    sooner = replace(CPU, forecast=forecast, passed_over=passed)
    return decision(GPU, sooner, option="gpu", reason="stays")


def test_an_option_that_would_be_sooner_says_why_it_was_passed_over():
    new = table(Decided(decision=passed_over()), 160)
    stored = as_text(json.loads(annotation(passed_over())), 160)

    why = "smallGain: 9s sooner is less than the minimum"
    assert f"{why}; run: the policy" in new
    assert [line.endswith(why) for line in stored if line.startswith("  cpu ")] == [True]


def test_the_option_in_which_a_job_is_held_does_not_start_now():
    start = Start(seconds=0.0, low=0.0, high=0.0)
    forecast = Forecast(start=start, finish=70.0)
    options = [replace(each, forecast=forecast, cost=Cost(time=1.0)) for each in (GPU, CPU)]
    hold = Hold(until=1_795_000_000.0, latest=1_795_003_600.0, saves=1.0, of=2.0)
    held = replace(decision(*options), hold=hold)

    new = table(Decided(decision=held), 160)
    stored = as_text(json.loads(annotation(held)), 160)

    for lines in (new.splitlines(), stored):
        gpu, cpu, *_ = (line for line in lines if line[:5] in ("  gpu", "> cpu"))
        assert ("held" in gpu.split(), "held" in cpu.split()) == (False, True)
