"""Write docs/reference/api.md from the kinds themselves: `python -m hack.api_page`."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hack import crd

PAGE: Final = Path(__file__).resolve().parent.parent / "docs/reference/api.md"
_HEAD: Final = """\
# API

Made by `python -m hack.api_page` from `webhook/model`, as the CRDs of the chart are.

`kubectl explain fallbackpolicy.spec` shows the same on a cluster.
A field marked * must be set. `[]` stands for each item of a list, `{}` for each value of an object.
The recipes of the [policy cookbook](../policy-cookbook.md) show the fields in use.
"""
_RULES: Final = (
    "The API server refuses an object that breaks a rule, with this message at this field:"
)
_BOUNDS: Final = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minItems": "{} or more items",
    "maxItems": "at most {} items",
    "minProperties": "{} or more keys",
    "maxProperties": "at most {} keys",
}


def text() -> str:
    sections = [line for each in crd.DEFINITIONS for line in _of(each)]
    return "\n".join([_HEAD, *sections]).rstrip() + "\n"


def _of(definition: crd.Definition) -> Iterator[str]:
    made = crd.crd(definition)["spec"]
    (version,) = made["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    yield f"## {definition.kind}"
    yield ""
    yield schema["description"]
    yield f"It is in `{made['group']}/{version['name']}`, of scope {made['scope']}."
    yield f"Its short name is `{definition.short}`."
    yield ""
    for part in ("spec", "status"):
        yield from ("| field | type | means |", "|---|---|---|")
        below = schema["properties"][part]
        yield from (_row(*field) for field in _fields(below, part, is_required=part == "spec"))
        yield ""
    if rules := dict.fromkeys(_rules(schema, "")):
        yield from (f"{_RULES}\n", *rules, "")


def _fields(
    schema: Mapping[str, Any], path: str, *, is_required: bool
) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Yield path, schema and whether it must be set, of a field and of those below it."""
    yield path, schema, is_required
    needed = schema.get("required", ())
    for name, below in schema.get("properties", {}).items():
        yield from _fields(below, f"{path}.{name}", is_required=name in needed)
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), dict) and "properties" in schema[key]:
            yield from list(_fields(schema[key], f"{path}{mark}", is_required=False))[1:]


def _row(path: str, schema: Mapping[str, Any], is_required: bool) -> str:  # noqa: FBT001 - a row
    said = [schema["description"]] if "description" in schema else []
    if "enum" in schema:
        said.append(f"One of {', '.join(f'`{each}`' for each in schema['enum'])}.")
    if bounds := [words.format(schema[key]) for key, words in _BOUNDS.items() if key in schema]:
        said.append(f"({', '.join(bounds)})")
    if schema.get("default") not in (None, {}):
        said.append(f"Default: `{json.dumps(schema['default'])}`.")
    mark = " *" if is_required else ""
    return f"| `{path}`{mark} | {_type(schema)} | {' '.join(said).replace('|', chr(92) + '|')} |"


def _type(schema: Mapping[str, Any]) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "number or text"
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return str(schema.get("type", "any"))


def _rules(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield what the API server checks beyond types: a line for each rule, with its place."""
    for rule in schema.get("x-kubernetes-validations", ()):
        place = f"{path}{rule.get('fieldPath', '')}".lstrip(".")
        yield f"- `{place or 'the object'}`: {rule['message']}"
    for name, below in schema.get("properties", {}).items():
        yield from _rules(below, f"{path}.{name}".lstrip("."))
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), dict):
            yield from _rules(schema[key], f"{path}{mark}")


if __name__ == "__main__":
    PAGE.write_text(text())
