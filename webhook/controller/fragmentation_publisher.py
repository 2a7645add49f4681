"""Publishes at intervals what is free of devices and of no use to what waits for slices.

Only the leader does. Pods are many, so a thread lists them, and the loop that moves Jobs does not
wait for it; of them only what they have of devices is kept.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from webhook.api import published
from webhook.api.kubernetes_api import ClusterError, KubernetesApi
from webhook.api.watch import list_pages
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.world import World
from webhook.hindsight import fragmentation_record
from webhook.hindsight.freed_slices import (
    UNFINISHED_PODS,
    fragmentation,
    slices_asked,
    slices_to_schedule,
)
from webhook.hindsight.slice_advice import device_nodes
from webhook.model.faults import Attention, Failures
from webhook.model.job import PodSet
from webhook.model.queues import Stage
from webhook.settings import Settings
from webhook.state import run_records_reader

_MINUTE: Final = 60.0


class FragmentationPublisher:
    def __init__(
        self,
        transport: KubernetesApi,
        settings: Settings,
        *,
        is_leader: Callable[[], bool],
        failures: Failures,
        metrics: ControllerMetrics,
    ) -> None:
        """*is_leader* is called before each write."""
        self._transport, self._settings = transport, settings
        self._is_leader, self._failures, self._metrics = is_leader, failures, metrics
        self._due = 0.0
        self._said = ""
        self._is_running = False

    def step(self, world: World) -> tuple[str, ...]:
        """Look at Nodes and Pods if we lead and it is time.

        Return the lines to log: none, as it logs itself when it has ended.
        """
        if not self._is_leader():
            self._metrics.slices.forget()
            return ()
        if self._is_running or world.now < self._due:
            return ()
        if not world.knows_workloads(self._settings.max_state_age):
            return ()
        self._is_running = True
        self._due = world.now + _MINUTE * self._settings.fragmentation_minutes
        pending = [
            workload.pod_sets
            for workload in world.feed.workloads()
            if workload.stage is Stage.PENDING
        ]
        run = partial(self._run, pending, world.unix)
        threading.Thread(target=run, name="fragmentation", daemon=True).start()
        return ()

    def _run(self, pending: Sequence[tuple[PodSet, ...]], unix: float) -> None:
        try:
            self._failures.survive("fragmentation", partial(self._attempt, pending, unix))
        finally:
            self._is_running = False

    def _attempt(self, pending: Sequence[tuple[PodSet, ...]], unix: float) -> None:
        said = ""
        try:
            self.publish(pending, unix)
        except ClusterError as error:
            said = Attention(f"fragmentation: {error}")
            self._metrics.slices.forget()
        if said and said != self._said:
            self._failures.log(said)
        self._said = said

    def publish(self, pending: Iterable[tuple[PodSet, ...]], unix: float) -> None:
        """Publish it, for Workloads that are *pending*, if we still lead.

        Raises:
            ClusterError: Nodes or Pods cannot be listed, or it cannot be written.

        """
        waiting: Counter[str] = Counter()
        for pod_sets in pending:
            for pod_set in pod_sets:
                for name, count in slices_asked(pod_set.template).items():
                    waiting[name] += count * pod_set.count
        nodes, _ = device_nodes(self._listed("nodes"), self._pods(waiting))
        found = fragmentation(nodes, waiting)
        if self._is_leader():
            self._metrics.slices.show(found.sizes)
            place = run_records_reader.path_of(self._settings.namespace)
            until = unix + _MINUTE * (2 * self._settings.fragmentation_minutes + 1)
            body = fragmentation_record.config_map_of(found, unix, until)
            published.overwrite(self._transport, place, body)

    def _pods(self, waiting: Counter[str]) -> Iterator[Mapping[str, Any]]:
        """Yield the Pods that may have devices; add what waits for a Node to *waiting*."""
        for pod in self._listed("pods", UNFINISHED_PODS):
            waiting.update(slices_to_schedule(pod))
            yield pod

    def _listed(self, plural: str, selector: str = "") -> Iterator[Mapping[str, Any]]:
        params = {"fieldSelector": selector} if selector else None
        for page in list_pages(self._transport, f"/api/v1/{plural}", params):
            yield from page.get("items") or ()
