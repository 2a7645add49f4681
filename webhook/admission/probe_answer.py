"""The answer to a probe: a dry run that asks whether the API server calls this webhook at all.

Under ``failurePolicy: Ignore`` a webhook that cannot be reached looks like one that has nothing to
say, so a probe's own words must come back.
"""

from __future__ import annotations

import re

from webhook.admission.review import Review, Verdict
from webhook.model.job import PROBE

_NONCE = re.compile(r"[0-9a-z-]{1,64}")


def answer(review: Review, *, seen_by: str) -> Verdict | None:
    """Answer a dry run that carries a nonce with the nonce, and do nothing else; None: no probe."""
    if not review.dry_run or review.operation != "CREATE":
        return None
    metadata = review.object.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    nonce = annotations.get(PROBE) if isinstance(annotations, dict) else None
    if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce):
        return None
    return Verdict(uid=review.uid, warnings=(text(nonce, seen_by=seen_by),))


def text(nonce: str, *, seen_by: str = "") -> str:
    """Word the warning; without *seen_by* it is what every answer to this nonce begins with."""
    return f"kueue-fallback: probe {nonce} seen by {seen_by}"
