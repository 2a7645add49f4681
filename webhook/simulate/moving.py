"""Looks at pending Jobs during a replay, as the controller does: by the same code, at its pace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from webhook.model.job import Job
from webhook.model.pending import Pending
from webhook.model.queues import Arrival, Snapshot
from webhook.reconsider import choose, offers
from webhook.simulate.replayed_forecasts import Forecasts

LOOK_SECONDS = 2.0
MOST_AT_ONCE = 16


class Moving:
    """The Jobs that a policy reconsiders, as long as they wait."""

    def __init__(self, snapshot: Snapshot, forecasts: Forecasts) -> None:
        self._policies = {each.name for each in choose.policies_of(snapshot)}
        self._trees = choose.trees(snapshot)
        self._forecasts = forecasts
        self._pending: dict[str, Pending] = {}
        self._arrived = 1
        """Moves made so far, and one: so many are made at once."""
        self._at = inf

    @property
    def next_look(self) -> float:
        """Say when to look again; inf: there is nobody to look at."""
        return self._at if self._pending else inf

    def join(self, key: str, job: Job, arrival: Arrival, now: float) -> None:
        """Let a Job wait that was created now, or moved."""
        if arrival.policy not in self._policies:
            return
        if not self._pending:
            self._at = now + LOOK_SECONDS
        self._pending[key] = Pending(
            uid=key,
            version="",
            created=self._forecasts.unix(now),
            job=job,
            queue=arrival.local_queue,
            policy=arrival.policy,
            option=arrival.option,
            changed=self._forecasts.unix(now),
        )

    def start(self, key: str) -> None:
        self._pending.pop(key, None)

    def look(self, snapshot: Snapshot, now: float) -> Sequence[tuple[str, Arrival]]:
        """Choose moves: the keys, and what then stands in line in their place."""
        self._at = now + LOOK_SECONDS
        world = offers.World(
            snapshot=snapshot,
            censuses=self._forecasts.censuses(self._trees),
            workloads=choose.by_job(self._forecasts.waiting()),
            now=now,
            unix=self._forecasts.unix(now),
        )
        most = min(self._arrived, MOST_AT_ONCE)
        looked = choose.look(world, self._pending.values(), most=most)
        self._arrived += len(looked.moves)
        found = []
        for move, arrival in zip(looked.moves, looked.arrivals, strict=True):
            key = move.candidate.key.partition("/")[2]
            self._pending[key] = _moved(self._pending[key], arrival, world.unix)
            found.append((key, arrival))
        return found


def _moved(before: Pending, arrival: Arrival, unix: float) -> Pending:
    return replace(
        before,
        queue=arrival.local_queue,
        option=arrival.option,
        moves=before.moves + 1,
        changed=unix,
    )
