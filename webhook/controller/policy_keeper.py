"""Keeps the status of policies, AcceleratorProfiles and Tariffs as they are judged, while we lead.

How each is judged, and what is written, is ``policy_status``'s and ``cost_status``'s.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from webhook.api.client import Client, lets_resources_change
from webhook.api.kubernetes_api import ClusterError
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.cost_status import reconcile_costs
from webhook.controller.policy_status import (
    KEPT_SECONDS,
    Condition,
    KnownKinds,
    PolicyReport,
    condition_of,
    reconcile_policies,
    reference_of,
)
from webhook.model.faults import Attention
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.queues import Snapshot
from webhook.model.reasons import Ready
from webhook.model.words import rfc3339
from webhook.settings import Settings

_TOLD_SECONDS: Final = 60.0
"""Between two writes of how many Jobs were not reviewed."""
_MOST_MISSED: Final = 10_000


class PolicyKeeper:
    def __init__(
        self,
        client: Client,
        settings: Settings,
        *,
        is_leader: Callable[[], bool],
        metrics: ControllerMetrics,
        log: Callable[[str], None],
    ) -> None:
        """Ask *is_leader* right before each write."""
        self._client = client
        self._settings = settings
        self._is_leader = is_leader
        self._metrics = metrics
        self._log = log
        self.is_due = False
        """Whether a condition may have changed without a change of the snapshot."""
        self._reconciled = -1
        """Generation of the snapshot that was last reconciled."""
        self._missed: deque[tuple[float, str]] = deque(maxlen=_MOST_MISSED)
        """When a Job was found that was not reviewed, in seconds since 1970, and its policy."""
        self._told: Mapping[str, str] = {}
        """What was last written of the Jobs of each policy, and when."""
        self._told_at = 0.0

    def note_unreviewed(self, policies: Iterable[str]) -> None:
        """Count Jobs that a policy matches and that were created without a review."""
        for name in policies:
            self._missed.append((time.time(), name))

    def may_change(self, snapshot: Snapshot) -> bool:
        """Tell whether a condition may have changed."""
        if self.is_due or snapshot.generation != self._reconciled:
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

    def step(self, snapshot: Snapshot, unserved: frozenset[str]) -> None:
        """Judge all, and write what has changed; *unserved* are kinds that are not served."""
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
            self._log(Attention(f"policies: {error}"))
            return
        for line in costs.lines:
            self._log(line)
        self.is_due = report.again or bool(report.failed) or costs.again
        self._reconciled = snapshot.generation
        self._metrics.expect(snapshot)
        self._report(report)

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

    def _report(self, report: PolicyReport) -> None:
        self._metrics.show(report.ready)
        self._metrics.writes.labels("written").inc(len(report.written))
        self._metrics.writes.labels("failed").inc(len(report.failed))
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
            line = f"{reference_of(name)}: {state}{missed}"
            is_well = condition.ready and not missed
            self._log(line if is_well else Attention(line))
        for name, message in report.failed:
            self._log(Attention(f"{reference_of(name)}: status not written: {message}"))


def _now() -> str:
    return rfc3339(time.time())
