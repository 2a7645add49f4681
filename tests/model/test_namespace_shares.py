"""That a namespace takes nothing from the others by asking first, or for most."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.model.namespace_shares import has_place, in_turn, share_of

COUNTS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(min_value=1, max_value=10_000))


@pytest.mark.parametrize(
    ("taken", "share"),
    [
        ({}, 20),
        ({"own": 40}, 20),
        ({"large": 20}, 10),
        ({"large": 41}, 10),
        ({"large": 41, "next": 41}, 5),
        ({"small": 1, "other": 1}, 19),
        (dict.fromkeys(map(str, range(40)), 1), 0),
    ],
    ids=["alone", "own", "half", "more", "two", "small", "full"],
)
def test_a_share_is_half_of_what_others_leave(taken, share):
    assert share_of("own", taken, 40) == share


@given(COUNTS, st.integers(min_value=1, max_value=300))
def test_a_namespace_has_a_place_while_it_has_less_than_its_share(taken, most):
    assert has_place("a", taken, most) is (taken.get("a", 0) < share_of("a", taken, most))


@given(st.lists(st.sampled_from("abc"), max_size=200), st.integers(min_value=8, max_value=60))
def test_places_that_are_asked_for_one_by_one_never_run_out_for_one_more_namespace(asked, most):
    taken = {}
    for namespace in asked:
        if has_place(namespace, taken, most):
            taken[namespace] = taken.get(namespace, 0) + 1

    assert sum(taken.values()) < most
    assert has_place("new", taken, most)


def test_each_namespace_has_its_turn_and_its_own_order():
    items = ["a1", "a2", "a3", "b1", "c1", "b2"]

    assert in_turn(items, lambda item: item[0]) == ["a1", "b1", "c1", "a2", "b2", "a3"]
