"""Makes metrics, and remembers of each its name, type, text and label values.

A label's values are a closed set, or names that an admin gave to something that exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from typing import Final, TypeAlias

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

PREFIX: Final = "kueue_fallback_"

Values: TypeAlias = tuple[str, ...] | str
"""Every value of a label; or, in words, what there is one value of for each."""

A_RESOURCE: Final = "a resource that is watched"


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One line of the table; the name is the one that is scraped."""

    name: str
    kind: Kind
    text: str
    labels: Mapping[str, Values]


_OF_PROCESSES: Final = (
    ("cpu_seconds_total", Kind.COUNTER, "User and system CPU time spent, in seconds."),
    ("max_fds", Kind.GAUGE, "Limit of open file descriptors."),
    ("open_fds", Kind.GAUGE, "Open file descriptors."),
    ("resident_memory_bytes", Kind.GAUGE, "Resident memory in bytes."),
    ("start_time_seconds", Kind.GAUGE, "Start, in seconds since 1970."),
    ("virtual_memory_bytes", Kind.GAUGE, "Virtual memory in bytes."),
)
"""What ``ProcessCollector`` tells."""


class Table:
    """Makes metrics on a registry of its own, and remembers what each of them is."""

    def __init__(self) -> None:
        # A second series for each counter, with nothing in it that a start time does not say.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.metrics: list[Metric] = []

    def counter(self, name: str, text: str, **labels: Values) -> Counter:
        self._note(f"{PREFIX}{name}_total", Kind.COUNTER, text, labels)
        made = Counter(f"{PREFIX}{name}", text, tuple(labels), registry=self.registry)
        match tuple(labels.values()):
            case (tuple() as values,):
                # A series that begins with its first event hides that event from `increase`.
                for value in values:
                    made.labels(value)
        return made

    def gauge(self, name: str, text: str, **labels: Values) -> Gauge:
        self._note(f"{PREFIX}{name}", Kind.GAUGE, text, labels)
        return Gauge(f"{PREFIX}{name}", text, tuple(labels), registry=self.registry)

    def histogram(
        self, name: str, text: str, buckets: tuple[float, ...], **labels: Values
    ) -> Histogram:
        self._note(f"{PREFIX}{name}", Kind.HISTOGRAM, text, labels)
        return Histogram(
            f"{PREFIX}{name}", text, tuple(labels), buckets=buckets, registry=self.registry
        )

    def version(self) -> None:
        ours = version("kueue-fallback")
        self.gauge("build_info", "Always 1; what runs.", version=(ours,)).labels(ours).set(1)

    def process(self) -> None:
        """Tell of this process, under the names that every program uses."""
        self._note_process("process_", "")
        ProcessCollector(registry=self.registry)

    def child(self, name: str, pid: Callable[[], int | None]) -> None:
        """Tell of a child process; while there is none, nothing."""
        self._note_process(f"{PREFIX}{name}_process_", f"The {name}: ")
        ProcessCollector(
            namespace=f"{PREFIX}{name}", pid=lambda: pid() or "none", registry=self.registry
        )

    def _note_process(self, prefix: str, whose: str) -> None:
        for name, kind, text in _OF_PROCESSES:
            self._note(prefix + name, kind, whose + text, {})

    def _note(self, name: str, kind: Kind, text: str, labels: Mapping[str, Values]) -> None:
        self.metrics.append(Metric(name=name, kind=kind, text=text, labels=labels))


class Watches:
    """How fresh a process's state of the cluster is."""

    def __init__(self, table: Table, prefix: str = "") -> None:
        self._ready = table.gauge(f"{prefix}ready", "1 while /readyz says so.")
        self._synced = table.gauge(f"{prefix}state_synced", "1 once every watch has listed.")
        self._age = table.gauge(
            f"{prefix}state_age_seconds",
            "Seconds since the last sign of life of the quietest watch; +Inf before the first.",
        )
        self._ages = table.gauge(
            f"{prefix}watch_age_seconds",
            "Seconds since the last sign of life of one watch.",
            resource=A_RESOURCE,
        )
        self._relists = table.counter(
            f"{prefix}watch_relists",
            "Lists made, the first one of each start included.",
            resource=A_RESOURCE,
        )
        self._unreadable = table.gauge(
            f"{prefix}unreadable_objects",
            "Objects that cannot be read and count as absent.",
            resource=A_RESOURCE,
        )
        self._latest: Mapping[str, float] = {}
        self._listed: Mapping[str, int] = {}
        self._problems: Mapping[str, int] = {}

    def take(
        self,
        *,
        synced: bool,
        ages: Mapping[str, float],
        relists: Mapping[str, int],
        problems: Mapping[str, int],
    ) -> None:
        """Take over what was found out; it comes hundreds of times a second, and little is new."""
        self._synced.set(synced)
        self._latest = ages
        if relists != self._listed:
            for resource, count in relists.items():
                before = self._listed.get(resource, 0)
                # It counts from zero again when the watching process was started again.
                self._relists.labels(resource).inc(count - before if count >= before else count)
            self._listed = relists
        if problems != self._problems:
            for resource in {*problems, *self._problems}:
                self._unreadable.labels(resource).set(problems.get(resource, 0))
            self._problems = problems

    def show(self, *, ready: bool, age: float) -> None:
        """Bring up to date what is looked at only when it is scraped."""
        self._ready.set(ready)
        self._age.set(age)
        for resource, seconds in self._latest.items():
            self._ages.labels(resource).set(seconds)


def series(metric: Counter | Gauge) -> list[dict[str, str]]:
    """List the label sets of one metric, in the order of its label names."""
    return [sample.labels for family in metric.collect() for sample in family.samples]
