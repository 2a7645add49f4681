import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import GPU_OPTION, policy
from webhook.cost.lateness_weights import AGAIN_SECONDS, LateShares, next_weight, weighted
from webhook.model.policy.strategy import LatenessWeight

RULES = LatenessWeight()
ADAPTING = policy(
    GPU_OPTION, name="slo", strategy={"type": "Cost", "cost": {"lateness": {"adapt": {}}}}
)


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.071, 2.2), (0.07, 2.0), (0.031, 2.0), (0.029, 2.0 / 1.1), (1.0, 2.2)],
)
def test_lateness_becomes_dearer_the_more_jobs_are_late(share, expected):
    assert next_weight(2.0, share, RULES) == pytest.approx(expected)


@given(st.lists(st.floats(0.0, 1.0), max_size=200), st.floats(1.0, 9.0))
def test_a_weight_stays_between_one_and_the_most(shares, most):
    rules, weight = LatenessWeight(most=f"{most:.3f}"), 1.0

    for share in shares:
        weight = next_weight(weight, share, rules)

        assert 1.0 <= weight <= float(rules.most)


def test_a_weight_changes_at_most_each_ten_minutes():
    late = LateShares()
    for _ in range(20):
        late.note("slo", late=True)

    first = weighted({}, late, [ADAPTING], 1000.0)
    soon = weighted(first, late, [ADAPTING], 1000.0 + AGAIN_SECONDS - 1)
    later = weighted(soon, late, [ADAPTING], 1000.0 + AGAIN_SECONDS)

    assert (first, soon) == ({"slo": 1.1}, {"slo": 1.1})
    assert later == {"slo": pytest.approx(1.21)}


def test_one_late_job_says_little():
    late = LateShares()
    late.note("slo", late=True)

    assert weighted({}, late, [ADAPTING], 1000.0) == {"slo": 1.0}


def test_a_policy_that_does_not_ask_for_it_has_no_weight():
    late = LateShares()
    late.note("light-gpu", late=True)

    assert weighted({"light-gpu": 3.0}, late, [policy(strategy={"type": "Cost"})], 0.0) == {}
