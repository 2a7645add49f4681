"""Pending Jobs that are looked at again, in scenarios that ship."""

from dataclasses import replace

import pytest

from tests.simulate.shipped import shipped
from webhook.model.policy.fallback_policy import Reconsider
from webhook.model.policy.strategy import MoveGain
from webhook.simulate.replay import replay

GAIN = MoveGain(time="3s", percent=3)


def arms(scenario, **rules):
    """The shipped FinishTime as it is, and with light Jobs looked at again."""
    (arm,) = scenario.arms(["FinishTime"])
    reconsider = Reconsider(after="2s", minimum_gain=GAIN, **rules)
    policies = tuple(
        policy.model_copy(
            update={"spec": policy.spec.model_copy(update={"reconsider": reconsider})}
        )
        if policy.name == "light"
        else policy
        for policy in arm.policies
    )
    return arm, replace(arm, policies=policies)


def saved(scenario, arm):
    (static,) = scenario.arms(["static"])
    return 1 - replay(scenario, arm).totals.makespan / replay(scenario, static).totals.makespan


@pytest.mark.parametrize(("name", "more"), [("uniform", 0.0), ("burst", 0.05)])
def test_a_wrong_belief_is_made_up_for_while_jobs_wait(name, more):
    scenario = shipped(name, slowdown=5.25, overhead="2s")
    final, moving = arms(scenario)

    assert saved(scenario, moving) >= saved(scenario, final) + more


@pytest.mark.parametrize("name", ["uniform", "burst"])
def test_every_job_runs_once_and_within_the_moves_allowed(name):
    scenario = shipped(name, slowdown=5.25, overhead="2s")

    first, again = (replay(scenario, arms(scenario)[1]) for _ in range(2))

    assert first == again
    assert all(job.finish is not None for job in first.jobs)
    for job in first.jobs:
        runs = {"gpu-lq": {"light": 22.0, "heavy": 34.0}, "cpu-lq": {"light": 72.0}}
        assert job.finish - job.start == pytest.approx(runs[job.queue][job.template], abs=1e-6)


def test_what_gains_too_little_is_left():
    scenario = shipped("burst", slowdown=5.25, overhead="2s")
    final, _ = arms(scenario)
    rules = Reconsider(minimum_gain=MoveGain(time="10h", percent=0))
    policies = (
        policy.model_copy(update={"spec": policy.spec.model_copy(update={"reconsider": rules})})
        for policy in final.policies
    )

    assert replay(scenario, replace(final, policies=tuple(policies))).jobs == (
        replay(scenario, final).jobs
    )
