"""The match condition by which new Jobs of some namespaces are not sent to the webhook.

The leading controller keeps it in the webhook configuration. It ends by itself: the API server
compares its own time, in ``managedFields``, with the end that is written there, so that without a
controller everything is sent again as installed. What carries anything of ours is always sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Final

from webhook.model.job import OURS
from webhook.model.words import rfc3339

CONDITION: Final = "in-a-namespace-that-a-policy-may-match"
"""Its name in ``matchConditions``."""
_NAMES: Final = re.compile(r"request\.namespace in (\[[^\]]*\])")


def expression_without(names: Collection[str], *, until: float) -> str:
    """Write the condition in CEL; it holds for every Job from *until* on, seconds since 1970."""
    ours = f"exists(key, key.startsWith('{OURS}'))"
    marked = (
        f"(has(object.metadata.{texts}) && object.metadata.{texts}.{ours})"
        for texts in ("labels", "annotations")
    )
    fields = "object.metadata.managedFields"
    # Times of managedFields are RFC 3339 in UTC and whole seconds, so they compare as texts.
    later = f"{fields}.exists(entry, has(entry.time) && entry.time >= '{rfc3339(until)}')"
    return " || ".join(
        (
            f"!(request.namespace in {json.dumps(sorted(names))})",
            *marked,
            f"!has({fields})",
            later,
        )
    )


def read_omitted(expression: str) -> frozenset[str]:
    """Return the namespaces that a condition leaves out; none if it is not one of ours."""
    found = _NAMES.search(expression)
    try:
        names = json.loads(found[1]) if found is not None else []
    except ValueError:
        return frozenset()
    return frozenset(name for name in names if isinstance(name, str))
