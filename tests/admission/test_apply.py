from __future__ import annotations

import pytest

from webhook.admission.patch import CannotApplyError, apply


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
