"""Whoever sent a value that was replaced no longer owns it."""

from copy import deepcopy

import jsonpatch
import pytest

from webhook.flow.update import without_owner

PATH = ("spec", "template", "spec", "containers", "main", "env", "RUN_ENV")


def owned(*leaves):
    """Managed fields of which each manager owns these of the variable."""
    variables = {'k:{"name":"RUN_ENV"}': {name: {} for name in leaves}, 'k:{"name":"B"}': {}}
    containers = {'k:{"name":"main"}': {"f:env": variables}}
    spec = {"f:template": {"f:spec": {"f:containers": containers}}}
    return {"manager": "kubectl", "fieldsV1": {"f:spec": spec}}


def test_every_managers_claim_goes_and_nothing_else():
    entries = [owned(".", "f:name", "f:value"), owned("f:name"), owned("f:value")]
    source = {"metadata": {"managedFields": entries}}

    found = jsonpatch.apply_patch(deepcopy(source), without_owner(source, [PATH]))

    assert found["metadata"]["managedFields"] == [owned(".", "f:name"), owned("f:name"), owned()]


@pytest.mark.parametrize(
    "metadata", [None, {}, {"managedFields": "x"}, {"managedFields": [7, {"fieldsV1": []}]}]
)
def test_what_cannot_be_read_is_left_alone(metadata):
    assert without_owner({"metadata": metadata}, [PATH]) == []
