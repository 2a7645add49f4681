"""Whether edits would make an object so large that the API server refuses what it would have taken.

It does so after all webhooks, so that there would be no Job at all.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Mapping
from typing import Any

from webhook.admission import places
from webhook.model.edits import Edit, Path

_ANNOTATIONS = (256 << 10) - (16 << 10)
"""Bytes of an object's annotations, keys and values: what Kubernetes allows, and room in it for
Kueue and for the record of later moves.
https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apimachinery/pkg/api/validation/objectmeta.go#L36
"""
_OBJECT = 1 << 20
"""Bytes of an object as it came: etcd takes 1.5 MiB of it and of what is added."""
_WITHOUT_REFERENCES = 2


def too_large(source: Mapping[str, Any], edits: Iterable[Edit]) -> str:
    """Say what of *source* would be too large with *edits*; empty: nothing."""
    changed: dict[Path, dict[str, Any]] = {}
    for edit in edits:
        if edit.path[-2] == "annotations":
            changed.setdefault(edit.path[:-1], {})[edit.path[-1]] = edit.value
    for path, values in changed.items():
        before = places.look(source, path)
        after = {**(before if isinstance(before, dict) else {}), **values}
        if _bytes(after) > _ANNOTATIONS:
            return f"{'.'.join(path)} would have more than {_ANNOTATIONS >> 10} KiB"
    # Of JSON's values, marshal makes about what JSON makes, in a tenth of the time.
    if changed and len(marshal.dumps(dict(source), _WITHOUT_REFERENCES)) > _OBJECT:
        return f"the Job has more than {_OBJECT >> 20} MiB"
    return ""


def _bytes(texts: Mapping[str, Any]) -> int:
    return sum(
        len(text.encode(errors="replace"))
        for pair in texts.items()
        if isinstance(pair[1], str)
        for text in pair
    )
