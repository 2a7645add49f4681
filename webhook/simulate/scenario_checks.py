"""A scenario's fields, checked: the one border where what a user wrote becomes values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from webhook.model.fields import FieldError, child
from webhook.model.policy.policy_fields import DURATION
from webhook.simulate.scenario_spec import NAME, RATE, ScenarioSpec

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


class SpecError(ValueError):
    """What is wrong with a file's fields, each mistake with its path."""

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        super().__init__(errors)
        self.errors = errors


def validated(source: Mapping[str, Any]) -> ScenarioSpec:
    """Check a document.

    Raises:
        SpecError: with every mistake.

    """
    try:
        return ScenarioSpec.model_validate(source)
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise SpecError(
            tuple(
                FieldError(_path(each["loc"]), _message(each))
                for each in found
                if not _follows(each, found)
            )
        ) from error


def _follows(error: ErrorDetails, errors: list[ErrorDetails]) -> bool:
    """Tell whether a list is said to be too short only because its items are wrong."""
    here = error["loc"]
    return error["type"] == "too_short" and any(
        len(other["loc"]) > len(here) and other["loc"][: len(here)] == here for other in errors
    )


def _path(location: tuple[str | int, ...]) -> str:
    path = ""
    for part in location:
        # Which form was read is no place in the file.
        if part not in ("<list>", "<map>", "[key]"):
            path = child(path, part)
    return path


_FORMS = {
    DURATION: "a duration such as 90s or 1h30m",
    RATE: "a rate such as 0.5/s or 120/h",
    NAME: "lower-case letters, digits and -",
}


def _message(error: ErrorDetails) -> str:
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "missing":
        return "expected, but not there"
    if kind == "extra_forbidden":
        return "no such field"
    if kind == "value_error":
        return str(context["error"])
    shown = f", got {given!r}" if isinstance(given, str | int | float | None) else ""
    if context.get("pattern") in _FORMS:
        return f"expected {_FORMS[context['pattern']]}{shown}"
    text = error["msg"]
    return text[0].lower() + text[1:] + shown
