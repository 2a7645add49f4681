"""Adds what the controller published of the journal: decisions made elsewhere, and gains. Pure.

A Job of a policy that observes carries no decision, so only the replica that decided knows it; the
others show what a replay decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from webhook.console.decisions import KEPT
from webhook.console.view import JOURNAL, Savings, ShownDecision, ShownOption
from webhook.hindsight.savings_record import Gained, PastDecision, SavingsRecord
from webhook.model.policy.fallback_policy import Mode

SAME_SECONDS: Final = 3.0
"""Longest time between a decision and its Job's creation: two clocks, both in whole seconds."""
NOTHING: Final = SavingsRecord(as_of=0.0)


def merged(known: Sequence[ShownDecision], record: SavingsRecord) -> tuple[ShownDecision, ...]:
    """Return the *known* decisions and those of other Jobs from the record; the newest first.

    A line of the log has only the prefix of a generated name.
    """
    waiting: defaultdict[tuple[str, str], list[ShownDecision]] = defaultdict(list)
    for decision in known:
        if decision.mode != Mode.ENFORCE:
            waiting[decision.namespace, decision.policy].append(decision)
    added = []
    for past in sorted(record.decisions, key=lambda each: (each.at, each.id)):
        same = waiting[past.namespace, past.policy]
        found = next((each for each in same if _is_same(each, past)), None)
        if found is None:
            added.append(_shown(past))
        else:
            same.remove(found)
    together = sorted((*known, *added), key=lambda each: (-each.at, each.id))
    return tuple(together[:KEPT])


def _is_same(known: ShownDecision, past: PastDecision) -> bool:
    return past.job.startswith(known.job) and abs(past.at - known.at) <= SAME_SECONDS


def _shown(past: PastDecision) -> ShownDecision:
    return ShownDecision(
        id=past.id,
        at=past.at,
        namespace=past.namespace,
        job=past.job,
        policy=past.policy,
        mode=past.mode,
        option=past.option,
        queue=past.queue,
        reason=past.reason,
        options=tuple(
            ShownOption(
                name=each.option,
                queue=each.queue,
                pending=None,
                starts_in=each.starts_in,
                runs=each.runs,
                finishes_in=each.finishes_in,
                rejected=each.rejected,
            )
            for each in past.options
        ),
        is_replayed=past.mode != Mode.ADVISE,
    )


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
