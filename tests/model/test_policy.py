import pytest

from tests.model import mutations, policies
from tests.model.policies import Broken, policy
from webhook.model.policy.fallback_policy import (
    Accelerator,
    Mode,
    PolicyError,
    StrategyType,
    read_policy,
)


def test_a_short_policy_gets_the_defaults_of_the_design():
    found = read_policy(policy(mode=None))

    spec = found.spec
    assert (found.name, found.generation) == ("light-gpu", 0)
    assert (spec.mode, spec.priority, spec.reconsider) == (Mode.OBSERVE, 0, None)
    assert spec.strategy.type is StrategyType.FINISH_TIME
    assert [(one.name, one.queue, one.slowdown, one.start_delay) for one in spec.options] == [
        ("gpu-lq", "gpu-lq", None, "0s"),
        ("cpu-lq", "cpu-lq", None, "0s"),
    ]
    assert spec.options[1].adaptation.accelerator is Accelerator.REMOVE


def test_a_whole_number_is_read_as_the_text_of_a_quantity():
    found = read_policy(policy())

    assert found.spec.options[1].adaptation.per_removed == {"cpu": "4", "memory": "6Gi"}


def test_a_float_that_is_whole_is_read_as_an_integer():
    found = read_policy(policy(match={"maxRequests": {"nvidia.com/gpu": 1.0}}))

    assert found.spec.match.max_requests == {"nvidia.com/gpu": "1"}


def test_an_option_for_a_cluster_queue_has_its_name():
    found = read_policy(policy(options=[{"clusterQueue": "gpu-cq"}]))

    assert (found.spec.options[0].name, found.spec.options[0].queue) == ("gpu-cq", "")


def test_gains_differ_between_choosing_and_moving():
    found = read_policy(policy(strategy={"finishTime": {}}, reconsider={"adopt": True}))

    spec = found.spec
    assert spec.strategy.finish_time is not None
    assert spec.reconsider is not None
    gain, move = spec.strategy.finish_time.minimum_gain, spec.reconsider.minimum_gain
    assert (gain.time, gain.percent) == ("30s", 10)
    assert (move.time, move.percent) == ("60s", 20)


def test_an_empty_object_in_a_partly_given_gain_keeps_the_other_default():
    found = read_policy(policy(reconsider={"minimumGain": {"time": "5m"}}))

    assert found.spec.reconsider is not None
    assert found.spec.reconsider.minimum_gain.percent == 20


def test_a_null_is_as_good_as_nothing():
    source = policy()
    source["spec"]["mode"] = None
    source["spec"]["reconsider"] = None

    found = read_policy(source)

    assert (found.spec.mode, found.spec.reconsider) == (Mode.OBSERVE, None)


def test_every_field_of_the_design_is_taken():
    found = read_policy(mutations.FULL)

    assert found.spec.strategy.threshold is not None
    assert [rule.or_pending_below for rule in found.spec.strategy.threshold] == [10, None]
    assert found.spec.match.queues == ("gpu-lq", "")
    assert found.spec.job_class_label == "example.com/model"


def test_an_object_as_the_api_server_serves_it_is_read():
    source = policy()
    source["metadata"] = {
        "name": "light-gpu",
        "generation": 3,
        "uid": "u",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{"manager": "kubectl"}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
    }
    source["status"] = {"conditions": []}

    assert read_policy(source).generation == 3


@pytest.mark.parametrize("case", policies.broken(), ids=lambda case: case.it)
def test_a_broken_policy_is_refused_with_the_path_of_each_mistake(case: Broken):
    with pytest.raises(PolicyError) as caught:
        read_policy(case.policy)

    errors = sorted(caught.value.errors, key=lambda error: (error.path, error.message))
    assert [error.path for error in errors] == [path for path, _ in case.want]
    for error, (_, words) in zip(errors, case.want, strict=True):
        assert words in error.message


@pytest.mark.parametrize(
    "metadata",
    [
        {"name": "a", "labels": {"a": 1}},
        {"name": "a", "annotations": {"a": True}},
        {"name": "a", "generation": "x"},
        {"generateName": "a"},
    ],
)
def test_metadata_that_no_policy_can_have_is_a_mistake(metadata):
    with pytest.raises(PolicyError, match="metadata"):
        read_policy({**policy(), "metadata": metadata})


def test_a_field_in_the_spelling_of_python_is_a_mistake():
    with pytest.raises(PolicyError, match=r"spec.match.job_selector: no such field"):
        read_policy(policy(match={"job_selector": {}}))


def test_nulls_are_absent_but_a_null_under_an_unknown_name_is_a_mistake():
    source = policy(match={"maxRequests": {"cpu": 1}})
    source["spec"]["match"]["maxRequests"]["memory"] = None

    assert read_policy(source).spec.match.max_requests == {"cpu": "1"}
    source["spec"]["foo"] = None
    with pytest.raises(PolicyError, match=r"spec.foo: no such field"):
        read_policy(source)


@pytest.mark.parametrize("source", [{}, {"metadata": 5}, {"metadata": {"name": 5}, "spec": None}])
def test_what_is_no_policy_at_all_is_a_policy_error(source):
    with pytest.raises(PolicyError):
        read_policy(source)
