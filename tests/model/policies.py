"""A valid policy, and many broken ones with the path of each mistake and words about it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
VALID: Mapping[str, Any] = yaml.safe_load((HERE / "valid_policy.yaml").read_text())


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    it: str
    policy: Mapping[str, Any]
    want: list[tuple[str, str]]
    """Path, and words of the message."""


def policy(**spec: Any) -> dict[str, Any]:
    """Return a copy of the valid policy whose spec is changed by a merge patch."""
    changed: dict[str, Any] = copy.deepcopy(merged(VALID, {"spec": spec}))
    return changed


def broken() -> list[Broken]:
    cases = yaml.safe_load((HERE / "broken_policies.yaml").read_text())
    return [
        Broken(
            it=case["it"],
            policy=merged(VALID, case["patch"]),
            want=[tuple(line.split(": ", 1)) for line in case["want"]],
        )
        for case in cases
    ]


def merged(target: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found
