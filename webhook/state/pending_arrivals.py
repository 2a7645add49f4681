"""Turns pending Workloads into Arrivals: what their pods need of quota and of Nodes.

Needs are computed once for a shape and namespace, by LimitRanges, overheads and Kueue's
configuration. It must not know what else is pending, nor in which ClusterQueue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from webhook.kueue.requests import is_refused, min_count, on_node, per_pod
from webhook.model.faults import attempted
from webhook.model.job import PodSet
from webhook.model.queues import Arrival, KueueConfig, LimitRangeItem, PodSetNeeds
from webhook.state.workload import Workload, key_of_placement
from webhook.state.workload_pods import Charge, KueueCounts

_Needs: TypeAlias = tuple[PodSetNeeds, ...]
_SHAPES_KEPT = 4096


class PendingArrivals:
    """Turns Workloads into Arrivals; what a shape needs is computed once for a namespace."""

    def __init__(self) -> None:
        self._limit_ranges: Mapping[str, tuple[LimitRangeItem, ...]] = {}
        self._overheads: Mapping[str, Mapping[str, str]] = {}
        self._kueue = KueueConfig()
        # The pod sets are kept with their id, so that it stays theirs.
        self._needs: dict[tuple[str, int], tuple[tuple[PodSet, ...], _Needs | None]] = {}
        # Likewise the needs that were worked out.
        self._adjusted: dict[
            tuple[int, KueueCounts, tuple[Charge, ...]], tuple[_Needs, _Needs]
        ] = {}

    def adopt(
        self,
        limit_ranges: Mapping[str, tuple[LimitRangeItem, ...]],
        overheads: Mapping[str, Mapping[str, str]],
        kueue: KueueConfig,
    ) -> None:
        """Compute needs by these from now on."""
        known = self._limit_ranges, self._overheads, self._kueue
        if all(a is b for a, b in zip(known, (limit_ranges, overheads, kueue), strict=True)):
            return
        self._limit_ranges, self._overheads, self._kueue = limit_ranges, overheads, kueue
        self._needs.clear()
        self._adjusted.clear()

    def of(self, workload: Workload, count: int = 1) -> Arrival | None:
        """Return the Workload as an Arrival of *count* alike.

        None: its needs cannot be read, so it can only be counted as pending.
        """
        needs = self._needs_of(workload)
        if needs is None:
            return None
        if workload.counted or workload.held:
            needs = self._adjust(needs, workload)
        return Arrival(
            key=key_of_placement(workload) or f"workload:{workload.namespace}/{workload.name}",
            namespace=workload.namespace,
            local_queue=workload.queue,
            needs=needs,
            priority=workload.priority,
            policy=workload.policy,
            option=workload.option,
            count=count,
            created=workload.queued_at,
        )

    def _needs_of(self, workload: Workload) -> _Needs | None:
        place = workload.namespace, id(workload.pod_sets)
        if place not in self._needs:
            if len(self._needs) >= _SHAPES_KEPT:
                self._needs.clear()
            needs = self._work_out(workload.namespace, workload.pod_sets)
            self._needs[place] = workload.pod_sets, needs
        return self._needs[place][1]

    def _adjust(self, needs: _Needs, workload: Workload) -> _Needs:
        """Return what Kueue has counted, and what the slice holds that the Workload replaces.

        The same needs where that is what was worked out here.
        """
        place = id(needs), workload.counted, workload.held
        if place not in self._adjusted:
            if len(self._adjusted) >= _SHAPES_KEPT:
                self._adjusted.clear()
            per_pods = [dict(amounts) for amounts in workload.counted]
            per_pods = per_pods or [dict(need.per_pod) for need in needs]
            held = [dict(charge) for charge in workload.held] or [{}] * len(needs)
            alike = [(need.per_pod, need.held) for need in needs] == list(
                zip(per_pods, held, strict=True)
            )
            adjusted = (
                needs
                if alike
                else tuple(
                    replace(need, per_pod=per_pod, on_node=need.of_node, held=of_slice, known={})
                    for need, per_pod, of_slice in zip(needs, per_pods, held, strict=True)
                )
            )
            self._adjusted[place] = needs, adjusted
        return self._adjusted[place][1]

    def _work_out(self, namespace: str, pod_sets: tuple[PodSet, ...]) -> _Needs | None:
        return attempted(
            lambda: tuple(self._needs_of_pod_set(namespace, pod_set) for pod_set in pod_sets)
        )[0]

    def _needs_of_pod_set(self, namespace: str, pod_set: PodSet) -> PodSetNeeds:
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
            min_count=min_count(pod_set, self._kueue),
            group=pod_set.group,
            on_node=on_node(
                pod_set.template,
                self._limit_ranges.get(namespace, ()),
                self._overheads,
                self._kueue,
            ),
            is_refused=is_refused(pod_set.template, self._limit_ranges.get(namespace, ())),
        )
