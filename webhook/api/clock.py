"""How far this machine's clock is from an API server's, by the Date of its answers.

Ages, deadlines and starts are told by times that the API server wrote and by this machine's clock.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from webhook.model.faults import Attention
from webhook.model.words import span

MOST_APART_SECONDS = 60.0
"""Clocks that are this close make no difference to anyone who reads a start or a wait."""


class ClockOffset:
    """The offset of one client's last answer; its threads write it, and one reads the news."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """By how much this machine's clock is ahead at least; negative: behind."""
        self._are_apart = False

    def note(self, date: str | None, *, sent: float, received: float) -> None:
        """Take the Date of an answer; both times are in seconds since 1970, by this clock."""
        try:
            at = parsedate_to_datetime(date or "").timestamp()
        except ValueError:
            return
        # Date has whole seconds, and was taken at some moment in between.
        self.seconds = max(0.0, sent - at - 1) or min(0.0, received - at)

    def notice(self) -> str:
        """Return that both clocks differ; empty: they hardly do."""
        return notice_of(self.seconds)

    def news(self) -> tuple[str, ...]:
        """Return a line to log where the clocks begin to differ, or agree again."""
        notice = self.notice()
        if bool(notice) == self._are_apart:
            return ()
        self._are_apart = bool(notice)
        return (Attention(notice) if notice else "the clock agrees with the API server's again",)


def notice_of(seconds: float) -> str:
    """Return that this clock is *seconds* ahead of the API server's; empty: hardly."""
    if abs(seconds) <= MOST_APART_SECONDS:
        return ""
    where = "ahead of" if seconds > 0 else "behind"
    apart = f"this machine's clock is {span(abs(seconds))} {where} the API server's"
    return f"{apart}, so waits, starts and deadlines are told wrong by that"
