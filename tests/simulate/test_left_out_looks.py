"""Looks at pending Jobs that are left out would have moved nobody."""

from __future__ import annotations

import random

import pytest

from tests.simulate import files
from webhook.simulate.leader import Moving
from webhook.simulate.replay import replay

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


def moves_of(monkeypatch, scenario, *, all_looks):
    """Return each Job's way, and the number of looks."""
    looks = 0
    choose, patience = Moving.step, Moving.wait

    def counted(self, snapshot, now):
        nonlocal looks
        looks += 1
        return choose(self, snapshot, now)

    monkeypatch.setattr(Moving, "step", counted)
    if all_looks:
        monkeypatch.setattr(Moving, "wait", lambda self, until: None)
    (arm,) = scenario.arms(["FinishTime"])
    found = replay(scenario, arm)
    monkeypatch.setattr(Moving, "step", choose)
    monkeypatch.setattr(Moving, "wait", patience)
    return [(job.name, job.queue, job.start, job.finish) for job in found.jobs], looks


@pytest.mark.parametrize("seed", [0, 3])
def test_jobs_go_the_same_ways_when_looks_are_left_out(monkeypatch, seed):
    scenario = world(seed)

    few, looks = moves_of(monkeypatch, scenario, all_looks=False)
    every, all_looks = moves_of(monkeypatch, scenario, all_looks=True)

    assert few == every
    assert looks < all_looks
