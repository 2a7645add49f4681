"""What a Job itself says about time, in its annotations.

``max-slowdown``: how many times the first option's run an option may take. ``deadline``: a moment,
or a time from the Job's creation. ``max-wait``: the first option that starts within it is wanted.
``run-time``: what the Job expects of the first option.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from webhook.model.fields import FieldError
from webhook.model.job import OURS
from webhook.model.policy import fallback_policy
from webhook.model.policy.spec import DURATION

MAX_SLOWDOWN = OURS + "max-slowdown"
DEADLINE = OURS + "deadline"
MAX_WAIT = OURS + "max-wait"
RUN_TIME = OURS + "run-time"
_DURATION = re.compile(DURATION)
_LONGEST = 32
"""Characters of a duration, as in a policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """None: the Job says nothing about it."""

    max_slowdown: float | None = None
    deadline: float | None = None
    """In seconds from the Job's creation; below 0: it has passed."""
    max_wait: float | None = None
    """In seconds."""
    run_time: float | None = None
    """In seconds, in the first option."""


NONE = Wishes()


def read_wishes(annotations: Mapping[str, str], unix: float) -> Wishes:
    """Read the annotations of a Job that is created at *unix*, in seconds since 1970.

    Raises:
        FieldError: one of them cannot be read.

    """
    if not any(name.startswith(OURS) for name in annotations):
        return NONE
    return Wishes(
        max_slowdown=_slowdown(annotations.get(MAX_SLOWDOWN)),
        deadline=_deadline(annotations.get(DEADLINE), unix),
        max_wait=_seconds(annotations.get(MAX_WAIT), MAX_WAIT),
        run_time=_above_zero(annotations.get(RUN_TIME), RUN_TIME),
    )


def _slowdown(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 1.0 <= found < math.inf:
        raise _unreadable(MAX_SLOWDOWN, 'a number of at least 1 such as "3"', text)
    return found


def _deadline(text: str | None, unix: float) -> float | None:
    if text is None:
        return None
    if _is_duration(text):
        return fallback_policy.seconds(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        example = "2026-12-01T08:00:00Z, or a duration such as 45m"
        raise _unreadable(DEADLINE, f"a time such as {example}", text) from None
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - unix


def _seconds(text: str | None, name: str) -> float | None:
    if text is None:
        return None
    if not _is_duration(text):
        raise _unreadable(name, "a duration such as 90s or 1h30m", text)
    return fallback_policy.seconds(text)


def _is_duration(text: str) -> bool:
    return len(text) <= _LONGEST and _DURATION.fullmatch(text) is not None


def _above_zero(text: str | None, name: str) -> float | None:
    found = _seconds(text, name)
    if found == 0.0:
        raise _unreadable(name, "a duration above 0", str(text))
    return found


def _unreadable(name: str, expected: str, text: str) -> FieldError:
    return FieldError(f"metadata.annotations[{name}]", f"expected {expected}, got {text!r}")
