"""Asks Prometheus what Jobs use of their devices, while we lead, and learns it by their classes.

A thread asks, and nothing waits for it: what does not come is not known. The loop takes answers
when it comes by, and hands what was learned to the keeper of run times.
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle
from typing import Final

from webhook.adapt import accelerators
from webhook.api import prometheus
from webhook.api.prometheus import PrometheusError
from webhook.api.watch import WatchUpdate
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.world import World
from webhook.cost.device_shares import share_of
from webhook.hindsight.entries import FinishedRun
from webhook.learn.device_meter import REACH_SECONDS, DeviceMeter, MeasuredRun
from webhook.learn.run_records import ClassRecord
from webhook.model.costs.devices import Device, DeviceMeasure, Isolation
from webhook.model.costs.prices import NO_PRICES
from webhook.model.faults import Failures
from webhook.settings import PrometheusSettings

ASK_SECONDS: Final = REACH_SECONDS
MOST_JOBS: Final = 50_000


class DeviceReader:
    def __init__(
        self,
        settings: PrometheusSettings,
        *,
        is_leader: Callable[[], bool],
        unix: Callable[[], float],
        failures: Failures,
        metrics: ControllerMetrics,
        learn: Callable[[str, ClassRecord], None],
    ) -> None:
        """*learn* is called with a class and what was learned of it."""
        self._settings, self._is_leader, self._unix = settings, is_leader, unix
        self._failures, self._metrics, self._learn = failures, metrics, learn
        others = [measure for measure in DeviceMeasure if measure is not DeviceMeasure.MEMORY]
        self._others = cycle([m for m in others if getattr(settings.queries, m)] or [None])
        self._meter = DeviceMeter()
        self._answers: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        """What the loop does with each answer, once it comes by."""
        self._due = 0.0
        self._is_asking = False
        self._devices: Mapping[str, Device] = {}
        self._jobs: dict[tuple[str, str, str], None] = {}
        """Kind, namespace and name of the Jobs that there are."""

    def take_jobs(self, message: WatchUpdate) -> tuple[str, ...]:
        """Note which Jobs there are, whose names tell whose a pod is; return the lines to log."""
        kind = message.kind
        if message.entries is not None:
            for job in [job for job in self._jobs if job[0] == kind]:
                del self._jobs[job]
            self._jobs.update(dict.fromkeys((kind, *entry.key) for entry in message.entries))
        if message.event is not None:
            event_type, entry = message.event
            # A Job that is deleted is known until the list is read again: its pods are measured.
            if event_type != "DELETED":
                self._jobs[kind, *entry.key] = None
        while len(self._jobs) > MOST_JOBS:
            del self._jobs[next(iter(self._jobs))]
        return ()

    def take_runs(self, message: WatchUpdate) -> tuple[str, ...]:
        """Note the runs that have ended; return the lines to log."""
        entries = [*(message.entries or ())]
        if message.event is not None and message.event[0] != "DELETED":
            entries.append(message.event[1])
        for entry in entries:
            run = self._measured(entry.value) if isinstance(entry.value, FinishedRun) else None
            if run is not None:
                self._meter.end(run, self._unix())
        return ()

    def step(self, world: World) -> tuple[str, ...]:
        """Ask if we lead and it is time; learn from what was answered since the last step.

        Return the lines to log, of which there are none.
        """
        self._devices = world.snapshot.costs.prices.get("", NO_PRICES).devices
        unix = self._unix()
        if self._is_leader() and not self._is_asking and unix >= self._due:
            self._due, self._is_asking = unix + ASK_SECONDS, True
            threading.Thread(target=self._ask, name="prometheus", daemon=True).start()
        taken = False
        while not self._answers.empty():
            self._answers.get_nowait()()
            taken = True
        if taken:
            for key, record in self._meter.take_ended(self._names()):
                self._learn(key, record)
        return ()

    def _names(self) -> Mapping[str, tuple[str, ...]]:
        names = defaultdict(list)
        for _, namespace, name in self._jobs:
            names[namespace].append(name)
        return {namespace: tuple(of_namespace) for namespace, of_namespace in names.items()}

    def _ask(self) -> None:
        try:
            for measure in (DeviceMeasure.MEMORY, next(self._others)):
                if measure is not None:
                    ask = partial(self._ask_for, measure)
                    _, answered = self._failures.survive("prometheus", ask, PrometheusError)
                    self._metrics.count_answer(answered=answered)
        finally:
            self._is_asking = False

    def _ask_for(self, measure: DeviceMeasure) -> None:
        asked = self._unix()
        samples = prometheus.ask(self._settings, measure)
        self._metrics.count_samples(samples)
        self._answers.put(partial(self._meter.take, measure, samples, asked))

    def _measured(self, run: FinishedRun) -> MeasuredRun | None:
        """Return what is needed of a run that had whole devices here; None: it had not."""
        ended, past = run
        if ended is None or past is None or not ended.run.succeeded or ended.cluster:
            return None
        model, memory = "", None
        for (flavor, resource), amount in past.used:
            if not amount or not accelerators.is_accelerator(resource):
                continue
            device = self._devices.get(flavor)
            if not _is_whole(resource, device):
                return None
            model = device.name if device is not None else flavor
            memory = device.memory if device is not None else None
        if not model:
            return None
        return MeasuredRun(
            namespace=past.namespace,
            job=past.name,
            kind=past.kind,
            ended=ended,
            model=model,
            memory=memory,
        )


def _is_whole(resource: str, device: Device | None) -> bool:
    # What does not count devices counts parts of them, as HAMi does: others have the rest.
    counts = accelerators.counts_devices(resource)
    return counts and share_of(resource, device).isolation is Isolation.EXCLUSIVE
