"""The user who asks for a Job, as the API server has authenticated them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from webhook.model import fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Requester:
    """The user of a review, which is who creates a Job or asks for a move of it.

    A label may say anything; this is what an option can safely be kept for.
    """

    name: str = ""
    """Such as ``alice`` or ``system:serviceaccount:ci:runner``."""
    groups: frozenset[str] = frozenset()


def read_requester(source: Mapping[str, Any], path: str) -> Requester:
    """Read a ``userInfo`` of Kubernetes' authentication API.

    Raises:
        FieldError: it cannot be read; the path begins with *path*.

    """
    groups = fields.strings(source, "groups", path)
    return Requester(name=fields.text(source, "username", path), groups=frozenset(groups))
