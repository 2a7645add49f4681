import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model.policies import policy
from webhook.model.pods import EVERYTHING, NOTHING
from webhook.model.policy import fallback_policy
from webhook.model.policy.fallback_policy import LabelSelector, read_policy


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [("0s", 0), ("30s", 30), ("1h30m", 5400), ("1.5h", 5400), ("500ms", 0.5), ("2m1.5s", 121.5)],
)
def test_a_duration_is_told_in_seconds(duration, seconds):
    assert fallback_policy.seconds(duration) == seconds


def test_an_absent_selector_is_the_default():
    assert fallback_policy.selector(None, NOTHING) == NOTHING


def test_an_empty_selector_selects_everything():
    assert fallback_policy.selector(LabelSelector(), NOTHING) == EVERYTHING


def test_a_selector_matches_by_labels_and_expressions():
    given_selector = LabelSelector.model_validate(
        {
            "matchLabels": {"type": "light"},
            "matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}],
        }
    )

    found = fallback_policy.selector(given_selector, EVERYTHING)

    assert found.matches({"type": "light", "team": "b"})
    assert not found.matches({"type": "light", "team": "c"})
    assert not found.matches({"team": "b"})


def test_amounts_are_counted_in_milli_for_cpu_and_whole_units_for_the_rest():
    assert fallback_policy.amounts({"cpu": "1.5", "memory": "1Ki"}) == {"cpu": 1500, "memory": 1024}


def test_queues_are_those_of_the_options_unless_given():
    own = read_policy(policy())
    given_queues = read_policy(policy(match={"queues": [""]}))

    assert fallback_policy.queues_of(own) == {"gpu-lq", "cpu-lq"}
    assert fallback_policy.queues_of(given_queues) == {""}


@given(st.lists(st.tuples(st.integers(-5, 5), st.sampled_from("abc")), max_size=6))
def test_the_policy_that_applies_comes_first(pairs):
    found = [
        read_policy({**policy(priority=priority), "metadata": {"name": name}})
        for priority, name in pairs
    ]

    ordered = sorted(found, key=fallback_policy.sort_key)

    assert [(-one.spec.priority, one.name) for one in ordered] == sorted(
        (-priority, name) for priority, name in pairs
    )
