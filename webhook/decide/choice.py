"""What a strategy answers, and the words that all strategies say it in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from webhook.decide.wishes import NONE, Wishes
from webhook.model.decision import Assessment
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode
from webhook.model.words import clip


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """The Job, as far as strategies are concerned."""

    submitted: str = ""
    """The LocalQueue that it would go to unasked."""
    wishes: Wishes = NONE
    draw: float = 0.5
    """In [0, 1), each decision's own: by it near ties are settled."""
    probability: float = 0.8
    """How likely a gain must be for a more preferred option to be left."""


UNASKED = Asking()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    index: int | None
    """Which option is taken; None: the Job is left as submitted."""
    sentence: str


def take(
    policy: FallbackPolicy,
    assessments: Sequence[Assessment],
    index: int,
    *,
    submitted: str,
    because: Iterable[str],
) -> Choice:
    """Take one option: ``sent to cpu-lq (cpu): starts now; gpu-lq has 12 pending``."""
    taken = assessments[index]
    acts = policy.spec.mode is Mode.ENFORCE
    if taken.queue == submitted:
        verb = "stays in" if acts else "would stay in"
    else:
        verb = "sent to" if acts else "would be sent to"
    reasons = "; ".join(because)
    place = f"{taken.option} on {taken.cluster}" if taken.cluster else taken.option
    return Choice(index=index, sentence=clip(f"{verb} {taken.queue} ({place}): {reasons}"))


def leave(assessments: Sequence[Assessment]) -> Choice:
    """Leave the Job as submitted, for what speaks against each option."""
    refusals = [f"{item.option}: {item.rejection.detail}" for item in assessments if item.rejection]
    return Choice(index=None, sentence=clip(f"left as submitted: {'; '.join(refusals)}"))
