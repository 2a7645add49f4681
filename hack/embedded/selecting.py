"""Label and field selectors, of lists and watches and of webhook configurations."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from hack.api import Object
from hack.embedded.object_store import Record
from hack.embedded.refusals import bad_request

Labels = Mapping[str, str]
_TERM: Final = re.compile(
    r"\s*(?:!\s*(?P<absent>[^\s=!,]+)|(?P<key>[^\s=!,]+)(?:"
    r"\s*(?P<is>==|=|!=)\s*(?P<value>[^\s,]*)"
    r"|\s+(?P<among>in|notin)\s*\((?P<values>[^)]*)\))?)\s*(?:,|$)"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which objects a list or watch is of."""

    namespace: str = ""
    labels: Callable[[Labels], bool] | None = None
    name: str = ""
    fields: tuple[tuple[str, bool, str], ...] = ()
    """(path, whether it is to be equal, value) of all but the name and the namespace."""

    def holds(self, record: Record | None) -> bool:
        if record is None:
            return False
        if self.namespace not in ("", record.namespace) or self.name not in ("", record.name):
            return False
        if self.labels is not None and not self.labels(record.labels):
            return False
        return not self.fields or _has_fields(record.content(), self.fields)


def selection(namespace: str, name: str, params: Mapping[str, str]) -> Selection:
    fields = []
    for term in filter(None, params.get("fieldSelector", "").split(",")):
        path, _, value = term.replace("==", "=").partition("=")
        is_equal = not path.endswith("!")
        match path, is_equal:
            case "metadata.name", True:
                name = value
            case "metadata.namespace", True:
                namespace = value
            case _:
                fields.append((path.rstrip("!"), is_equal, value))
    text = params.get("labelSelector", "")
    labels = label_selector(text) if text else None
    return Selection(namespace=namespace, labels=labels, name=name, fields=tuple(fields))


def label_selector(text: str) -> Callable[[Labels], bool]:
    """Read ``a=b,c in (d,e),!f``."""
    terms: list[Object] = []
    place = 0
    while place < len(text):
        term = _TERM.match(text, place)
        if term is None:
            raise bad_request(f"unable to parse requirement: {text!r}")
        place = term.end()
        terms.append(_requirement(term))
    return requirements({"matchExpressions": terms})


def _requirement(term: re.Match[str]) -> Object:
    if term["absent"]:
        return {"key": term["absent"], "operator": "DoesNotExist"}
    if term["is"]:
        operator = "NotIn" if term["is"] == "!=" else "In"
        return {"key": term["key"], "operator": operator, "values": [term["value"]]}
    if term["among"]:
        values = [value.strip() for value in term["values"].split(",")]
        operator = "In" if term["among"] == "in" else "NotIn"
        return {"key": term["key"], "operator": operator, "values": values}
    return {"key": term["key"], "operator": "Exists"}


def requirements(selector: Object | None) -> Callable[[Labels], bool]:
    """Read a LabelSelector of meta/v1; an empty one selects everything."""
    selector = selector or {}
    wanted: Labels = selector.get("matchLabels") or {}
    expressions: Sequence[Object] = selector.get("matchExpressions") or ()

    def holds(labels: Labels) -> bool:
        return all(labels.get(key) == value for key, value in wanted.items()) and all(
            _satisfies(expression, labels) for expression in expressions
        )

    return holds


def _satisfies(expression: Object, labels: Labels) -> bool:
    value = labels.get(expression["key"])
    match expression["operator"]:
        case "In":
            return value in expression["values"]
        case "NotIn":
            return value not in expression["values"]
        case "Exists":
            return value is not None
        case _:
            return value is None


def _has_fields(content: Object, fields: Sequence[tuple[str, bool, str]]) -> bool:
    return all((_field(content, path) == value) == is_equal for path, is_equal, value in fields)


def _field(content: Any, path: str) -> str:
    for part in path.split("."):
        content = content.get(part) if isinstance(content, dict) else None
    if isinstance(content, bool):
        return str(content).lower()
    return "" if content is None else str(content)
