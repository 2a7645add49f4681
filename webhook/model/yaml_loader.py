"""YAML 1.1 as kubectl has it: dates and base 60 are texts, y and n booleans, 1e3 a number."""

from __future__ import annotations

import re

import yaml

_TAG = "tag:yaml.org,2002:"
_OTHERS = {f"{_TAG}{name}" for name in ("timestamp", "int", "float")}


class Loader(yaml.SafeLoader):
    bool_values = {**yaml.SafeLoader.bool_values, "y": True, "n": False}  # noqa: RUF012 - PyYAML's
    yaml_implicit_resolvers = {  # noqa: RUF012 - likewise
        first: [rule for rule in rules if rule[0] not in _OTHERS]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


for _name, _first, _pattern in (
    ("bool", "yYnN", r"[yYnN]"),
    ("int", "-+0123456789", r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|0|[1-9][0-9_]*)"),
    ("float", "-+.0123456789", r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?"),
):
    Loader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(f"^(?:{_pattern})$"), list(_first))


class FastLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The same in C, for big files; nesting without end overflows its stack."""

    bool_values = Loader.bool_values
    yaml_implicit_resolvers = Loader.yaml_implicit_resolvers
