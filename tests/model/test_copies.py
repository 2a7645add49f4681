"""Copies of values with changes are what the standard library makes."""

from dataclasses import fields, replace

import pytest

from tests.reviews import light_job
from webhook.jobs import KINDS
from webhook.model.copies import copy_with
from webhook.model.decision import Skipped
from webhook.model.reasons import Skip

JOB = KINDS["batch", "v1", "Job"].read(light_job())


@pytest.mark.parametrize(
    ("value", "changes"),
    [
        (JOB, {}),
        (JOB, {"labels": {"a": "b"}, "name": "x"}),
        (JOB.pod_sets[0], {"count": 3}),
        (Skipped(skip=Skip.OFF), {"warnings": ("w",)}),
    ],
)
def test_a_copy_differs_in_what_is_changed_alone(value, changes):
    before = [getattr(value, field.name) for field in fields(value)]

    copied = copy_with(value, **changes)

    assert copied == replace(value, **changes)
    assert copied is not value
    assert [getattr(value, field.name) for field in fields(value)] == before


def test_there_is_no_copy_with_a_field_that_is_not_there():
    with pytest.raises(ValueError, match="Job has not all of the fields namme"):
        copy_with(JOB, namme="x")
