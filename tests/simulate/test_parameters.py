"""Parameters of a scenario."""

import pytest

from webhook.model.fields import FieldError
from webhook.simulate import scenario_spec


def fill(text, given=None, **declared):
    return scenario_spec.fill({"parameters": declared, "here": [{"x": text}]}, given or {})


def test_a_reference_alone_becomes_the_value_with_its_type():
    assert fill("${n}", n=3.5) == {"parameters": {"n": 3.5}, "here": [{"x": 3.5}]}


def test_references_within_a_text_become_part_of_it():
    assert fill("${n}x${n}", n=3)["here"] == [{"x": "3x3"}]


def test_two_dollars_stand_for_the_text_itself():
    assert fill("${n} $${HOME} $${n}", n=3)["here"] == [{"x": "3 ${HOME} ${n}"}]
    assert scenario_spec.fill({"x": "$${HOME}"}, {}) == {"x": "${HOME}"}


def test_a_given_value_replaces_the_default():
    assert fill("${n}", {"n": 7}, n=3)["here"] == [{"x": 7}]


@pytest.mark.parametrize(
    ("text", "given", "declared", "message"),
    [
        (
            "${m}",
            {},
            {"n": 1},
            "here[0].x: no parameter m; there is n ($${m} is the text itself)",
        ),
        ("", {}, {"n": 1}, "parameters.n: not used: ${n} stands nowhere"),
        ("${n}", {}, {"n": None}, "parameters.n: no value; give it with --set n=VALUE"),
        ("${n}", {"m": 1}, {"n": 1}, "--set m: no such parameter; the scenario has n"),
        ("", {"m": 1}, {}, "--set m: no such parameter; the scenario has none"),
    ],
)
def test_what_has_no_place_or_no_value_is_refused(text, given, declared, message):
    with pytest.raises(FieldError) as refused:
        fill(text, given, **declared)

    assert str(refused.value) == message


def test_assignments_are_read_as_numbers_where_they_are():
    assert scenario_spec.assignments(["a=1", "b=1.5", "c=x=y", "d="]) == {
        "a": 1,
        "b": 1.5,
        "c": "x=y",
        "d": "",
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a"], "--set a: expected NAME=VALUE"),
        (["=1"], "--set =1: expected NAME=VALUE"),
        (["a=1", "a=2"], "--set a=2: a is set twice"),
    ],
)
def test_an_assignment_that_is_none_is_refused(words, message):
    with pytest.raises(FieldError) as refused:
        scenario_spec.assignments(words)

    assert str(refused.value) == message
