"""How much of the time that is asked about the journal really covers. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from webhook.hindsight.journal import LONGEST_DAYS, SLOT_SECONDS, hours_kept

_DAY_HOURS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    hours: int
    """Hours since the oldest one with Jobs in the journal; a quiet hour in between counts."""
    of: int


def coverage(oldest: int | None, *, since: float, until: float) -> Coverage:
    """Return it for that time, in seconds since 1970; *oldest*: the journal's oldest slot."""
    of = round((until - since) / SLOT_SECONDS)
    if oldest is None:
        return Coverage(hours=0, of=of)
    covered = int((until - oldest * SLOT_SECONDS) // SLOT_SECONDS)
    return Coverage(hours=max(0, min(of, covered)), of=of)


def as_json(found: Coverage) -> dict[str, Any]:
    return {"covered": found.hours, "of": found.of}


def as_text(found: Coverage) -> str:
    """Return what to set so that it is more; empty: it covers all, or no setting would help."""
    if found.hours >= found.of or found.of <= hours_kept(1):
        return ""
    days = min(LONGEST_DAYS, ceil(found.of / _DAY_HOURS))
    told = f"The journal covers {found.hours} of {found.of} hours"
    return f"{told}; to keep more, set journal_days: {days}."
