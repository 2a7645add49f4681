"""Policies that enforce only observe while Kueue is one that is untested, unless told otherwise.

Done where snapshots are made, so that whoever reads a policy's mode reads what is done.
"""

from __future__ import annotations

from dataclasses import replace
from operator import is_not
from typing import Any

from webhook.model.kueue_support import Doubt, doubts
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode
from webhook.model.queues import Snapshot


class Restraint:
    """Remembers its last answer, so that what has not changed stays the same object."""

    def __init__(self, *, stated_version: str = "", enforces: bool = False) -> None:
        """*enforces*: doubts are named, and policies do what they say all the same."""
        self._stated_version = stated_version
        self._enforces = enforces
        self._judged: tuple[object, ...] = ()
        self._answer: dict[str, Any] = {}

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """Judge the snapshot's Kueue, and return it with policies that do no more than they may."""
        asked = (snapshot.kueue, snapshot.kueue_manager, snapshot.policies)
        if not self._answer or any(map(is_not, asked, self._judged)):
            self._judged, self._answer = asked, self._judge(snapshot)
        return replace(snapshot, **self._answer)

    def _judge(self, snapshot: Snapshot) -> dict[str, Any]:
        found = doubts(snapshot.kueue, snapshot.kueue_manager, self._stated_version)
        if not found or self._enforces:
            return {"doubts": found, "is_restrained": False}
        policies = tuple(restrained(policy, found[0]) for policy in snapshot.policies)
        return {"doubts": found, "is_restrained": True, "policies": policies}


def restrained(policy: FallbackPolicy, doubt: Doubt) -> FallbackPolicy:
    """Let a policy that enforces only observe; advice stays, because it touches nothing."""
    if policy.spec.mode is not Mode.ENFORCE:
        return policy
    spec = policy.spec.model_copy(update={"mode": Mode.OBSERVE})
    return policy.model_copy(update={"spec": spec, "restrained": doubt.message})
