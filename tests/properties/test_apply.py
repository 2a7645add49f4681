"""Carrying out a patch is held against a library that does it for everybody."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import jsonpatch
from hypothesis import given
from hypothesis import strategies as st

from webhook.admission.patch import CannotApplyError, apply

KEYS = st.sampled_from(["a", "b", "a/b", "~", "~1", "0", "1", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["x", "y"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)
PARTS = st.sampled_from(["a", "b", "a~1b", "~0", "~01", "0", "1", "2", "01", "7", "x", ""])


@st.composite
def operations(draw: st.DrawFn) -> dict[str, Any]:
    path = "".join(f"/{part}" for part in draw(st.lists(PARTS, min_size=1, max_size=4)))
    kind = draw(st.sampled_from(["add", "remove", "replace"]))
    if kind == "add" and draw(st.booleans()):
        path += "/-"
    value = {} if kind == "remove" else {"value": draw(VALUES)}
    return {"op": kind, "path": path, **value}


def _by_the_library(operation: dict[str, Any], source: Any) -> Any:
    try:
        return jsonpatch.JsonPatch([operation]).apply(source)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
        return None


def _by_us(operation: dict[str, Any], source: dict[str, Any]) -> Any:
    found = deepcopy(source)
    try:
        apply(operation, found)
    except CannotApplyError:
        return None
    return found


@given(OBJECTS, operations())
def test_an_operation_does_what_the_library_does_or_is_refused_by_both(source, operation):
    assert _by_us(deepcopy(operation), source) == _by_the_library(operation, source)
