"""Removes the ownership of values that we replaced from ``metadata.managedFields``.

The API server notes before admission who sets a field. So the sender of a value that is then
replaced owns it all the same, and server-side apply of that value by anybody else conflicts.
https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apiserver/pkg/endpoints/handlers/fieldmanager/admission.go
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from webhook.model.edits import KEYED_BY_NAME, Operation, Path, to_pointer

_VALUE = "f:value"


def disowned(source: Mapping[str, Any], variables: Iterable[Path]) -> list[Operation]:
    """List the operations after which nobody owns the literal value of these variables."""
    metadata = source.get("metadata")
    entries = metadata.get("managedFields") if isinstance(metadata, dict) else None
    claimed = [(*_fields_of(path), _VALUE) for path in variables]
    return [
        {"op": "remove", "path": to_pointer(("metadata", "managedFields", str(index), *path))}
        for index, entry in enumerate(entries if isinstance(entries, list) else ())
        for path in claimed
        if _is_there(entry, path)
    ]


def _fields_of(path: Path) -> Iterator[str]:
    """Yield the parts of a path as managed fields write it: ``f:env``, ``k:{"name":"A"}``."""
    yield "fieldsV1"
    above = ""
    for part in path:
        is_name = above in KEYED_BY_NAME
        key = json.dumps({"name": part}, separators=(",", ":"), ensure_ascii=False)
        yield f"k:{key}" if is_name else f"f:{part}"
        above = "" if is_name else part


def _is_there(node: Any, path: Path) -> bool:
    for part in path:
        if not isinstance(node, dict) or part not in node:
            return False
        node = node[part]
    return True
