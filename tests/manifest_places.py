"""What a manifest has at a place."""

from __future__ import annotations

import re
from typing import Any

_PART = re.compile(r"([^.\[\]]+)|\[([^\]]+)\]")


def look(value: Any, path: str) -> Any:
    """Return what stands at a path such as `spec.containers[main].image`; None: nothing."""
    for plain, bracketed in _PART.findall(path):
        part = plain or bracketed
        if isinstance(value, list) and part.isdigit():
            value = value[int(part)]
        elif isinstance(value, list):
            named = [item for item in value if part in (item.get("name"), item.get("groupName"))]
            value = named[0] if named else None
        else:
            value = value.get(part)
        if value is None:
            return None
    return value
