"""What is told of a move on the cluster: the Event on the Job, and the mark of a repair."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final

from webhook.cluster.workload import REPAIR

__all__ = ["REPAIR", "event"]

_LONGEST: Final = 1024
"""Characters of an Event's message."""


def event(key: str, uid: str, text: str) -> Mapping[str, Any]:
    """Write the Event of a Job that was moved."""
    namespace, _, name = key.partition("/")
    now = datetime.now(UTC)
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    told = f"{uid} {text} {now.timestamp()}".encode()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{name[:200]}.{blake2b(told, digest_size=8).hexdigest()}",
            "namespace": namespace,
        },
        "involvedObject": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "namespace": namespace,
            "name": name,
            "uid": uid,
        },
        "type": "Normal",
        "reason": "Moved",
        "message": text[:_LONGEST],
        "count": 1,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "source": {"component": "kueue-fallback"},
    }
