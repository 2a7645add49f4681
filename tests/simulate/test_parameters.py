"""Parameters of a scenario."""

from pathlib import Path

import pytest
import yaml

from webhook.model.fields import FieldError
from webhook.simulate import scenario_spec


def fill(text, given=None, **declared):
    return scenario_spec.fill({"parameters": declared, "here": [{"x": text}]}, given or {})


def test_a_reference_alone_becomes_the_value_with_its_type():
    assert fill("${n}", n=3.5) == {"parameters": {"n": 3.5}, "here": [{"x": 3.5}]}


def test_a_list_stands_for_itself():
    assert fill("${l}", l=["a", 2])["here"] == [{"x": ["a", 2]}]


def test_references_within_a_text_become_part_of_it():
    assert fill("${n}x${n}", n=3)["here"] == [{"x": "3x3"}]


def test_two_dollars_stand_for_the_text_itself():
    assert fill("${n} $${HOME} $${n}", n=3)["here"] == [{"x": "3 ${HOME} ${n}"}]
    assert scenario_spec.fill({"x": "$${HOME}"}, {}) == {"x": "${HOME}"}


def test_a_given_value_replaces_the_default():
    assert fill("${n}", {"n": 7}, n=3)["here"] == [{"x": 7}]


MISTAKES = yaml.safe_load(Path(__file__).with_name("parameter_mistakes.yaml").read_text())


@pytest.mark.parametrize("mistake", MISTAKES, ids=[each["message"] for each in MISTAKES])
def test_what_has_no_place_or_no_value_is_refused(mistake):
    with pytest.raises(FieldError) as refused:
        fill(mistake["text"], mistake["given"], **mistake["declared"])

    assert str(refused.value) == mistake["message"]


def test_assignments_are_read_as_numbers_where_they_are():
    assert scenario_spec.assignments(["a=1", "b=1.5", "c=x=y", "d=", "l=[a, 2]", "e=[]"]) == {
        "a": 1,
        "b": 1.5,
        "c": "x=y",
        "d": "",
        "l": ["a", 2],
        "e": [],
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
