"""What was decided for all pods of a group, as text that every replica reads alike."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any, Final

GROUP: Final = "kueue.x-k8s.io/pod-group-name"
"""A label or an annotation of its pods, of which Kueue reads the annotation first."""
TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"
_KEY: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_LONGEST: Final = 1024
"""Characters of a claim: the names of a policy, an option and a LocalQueue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupClaim:
    """The one decision of a group, which all of its pods follow."""

    policy: str = ""
    option: str = ""
    """Empty: all of its pods stay as they were submitted."""
    queue: str = ""
    """The LocalQueue of the option."""
    unix: int = 0
    """When it was made, in seconds since 1970."""

    @property
    def text(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"), sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAsked:
    """A group whose first pod a server has just decided, if no other server has."""

    number: int
    """By which the server knows the answer."""
    namespace: str
    group: str
    claim: GroupClaim
    """What it would be."""
    dry_run: bool = False
    """Then none is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAgreed:
    """The answer: the claim that counts, or why there is none."""

    number: int
    claim: GroupClaim | None = None
    problem: str = ""


def key_of(namespace: str, group: str) -> str:
    """Return the key of a group among the claims; empty: it can have none, as it has no such name.

    A namespace's name has no dot, so that no two groups have one key.
    """
    key = f"{namespace}.{group}"
    return key if _KEY.fullmatch(key) else ""


def read_claim(text: object) -> GroupClaim | None:
    """Read what ``GroupClaim.text`` wrote; None: it is something else."""
    try:
        source = json.loads(text) if isinstance(text, str) and len(text) <= _LONGEST else None
        return _claim(source)
    except (ValueError, RecursionError):
        return None


def _claim(source: Any) -> GroupClaim | None:
    if not isinstance(source, dict) or source.keys() != {*GroupClaim.__dataclass_fields__}:
        return None
    names = [source[key] for key in ("policy", "option", "queue")]
    unix = source["unix"]
    if not all(isinstance(name, str) for name in names) or type(unix) is not int:
        return None
    policy, option, queue = names
    return GroupClaim(policy=policy, option=option, queue=queue, unix=unix)
