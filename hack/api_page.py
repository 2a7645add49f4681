"""Write docs/reference/api.md from the kinds themselves: `python -m hack.api_page`."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hack import crd

PAGE: Final = Path(__file__).resolve().parent.parent / "docs/reference/api.md"
_HEAD: Final = """\
# API

Made by `python -m hack.api_page` from `webhook/model`, as the CRDs of the chart are.

`kubectl explain fallbackpolicy.spec` shows each field with its whole text.
`kubectl fallback check` and the API server name the rule or limit that an object breaks, with its
path.
A field marked * must be set; one without a type is a text, or has fields below it. `[]` stands for
each item of a list, `{}` for each value of an object.
"As above" names fields that another object on this page has, too.
Label selectors, tolerations and conditions are those of Kubernetes.
The recipes of the [policy cookbook](../policy-cookbook.md) show the fields in use.
"""
_SENTENCE: Final = re.compile(r"(?<=[.]) +(?=[A-Z`])")
_WITHOUT: Final = ("Absent:", "Empty:")
"""How a sentence begins that says what holds while a field is not set."""
_OF_KUBERNETES: Final = ("matchExpressions", "tolerations", "conditions")
_UNSAID: Final = ("string", "object")
_A_VALUE: Final = re.compile(r"\w+: ")
"""How a description begins that has a sentence for each value."""
_FEW_WORDS: Final = 5
"""A first sentence with no more of them says hardly more than the field's name."""


def text() -> str:
    described: set[str] = set()
    sections = [line for each in crd.DEFINITIONS for line in _of(each, described)]
    return "\n".join([_HEAD, *sections]).rstrip() + "\n"


def _of(definition: crd.Definition, described: set[str]) -> Iterator[str]:
    made = crd.crd(definition)["spec"]
    (version,) = made["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    yield f"## {definition.kind}"
    yield ""
    yield schema["description"]
    yield (
        f"In `{made['group']}/{version['name']}`, of scope {made['scope']}; "
        f"short name `{definition.short}`."
    )
    yield ""
    for part in ("spec", "status"):
        yield from _below(schema["properties"][part], part, described)
    yield ""


def _below(schema: Mapping[str, Any], path: str, described: set[str]) -> Iterator[str]:
    """Yield a line for each field below *path*, but one for all that were described before.

    What Kubernetes defines has the fields that it has everywhere.
    """
    needed = schema.get("required", ())
    known = []
    for name, below in schema.get("properties", {}).items():
        field = json.dumps([name, below])
        if field in described:
            known.append(name)
            continue
        described.add(field)
        yield _line(f"{path}.{name}", below, is_required=name in needed)
        if name in _OF_KUBERNETES:
            continue
        yield from _below(below, f"{path}.{name}", described)
    if known:
        names = ", ".join(f"`{name}`" for name in known)
        yield f"- `{path}`, as above: {names}"
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), dict):
            yield from _below(schema[key], f"{path}{mark}", described)


def _line(path: str, schema: Mapping[str, Any], *, is_required: bool) -> str:
    facts = [] if (kind := _type(schema)) in _UNSAID else [kind]
    if not isinstance(schema.get("default"), (dict, type(None))):
        facts.append(f"default `{json.dumps(schema['default'])}`")
    mark = "\\*" if is_required else ""
    given = f" ({', '.join(facts)})" if facts else ""
    return f"- `{path}`{mark}{given}: {_said(schema)}"


def _said(schema: Mapping[str, Any]) -> str:
    """Return what a description begins with, and what holds without the field.

    A closed set of values is described whole, as each value has a sentence.
    """
    description: str = schema.get("description", "")
    if "enum" in schema or _A_VALUE.match(description):
        return description
    first, *others = _SENTENCE.split(description)
    if len(first.split()) <= _FEW_WORDS and others:
        first = f"{first} {others.pop(0)}"
    return " ".join([first, *(each for each in others if each.startswith(_WITHOUT))])


def _type(schema: Mapping[str, Any]) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "enum" in schema:
        return "/".join(f"`{each}`" for each in schema["enum"] if each)
    if schema.get("type") == "array":
        return f"[]{_type(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"map[{_type(schema['additionalProperties'])}]"
    return str(schema.get("type", "any"))


if __name__ == "__main__":
    PAGE.write_text(text())
