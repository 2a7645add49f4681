"""Write the table of values in helm/README.md from values.yaml: `python -m hack.chart_readme`."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

CHART: Final = Path(__file__).resolve().parent.parent / "helm"
TARGET: Final = CHART / "README.md"
START: Final = "<!-- values: from values.yaml, by python -m hack.chart_readme -->\n"
END: Final = "<!-- end of values -->\n"
_INDENT: Final = 2


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


def table(source: str) -> str:
    rows = ["| value | default | meaning |", "|---|---|---|"]
    for value in values(source):
        text = value.text.replace("|", "\\|").replace("<", "&lt;")
        rows.append(f"| `{value.path}` | `{value.default}` | {text} |")
    return "\n".join(rows) + "\n"


def text() -> str:
    """Return the whole file with the table as it must be."""
    written = TARGET.read_text(encoding="utf-8")
    before, _, rest = written.partition(START)
    _, _, after = rest.partition(END)
    source = (CHART / "values.yaml").read_text(encoding="utf-8")
    return f"{before}{START}\n{table(source)}\n{END}{after}"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
    print(TARGET)
