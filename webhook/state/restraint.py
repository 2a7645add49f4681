"""Snapshots in which policies only observe, where decisions would rest on an untested Kueue."""

from __future__ import annotations

from operator import is_not

from webhook.model.kueue_support import Doubt, doubts
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode
from webhook.state.snapshot import Snapshot, updated


class Restraint:
    """Restrains snapshots; what has not changed since the last one stays the same object."""

    def __init__(self, *, stated_version: str = "", enforces: bool = False) -> None:
        """Judge with *stated_version*, Kueue's version as the settings have it; empty: none.

        *enforces*: doubts are reported, and policies keep their modes all the same.
        """
        self._stated_version = stated_version
        self._enforces = enforces
        self._judged: tuple[object, ...] = ()
        self._doubts: tuple[Doubt, ...] = ()
        self._policies: tuple[FallbackPolicy, ...] = ()

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with doubts about its Kueue, and with policies restrained by them."""
        setup, policies = snapshot.setup, snapshot.fallback.policies
        # Snapshots come several times a second, and Kueue's configuration hardly ever changes.
        asked = (setup.kueue, setup.kueue_manager, policies)
        if not self._judged or any(map(is_not, asked, self._judged)):
            self._judged = asked
            self._doubts = doubts(setup.kueue, setup.kueue_manager, self._stated_version)
            self._policies = policies
            if self._is_restrained:
                # Forecasts follow Kueue's rules in the versions that were tested: with others they
                # would be guesses (decision 0019).
                self._policies = tuple(restrained(policy, self._doubts[0]) for policy in policies)
        return updated(
            snapshot,
            doubts=self._doubts,
            policies=self._policies,
            is_restrained=self._is_restrained,
        )

    @property
    def _is_restrained(self) -> bool:
        return bool(self._doubts) and not self._enforces


def restrained(policy: FallbackPolicy, doubt: Doubt) -> FallbackPolicy:
    """Return a policy that only observes in the place of one that enforces.

    A policy that advises stays as it is, because it changes nothing that runs.
    """
    if policy.spec.mode is not Mode.ENFORCE:
        return policy
    spec = policy.spec.model_copy(update={"mode": Mode.OBSERVE})
    return policy.model_copy(update={"spec": spec, "restrained": doubt.message})
