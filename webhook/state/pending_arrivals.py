"""Pending Workloads as Arrivals, with what they need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from webhook.kueue.requests import per_pod
from webhook.model.faults import attempted
from webhook.model.job import PodSet
from webhook.model.queues import Arrival, KueueConfig, LimitRangeItem, PodSetNeeds
from webhook.state.workload import Workload
from webhook.state.workloads import key_of_placement

_Needs: TypeAlias = tuple[PodSetNeeds, ...]
_SHAPES_KEPT = 4096


class Arrivals:
    """Turns Workloads into Arrivals; what a shape needs is worked out once for a namespace."""

    def __init__(self) -> None:
        self._limit_ranges: Mapping[str, tuple[LimitRangeItem, ...]] = {}
        self._overheads: Mapping[str, Mapping[str, str]] = {}
        self._kueue = KueueConfig()
        # The pod sets are kept with their id, so that it stays theirs.
        self._needs: dict[tuple[str, int], tuple[tuple[PodSet, ...], _Needs | None]] = {}

    def adopt(
        self,
        limit_ranges: Mapping[str, tuple[LimitRangeItem, ...]],
        overheads: Mapping[str, Mapping[str, str]],
        kueue: KueueConfig,
    ) -> None:
        """Work out needs by these from now on."""
        known = self._limit_ranges, self._overheads, self._kueue
        if all(a is b for a, b in zip(known, (limit_ranges, overheads, kueue), strict=True)):
            return
        self._limit_ranges, self._overheads, self._kueue = limit_ranges, overheads, kueue
        self._needs.clear()

    def of(self, workload: Workload, count: int = 1) -> Arrival | None:
        """None: its needs cannot be read, so it can only be counted as pending."""
        needs = self._needs_of(workload)
        if needs is None:
            return None
        return Arrival(
            key=key_of_placement(workload) or f"workload:{workload.namespace}/{workload.name}",
            namespace=workload.namespace,
            local_queue=workload.queue,
            needs=needs,
            priority=workload.priority,
            policy=workload.policy,
            option=workload.option,
            count=count,
            created=workload.created,
        )

    def _needs_of(self, workload: Workload) -> _Needs | None:
        place = workload.namespace, id(workload.pod_sets)
        if place not in self._needs:
            if len(self._needs) >= _SHAPES_KEPT:
                self._needs.clear()
            needs = self._work_out(workload.namespace, workload.pod_sets)
            self._needs[place] = workload.pod_sets, needs
        return self._needs[place][1]

    def _work_out(self, namespace: str, pod_sets: tuple[PodSet, ...]) -> _Needs | None:
        found, _ = attempted(lambda: tuple(self._of_one(namespace, each) for each in pod_sets))
        return found

    def _of_one(self, namespace: str, pod_set: PodSet) -> PodSetNeeds:
        return PodSetNeeds(
            name=pod_set.name,
            count=pod_set.count,
            per_pod=per_pod(
                pod_set.template,
                limit_ranges=self._limit_ranges.get(namespace, ()),
                overheads=self._overheads,
                kueue=self._kueue,
            ),
            template=pod_set.template,
            min_count=pod_set.min_count,
        )
