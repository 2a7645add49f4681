"""Makes metrics, and remembers of each its name, type, text and label values.

A label's values are a closed set, or names that an admin gave to something that exists.
"""

from __future__ import annotations

import itertools
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
"""All values of a label; or, as a text, the things that have one value each."""

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
"""What ``ProcessCollector`` exports."""


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
        closed = [values for values in labels.values() if not isinstance(values, str)]
        if closed and len(closed) == len(labels):
            # A series that begins with its first event hides that event from `increase`.
            for values in itertools.product(*closed):
                made.labels(*values)
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
        self.gauge(
            "build_info", "Always 1; the label is the running version.", version=(ours,)
        ).labels(ours).set(1)

    def process(self) -> None:
        """Add the metrics of this process, under the names that every Prometheus client uses."""
        self._note_process("process_", "")
        ProcessCollector(registry=self.registry)

    def child(self, name: str, pid: Callable[[], int | None]) -> None:
        """Add the metrics of the child process *pid*; while that is None they have no samples."""
        self._note_process(f"{PREFIX}{name}_process_", f"The {name}: ")
        ProcessCollector(
            namespace=f"{PREFIX}{name}", pid=lambda: pid() or "none", registry=self.registry
        )

    def _note_process(self, prefix: str, whose: str) -> None:
        for name, kind, text in _OF_PROCESSES:
            self._note(prefix + name, kind, whose + text, {})

    def _note(self, name: str, kind: Kind, text: str, labels: Mapping[str, Values]) -> None:
        self.metrics.append(Metric(name=name, kind=kind, text=text, labels=labels))


class CountedElsewhere:
    """A counter with one label, of totals that another process keeps and may restart at 0."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._before: dict[str, int] = {}

    def catch_up(self, counts: Mapping[str, int]) -> None:
        """Increase the counter to *counts*, the totals by the label's value."""
        if counts == self._before:
            return
        now = dict(counts)
        for value, count in now.items():
            before = self._before.get(value, 0)
            self._counter.labels(value).inc(count - before if count >= before else count)
        self._before = now


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
        relists = table.counter(
            f"{prefix}watch_relists",
            "Lists made, including the first one of each start.",
            resource=A_RESOURCE,
        )
        self._relists = CountedElsewhere(relists)
        self._unreadable = table.gauge(
            f"{prefix}unreadable_objects",
            "Objects that cannot be read and count as absent.",
            resource=A_RESOURCE,
        )
        self._latest: Mapping[str, float] = {}
        self._problems: Mapping[str, int] = {}

    def take(
        self,
        *,
        synced: bool,
        ages: Mapping[str, float],
        relists: Mapping[str, int],
        problems: Mapping[str, int],
    ) -> None:
        """Apply an update of the state; there are hundreds a second, and few change anything."""
        self._synced.set(synced)
        self._latest = ages
        self._relists.catch_up(relists)
        if problems != self._problems:
            for resource in {*problems, *self._problems}:
                self._unreadable.labels(resource).set(problems.get(resource, 0))
            self._problems = problems

    def show(self, *, ready: bool, age: float) -> None:
        """Set the gauges that are computed only at a scrape; *age* is in seconds."""
        self._ready.set(ready)
        self._age.set(age)
        for resource, seconds in self._latest.items():
            self._ages.labels(resource).set(seconds)


def series(metric: Counter | Gauge) -> list[dict[str, str]]:
    """Return the labels of each series of a metric, in the order of its label names."""
    return [sample.labels for family in metric.collect() for sample in family.samples]


A_POLICY: Final = "a policy that exists"
ANY_POLICY: Final = f"{A_POLICY}; `NAMESPACE/*`: all that a namespace has of its own"


A_NAMESPACE: Final = "a namespace that policies send Jobs of"


A_TREE: Final = "a tree of cohorts, or a ClusterQueue without a cohort"
A_TARIFF: Final = "a tariff that exists"


A_CLUSTER: Final = "a cluster of the tariff; empty: this one"


A_FLAVOR: Final = "a ResourceFlavor that it prices"


A_PRICED_RESOURCE: Final = "a resource that it prices there"


A_SLICE: Final = "a resource that counts slices of devices"

AN_OPTION: Final = "an option of the policy"
ANY_OPTION: Final = f"{AN_OPTION}; `*`: of those that a namespace has of its own"
NO_OPTION: Final = "none"
"""Option of a decision that took none; no policy may use this name."""
_ANY: Final = "*"


def policy_label(policy: str) -> str:
    """Return how a policy is labelled: those of a namespace's own share one name.

    So who may write them there cannot make as many series as they like.
    """
    namespace, slash, _ = policy.rpartition("/")
    return f"{namespace}/{_ANY}" if slash else policy


def option_labels(policy: str, option: str) -> tuple[str, str]:
    """Return how a policy and its option are labelled."""
    label = policy_label(policy)
    return label, option if option == NO_OPTION or label == policy else _ANY
