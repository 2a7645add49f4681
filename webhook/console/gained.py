"""Adds the result of a look back to what is shown: decisions made elsewhere, and gains. Pure.

A Job of a policy that observes carries no decision, so only the replica that decided knows it; the
others show what a replay decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from webhook.console.decisions import KEPT
from webhook.console.view import JOURNAL, Savings, ShownDecision
from webhook.hindsight.savings_record import Gained
from webhook.model.policy.fallback_policy import Mode

SAME_SECONDS: Final = 3.0
"""Longest time between a decision and its Job's creation: two clocks, both in whole seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookback:
    decisions: tuple[ShownDecision, ...] = ()
    """Decisions on Jobs that cannot be found by the label of a decision."""
    gained: tuple[Gained, ...] = ()


NOTHING: Final = Lookback()


def merged(
    known: Sequence[ShownDecision], told: Iterable[ShownDecision]
) -> tuple[ShownDecision, ...]:
    """Return the *known* decisions and those of other Jobs from a look back; the newest first.

    A line of the log has only the prefix of a generated name.
    """
    waiting: defaultdict[tuple[str, str], list[ShownDecision]] = defaultdict(list)
    for decision in known:
        if decision.mode != Mode.ENFORCE:
            waiting[decision.namespace, decision.policy].append(decision)
    added = []
    for decision in sorted(told, key=lambda each: (each.at, each.id)):
        same = waiting[decision.namespace, decision.policy]
        found = next((each for each in same if _is_same(each, decision)), None)
        if found is None:
            added.append(decision)
        else:
            same.remove(found)
    together = sorted((*known, *added), key=lambda each: (-each.at, each.id))
    return tuple(together[:KEPT])


def _is_same(known: ShownDecision, told: ShownDecision) -> bool:
    return told.job.startswith(known.job) and abs(told.at - known.at) <= SAME_SECONDS


def enforced(gained: Iterable[Gained]) -> Savings | None:
    """Return what decisions that were carried out have gained; None: nothing was replayed."""
    return _summed([each for each in gained if each.mode == Mode.ENFORCE])


def promised(gained: Iterable[Gained]) -> Savings | None:
    """Return what those of policies that observe or advise would have gained; None: unknown."""
    return _summed([each for each in gained if each.mode != Mode.ENFORCE])


def _summed(gained: Sequence[Gained]) -> Savings | None:
    if not gained:
        return None
    return Savings(
        since=min(each.since for each in gained),
        jobs=sum(each.jobs for each in gained),
        moved=sum(each.moved for each in gained),
        saved_seconds=sum(each.saved_seconds for each in gained),
        slower=sum(each.slower for each in gained),
        rests=JOURNAL,
        margin_seconds=sum(each.margin_seconds for each in gained),
    )
