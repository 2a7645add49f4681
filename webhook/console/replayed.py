"""Replays of the journal to the decisions and gains that the console shows. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.console.decisions import KEPT
from webhook.console.gained import Lookback
from webhook.console.view import ShownDecision, ShownOption
from webhook.hindsight.gains import Row, gains
from webhook.hindsight.journal import JournalEntry
from webhook.hindsight.look_back import Hindsight, ReplayedJob
from webhook.hindsight.savings_record import Gained
from webhook.model.policy.fallback_policy import Mode

SINCE_SECONDS: Final = 86_400.0
"""Jobs from before count as load, but for no gain, as in ``report``."""


def lookback(hindsight: Hindsight, *, now: float) -> Lookback:
    """Return what counts at *now*, in seconds since 1970."""
    came = [each.entry.created for each in hindsight.told]
    since = max(now - SINCE_SECONDS, min(came, default=now))
    rows = gains(hindsight, since=since, until=now).rows
    found = [decision for each in hindsight.told if (decision := _decision(each)) is not None]
    newest = sorted(found, key=lambda each: (-each.at, each.id))
    return Lookback(decisions=tuple(newest[:KEPT]), gained=tuple(_gained(rows, since)))


def _gained(rows: tuple[Row, ...], since: float) -> Iterator[Gained]:
    for row in rows:
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


def _decision(told: ReplayedJob) -> ShownDecision | None:
    """Return the advice that the Job carries, or a replay's decision for one that carries none."""
    entry = told.entry
    if entry.mode == Mode.ADVISE:
        return _advised(entry)
    result, policy = told.promised, told.policy
    if entry.policy or policy is None or policy.spec.mode is not Mode.OBSERVE or result is None:
        return None
    stays = f"leave it where it is ({result.why})"
    taken = f"send it to {result.queue} ({result.option})" if result.is_moved else stays
    return ShownDecision(
        id=_id(entry),
        at=entry.created,
        namespace=entry.namespace,
        job=entry.name,
        policy=policy.name,
        mode=str(policy.spec.mode),
        option=result.option,
        queue=result.queue,
        reason=f"a replay of the journal would {taken}",
        options=(),
        is_replayed=True,
    )


def _advised(entry: JournalEntry) -> ShownDecision:
    queues = {offer.option: offer.queue for offer in entry.offers}
    queue = queues.get(entry.option) or entry.queue
    taken = f"sending it to {queue} ({entry.option})" if entry.option else "leaving it"
    return ShownDecision(
        id=_id(entry),
        at=entry.created + entry.decided_in,
        namespace=entry.namespace,
        job=entry.name,
        policy=entry.policy,
        mode=entry.mode,
        option=entry.option,
        queue=queue,
        reason=f"advised {taken}, as the journal tells",
        options=tuple(
            ShownOption(
                name=offer.option,
                queue=offer.queue,
                pending=None,
                starts_in=offer.starts_in,
                runs=offer.runs,
                finishes_in=offer.finishes_in,
                rejected=offer.rejected,
            )
            for offer in entry.offers
        ),
    )


def _id(entry: JournalEntry) -> str:
    """Return an id made from its Job: the decision's own id is not in the journal."""
    return f"job-{entry.uid or entry.key}"
