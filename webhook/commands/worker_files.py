"""Saved states of worker clusters, for replays of their manager's Jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from webhook.kueue import multikueue
from webhook.model.fields import FieldError
from webhook.model.queues import Snapshot
from webhook.simulate.scenario import Worker, emptied
from webhook.state.snapshot_file import read_snapshot

_OPTION = "--cluster"


def read(given: Sequence[str], manager: Snapshot) -> Mapping[str, Worker]:
    """Read what was given as NAME=FILE; a replay begins with empty queues.

    Raises:
        FieldError: one is not written so, nothing leads to it, or its file cannot be read.

    """
    found: dict[str, Worker] = {}
    reached = multikueue.reached(manager)
    for each in given:
        name, sign, path = each.partition("=")
        if not (name and sign and path):
            raise FieldError(_OPTION, f"expected NAME=FILE, got {each}")
        if name not in reached:
            there = ", ".join(reached) or "none"
            message = f"no ClusterQueue leads to {name} through MultiKueue; there is {there}"
            raise FieldError(_OPTION, message)
        found[name] = Worker(snapshot=emptied(read_snapshot(path, 0.0, 0.0)))
    return found
