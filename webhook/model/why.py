"""Why a Job stays where it was submitted, in the words of a closed set."""

from __future__ import annotations

from collections.abc import Iterable

from webhook.model.reasons import Explained


class Stayed(Explained):
    """Besides the reasons of a decision; these say why it was no other option."""

    BEST = (
        "best",
        "where it was submitted is the option that the strategy takes",
        "Nothing.",
    )
    ONLY = (
        "onlyOption",
        "its policy has no other option",
        "Nothing, or add an option to the policy.",
    )
    UNDECIDED = (
        "noDecision",
        "a policy matches it, yet no decision stands on it",
        "Nothing, if all was off or the policy is newer; else see `kueue-fallback status`.",
    )


def why_stayed(taken: str, left_alone: str, options: Iterable[tuple[str, str]]) -> str:
    """Say it of a decision; *options* are pairs of names and why they were refused, or nothing.

    Where every other option was refused, the first one's reason says more than that this is best.
    """
    if left_alone:
        return left_alone
    others = [refused for name, refused in options if name != taken]
    if not others:
        return str(Stayed.ONLY)
    return others[0] if all(others) else str(Stayed.BEST)
