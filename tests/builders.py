"""Values for tests, built from keyword arguments; what is left out is small and unremarkable.

Quantities are written as in manifests; quotas as ``{flavor: {resource: quantity}}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from webhook.decide.applicant import Applicant, Moment
from webhook.kueue.forecast import forecast
from webhook.kueue.queue_lines import pending_group
from webhook.kueue.simulation import Running
from webhook.model import quantity
from webhook.model.forecasts import Basis, RunTime
from webhook.model.job import QUEUE_LABEL, Job, PodSet, Requester
from webhook.model.pods import EVERYTHING, Container, PodTemplate, Resources
from webhook.model.policy.fallback_policy import FallbackPolicy, read_policy, read_team_policy
from webhook.model.queues import (
    Arrival,
    ClusterQueue,
    Cohort,
    Held,
    LocalQueue,
    PodSetNeeds,
    Quota,
    ResourceFlavor,
    ResourceGroup,
)
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.forecast_input import forecast_givens
from webhook.state.snapshot import Snapshot, updated

NAMESPACE = "team"


def container(
    name: str = "main",
    *,
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    **rest: Any,
) -> Container:
    return Container(
        name=name, resources=Resources(requests=requests or {}, limits=limits or {}), **rest
    )


def template(*containers: Container, init: Iterable[Container] = (), **rest: Any) -> PodTemplate:
    return PodTemplate(containers=containers or (container(),), init_containers=tuple(init), **rest)


def job(
    *containers: Container,
    queue: str = "gpu-lq",
    count: int = 1,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    pods: PodTemplate | None = None,
    **rest: Any,
) -> Job:
    found = dict(labels or {})
    if queue:
        found[QUEUE_LABEL] = queue
    shape = pods or template(*containers)
    return Job(
        namespace=rest.pop("namespace", NAMESPACE),
        name=rest.pop("name", "light-1"),
        labels=found,
        annotations=annotations or {},
        pod_sets=(PodSet(name="main", count=count, template=shape),),
        **rest,
    )


def group(
    quotas: Mapping[str, Mapping[str, str | Quota]],
    *,
    borrowing: str | None = None,
    lending: str | None = None,
) -> ResourceGroup:
    """One resource group; *borrowing* and *lending* are limits of every cell."""
    cells = {
        (flavor, resource): amount
        if isinstance(amount, Quota)
        else Quota(
            nominal=quantity.parse(amount, resource=resource),
            borrowing_limit=_limit(borrowing, resource),
            lending_limit=_limit(lending, resource),
        )
        for flavor, amounts in quotas.items()
        for resource, amount in amounts.items()
    }
    resources = {resource: None for amounts in quotas.values() for resource in amounts}
    return ResourceGroup(resources=tuple(resources), flavors=tuple(quotas), quotas=cells)


def cluster_queue(
    name: str = "gpu-cq",
    quotas: Mapping[str, Mapping[str, str | Quota]] | None = None,
    *,
    groups: Iterable[ResourceGroup] | None = None,
    borrowing: str | None = None,
    lending: str | None = None,
    **rest: Any,
) -> ClusterQueue:
    if groups is None:
        groups = [group(quotas or {"default": {"cpu": "10"}}, borrowing=borrowing, lending=lending)]
    return ClusterQueue(
        name=name, groups=tuple(groups), namespaces=rest.pop("namespaces", EVERYTHING), **rest
    )


def cohort(
    name: str, quotas: Mapping[str, Mapping[str, str | Quota]] | None = None, **rest: Any
) -> Cohort:
    limits = {key: rest.pop(key, None) for key in ("borrowing", "lending")}
    return Cohort(name=name, groups=(group(quotas, **limits),) if quotas else (), **rest)


def snapshot(
    *cluster_queues: ClusterQueue,
    cohorts: Iterable[Cohort] = (),
    flavors: Iterable[ResourceFlavor] = (),
    local_queues: Mapping[str, str] | None = None,
    **rest: Any,
) -> Snapshot:
    """Build a snapshot whose namespace ``team`` has a LocalQueue ``x-lq`` for each ``x-cq``.

    *local_queues* (name to ClusterQueue) stands in their place. Flavors that quotas name exist.
    """
    names = local_queues
    if names is None:
        names = {queue.name.removesuffix("-cq") + "-lq": queue.name for queue in cluster_queues}
    named = {name for queue in cluster_queues for each in queue.groups for name in each.flavors}
    found = {name: ResourceFlavor(name=name) for name in sorted(named)}
    return updated(
        Snapshot(),
        cluster_queues={queue.name: queue for queue in cluster_queues},
        local_queues={
            (NAMESPACE, name): LocalQueue(namespace=NAMESPACE, name=name, cluster_queue=target)
            for name, target in names.items()
        },
        cohorts={each.name: each for each in cohorts},
        flavors=found | {flavor.name: flavor for flavor in flavors},
        generation=rest.pop("generation", 1),
        **rest,
    )


def foreseen(
    known: Snapshot,
    *runs: tuple[str, Mapping[str, Mapping[str, str]], float],
    waiting: Iterable[tuple[Arrival, float]] = (),
    now: float = 0.0,
) -> Snapshot:
    """Return a snapshot with the forecasts of its trees.

    *runs*: (ClusterQueue, usage, seconds from *now* until it ends); *waiting*: what is pending, in
    Kueue's order, with the seconds that each runs.
    """
    seconds: dict[str, float] = {}
    running, queued = [], []
    for number, (cluster_queue, usage, left) in enumerate(runs):
        seconds[f"run-{number}"] = left
        running.append(
            Running(
                cluster_queue=cluster_queue,
                usage=held(usage).usage,
                job_class=f"run-{number}",
                started_at=now,
            )
        )
    for number, (each, lasts) in enumerate(waiting):
        seconds[f"waits-{number}"] = lasts
        queued.append(pending_group(each, job_class=f"waits-{number}"))

    def run_time_of(job_class: str, _flavors: str) -> RunTime | None:
        if (found := seconds.get(job_class)) is None:
            return None
        return RunTime(seconds=found, low=found, high=found, basis=Basis.ANNOTATION)

    return replace(
        known, forecasts=forecast(forecast_givens(known, run_time_of, now), running, queued)
    )


def held(
    usage: Mapping[str, Mapping[str, str]] | None = None,
    *,
    pending: int = 0,
    reserving: int = 0,
    **rest: Any,
) -> Held:
    cells = {
        (flavor, resource): quantity.parse(amount, resource=resource)
        for flavor, amounts in (usage or {}).items()
        for resource, amount in amounts.items()
    }
    return Held(pending=pending, reserving=reserving, usage=cells, **rest)


def needs(
    per_pod: Mapping[str, str] | None = None, *, count: int = 1, pods: PodTemplate | None = None
) -> PodSetNeeds:
    return PodSetNeeds(
        name="main",
        count=count,
        per_pod={
            resource: quantity.parse(amount, resource=resource)
            for resource, amount in (per_pod or {}).items()
        },
        template=pods or template(),
    )


def arrival(
    key: str = "a",
    per_pod: Mapping[str, str] | None = None,
    *,
    local_queue: str = "gpu-lq",
    **rest: Any,
) -> Arrival:
    return Arrival(
        key=key,
        namespace=NAMESPACE,
        local_queue=local_queue,
        needs=(needs(per_pod, count=rest.pop("count", 1)),),
        **rest,
    )


def policy(
    *options: Mapping[str, Any],
    name: str = "light-gpu",
    threshold: Iterable[Mapping[str, Any]] | None = None,
    **spec: Any,
) -> FallbackPolicy:
    """Read a policy; without options it is the paper's, gpu-lq before cpu-lq without the GPU."""
    found: dict[str, Any] = {
        "mode": "Enforce",
        "match": {"jobSelector": {}},
        "options": list(options) or [GPU_OPTION, CPU_OPTION],
        **spec,
    }
    if threshold is not None:
        found["strategy"] = {"type": "Threshold", "threshold": list(threshold)}
    return read_policy(
        {
            "apiVersion": "kueue-fallback.dev/v1alpha1",
            "kind": "FallbackPolicy",
            "metadata": {"name": name},
            "spec": found,
        }
    )


