"""A look back to the record that is published: what moved Jobs saved, and past decisions. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from webhook.hindsight.gains import gains
from webhook.hindsight.journal import JournalEntry
from webhook.hindsight.look_back import Hindsight, ReplayedJob
from webhook.hindsight.savings_record import MOST_DECISIONS, Gained, PastDecision, SavingsRecord
from webhook.model.policy.fallback_policy import Mode

SINCE_SECONDS: Final = 86_400.0
"""Jobs from before count as load, but for no gain, as in ``report``."""


def summed_up(hindsight: Hindsight, *, now: float) -> SavingsRecord:
    """Return what is published at *now*, in seconds since 1970; Jobs in no replay gain nothing."""
    since = max(
        now - SINCE_SECONDS, min((each.entry.created for each in hindsight.told), default=now)
    )
    found = [decision for each in hindsight.told if (decision := _decision(each)) is not None]
    newest = sorted(found, key=lambda each: (-each.at, each.id))
    return SavingsRecord(
        as_of=now,
        gained=tuple(_gained(hindsight, since=since, until=now)),
        decisions=tuple(newest[:MOST_DECISIONS]),
    )


def _gained(hindsight: Hindsight, *, since: float, until: float) -> Iterator[Gained]:
    # Gains of the others would be the forecasts of their decisions.
    told = tuple(each for each in hindsight.told if not each.unseen)
    for row in gains(replace(hindsight, told=told), since=since, until=until).rows:
        if row.policy and row.saved is not None:
            yield Gained(
                policy=row.policy,
                namespace=row.namespace,
                mode=row.mode,
                since=since,
                jobs=row.over,
                moved=row.moved,
                saved_seconds=row.saved,
                margin_seconds=row.margin,
                slower=row.slower,
            )


def _decision(told: ReplayedJob) -> PastDecision | None:
    """Return the advice that the Job carries, or a replay's decision for one that carries none."""
    entry = told.entry
    if entry.mode == Mode.ADVISE:
        return _advised(entry)
    result, policy = told.promised, told.policy
    if entry.policy or policy is None or policy.spec.mode is not Mode.OBSERVE or result is None:
        return None
    stays = f"leave it where it is ({result.why})"
    taken = f"send it to {result.queue} ({result.option})" if result.is_moved else stays
    return PastDecision(
        id=_id(entry),
        at=entry.created,
        namespace=entry.namespace,
        job=entry.name,
        policy=policy.name,
        mode=str(policy.spec.mode),
        option=result.option,
        queue=result.queue,
        reason=f"a replay of the journal would {taken}",
    )


def _advised(entry: JournalEntry) -> PastDecision:
    queues = {offer.option: offer.queue for offer in entry.offers}
    queue = queues.get(entry.option) or entry.queue
    taken = f"sending it to {queue} ({entry.option})" if entry.option else "leaving it"
    return PastDecision(
        id=_id(entry),
        at=entry.created + entry.decided_in,
        namespace=entry.namespace,
        job=entry.name,
        policy=entry.policy,
        mode=entry.mode,
        option=entry.option,
        queue=queue,
        reason=f"advised {taken}, as the journal tells",
        options=entry.offers,
    )


def _id(entry: JournalEntry) -> str:
    """Return an id made from its Job: the decision's own id is not in the journal."""
    return f"job-{entry.uid or entry.key}"
