"""Answers a probe: a dry run that asks whether the API server calls this webhook at all.

Under ``failurePolicy: Ignore`` a webhook that cannot be reached looks like one that has nothing to
say, so the answer repeats the probe's nonce.
"""

from __future__ import annotations

import re

from webhook.admission.review import Review, Verdict
from webhook.model.job import PROBE

_NONCE = re.compile(r"[0-9a-z-]{1,64}")


def answer(review: Review, *, seen_by: str) -> Verdict | None:
    """Return a verdict that only repeats the nonce of a dry run; None: the review is no probe."""
    if not review.dry_run or review.operation != "CREATE":
        return None
    metadata = review.object.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    nonce = annotations.get(PROBE) if isinstance(annotations, dict) else None
    # Anybody may send a dry run: only what cannot mislead a reader is repeated.
    if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce):
        return None
    return Verdict(uid=review.uid, warnings=(text(nonce, seen_by=seen_by),))


def text(nonce: str, *, seen_by: str = "") -> str:
    """Return the warning; without *seen_by*, the beginning of every answer to this nonce."""
    return f"kueue-fallback: probe {nonce} seen by {seen_by}"
