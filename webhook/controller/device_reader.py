"""Asks Prometheus what Jobs use of their devices, while we lead, and learns it by their classes.

Also what services do, by their own metrics.

A thread asks, and nothing waits for it: what does not come is not known. The loop takes answers
when it comes by, adds up what pods were measured to use, and hands what that says of a Job's class
to the keeper of run times when the Job has ended.
"""

from __future__ import annotations

import queue
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from typing import Any, Final, NamedTuple

from webhook.adapt import accelerators
from webhook.api import prometheus
from webhook.api.prometheus import PrometheusError
from webhook.api.watch import WatchUpdate
from webhook.controller import service_meter
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.followed_watches import DecidedService, WatchedJob
from webhook.controller.world import World
from webhook.cost.device_shares import share_of
from webhook.hindsight.entries import FinishedRun
from webhook.learn import device_runs
from webhook.learn.device_runs import UNKNOWN_BOUND, UNKNOWN_PART, UNKNOWN_WATTS, DeviceRun
from webhook.learn.run_records import ClassRecord, WorkloadRun
from webhook.learn.service_points import POINT_SECONDS
from webhook.model.costs.devices import (
    Device,
    DeviceMeasure,
    DeviceSample,
    Isolation,
    ServiceMeasure,
)
from webhook.model.costs.prices import NO_PRICES
from webhook.model.faults import Failures
from webhook.model.job import PLAIN
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.policy.spec import ServingMetrics
from webhook.model.queues import ClusterQueue
from webhook.settings import PrometheusSettings

REACH_SECONDS: Final = 300.0
"""Between two answers; queries look back a little further."""
_SPARE_SECONDS: Final = 60.0
"""How much further."""
MOST_PODS: Final = 20_000
MOST_ENDED: Final = 5_000
_MIB: Final = 1 << 20
_LONGEST_BASE: Final = 58
"""Of a generated name, before five random characters."""
_OF_BATCH: Final = re.compile(r"(?:[0-9]+-)?[a-z0-9]{5}")
"""What follows a batch Job's name and a hyphen in its pods' names; the number is of an index."""
_MOST_LARGER: Final = 1.02
"""How much more than a device's memory may be in use by what data sheets round."""


class MeasuredRun(NamedTuple):
    """A Job's run that has ended well, with what its flavors say of its devices."""

    namespace: str
    job: str
    kind: str
    ended: WorkloadRun
    model: str
    """What its flavor's device is called; empty: it is not known."""
    memory: int | None
    """In bytes, of that device; None: it is not known."""

    @property
    def admitted(self) -> int:
        return self.ended.run.finished - self.ended.run.seconds


@dataclass(slots=True)
class _PodUse:
    model: str
    heard: float
    peak: float = 0.0
    is_doubtful: bool = False
    """Some value of it cannot be true, or it has a part of a device."""
    sums: dict[DeviceMeasure, float] = field(default_factory=dict)
    counts: dict[DeviceMeasure, int] = field(default_factory=dict)

    def take(self, measure: DeviceMeasure, sample: DeviceSample) -> None:
        if sample.value is None or sample.part or sample.model != self.model:
            self.is_doubtful = self.is_doubtful or measure is DeviceMeasure.MEMORY
            return
        if measure is DeviceMeasure.MEMORY:
            self.peak = max(self.peak, sample.value)
            return
        self.sums[measure] = self.sums.get(measure, 0.0) + sample.value
        self.counts[measure] = self.counts.get(measure, 0) + 1

    def mean(self, measure: DeviceMeasure) -> float | None:
        count = self.counts.get(measure, 0)
        return self.sums[measure] / count if count else None


