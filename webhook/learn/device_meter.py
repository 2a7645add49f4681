"""Adds up what pods were measured to use of devices, and gives it to their Job's class at its end.

A run counts only if it was measured from its beginning to its end, without a gap and without a
value that cannot be true: otherwise its need might come out too small. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from webhook.learn import device_runs
from webhook.learn.device_runs import UNKNOWN_BOUND, UNKNOWN_PART, UNKNOWN_WATTS, DeviceRun
from webhook.learn.run_records import ClassRecord
from webhook.model.costs.devices import DeviceMeasure, DeviceSample
from webhook.model.job import PLAIN

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
    key: str
    """Its class."""
    admitted: int
    finished: int
    uid: int
    model: str
    """What its flavor's device is called; empty: it is not known."""
    memory: int | None
    """In bytes, of that device; None: it is not known."""


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
        by_namespace = defaultdict(list)
        for namespace, pod in self._pods if due else ():
            by_namespace[namespace].append(pod)
        for run in due:
            pods = _pods_of(run, by_namespace[run.namespace], jobs.get(run.namespace, ()))
            uses = [self._pods[run.namespace, pod] for pod in pods]
            measured = _measured(run, uses)
            if since is not None and run.admitted >= since and measured is not None:
                yield run.key, ClassRecord(measured=measured)
        self._forget_old()

    def _forget_old(self) -> None:
        """Forget the pods of which nothing has been heard since before the last gap may begin."""
        oldest = self._heard - 4 * REACH_SECONDS
        for place in [place for place, use in self._pods.items() if use.heard < oldest]:
            del self._pods[place]


def _pods_of(run: MeasuredRun, pods: Iterable[str], jobs: Sequence[str]) -> list[str]:
    longer = [name for name in jobs if len(name) > len(run.job) and name.startswith(run.job)]
    return [
        pod
        for pod in pods
        if _is_of(pod, run.job, run.kind)
        and not any(pod == name or _begins_with(pod, name) for name in longer)
    ]


def _is_of(pod: str, job: str, kind: str) -> bool:
    if pod == job:
        return True
    if not _begins_with(pod, job):
        return False
    rest = pod[len(job) + 1 :]
    # A name that was cut off has nothing but random characters after what is left of the Job's.
    return kind != PLAIN or len(job) >= _LONGEST_BASE or _OF_BATCH.fullmatch(rest) is not None


def _begins_with(pod: str, job: str) -> bool:
    return pod.startswith(f"{job}-"[:_LONGEST_BASE])


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
        finished=run.finished,
        uid=run.uid,
        mebibytes=peak,
        part=UNKNOWN_PART if run.memory is None else round(1000 * peak * _MIB / run.memory),
        watts=UNKNOWN_WATTS if watts is None else round(watts),
        bound=bound,
    )


def _mean(uses: Sequence[_PodUse], measure: DeviceMeasure) -> float | None:
    """Return the mean over pods; None: it was measured of none."""
    means = [mean for use in uses if (mean := use.mean(measure)) is not None]
    return sum(means) / len(means) if means else None
