"""Why a Job stays where it was submitted, in the words of a closed set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

BEST: Final = "best"
"""Where it was submitted is the option that the strategy takes."""
ONLY: Final = "onlyOption"
UNDECIDED: Final = "noDecision"
"""A policy matches it, yet no decision stands on it: nobody was asked, or all was switched off."""


def why_stayed(taken: str, left_alone: str, options: Iterable[tuple[str, str]]) -> str:
    """Say it of a decision; *options* are pairs of names and why they were refused, or nothing.

    Where every other option was refused, the first one's reason says more than that this is best.
    """
    if left_alone:
        return left_alone
    others = [refused for name, refused in options if name != taken]
    if not others:
        return ONLY
    return others[0] if all(others) else BEST
