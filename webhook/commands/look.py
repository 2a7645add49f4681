"""One part of a status: what was seen, or why it was not; and what of it needs attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from webhook.api.errors import Forbidden


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    shown: Any = None
    """Objects, lists and plain values, as programs get them."""
    forbidden: str = ""
    """The API server's words, where the user may not see it."""
    unknown: str = ""
    """Why nothing is known of it."""
    trouble: tuple[str, ...] = ()

    @property
    def hidden(self) -> str:
        """Say in one word and more why nothing is shown; empty: it is."""
        if self.forbidden:
            return f"forbidden: {self.forbidden}"
        return f"unknown: {self.unknown}" if self.unknown else ""

    def as_json(self) -> Any:
        if self.forbidden:
            return {"forbidden": self.forbidden}
        return {"unknown": self.unknown} if self.unknown else self.shown


Looks: TypeAlias = Callable[[], Part]


def looked(look: Looks) -> Part:
    """Look; what the user may not see is a part of the answer, not a failure."""
    try:
        return look()
    except Forbidden as error:
        return Part(forbidden=str(error))
