"""The HorizontalPodAutoscaler that a policy wants for a service: its bounds, metrics and targets.

All numbers come from the model by which the option was chosen (``cost.service_level``). The targets
are those at which the warm replicas still hold the latency, as more replicas hold it at a higher
utilisation. It must not know what autoscalers there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import floor
from typing import Any, Final

from webhook.cost.service_level import (
    MOST_REPLICAS,
    most_rate,
    replicas_for,
    requests_each,
)
from webhook.decide import filters, options
from webhook.decide.applicant import Applicant, Moment, read_applicant
from webhook.jobs import BY_NAME
from webhook.kueue.capacity import most_workloads
from webhook.kueue.requests import needs
from webhook.model.decision import Rejection
from webhook.model.job import OURS, Job, Pending
from webhook.model.policy.fallback_policy import FallbackPolicy, Option
from webhook.model.policy.spec import Autoscale
from webhook.state.occupancy import Occupancy

AUTOSCALED_BY: Final = OURS + "autoscaled-by"
"""On an autoscaler of ours: the policy that wants it."""
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
STABLE_SECONDS: Final = 300
"""For how long no more replicas must have been wanted before one is removed."""
SHRINK_SECONDS: Final = 60
"""From one removal to the next."""
_BEHAVIOUR: Final = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
    },
    "scaleDown": {
        "stabilizationWindowSeconds": STABLE_SECONDS,
        "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": SHRINK_SECONDS}],
    },
}
"""Twice as many within 15 seconds, and one less a minute once none more was wanted for five."""
_TOLERANCE: Final = 1.1
"""Kubernetes adds replicas only once a metric is so many times its target:
https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedAutoscaler:
    """What the HorizontalPodAutoscaler of one service is to be."""

    name: str
    policy: str
    spec: Mapping[str, Any]
    full: str = ""
    """Of what the quota holds no more than ``maxReplicas``; empty: the service wants no more."""


def wanted_autoscaler(
    service: Pending, policy: FallbackPolicy, occupancy: Occupancy, moment: Moment
) -> WantedAutoscaler | str:
    """Return what a service is scaled by in the option that it has, or why it is not scaled.

    *policy* says ``autoscale``. What the queues hold now counts for nothing.
    """
    job, scaled = service.job, policy.spec.autoscale
    if not BY_NAME[job.kind].resizes:
        return f"Kueue lets the replicas of a {job.kind} change only from and to 0"
    option = next((each for each in policy.spec.options if each.name == service.option), None)
    if option is None or scaled is None:
        return f"its policy has no option {service.option} any more"
    applicant = read_applicant(job, policy, occupancy, moment, created=service.created)
    applicant = replace(applicant, submitted=service.queue)
    queues = filters.resolve(option, job, applicant.submitted, applicant.snapshot)
    if isinstance(queues, Rejection):
        return queues.detail
    _, queue = queues
    adapted, snapshot = options.adapted(job, option, policy), applicant.snapshot
    asked = needs(adapted, snapshot.cluster, snapshot.setup.kueue)
    if not asked:
        return "it has no pods"
    if not _follows(scaled) and not all(each.per_pod.get("cpu") for each in asked):
        return "its pods request no cpu, and the policy names no metric to follow instead"
    held = most_workloads(asked, queue, occupancy.forest, snapshot.setup)
    if held == 0:
        return f"the quota of ClusterQueue {queue.name} holds no replica"
    full = "" if held is None else f"ClusterQueue {queue.name}"
    return _wanted(applicant, option, scaled, held=held or MOST_REPLICAS, full=full)


def _wanted(
    applicant: Applicant, option: Option, scaled: Autoscale, *, held: int, full: str
) -> WantedAutoscaler | str:
    """Return the autoscaler; *held* replicas are all that *full* can hold."""
    wishes, job = applicant.wishes, applicant.job
    rate, target = wishes.request_rate, wishes.target_latency
    if rate is None or target is None:
        return "it says no request-rate and target-latency"
    known = options.known_replica(applicant, option)
    if known is None:
        return f"what one replica does in option {option.name} is not known"
    speed = known.speed
    level = replicas_for(rate, target, speed)
    if level is None:
        return f"no number of replicas holds its target-latency in option {option.name}"
    most = min(held, wishes.max_replicas or held)
    least = min(most, scaled.min_replicas or level.replicas)
    held_rate = most_rate(target, least, speed)
    metrics = _metrics(
        job,
        scaled,
        # One that is met only by a request that does not wait would ask for more without end.
        latency=max(target / _TOLERANCE, speed.latency),
        utilisation=held_rate / (least * speed.per_second) / _TOLERANCE,
        requests=requests_each(held_rate, least, speed) / _TOLERANCE,
    )
    return WantedAutoscaler(
        name=f"{job.kind.lower()}-{job.name}",
        policy=applicant.policy.name,
        spec={
            "scaleTargetRef": _reference(job),
            "minReplicas": least,
            "maxReplicas": most,
            "metrics": list(metrics),
            "behavior": _BEHAVIOUR,
        },
        full=full if most == held else "",
    )


def _follows(scaled: Autoscale) -> bool:
    return scaled.queue_length is not None or scaled.latency is not None


def _reference(job: Job) -> Mapping[str, str]:
    return {"apiVersion": BY_NAME[job.kind].api_version, "kind": job.kind, "name": job.name}


def _metrics(
    job: Job, scaled: Autoscale, *, latency: float, utilisation: float, requests: float
) -> Iterator[Mapping[str, Any]]:
    """Yield what is followed, with its target: by Kubernetes, the one that wants most counts.

    *latency* is in seconds; *utilisation* and *requests* are those of one replica.
    """
    if scaled.queue_length is not None:
        target = {"type": "AverageValue", "averageValue": _quantity(requests)}
        yield _external(job, scaled.queue_length, target)
    if scaled.latency is not None:
        target = {"type": "Value", "value": _quantity(latency)}
        yield _external(job, scaled.latency, target)
    if not _follows(scaled):
        percent = {"type": "Utilization", "averageUtilization": max(1, floor(100 * utilisation))}
        yield {"type": "Resource", "resource": {"name": "cpu", "target": percent}}


def _external(job: Job, metric: str, target: Mapping[str, str]) -> Mapping[str, Any]:
    # A namespace may have several services, whose series differ by this label.
    selector = {"matchLabels": {job.kind.lower(): job.name}}
    named = {"name": metric, "selector": selector}
    return {"type": "External", "external": {"metric": named, "target": target}}


def _quantity(number: float) -> str:
    """Write a number as Kubernetes does, in thousandths where it is not whole."""
    thousandths = max(1, floor(1000 * number))
    whole, rest = divmod(thousandths, 1000)
    return f"{thousandths}m" if rest else str(whole)
