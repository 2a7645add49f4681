"""Turns pod sets into what they are with other numbers of replicas, or says why they may not be.

Which pod sets have a number that may change, and between which bounds, their kind has said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from webhook.model.decision import Rejection
from webhook.model.job import Job, PodSet, of_pod_sets
from webhook.model.policy.fallback_policy import Adaptation
from webhook.model.reasons import Reason


def refusal(job: Job, adaptation: Adaptation) -> Rejection | None:
    """Return why a Job may not have the replicas that an adaptation gives it; None: it may."""
    if not adaptation.replicas:
        return None
    detail = of_pod_sets(_refused, job.pod_sets, adaptation)
    return Rejection(reason=Reason.REPLICAS_NOT_ALLOWED, detail=detail) if detail else None


def _refused(pod_sets: Sequence[PodSet], adaptation: Adaptation) -> str:
    return next(_problems(pod_sets, adaptation), "")


def _problems(pod_sets: Sequence[PodSet], adaptation: Adaptation) -> Iterator[str]:
    by_name = {pod_set.name: pod_set for pod_set in pod_sets}
    for name, wanted in adaptation.replicas.items():
        pod_set = by_name.get(name)
        if pod_set is None:
            yield f"no pod set {name}; the Job has {', '.join(by_name)}"
        elif pod_set.replicas is None:
            yield f"the number of pods of {name} may not change"
        elif wanted < pod_set.replicas.least:
            yield f"{wanted} replicas of {name}, at least {pod_set.replicas.least}"
        elif wanted > pod_set.replicas.most:
            yield f"{wanted} replicas of {name}, at most {pod_set.replicas.most}"


def with_replicas(pod_set: PodSet, adaptation: Adaptation) -> PodSet:
    """Return a pod set with the replicas that an adaptation gives it; else the very same object."""
    wanted, now = adaptation.replicas.get(pod_set.name), pod_set.replicas
    if wanted is None or now is None or now.number == wanted:
        return pod_set
    count = wanted * now.pods_each
    return replace(pod_set, count=count, replicas=replace(now, number=wanted, given=wanted))
