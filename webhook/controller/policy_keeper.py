"""Keeps the status of policies, AcceleratorProfiles and Tariffs as they are judged, while we lead.

How each is judged, and what is written, is ``policy_status``'s and ``cost_status``'s.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final

from webhook.api.client import Client, lets_resources_change
from webhook.api.kubernetes_api import ClusterError
from webhook.api.watch import WatchUpdate
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.cost_status import reconcile_costs
from webhook.controller.followed_watches import FollowedWatches
from webhook.controller.policy_status import (
    KEPT_SECONDS,
    Condition,
    KnownKinds,
    StatusReport,
    condition_of,
    reconcile_policies,
    reference_of,
)
from webhook.controller.world import World
from webhook.model.faults import Attention
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.reasons import Ready
from webhook.model.words import rfc3339
from webhook.settings import Settings
from webhook.state.snapshot import Snapshot

_TOLD_SECONDS: Final = 60.0
"""Between two writes of how many Jobs were not reviewed."""
_MOST_MISSED: Final = 10_000
AGAIN_SECONDS: Final = 1.0
"""Until the next try after a failed one."""


class PolicyKeeper:
    def __init__(
        self,
        client: Client,
        settings: Settings,
        *,
        is_leader: Callable[[], bool],
        metrics: ControllerMetrics,
        watches: FollowedWatches,
    ) -> None:
        """Ask *is_leader* right before each write."""
        self._client = client
        self._settings = settings
        self._is_leader = is_leader
        self._metrics = metrics
        self._watches = watches
        self.is_due = False
        """Whether a condition may have changed without a change of the snapshot."""
        self._reconciled = -1, frozenset[str]()
        """Generation of the snapshot, and the kinds not served, that were last reconciled with."""
        self._missed: deque[tuple[float, str]] = deque(maxlen=_MOST_MISSED)
        """When a Job was found that was not reviewed, in seconds since 1970, and its policy."""
        self._told: Mapping[str, str] = {}
        """What was last written of the Jobs of each policy, and when."""
        self._told_at = 0.0

    def note_unreviewed(self, policy: str) -> None:
        """Count a Job that a policy matches and that was created without a review."""
        self._missed.append((time.time(), policy))

    def take(self, message: WatchUpdate) -> tuple[str, ...]:
        """Note that policies have changed; return the lines to log, of which there are none.

        A policy that cannot be read changes no snapshot, but its status must say so.
        """
        self.is_due |= message.entries is not None or message.event is not None
        return ()

    def begin(self) -> None:
        """Judge all anew, as we lead from now on."""
        self.is_due = True

    def wait(self) -> float:
        """Return how soon to try again, in seconds."""
        return AGAIN_SECONDS if self.is_due else inf

    def _may_change(self, snapshot: Snapshot) -> bool:
        """Tell whether a condition may have changed."""
        # Of what is switched on it is known soon whether it is served, or why that is not known.
        if not self._watches.knows_served:
            return False
        if self.is_due or (snapshot.generation, self._watches.unserved) != self._reconciled:
            return True
        # While the webhook is down there may be many each second.
        return self._missing() != self._told and time.time() - self._told_at >= _TOLD_SECONDS

    def _missing(self) -> Mapping[str, str]:
        """Say of each policy how many of its Jobs were not reviewed within the last hour."""
        while self._missed and self._missed[0][0] <= time.time() - KEPT_SECONDS:
            self._missed.popleft()
        counts = Counter(name for _, name in self._missed)
        last = {name: at for at, name in self._missed}
        return {
            name: f"{count} {'Job' if count == 1 else 'Jobs'} created without a review "
            f"within an hour, the last before {rfc3339(last[name])}"
            for name, count in counts.items()
        }

    def step(self, world: World) -> list[str]:
        """Judge all if a condition may have changed, and write those that have.

        Return the lines to log.
        """
        snapshot = world.snapshot
        if not self._may_change(snapshot):
            return []
        unserved = self._watches.unserved
        # Whatever goes wrong before the end is tried again.
        self.is_due = True
        missing = self._missing()
        if missing != self._told:
            self._told, self._told_at = missing, time.time()
        try:
            report = reconcile_policies(
                self._client,
                snapshot,
                partial(self._judge, kinds=self._known_kinds(unserved)),
                clock=_now,
                is_leader=self._is_leader,
                of_teams=self._settings.team_policies,
            )
            costs = reconcile_costs(
                self._client, snapshot, unix=time.time(), time=_now(), is_leader=self._is_leader
            )
        except ClusterError as error:
            return [Attention(f"policies: {error}")]
        self.is_due = report.again or costs.again
        self._reconciled = snapshot.generation, unserved
        self._metrics.expect(snapshot)
        self._metrics.show(report.ready)
        self._metrics.writes.labels("written").inc(len(report.written))
        self._metrics.writes.labels("failed").inc(len(report.failed))
        return [*_lines(costs, str), *_lines(report, reference_of)]

    def _judge(self, policy: FallbackPolicy, snapshot: Snapshot, kinds: KnownKinds) -> Condition:
        ready = condition_of(policy, snapshot, own_namespace=self._settings.namespace, kinds=kinds)
        return replace(ready, unreviewed=self._told.get(policy.name, ""))

    def _known_kinds(self, unserved: frozenset[str]) -> KnownKinds:
        return KnownKinds(
            switched_on=frozenset(self._settings.kinds),
            unserved=unserved,
            changes_resources=self._changes_resources(),
        )

    def _changes_resources(self) -> bool:
        """Return whether Kubernetes lets a suspended Job's resources change.

        True if it is unknown.
        """
        try:
            return lets_resources_change(self._client.get("/version"))
        except ClusterError:
            return True


def _lines(report: StatusReport, named: Callable[[str], object]) -> Iterator[str]:
    crowded: set[str] = set()
    for name, condition in report.written:
        if condition.reason is Ready.TOO_MANY:
            # A namespace may have hundreds of them, and one line says it.
            namespace = reference_of(name).namespace
            if namespace in crowded:
                continue
            crowded.add(namespace)
        state = "ready" if condition.ready else f"not ready: {condition.message}"
        missed = f"; {condition.unreviewed}" if condition.unreviewed else ""
        line = f"{named(name)}: {state}{missed}"
        yield line if condition.ready and not missed else Attention(line)
    for name, message in report.failed:
        yield Attention(f"{named(name)}: status not written: {message}")


def _now() -> str:
    return rfc3339(time.time())
