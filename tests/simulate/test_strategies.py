"""Which policies decide under which name."""

import pytest

from tests.simulate import files
from webhook.model.fields import FieldError
from webhook.model.policy.fallback_policy import Mode, StrategyType
from webhook.simulate.scenario import Arm

FINISH_TIME = {"type": "FinishTime", "finishTime": {"runTime": "10s"}}


def scenario():
    objects = [
        files.policy("spill"),
        files.policy("b", FINISH_TIME),
        files.policy("a", FINISH_TIME),
    ]
    return files.read(files.changed(["policies", "objects"], objects))


def names(*given):
    return {arm.name: [policy.name for policy in arm.policies] for arm in scenario().arms(given)}


def test_by_default_nothing_and_each_type_there_is_decide():
    assert names() == {"static": [], "FinishTime": ["a", "b"], "Threshold": ["spill"]}


def test_policies_are_named_one_by_one_or_together():
    assert names("spill", "b", "spill+a", "b") == {
        "spill": ["spill"],
        "b": ["b"],
        "spill+a": ["a", "spill"],
    }


def test_in_a_replay_every_policy_enforces():
    (arm,) = scenario().arms(["spill"])

    assert [policy.spec.mode for policy in arm.policies] == [Mode.ENFORCE]


def test_the_finish_time_may_choose_among_any_policys_options():
    (arm,) = files.read().arms(["FinishTime"])

    (policy,) = arm.policies
    assert policy.spec.strategy.type is StrategyType.FINISH_TIME
    assert policy.spec.strategy.threshold is None
    assert [option.name for option in policy.spec.options] == ["fast", "slow"]


def test_without_policies_there_is_only_static():
    bare = files.read(files.changed(["policies"], None))

    assert bare.arms() == (Arm(name="static"),)


@pytest.mark.parametrize("name", ["Treshold", "spill+nobody", "", "+"])
def test_a_strategy_that_is_not_there_is_refused_with_those_that_are(name):
    with pytest.raises(FieldError) as refused:
        scenario().arms([name])

    assert str(refused.value) == (
        f"--strategy: expected one of static, FinishTime, Threshold, spill, b, a, got {name}"
    )
