"""From Workloads, as the API server sends them, to what a newcomer would find."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.builders import PAPER_THRESHOLD, cluster_queue, policy, snapshot, team_policy
from tests.model.policies import VALID
from tests.model.team_policies import team_policy as team_policy_object
from tests.state.objects import (
    PENDING,
    condition,
    named,
    reserving,
    state_with,
    workload,
)
from webhook.api import resources as kinds
from webhook.kueue.flavor_plan import demand_of
from webhook.kueue.queue_lines import pending_group
from webhook.model.forecasts import Basis, RunTime
from webhook.model.queues import LocalQueue
from webhook.state import forecast_input
from webhook.state.snapshot import updated
from webhook.state.state import State

NOW = 1795240800.0
"""2026-11-21T06:00:00Z"""
KNOWN = {"finishTime": {"runTime": "20s"}}
GUEST = ("light-gpu", "gpu")


def time(seconds_ago):
    return datetime.fromtimestamp(NOW - seconds_ago, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def running(name, since, **rest):
    admitted = {**condition("Admitted"), "lastTransitionTime": time(since)}
    return reserving(name, guest=GUEST, also=(admitted,), **rest)


def waiting(name, *, age=0, also=(), **rest):
    return workload(name, guest=GUEST, conditions=(PENDING, *also), created=time(age), **rest)


def foreseen(*workloads, strategy=KNOWN, cpu="8", **changed):
    """Forecast a queue of 8 CPUs, in which each Workload wants 4."""
    state = state_with(*workloads, cpu=cpu)
    state.replace(kinds.FLAVORS, [named("ResourceFlavor", "a100", spec={})])
    found = state.snapshot(0.0, NOW)
    found = updated(found, policies=(policy(strategy=strategy),), **changed)
    return forecast_input.with_forecasts(state, found, NOW).forecasts["gpu-cq"]


def steps(found):
    """Return (seconds, CPUs free) from each moment on at which that changes."""
    log, changes = found.log, []
    for time, free, rests in zip(log.times, log.free[0], log.rests, strict=True):
        if rests and (not changes or changes[-1][1] != free // 1000):
            changes.append((round(time), free // 1000))
    return changes


def test_quota_comes_free_when_runs_end():
    assert steps(foreseen(running("a", 0), running("b", 0))) == [(0, 0), (20, 8)]


def test_where_nothing_is_known_the_forecast_says_so():
    found = foreseen(running("a", 0), strategy={"type": "FinishTime"})

    outlook = found.queues["gpu-cq"]
    assert "runTimes" in outlook.uncertain
    assert outlook.unknown_seconds == 600.0


def test_what_was_learned_goes_before_what_the_policy_says():
    known = running("a", 0)
    state = state_with(known, cpu="4")
    state.snapshot(0.0, NOW)
    (held,) = state.contents_of("gpu-cq").holding
    learned = RunTime(seconds=90.0, low=90.0, high=90.0, basis=Basis.LEARNED, runs=50)

    found = foreseen(known, cpu="4", run_times={(held.job_class.key, "a100"): learned})

    assert steps(found) == [(0, 0), (90, 4)]


def test_runs_that_are_overdue_count_as_runs_of_their_class():
    jobs = (running("a", 600), running("b", 600), waiting("c"))

    # Of 20 s are expected, and 20 + 2 * (600 + 600) in three runs.
    assert steps(foreseen(*jobs))[-1][0] >= 600 + (20 + 2400) / 3


def test_quota_is_held_while_pods_start_up():
    ready = RunTime(seconds=35.0, low=35.0, high=35.0, basis=Basis.LEARNED, runs=9)

    found = foreseen(running("a", 0), cpu="4", start_delays={("", "a100"): ready})

    assert steps(found) == [(0, 0), (55, 4)]


def test_who_stands_back_after_an_eviction_competes_later():
    backing_off = waiting("b", also=(condition("Requeued", "False"),))
    backing_off["status"]["requeueState"] = {"count": 1, "requeueAt": time(-30)}

    found = foreseen(backing_off, cpu="4")

    assert steps(found) == [(0, 4), (30, 0), (50, 4)]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [({"type": "FinishTime"}, {"gpu-cq", "cpu-cq", "lent-cq"}), (None, set())],
    ids=["FinishTime", "Threshold"],
)
def test_the_trees_are_watched_in_which_somebody_decides_by_forecasts(strategy, expected):
    queues = [
        cluster_queue("gpu-cq", cohort="team"),
        cluster_queue("lent-cq", cohort="team"),
        cluster_queue("cpu-cq"),
        cluster_queue("other-cq", cohort="others"),
    ]
    threshold = None if strategy else PAPER_THRESHOLD
    rule = policy(threshold=threshold, **({"strategy": strategy} if strategy else {}))

    assert forecast_input.watched(updated(snapshot(*queues), policies=(rule,))) == expected


def test_who_waits_keeps_all_that_its_group_asks_for():
    (found,) = state_with(waiting("a", age=5)).contents_of("gpu-cq").waiting
    arrival = replace(found.arrival, priority=7, policy="light", count=3)

    (group,) = forecast_input.queued([replace(found, arrival=arrival)], 0.0, key_of=lambda _: "j")

    assert group == replace(
        pending_group(arrival),
        key="j",
        count=1,
        created=int(NOW) - 5,
        job_class=group.job_class,
    )


def test_only_what_changed_is_counted_again():
    state = state_with(waiting("a"))
    state.replace(kinds.FLAVORS, [named("ResourceFlavor", "a100", spec={})])
    found = updated(state.snapshot(0.0, NOW), policies=(policy(strategy=KNOWN),))
    counted = {"gpu-cq": state.contents_of("gpu-cq")}
    inputs = forecast_input.ForecastInputs()
    first = inputs.forecasts(
        forecast_input.ForecastInput(snapshot=found, counted=counted, now=0.0, unix=NOW)
    )

    due = frozenset({"gpu-cq"})
    later = forecast_input.ForecastInput(snapshot=found, counted={}, due=due, now=5.0, unix=NOW + 5)
    again = inputs.forecasts(later)
    nothing = inputs.forecasts(
        forecast_input.ForecastInput(snapshot=found, counted={}, now=6.0, unix=NOW + 6)
    )

    assert state.take_recounted() == {"gpu-cq"}
    assert state.take_recounted() == frozenset()
    assert (first["gpu-cq"].computed_at, again["gpu-cq"].computed_at) == (0.0, 5.0)
    assert steps(again["gpu-cq"]) == steps(first["gpu-cq"]) == [(0, 4), (20, 8)]
    assert nothing == {}


def test_a_state_says_when_the_last_thing_happened():
    state = state_with(waiting("a", age=50), running("b", 30, created=time(90)))

    assert state.newest() == NOW - 30


def test_what_a_deleted_queue_held_is_forgotten():
    state = state_with(running("a", 0))
    found = updated(state.snapshot(0.0, NOW), policies=(policy(strategy=KNOWN),))
    gone = updated(found, cluster_queues={})
    inputs, due = forecast_input.ForecastInputs(), frozenset({"gpu-cq"})

    def asked(snapshot, **more):
        values = {"counted": {}, **more}
        return inputs.forecasts(
            forecast_input.ForecastInput(snapshot=snapshot, now=0.0, unix=NOW, **values)
        )

    before = asked(found, counted={"gpu-cq": state.contents_of("gpu-cq")})
    while_gone = asked(gone)
    back = asked(found, due=due)

    assert (steps(before["gpu-cq"])[0], while_gone) == ((0, 4), {})
    assert steps(back["gpu-cq"]) == [(0, 8)]


def came(name, ago, *, priority=1000, over=False):
    """A Workload that got quota at once, and has finished or still runs."""
    found = reserving(name, guest=GUEST, also=(condition("Admitted"),), priority=priority)
    found["metadata"]["creationTimestamp"] = time(ago)
    for each in found["status"]["conditions"]:
        each["lastTransitionTime"] = time(ago)
    if over:
        finished = {
            **condition("Finished", reason="Succeeded"),
            "lastTransitionTime": time(ago - 5),
        }
        found["status"]["conditions"].append(finished)
        # Pods that have succeeded give back what they had.
        found["status"]["reclaimablePods"] = [{"name": "main", "count": 1}]
    return found


@pytest.mark.parametrize("are_over", [False, True])
def test_workloads_that_have_come_tell_of_those_who_are_to_come(are_over):
    history = [came(f"past-{ago}", ago, over=are_over) for ago in range(10, 170, 10)]
    state = state_with(*history, cpu="8")

    contents = state.contents_of("gpu-cq")
    (arrivals,) = forecast_input.expected("gpu-cq", forecast_input.came(contents), NOW)

    assert (arrivals.cluster_queue, arrivals.priority) == ("gpu-cq", 1000)
    assert arrivals.per_second == pytest.approx(0.1, rel=0.1)
    assert arrivals.seconds == 160.0
    assert {kind.demand for kind in arrivals.kinds} == {demand_of({("a100", "cpu"): 4000})}


def test_those_who_wait_tell_it_too_and_nobody_counts_twice():
    ended = [came(f"past-{ago}", ago, over=True) for ago in range(80, 160, 10)]
    pending = [waiting(f"new-{ago}", age=ago, priority=1000) for ago in range(0, 80, 10)]
    state = state_with(*ended, *pending, cpu="8")
    state.replace(kinds.WORKLOADS, [*ended, *pending])
    evicted = reserving("past-150", guest=GUEST, priority=1000)
    state.apply(kinds.WORKLOADS, "MODIFIED", evicted)

    found = forecast_input.came(state.contents_of("gpu-cq"))

    assert [round(NOW - each.created) for each in found[1000]] == list(range(0, 160, 10))


def test_a_teams_policy_leads_to_the_queues_of_its_namespace_alone():
    queues = [cluster_queue("gpu-cq"), cluster_queue("cpu-cq"), cluster_queue("their-cq")]
    found = snapshot(*queues)
    theirs = LocalQueue(namespace="other", name="gpu-lq", cluster_queue="their-cq")
    found = updated(found, local_queues={**found.setup.local_queues, ("other", "gpu-lq"): theirs})

    of_team, of_all = (forecast_input.trees_of([each], found) for each in (team_policy(), policy()))

    assert of_team == {"gpu-cq", "cpu-cq"}
    assert of_all == {"gpu-cq", "cpu-cq", "their-cq"}


def test_policies_of_namespaces_come_last_and_go_by_both_names():
    own, admins = team_policy_object(namespace="team"), {**VALID, "metadata": {"name": "zz"}}
    state = State()
    state.replace(kinds.TEAM_POLICIES, [own])
    state.replace(kinds.POLICIES, [admins])

    assert [each.name for each in state.snapshot(0.0, NOW).fallback.policies] == [
        "zz",
        "team/light",
    ]
