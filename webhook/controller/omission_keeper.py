"""Keeps new Jobs of namespaces in which no policy can match from being sent to the webhook.

It writes one match condition into our webhook configuration and nothing else. A namespace that a
policy may match is taken off at once, before anything else is done; one is put on when none has for
a while. A namespace that is not known is sent, and so is everything once nobody renews the
condition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from webhook.api.kubernetes_api import ClusterError, KubernetesApi
from webhook.api.resources import WEBHOOKS
from webhook.decide import match
from webhook.model import omitted_namespaces
from webhook.model.faults import Attention
from webhook.state.readers import OUR_WEBHOOK
from webhook.state.snapshot import Snapshot

LASTING_SECONDS: Final = 300.0
"""From a write on; the condition is renewed after half of it."""
QUIET_SECONDS: Final = 30.0
"""For so long no policy must have matched in a namespace. Also between two writes that put
namespaces on, so that many new ones are one write."""
MOST_OMITTED: Final = 1000
"""Namespaces; those of further ones are sent. CEL takes no longer for many, but reading does."""
RETRY_SECONDS: Final = 2.0
"""After a failed write."""
UNSEEN_SECONDS: Final = 5.0
"""Within so long our own watch tells of what was written."""
MANAGER: Final = "kueue-fallback-controller"


class OmissionKeeper:
    def __init__(
        self,
        transport: KubernetesApi,
        configuration: str,
        own_namespace: str,
        *,
        is_leader: Callable[[], bool],
    ) -> None:
        """Write the *configuration* of that name while *is_leader*."""
        self._transport = transport
        self._configuration, self._own_namespace = configuration, own_namespace
        self._is_leader = is_leader
        self._unmatched: dict[str, float] = {}
        """Namespaces in which no policy matches, with the monotonic time since when."""
        self._written: frozenset[str] = frozenset()
        self._before: frozenset[str] = frozenset()
        """What stood there when that was written."""
        self._written_at = float("-inf")
        self._put_on_at = float("-inf")
        self._again_at = float("-inf")
        """No write before, as the last one has failed."""
        self._said = ""

    def step(
        self, snapshot: Snapshot, *, is_sure: bool, now: float, unix: float
    ) -> tuple[str, ...]:
        """Bring the condition up to date; return the lines to log.

        Nothing is left out unless *is_sure*: policies and namespaces are known as they are.
        """
        if not self._is_leader() or not snapshot.fallback.reviewed_namespaces:
            self._written_at = float("-inf")
            return ()
        standing = self._standing(snapshot, now)
        wanted = self._wanted(snapshot, standing, now) if is_sure else frozenset()
        to_be_written = self._is_to_be_written(snapshot, standing, wanted, now)
        if not to_be_written or now < self._again_at:
            return ()
        return self._write(standing, wanted, now=now, unix=unix)

    def _standing(self, snapshot: Snapshot, now: float) -> frozenset[str]:
        """Return what is left out, also where our own watch has not told of our write yet."""
        seen = snapshot.fallback.omitted_namespaces
        is_unseen = seen == self._before and now < self._written_at + UNSEEN_SECONDS
        return self._written if is_unseen else seen

    def _wanted(self, snapshot: Snapshot, standing: frozenset[str], now: float) -> frozenset[str]:
        unmatched = {
            name
            for name in snapshot.cluster.namespaces
            if not match.may_match(name, snapshot, self._own_namespace)
        }
        self._unmatched = {name: self._unmatched.get(name, now) for name in unmatched}
        for_long = (
            name
            for name, since in sorted(self._unmatched.items())
            if name in standing or since <= now - QUIET_SECONDS
        )
        return frozenset(list(for_long)[:MOST_OMITTED])

    def _is_to_be_written(
        self, snapshot: Snapshot, standing: frozenset[str], wanted: frozenset[str], now: float
    ) -> bool:
        # Of those that are gone nothing can be sent, so they can wait for the next write.
        if any(name in snapshot.cluster.namespaces for name in standing - wanted):
            return True
        if wanted - standing and now >= self._put_on_at + QUIET_SECONDS:
            return True
        return bool(standing) and now >= self._written_at + LASTING_SECONDS / 2

    def _write(
        self, standing: frozenset[str], wanted: frozenset[str], *, now: float, unix: float
    ) -> tuple[str, ...]:
        conditions = [
            {
                "name": omitted_namespaces.CONDITION,
                "expression": omitted_namespaces.expression_without(
                    wanted, until=unix + LASTING_SECONDS
                ),
            }
        ]
        ours = {"name": OUR_WEBHOOK, **({"matchConditions": conditions} if wanted else {})}
        body = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": self._configuration},
            "webhooks": [ours],
        }
        path = f"/apis/{body['apiVersion']}/{WEBHOOKS}/{self._configuration}"
        try:
            self._transport.apply(path, body, manager=MANAGER)
        except ClusterError as error:
            self._again_at = now + RETRY_SECONDS
            text = f"namespaces that are left out: {error}"
            said, self._said = self._said, Attention(text)
            return () if said == self._said else (self._said,)
        self._said = ""
        self._before, self._written, self._written_at = standing, wanted, now
        if wanted - standing:
            self._put_on_at = now
        return _lines(standing, wanted)


def _lines(before: frozenset[str], after: frozenset[str]) -> tuple[str, ...]:
    """Say what has changed; a renewal is nothing to tell."""
    if before == after:
        return ()
    changed = f"{len(after - before)} more, {len(before - after)} less"
    return (
        f"new Jobs of {len(after)} namespaces in which no policy can match are not sent: {changed}",
    )
