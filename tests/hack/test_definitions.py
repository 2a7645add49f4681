"""A definition counts as served when its version is found, not when it is established."""

import json

import pytest

from hack.api import Answer, ApiError
from hack.definitions import are_served

ESTABLISHED = {"conditions": [{"type": "Established", "status": "True"}]}


def definition(*, served=True):
    versions = [
        {"name": "v1alpha2", "served": served},
        {"name": "v1alpha1", "served": False},
    ]
    spec = {"group": "sets.example.com", "names": {"plural": "sets"}, "versions": versions}
    return {"metadata": {"name": "sets.sets.example.com"}, "spec": spec}


class ApiServer:
    def __init__(self, *, status, served):
        self.answers = {"/definition": {"status": status}}
        for path, plurals in served.items():
            self.answers[path] = {"resources": [{"name": plural} for plural in plurals]}

    def path_of(self, _item):
        return "/definition"

    def send(self, _method, path):
        if path not in self.answers:
            raise ApiError(404, "404 page not found")
        body = json.dumps(self.answers[path]).encode()
        return Answer(status=200, body=body, warnings=())


@pytest.mark.parametrize(
    ("status", "served", "expected"),
    [
        (ESTABLISHED, {"/apis/sets.example.com/v1alpha2": ["sets", "sets/status"]}, True),
        (ESTABLISHED, {"/apis/sets.example.com/v1alpha2": ["others"]}, False),
        (ESTABLISHED, {}, False),
        ({}, {"/apis/sets.example.com/v1alpha2": ["sets"]}, False),
    ],
    ids=["found", "another kind of the group is", "the group is not", "not established"],
)
def test_a_definition_is_served_when_its_version_lists_it(status, served, expected):
    client = ApiServer(status=status, served=served)

    assert are_served(client, [definition()]) is expected


def test_a_version_that_is_not_served_is_not_waited_for():
    client = ApiServer(status=ESTABLISHED, served={})

    assert are_served(client, [definition(served=False)])
