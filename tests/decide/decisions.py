"""Decisions with a won and a lost option."""

from __future__ import annotations

from webhook.decide import decision_record
from webhook.model.decision import Assessment, Decision, Fit, Rejection
from webhook.model.policy.fallback_policy import Mode
from webhook.model.reasons import Reason

SENTENCE = "sent to cpu-lq (cpu): starts now; gpu-lq has 12 pending"


GPU = Assessment(
    option="gpu",
    queue="gpu-lq",
    cluster_queue="gpu-cq",
    fit=Fit.WAITS,
    pending=12,
    reserving=4,
    detail="needs nvidia.com/gpu 1 (flavor t4), 0 free",
)


CPU = Assessment(
    option="cpu",
    queue="cpu-lq",
    cluster_queue="cpu-cq",
    fit=Fit.FITS,
    starts_now=True,
    pending=0,
    reserving=1,
    detail="flavor default",
)


LOST = Assessment(
    option="spot",
    queue="spot-lq",
    rejection=Rejection(
        reason=Reason.QUEUE_NOT_FOUND, detail="LocalQueue spot-lq not found in namespace team"
    ),
)


def decision(*options, option="cpu", reason=SENTENCE):
    return Decision(
        id="0a1b-00c0ffee",
        time="2026-11-21T06:00:00Z",
        policy="light-gpu",
        mode=Mode.ENFORCE,
        option=option,
        left_alone=None,
        reason=reason,
        from_queue="gpu-lq",
        state_age_seconds=0.25,
        options=options or (GPU, CPU, LOST),
    )


def annotation(decided, original=None):
    """Return a decision as its Job's annotation has it, with what an undo puts back."""
    return decision_record.to_json(decision_record.record_of(decided), original or {})
