"""What would be decided for a Job's manifest if it were created now; nothing follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webhook.flow import create, decided_job
from webhook.jobs import kind_of
from webhook.kueue.counted_arrivals import occupancy_of
from webhook.model.decision import CreateOutcome
from webhook.model.queues import Snapshot
from webhook.model.requester import Requester
from webhook.model.words import rfc3339


def considered(
    source: Mapping[str, Any],
    snapshot: Snapshot,
    *,
    unix: float,
    requester: Requester | None = None,
    own_namespace: str = "",
) -> CreateOutcome:
    """Decide a Job as admission would; a decision that it carries is undone first.

    *unix* is the snapshot's instant in seconds since 1970; *requester* None: nobody knows who asks.

    Raises:
        FieldError: something in the Job cannot be read.

    """
    kind = kind_of(source)
    recorded = decided_job.read(source, kind).recorded
    moment = create.Moment(
        now=snapshot.as_of,
        unix=unix,
        time=rfc3339(unix),
        uid="0",
        # A decision made seconds ago must not count as one of this very admission.
        visible=frozenset() if recorded is None else frozenset({recorded.id}),
        requester=requester,
        is_dry_run=True,
    )
    rules = create.Rules(own_namespace=own_namespace, undoes_all=True)
    return create.consider(source, kind, occupancy_of(snapshot, ()), moment, rules)
