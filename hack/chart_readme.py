"""Write the list of values in helm/README.md from values.yaml: `python -m hack.chart_readme`."""

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

CHART: Final = Path(__file__).resolve().parent.parent / "helm"
TARGET: Final = CHART / "README.md"
START: Final = "<!-- values: from values.yaml, by python -m hack.chart_readme -->\n"
END: Final = "<!-- end of values -->\n"
_INDENT: Final = 2
_SENTENCE: Final = re.compile(r"(?<=[.]) +(?=[A-Z])")
_WITHOUT: Final = ("Empty", "If empty", "Null", "Without it", "Without console", "Ignore", "Needed")
"""How a sentence begins that says what holds without the value."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    path: str
    default: str
    text: str
    """The comment above it, in whole sentences; a value without one is a group of values."""


def values(source: str) -> Iterator[Value]:
    """List the values of a values.yaml that have comments, in their order."""
    defaults = yaml.safe_load(source)
    comment: list[str] = []
    above: list[str] = []
    for line in source.splitlines():
        words = line.strip()
        if words.startswith("#"):
            comment.append(words.removeprefix("#").strip())
            continue
        if words and not words.startswith("- "):
            depth = (len(line) - len(words)) // _INDENT
            above[depth:] = [words.partition(":")[0]]
            if comment:
                default = json.dumps(_at(defaults, above))
                yield Value(path=".".join(above), default=default, text=" ".join(comment))
        comment = []


def _at(found: Any, path: list[str]) -> Any:
    for key in path:
        found = found[key]
    return found


def summary(source: str) -> str:
    """Return a line for each value: what its comment begins with, and what an empty one means.

    Values that say the same have one line.
    """
    paths: dict[str, list[str]] = {}
    for value in values(source):
        said = _said(value.text).replace("<", "&lt;")
        paths.setdefault(said, []).append(f"`{value.path}`{_default(value)}")
    return "".join(f"- {', '.join(alike)}: {said}\n" for said, alike in paths.items())


def _default(value: Value) -> str:
    """Return a default in as little room as JSON takes."""
    return f" (`{json.dumps(json.loads(value.default), separators=(',', ':'))}`)"


def _said(text: str) -> str:
    first, *others = _SENTENCE.split(text)
    return " ".join([first, *(each for each in others if each.startswith(_WITHOUT))])


def text() -> str:
    """Return the whole file with the list as it must be."""
    written = TARGET.read_text(encoding="utf-8")
    before, _, rest = written.partition(START)
    _, _, after = rest.partition(END)
    source = (CHART / "values.yaml").read_text(encoding="utf-8")
    return f"{before}{START}\n{summary(source)}\n{END}{after}"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
    print(TARGET)
