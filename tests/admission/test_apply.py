from __future__ import annotations

from typing import Any

import pytest

from webhook.admission.patch import CannotApplyError, apply


@pytest.mark.parametrize(
    ("operation", "result"),
    [
        ({"op": "add", "path": "/a~1b/~0", "value": 1}, {"a/b": {"~": 1}, "list": ["x"]}),
        ({"op": "add", "path": "/list/0", "value": 1}, {"a/b": {}, "list": [1, "x"]}),
        ({"op": "add", "path": "/list/-", "value": 1}, {"a/b": {}, "list": ["x", 1]}),
        ({"op": "replace", "path": "/list/0", "value": 1}, {"a/b": {}, "list": [1]}),
        ({"op": "remove", "path": "/list/0"}, {"a/b": {}, "list": []}),
        ({"op": "remove", "path": "/list"}, {"a/b": {}}),
    ],
)
def test_it_changes_the_object_in_place(operation, result):
    source: dict[str, Any] = {"a/b": {}, "list": ["x"]}

    apply(operation, source)

    assert source == result


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ({"op": "replace", "path": "/b", "value": 1}, "/b: there is nothing to replace"),
        ({"op": "remove", "path": "/b"}, "/b: there is nothing to remove"),
        ({"op": "add", "path": "/b/c", "value": 1}, "/b/c: nothing called b"),
        ({"op": "add", "path": "/list/2", "value": 1}, "/list/2: no element 2"),
        ({"op": "replace", "path": "/list/-", "value": 1}, "/list/-: no element -"),
        ({"op": "remove", "path": "/list/00"}, "/list/00: no element 00"),
        (
            {"op": "add", "path": "/list/0/x", "value": 1},
            "/list/0/x: its parent is neither an object nor a list",
        ),
        ({"op": "add", "path": "", "value": 1}, "'' points to no place in the object"),
    ],
)
def test_what_does_not_apply_is_refused_with_its_place(operation, message):
    with pytest.raises(CannotApplyError) as caught:
        apply(operation, {"list": ["x"]})

    assert str(caught.value) == message
