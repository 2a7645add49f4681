"""Says what to do next where nothing is decided yet, with the commands to type."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Final

from webhook.console.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    text: str
    commands: tuple[str, ...]


_WITHOUT_POLICIES: Final = (
    Step(
        text="See what a policy would gain, from finished Jobs. Nothing is changed.",
        commands=("kubectl fallback estimate",),
    ),
    Step(
        text="Write a policy that only watches, with mode: Observe, and check it.",
        commands=(
            "kubectl fallback check -f policy.yaml",
            "kubectl apply -f policy.yaml",
        ),
    ),
    Step(
        text="Ask what it would do with your Job, and after a day what it would have saved.",
        commands=("kubectl fallback explain -f job.yaml", "kubectl fallback report"),
    ),
)
_WITHOUT_DECISIONS: Final = (
    Step(
        text="Check that the policies are ready. A policy that is not says why.",
        commands=("kubectl get fallbackpolicies",),
    ),
    Step(
        text="Ask what would be decided for your Job, and which policy matches it.",
        commands=("kubectl fallback explain -f job.yaml",),
    ),
    Step(
        text="Submit the Job. Its decision is on this page within seconds.",
        commands=("kubectl create -f job.yaml",),
    ),
)


def first_steps(view: View) -> tuple[Step, ...]:
    """Return the next three steps; none where Jobs are decided already, or nothing is known yet."""
    if view.decisions or not isfinite(view.age):
        return ()
    return _WITHOUT_DECISIONS if view.policies else _WITHOUT_POLICIES
