"""Looks at pending Jobs that are left out would have moved nobody."""

from __future__ import annotations

import random
from math import inf

import pytest

from tests.simulate import files
from webhook.reconsider import plan
from webhook.reconsider.soonest_moves import DueTimes
from webhook.simulate.replay import replay
from webhook.simulate.replayed_moves import Moving

SERVERS = 3


def world(seed):
    """Jobs of two sizes on two queues of random width, and a policy that looks at them again."""
    draw = random.Random(seed)
    source = files.document()
    objects = source["cluster"]["objects"]
    objects[2:4] = [
        files.cluster_queue("fast", cpu=draw.randint(1, SERVERS)),
        files.cluster_queue("slow", cpu=draw.randint(1, SERVERS)),
    ]
    rule = files.policy(strategy={"type": "FinishTime", "finishTime": {"runTime": "60s"}})
    rule["spec"]["options"][1]["slowdown"] = draw.choice([1.5, 3])
    gain = {"time": f"{draw.choice([0, 5, 30])}s", "percent": draw.choice([0, 5])}
    rule["spec"]["reconsider"] = {"after": "4s", "minimumGain": gain}
    source["policies"]["objects"] = [rule]
    times = {"median": f"{draw.randint(20, 60)}s", "sigma": draw.choice([0, 0.5, 1.5])}
    slower = {"of": "fast", "times": draw.choice([1.2, 2, 4])}
    source["jobs"]["work"]["runTimes"] = {"fast": times, "slow": slower}
    rate = f"{draw.randint(60, 240)}/h"
    poisson = {"rate": rate, "duration": "3m", "jobs": ["work"]}
    source["arrivals"] = [
        {"burst": {"count": draw.randint(1, 6), "jobs": ["work"]}},
        {"poisson": poisson},
    ]
    return files.read(source, seed=seed)


def crowded(seed, **annotations):
    """Jobs of three sizes that come faster than the queues can serve them."""
    draw = random.Random(seed)
    source = files.document()
    sizes = ("1", "2", "3")
    source["cluster"]["objects"][2:4] = [
        files.cluster_queue("fast", cpu=draw.randint(3, 5)),
        files.cluster_queue("slow", cpu=draw.randint(3, 5)),
    ]
    rule = files.policy(strategy={"type": "FinishTime", "finishTime": {"runTime": "60s"}})
    rule["spec"]["options"][1]["slowdown"] = draw.choice([1.5, 3])
    gain = {"time": f"{draw.choice([0, 30])}s", "percent": 0}
    rule["spec"]["reconsider"] = {"after": "4s", "minimumGain": gain}
    source["policies"]["objects"] = [rule]
    source["jobs"] = {
        size: {
            "job": files.job(cpu=size, annotations=annotations),
            "runTimes": {
                "fast": {"median": f"{draw.randint(20, 200)}s", "sigma": draw.choice([0, 0.5])},
                "slow": {"of": "fast", "times": draw.choice([0.5, 1.2, 2, 4])},
            },
        }
        for size in sizes
    }
    source["arrivals"] = [
        {"poisson": {"rate": "600/h", "duration": "100s", "jobs": [size]}} for size in sizes
    ]
    return files.read(source, seed=seed)


def moves_of(monkeypatch, scenario, *, all_looks):
    """Return each Job's way, and the number of looks."""
    looks = 0
    choose, patience, is_idle = Moving.step, Moving.wait, Moving.is_idle

    def counted(self, snapshot, now):
        nonlocal looks
        looks += 1
        return choose(self, snapshot, now)

    monkeypatch.setattr(Moving, "step", counted)
    if all_looks:
        monkeypatch.setattr(Moving, "wait", lambda self, until: None)
        monkeypatch.setattr(Moving, "is_idle", lambda self, snapshot, now: False)
    (arm,) = scenario.arms(["FinishTime"])
    found = replay(scenario, arm)
    monkeypatch.setattr(Moving, "step", choose)
    monkeypatch.setattr(Moving, "wait", patience)
    monkeypatch.setattr(Moving, "is_idle", is_idle)
    return [(job.name, job.queue, job.start, job.finish) for job in found.jobs], looks


@pytest.mark.parametrize("seed", [0, 3])
def test_jobs_go_the_same_ways_when_looks_are_left_out(monkeypatch, seed):
    scenario = world(seed)

    few, looks = moves_of(monkeypatch, scenario, all_looks=False)
    every, all_looks = moves_of(monkeypatch, scenario, all_looks=True)

    assert few == every
    assert looks < all_looks


@pytest.mark.parametrize("seed", [1, 10])
def test_no_job_is_due_to_be_moved_before_the_bound_says_so(monkeypatch, seed):
    bounds = []
    planned, first = plan.plan_moves, DueTimes.first

    def without_patience(self, groups):
        bounds.append(first(self, groups))
        return 0.0

    def checked(candidates, foresee, **given):
        now = foresee({})
        for candidate in candidates:
            here = now.starts.get(candidate.key, inf)
            for way in candidate.ways:
                assert min(here, way.soonest) - plan.soon(way.runs) >= bounds[-1] - 1e-6
        chosen = planned(candidates, foresee, **given)
        assert bounds[-1] <= 0 or not chosen.moves
        return chosen

    monkeypatch.setattr(DueTimes, "first", without_patience)
    monkeypatch.setattr(DueTimes, "first_tried", lambda *_, **__: 0.0)
    monkeypatch.setattr(plan, "plan_moves", checked)
    scenario = world(seed)
    (arm,) = scenario.arms(["FinishTime"])

    replay(scenario, arm)

    assert min(bounds) <= 0 < max(bounds)


@pytest.mark.parametrize("seed", [1])
def test_nobody_is_moved_before_the_bound_of_those_who_are_tried_says_so(monkeypatch, seed):
    bounds, left_out = [0.0], 0
    first_tried, step = DueTimes.first_tried, Moving.step

    def without_patience(self, lines, *, most):
        bounds.append(first_tried(self, lines, most=most))
        return 0.0

    def checked(self, snapshot, now):
        nonlocal left_out
        moves = step(self, snapshot, now)
        left_out += bounds[-1] > 0
        assert bounds[-1] <= 0 or not moves
        bounds.append(0.0)
        return moves

    monkeypatch.setattr(plan, "_WORK", 40)
    monkeypatch.setattr(DueTimes, "first_tried", without_patience)
    monkeypatch.setattr(Moving, "step", checked)
    scenario = crowded(seed)
    (arm,) = scenario.arms(["FinishTime"])

    replay(scenario, arm)

    assert left_out > 0


def test_of_jobs_that_say_something_of_their_own_no_bound_is_known(monkeypatch):
    asked = []
    monkeypatch.setattr(DueTimes, "first_tried", lambda *given, **rest: asked.append(given) or inf)
    scenario = crowded(1, **{"kueue-fallback.dev/max-slowdown": "3"})
    (arm,) = scenario.arms(["FinishTime"])

    found = replay(scenario, arm)

    assert len(found.jobs) > 50
    assert asked == []