class DeviceMeter:
    """Adds up what pods use, and gives it to the class of their Job at its end.

    A run counts only if it was measured from its beginning to its end, without a gap and without a
    value that cannot be true: otherwise its need might come out too small.
    """

    def __init__(self) -> None:
        self._pods: dict[tuple[str, str], _PodUse] = {}
        """By namespace and name, those last that were heard of last."""
        self._ended: list[tuple[float, MeasuredRun]] = []
        """Runs that ended since the last answer, with when we heard of it."""
        self._covered_since: float | None = None
        """Since when memory is measured without a gap, in seconds since 1970."""
        self._heard = 0.0

    def end(self, run: MeasuredRun, unix: float) -> None:
        """Note that a run has ended; *unix*: now, in seconds since 1970."""
        if self._covered_since is not None and run.admitted >= self._covered_since:
            self._ended = [*self._ended, (unix, run)][-MOST_ENDED:]

    def take(self, measure: DeviceMeasure, samples: Iterable[DeviceSample], asked: float) -> None:
        """Add the answer to a query that was *asked* then, in seconds since 1970."""
        if measure is DeviceMeasure.MEMORY:
            if asked - self._heard > REACH_SECONDS + _SPARE_SECONDS:
                self._covered_since = asked - REACH_SECONDS
            self._heard = asked
        for sample in samples:
            place = sample.namespace, sample.pod
            use = self._pods.pop(place, None) or _PodUse(sample.model, asked)
            use.heard = asked
            use.take(measure, sample)
            self._pods[place] = use
        while len(self._pods) > MOST_PODS:
            del self._pods[next(iter(self._pods))]

    def take_ended(self, jobs: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ClassRecord]]:
        """Yield what is learned of the runs that ended before the last answer, by their class.

        *jobs*: the names of the Jobs in each namespace, of which the longest counts that a pod's
        name begins with.
        """
        since = self._covered_since
        due = [run for at, run in self._ended if at < self._heard]
        self._ended = [(at, run) for at, run in self._ended if at >= self._heard]
        owned = self._owned(due, jobs)
        for run in due:
            pods = owned.get((run.namespace, run.job), ())
            uses = [self._pods[run.namespace, pod] for pod in pods if _is_of(pod, run)]
            measured = _measured(run, uses)
            if since is not None and run.admitted >= since and measured is not None:
                yield run.ended.mark.job_class.key, ClassRecord(measured=measured)
        self._forget_old()

    def _owned(
        self, due: Iterable[MeasuredRun], jobs: Mapping[str, Sequence[str]]
    ) -> Mapping[tuple[str, str], Sequence[str]]:
        """Return the pods of each Job in the namespaces of these runs, by namespace and name."""
        names: dict[str, dict[str, str]] = {}
        for run in due:
            if run.namespace not in names:
                names[run.namespace] = _by_beginning(jobs.get(run.namespace, ()))
            names[run.namespace].update(_by_beginning((run.job,)))
        owned: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for namespace, pod in self._pods if names else ():
            job = _owner(pod, names[namespace]) if namespace in names else None
            if job is not None:
                owned[namespace, job].append(pod)
        return owned

    def _forget_old(self) -> None:
        """Forget the pods of which nothing has been heard since before the last gap may begin."""
        oldest = self._heard - 4 * REACH_SECONDS
        for place in [place for place, use in self._pods.items() if use.heard < oldest]:
            del self._pods[place]


def _by_beginning(names: Iterable[str]) -> dict[str, str]:
    """Return what the names of Jobs' pods begin with, before a hyphen or cut off, to the names."""
    return {f"{name}-"[:_LONGEST_BASE].removesuffix("-"): name for name in names}


def _owner(pod: str, names: Mapping[str, str]) -> str | None:
    """Return the Job with the longest name that a pod's begins with; None: there is none."""
    beginnings = [pod, pod[:_LONGEST_BASE].removesuffix("-")]
    beginnings += (pod[:at] for at in range(len(pod) - 1, 0, -1) if pod[at] == "-")
    return next((names[begin] for begin in beginnings if begin in names), None)


def _is_of(pod: str, run: MeasuredRun) -> bool:
    """Return whether a pod that begins with a Job's name is named as pods of its kind are."""
    if run.kind != PLAIN or pod == run.job or len(run.job) >= _LONGEST_BASE:
        # A name that was cut off has nothing but random characters after what is left of it.
        return True
    return _OF_BATCH.fullmatch(pod[len(run.job) + 1 :]) is not None


def _measured(run: MeasuredRun, uses: Sequence[_PodUse]) -> Mapping[str, bytes] | None:
    """Return what a run used of each model; None: nothing is known of it, or not enough."""
    if not uses or any(use.is_doubtful or not use.peak for use in uses):
        return None
    if run.memory is not None and max(use.peak for use in uses) * _MIB > run.memory * _MOST_LARGER:
        return None
    by_model: dict[str, list[_PodUse]] = {}
    for use in uses:
        # Prices and forecasts know a device by the name that its flavor gives it.
        model = run.model if run.memory is not None else use.model or run.model
        by_model.setdefault(model, []).append(use)
    return {
        model: device_runs.pack([_device_run(run, of_model)])
        for model, of_model in by_model.items()
    }


def _device_run(run: MeasuredRun, uses: Sequence[_PodUse]) -> DeviceRun:
    peak = round(max(use.peak for use in uses))
    watts = _mean(uses, DeviceMeasure.POWER)
    compute, bandwidth = _mean(uses, DeviceMeasure.COMPUTE), _mean(uses, DeviceMeasure.BANDWIDTH)
    bound = UNKNOWN_BOUND
    if compute is not None and bandwidth is not None and compute + bandwidth > 0:
        bound = round(100 * compute / (compute + bandwidth))
    return DeviceRun(
        finished=run.ended.run.finished,
        uid=run.ended.run.uid,
        mebibytes=peak,
        part=UNKNOWN_PART if run.memory is None else round(1000 * peak * _MIB / run.memory),
        watts=UNKNOWN_WATTS if watts is None else round(watts),
        bound=bound,
    )


