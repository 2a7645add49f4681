"""What a decision changes in a Job, line by line: from what was submitted to what is there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from webhook.model.fields import child
from webhook.model.job import QUEUE_LABEL

_NAMED: Final = ("name", "key")
"""By which lists of objects are compared: a variable that is added renumbers no other."""


def lines(submitted: Mapping[str, Any], decided: Mapping[str, Any]) -> list[str]:
    """Return ``- path: value`` of what went and ``+ path: value`` of what came, by path.

    Of metadata only the queue counts: annotations and labels of ours say what the table says.
    """
    before, after = dict(_leaves(_compared(submitted))), dict(_leaves(_compared(decided)))
    found = []
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) == after.get(path):
            continue
        found += [
            f"{sign} {path}: {value[path]}"
            for sign, value in (("-", before), ("+", after))
            if path in value
        ]
    return found


def _compared(job: Mapping[str, Any]) -> Mapping[str, Any]:
    labels = job["metadata"].get("labels") or {}
    queue = {QUEUE_LABEL: labels[QUEUE_LABEL]} if QUEUE_LABEL in labels else {}
    spec = {key: value for key, value in (job.get("spec") or {}).items() if key != "suspend"}
    return {"metadata": {"labels": queue}, "spec": spec}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, below in value.items():
            if key == "metadata" and path:
                # Of a pod template: marks of ours, which nobody has to know.
                continue
            yield from _leaves(below, child(path, key))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, below in enumerate(value):
            yield from _leaves(below, f"{path}[{_name_of(below, index)}]")
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)


def _name_of(item: Any, index: int) -> str:
    if isinstance(item, Mapping):
        for key in _NAMED:
            if isinstance(item.get(key), str):
                return str(item[key])
    return str(index)
