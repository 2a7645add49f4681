"""Turns snapshots into ones whose policies only observe while the cluster's Kueue is untested.

It is applied where snapshots are made, so every reader of a policy's mode sees the one in effect.
It must not know how Jobs are decided.
"""

from __future__ import annotations

from dataclasses import replace
from operator import is_not
from typing import Any

from webhook.model.kueue_support import Doubt, doubts
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode
from webhook.model.queues import Snapshot


class Restraint:
    """Restrains snapshots; what has not changed since the last one stays the same object."""

    def __init__(self, *, stated_version: str = "", enforces: bool = False) -> None:
        """Judge with *stated_version*, Kueue's version as the settings have it; empty: none.

        *enforces*: doubts are reported, and policies keep their modes all the same.
        """
        self._stated_version = stated_version
        self._enforces = enforces
        self._judged: tuple[object, ...] = ()
        self._answer: dict[str, Any] = {}

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with doubts about its Kueue, and with policies restrained by them."""
        # Snapshots come several times a second, and Kueue's configuration hardly ever changes.
        asked = (snapshot.kueue, snapshot.kueue_manager, snapshot.policies)
        if not self._answer or any(map(is_not, asked, self._judged)):
            self._judged, self._answer = asked, self._judge(snapshot)
        return replace(snapshot, **self._answer)

    def _judge(self, snapshot: Snapshot) -> dict[str, Any]:
        found = doubts(snapshot.kueue, snapshot.kueue_manager, self._stated_version)
        if not found or self._enforces:
            return {"doubts": found, "is_restrained": False}
        # Forecasts follow Kueue's rules in the versions that were tested: with others they would
        # be guesses (decision 0019).
        policies = tuple(restrained(policy, found[0]) for policy in snapshot.policies)
        return {"doubts": found, "is_restrained": True, "policies": policies}


def restrained(policy: FallbackPolicy, doubt: Doubt) -> FallbackPolicy:
    """Return a policy that only observes in the place of one that enforces.

    A policy that advises stays as it is, because it changes nothing that runs.
    """
    if policy.spec.mode is not Mode.ENFORCE:
        return policy
    spec = policy.spec.model_copy(update={"mode": Mode.OBSERVE})
    return policy.model_copy(update={"spec": spec, "restrained": doubt.message})