def _mean(uses: Sequence[_PodUse], measure: DeviceMeasure) -> float | None:
    """Return the mean over pods; None: it was measured of none."""
    means = [mean for use in uses if (mean := use.mean(measure)) is not None]
    return sum(means) / len(means) if means else None


ASK_SECONDS: Final = REACH_SECONDS
MOST_METRICS: Final = 8
"""Pairs of metrics of services that are asked for, of policies in their order."""
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
        self._cluster_queues: Mapping[str, ClusterQueue] = {}
        self._jobs: dict[tuple[str, str, str], DecidedService | None] = {}
        """Kind, namespace and reference of the Jobs that there are; None: no decided service."""
        self._services_due = 0.0

    def take_jobs(self, message: WatchUpdate) -> tuple[str, ...]:
        """Note which Jobs there are, whose names tell whose a pod is; return the lines to log."""
        kind = message.kind
        if message.entries is not None:
            for job in [job for job in self._jobs if job[0] == kind]:
                del self._jobs[job]
            for entry in message.entries:
                self._jobs[kind, *entry.key] = _service_of(entry.value)
        if message.event is not None:
            event_type, entry = message.event
            # A Job that is deleted is known until the list is read again: its pods are measured.
            if event_type != "DELETED":
                self._jobs[kind, *entry.key] = _service_of(entry.value)
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
        self._cluster_queues = world.snapshot.setup.cluster_queues
        unix = self._unix()
        if self._is_leader() and not self._is_asking and unix >= self._due:
            self._due, self._is_asking = unix + ASK_SECONDS, True
            ask = partial(self._ask, self._metrics_due(world.snapshot.fallback.policies, unix))
            threading.Thread(target=ask, name="prometheus", daemon=True).start()
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

    def _metrics_due(
        self, policies: Iterable[FallbackPolicy], unix: float
    ) -> Mapping[ServingMetrics, frozenset[str]]:
        """Return which services' metrics to ask for now, each with the policies that name it."""
        if unix < self._services_due:
            return {}
        self._services_due = unix + POINT_SECONDS
        deciding = {service.policy for service in self._jobs.values() if service is not None}
        due: dict[ServingMetrics, frozenset[str]] = {}
        for policy in policies:
            metrics = policy.spec.serving
            if metrics is not None and policy.name in deciding:
                due[metrics] = due.get(metrics, frozenset()) | {policy.name}
        return dict(islice(due.items(), MOST_METRICS))

    def _ask(self, due: Mapping[ServingMetrics, frozenset[str]]) -> None:
        asks = [
            partial(self._ask_for, measure)
            for measure in (DeviceMeasure.MEMORY, next(self._others))
            if measure is not None
        ]
        asks += [partial(self._ask_services, *each) for each in due.items()]
        try:
            for ask in asks:
                _, answered = self._failures.survive("prometheus", ask, PrometheusError)
                self._metrics.count_answer(answered=answered)
        finally:
            self._is_asking = False

    def _ask_for(self, measure: DeviceMeasure) -> None:
        asked = self._unix()
        samples = prometheus.ask(self._settings, measure)
        self._metrics.count_samples(samples)
        self._answers.put(partial(self._meter.take, measure, samples, asked))

    def _ask_services(self, metrics: ServingMetrics, policies: frozenset[str]) -> None:
        asked = self._unix()
        rates, latencies = (
            prometheus.ask_service(self._settings, measure, metrics) for measure in ServiceMeasure
        )
        self._metrics.count_samples(rates)
        self._answers.put(partial(self._take_services, policies, rates, latencies, asked))

    def _take_services(
        self,
        policies: frozenset[str],
        rates: Sequence[DeviceSample],
        latencies: Sequence[DeviceSample],
        asked: float,
    ) -> None:
        services = {
            (namespace, reference): service
            for (_, namespace, reference), service in self._jobs.items()
            if service is not None and service.policy in policies and service.job_class
        }
        queues = self._cluster_queues
        for key, record in service_meter.observed(rates, latencies, services, queues, asked):
            self._learn(key, record)

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


def _service_of(watched: Any) -> DecidedService | None:
    return watched.service if isinstance(watched, WatchedJob) else None


def _is_whole(resource: str, device: Device | None) -> bool:
    # What does not count devices counts parts of them, as HAMi does: others have the rest.
    counts = accelerators.counts_devices(resource)
    return counts and share_of(resource, device).isolation is Isolation.EXCLUSIVE
