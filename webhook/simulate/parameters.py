"""Parameters of a scenario: ``${NAME}`` anywhere in its document becomes a value. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from webhook.model.fields import FieldError, child

Scalar: TypeAlias = str | int | float | bool | None

_REFERENCE = re.compile(r"\$(\$?)\{([^{}]*)\}")


def assignments(given: Sequence[str]) -> Mapping[str, Scalar]:
    """Parse ``NAME=VALUE`` words; a number becomes one.

    Raises:
        FieldError: a word has no ``=``, or names a parameter again.

    """
    found: dict[str, Scalar] = {}
    for word in given:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise FieldError(f"--set {word}", "expected NAME=VALUE")
        if name in found:
            raise FieldError(f"--set {word}", f"{name} is set twice")
        found[name] = _value(value)
    return found


def _value(text: str) -> Scalar:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def fill(source: Mapping[str, Any], given: Mapping[str, Scalar]) -> Mapping[str, Any]:
    """Replace the parameters by their values; ``$${`` becomes ``${`` itself.

    Raises:
        FieldError: a parameter is unknown, has no value, or is not used.

    """
    declared = source.get("parameters")
    if not isinstance(declared, dict):
        declared = {}
    for name in given:
        if name not in declared:
            known = ", ".join(map(str, declared)) or "none"
            raise FieldError(f"--set {name}", f"no such parameter; the scenario has {known}")
    values = {**declared, **given}
    for name, value in values.items():
        if value is None:
            raise FieldError(f"parameters.{name}", f"no value; give it with --set {name}=VALUE")
    filler = _Filler(values)
    rest = {key: value for key, value in source.items() if key != "parameters"}
    filled = filler.fill(rest, "")
    for name in values:
        if name not in filler.used:
            raise FieldError(f"parameters.{name}", f"not used: ${{{name}}} stands nowhere")
    return {**filled, "parameters": values} if values else dict(filled)


class _Filler:
    """Walks a document and records which parameters it uses."""

    def __init__(self, values: Mapping[str, Scalar]) -> None:
        self._values = values
        self.used: set[str] = set()

    def fill(self, value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {key: self.fill(item, child(path, str(key))) for key, item in value.items()}
        if isinstance(value, list):
            return [self.fill(item, f"{path}[{index}]") for index, item in enumerate(value)]
        return self._text(value, path) if isinstance(value, str) else value

    def _text(self, text: str, path: str) -> Any:
        whole = _REFERENCE.fullmatch(text)
        if whole and not whole[1]:
            return self._named(whole[2], path)
        return _REFERENCE.sub(
            lambda found: found[0][1:] if found[1] else str(self._named(found[2], path)), text
        )

    def _named(self, name: str, path: str) -> Scalar:
        if name not in self._values:
            known = ", ".join(map(str, self._values)) or "none"
            message = f"no parameter {name}; there is {known} ($${{{name}}} is the text itself)"
            raise FieldError(path, message)
        self.used.add(name)
        return self._values[name]