def applicant(
    which: FallbackPolicy | None = None,
    state: Snapshot | None = None,
    *,
    of: Job | None = None,
    submitted: str = "gpu-lq",
    unix: float = 0.0,
    requester: Requester | None = None,
    **rest: Any,
) -> Applicant:
    """Return a Job before the options of a policy."""
    return Applicant(
        job=of or job(),
        policy=which or policy(),
        occupancy=occupancy_of(state or Snapshot()),
        submitted=submitted,
        moment=Moment(now=0.0, unix=unix, time="", uid="0", requester=requester),
        **rest,
    )


def team_policy(
    *options: Mapping[str, Any], name: str = "light", namespace: str = NAMESPACE, **spec: Any
) -> FallbackPolicy:
    """Read a policy of a namespace's own, the paper's but for the variable that it sets."""
    return read_team_policy(
        {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "mode": "Enforce",
                "match": {"jobSelector": {}},
                "options": list(options) or [GPU_OPTION, TEAM_CPU_OPTION],
                "strategy": {"type": "Threshold", "threshold": list(PAPER_THRESHOLD)},
                **spec,
            },
        }
    )


GPU_OPTION: Mapping[str, Any] = {"name": "gpu", "queue": "gpu-lq"}
CPU_OPTION: Mapping[str, Any] = {
    "name": "cpu",
    "queue": "cpu-lq",
    "adaptation": {
        "accelerator": "Remove",
        "perRemoved": {"cpu": "4", "memory": "6Gi"},
        "env": {"RUN_ENV": "cpu"},
    },
}
TEAM_CPU_OPTION: Mapping[str, Any] = {
    "name": "cpu",
    "queue": "cpu-lq",
    "adaptation": {"accelerator": "Remove", "perRemoved": {"cpu": "4", "memory": "6Gi"}},
}
PAPER_THRESHOLD = (
    {"option": "gpu", "orPendingBelow": 10},
    {"option": "cpu", "andReservingBelow": 3},
)
"""The paper's rule."""


def _limit(amount: str | None, resource: str) -> int | None:
    return None if amount is None else quantity.parse(amount, resource=resource)
