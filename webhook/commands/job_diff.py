"""What a decision changes in a Job, a line a thing: from what was submitted to what is there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from webhook.model.fields import child
from webhook.model.job import ENV_PREFIX, OURS, PRIORITY_LABEL, QUEUE_LABEL

_NAMED: Final = ("name", "key")
"""By which lists of objects are compared: a variable that is added renumbers no other."""
_KEYED: Final[Mapping[str, str]] = {
    "labels": "label",
    "annotations": "annotation",
    "nodeSelector": "node selector",
}
_WHOLE: Final[Mapping[str, str]] = {
    "env": "env",
    "tolerations": "toleration",
    "topologySpreadConstraints": "topology spread",
}
"""Lists whose items are named whole, each by its own name."""
_COMPOSITE: Final = ("toleration ", "topology spread ", "affinity")
"""Things of several values, which are not named one by one."""
_TOPOLOGY: Final = "kueue.x-k8s.io/podset-"
_NONE: Final = "none"
_WORDS: Final[Mapping[str, str]] = {
    QUEUE_LABEL: "queue",
    PRIORITY_LABEL: "priority class",
    "image": "image",
    "runtimeClassName": "runtime class",
}

_Leaf: TypeAlias = tuple[str, tuple[str, ...]]
"""Path of a value as the API server writes it, and its keys one by one."""


def things(submitted: Mapping[str, Any], decided: Mapping[str, Any]) -> list[str]:
    """Return ``nvidia.com/gpu 1 → none`` for each thing that was changed, the queue first.

    What several containers or both requests and limits have in common is said once; a variable
    that is read from an annotation of ours counts as its value.
    """
    before = dict(_leaves(_resolved(_compared(submitted))))
    after = dict(_leaves(_resolved(_compared(decided))))
    named: dict[str, list[tuple[str | None, str | None]]] = {}
    for leaf in sorted(before.keys() | after.keys(), key=_rank):
        pair = before.get(leaf), after.get(leaf)
        if pair[0] != pair[1]:
            named.setdefault(_name(leaf), []).append(pair)
    return [line for name, pairs in named.items() for line in _said(name, pairs)]


def lines(submitted: Mapping[str, Any], decided: Mapping[str, Any]) -> list[str]:
    """Return ``- path: value`` of what went and ``+ path: value`` of what came, by path."""
    before, after = dict(_leaves(_compared(submitted))), dict(_leaves(_compared(decided)))
    found = []
    for leaf in sorted(before.keys() | after.keys()):
        if before.get(leaf) == after.get(leaf):
            continue
        found += [
            f"{sign} {leaf[0]}: {value[leaf]}"
            for sign, value in (("-", before), ("+", after))
            if leaf in value
        ]
    return found


def _compared(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what people gave: labels, annotations and spec, but for the word that suspends."""
    metadata = {key: job["metadata"].get(key) or {} for key in ("labels", "annotations")}
    spec = {key: value for key, value in (job.get("spec") or {}).items() if key != "suspend"}
    return {"metadata": metadata, "spec": spec}


def _resolved(value: Any, annotations: Mapping[str, Any] | None = None) -> Any:
    """Return an object whose variables have the values that stand in annotations of ours."""
    if isinstance(value, Mapping):
        metadata = value.get("metadata")
        if isinstance(metadata, Mapping):
            annotations = metadata.get("annotations") or {}
        held = _held(value)
        if held and held in (annotations or {}):
            return {"name": value.get("name"), "value": (annotations or {})[held]}
        return {key: _resolved(below, annotations) for key, below in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_resolved(item, annotations) for item in value]
    return value


def _held(entry: Mapping[str, Any]) -> str:
    """Return the annotation of ours that a variable is read from; empty: none."""
    source: Any = entry.get("valueFrom")
    field = source.get("fieldRef") if isinstance(source, Mapping) else None
    path = str(field.get("fieldPath")) if isinstance(field, Mapping) else ""
    named = path.removeprefix("metadata.annotations['").removesuffix("']")
    return named if named.startswith(ENV_PREFIX) else ""


def _leaves(value: Any, path: str = "", keys: tuple[str, ...] = ()) -> Iterator[tuple[_Leaf, str]]:
    if isinstance(value, Mapping):
        for key, below in value.items():
            # Marks of ours, which nobody has to know.
            if not str(key).startswith(OURS) and not (key == "manager" and _is_ours(below)):
                yield from _leaves(below, child(path, key), (*keys, str(key)))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, below in enumerate(value):
            name = _name_of(below, index)
            yield from _leaves(below, f"{path}[{name}]", (*keys, name))
    else:
        yield (path, keys), value if isinstance(value, str) else json.dumps(value)


def _is_ours(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(OURS)


def _name_of(item: Any, index: int) -> str:
    if isinstance(item, Mapping):
        for key in _NAMED:
            if isinstance(item.get(key), str):
                return str(item[key])
    return str(index)


def _rank(leaf: _Leaf) -> tuple[int, _Leaf]:
    """Order things: the queue, what is asked for, what the containers see, all else."""
    _, keys = leaf
    if keys[-1] == QUEUE_LABEL:
        return 0, leaf
    if "resources" in keys:
        return 1, leaf
    return (2 if "env" in keys else 3), leaf


def _name(leaf: _Leaf) -> str:
    """Return what people call a value."""
    path, keys = leaf
    above, key = ("", *keys)[-2:]
    if key in _WORDS:
        return _WORDS[key]
    if above in ("requests", "limits"):
        return key
    if above == "annotations" and key.startswith(_TOPOLOGY):
        return key.removeprefix(_TOPOLOGY).replace("-", " ")
    if above in _KEYED:
        return f"{_KEYED[above]} {key}"
    for whole, word in _WHOLE.items():
        if whole in keys[:-1]:
            return f"{word} {keys[keys.index(whole) + 1]}"
    return "affinity" if "affinity" in keys else path


def _said(name: str, pairs: Sequence[tuple[str | None, str | None]]) -> Iterator[str]:
    """Yield what became of a thing; of one of several values only that it changed."""
    distinct = list(dict.fromkeys(pairs))
    is_composite = name.startswith(_COMPOSITE) or (name.startswith("env ") and len(distinct) > 1)
    if not is_composite:
        for old, new in distinct:
            yield f"{name} {_text(old)} → {_text(new)}"
    elif all(new is None for _, new in distinct):
        yield f"{name} removed"
    else:
        yield f"{name} {'added' if all(old is None for old, _ in distinct) else 'changed'}"


def _text(value: str | None) -> str:
    return _NONE if value is None else value or '""'
