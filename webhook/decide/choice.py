"""What strategies are asked and what they answer, in the sentence that all of them use.

It must not know how an option is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from webhook.decide.wishes import NONE, Wishes
from webhook.model.decision import Assessment
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode
from webhook.model.words import clip


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What a strategy needs to know of a Job, beside its options."""

    submitted: str = ""
    """The LocalQueue that it is submitted to; empty: none."""
    wishes: Wishes = NONE
    draw: float = 0.5
    """In [0, 1), different for each decision; it settles near ties."""
    probability: float = 0.8
    """How likely a gain must be for a preferred option to be passed over."""


UNASKED = Asking()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    index: int | None
    """Of the option taken, in the policy's order; None: the Job is left as submitted."""
    sentence: str


def take(
    policy: FallbackPolicy,
    assessments: Sequence[Assessment],
    index: int,
    *,
    submitted: str,
    because: Iterable[str],
) -> Choice:
    """Return the choice of one option: ``sent to cpu-lq (cpu): starts now; gpu-lq has 12 pending``.

    *submitted* is the LocalQueue that the Job is submitted to.
    """
    taken = assessments[index]
    # In the other modes the Job is left where it is, so the sentence says "would".
    acts = policy.spec.mode is Mode.ENFORCE
    if taken.queue == submitted:
        verb = "stays in" if acts else "would stay in"
    else:
        verb = "sent to" if acts else "would be sent to"
    # MultiKueue chooses the cluster; the one named is expected to take the Job.
    reasons = "; ".join(because)
    place = f"{taken.option} on {taken.cluster}" if taken.cluster else taken.option
    return Choice(index=index, sentence=clip(f"{verb} {taken.queue} ({place}): {reasons}"))


def leave(assessments: Sequence[Assessment]) -> Choice:
    """Return the choice of no option, with the reason why each one is refused."""
    # Each refusal has its numbers, so that the user sees what would have to change.
    refusals = [f"{item.option}: {item.rejection.detail}" for item in assessments if item.rejection]
    return Choice(index=None, sentence=clip(f"left as submitted: {'; '.join(refusals)}"))
