"""The metrics of the server: names, label sets and buckets in one place, label values closed."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """All metrics of one server process, on a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reviews = self._counter("reviews", "Reviews answered.", "operation", "code")
        self.review_seconds = Histogram(
            "kueue_fallback_review_seconds",
            "Time in the handler, from body to answer.",
            ("operation",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.decisions = self._counter(
            "decisions",
            "Decisions on Jobs that a policy matched.",
            "policy",
            "mode",
            "option",
            "reason",
        )
        self.skipped = self._counter("skipped", "Jobs that were not ours to decide.", "reason")
        self.rejections = self._counter(
            "rejections", "Options refused.", "policy", "option", "reason"
        )
        self.restorations = self._counter(
            "restorations", "Updates in which decided values were put back."
        )
        self.failures = self._counter(
            "failures", "Reviews admitted unpatched because of an error in this program."
        )
        self.unpatchable = self._counter(
            "patch_verification_failures", "Patches that did not verify and were not sent."
        )
        self.placements = self._counter("placements", "Decisions entered into the ledger.")
        self.ledger = self._gauge("ledger_placements", "Placements whose Workload is not yet seen.")
        self.log_dropped = self._counter(
            "decision_log_dropped", "Decision lines dropped because standard output stalled."
        )
        self.state_age = self._gauge(
            "state_age_seconds", "Seconds since the last sign of life of the quietest watch."
        )
        self.synced = self._gauge("state_synced", "1 once every watch has listed.")
        self.watch_age = self._gauge(
            "watch_age_seconds", "Seconds since the last sign of life of one watch.", "resource"
        )
        self.relists = self._gauge(
            "watch_relists", "Lists made since the observer started.", "resource"
        )
        self.observer_starts = self._counter("observer_starts", "Starts of the observer process.")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"kueue_fallback_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"kueue_fallback_{name}", text, labels, registry=self.registry)
