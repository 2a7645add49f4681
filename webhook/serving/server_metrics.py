"""The server's metrics: their names, help texts, label values and buckets are defined only here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from webhook.metric_table import (
    ANY_OPTION,
    ANY_POLICY,
    NO_OPTION,
    CountedElsewhere,
    Table,
    Watches,
    option_labels,
    series,
)
from webhook.model.faults import OBSERVER_PARTS
from webhook.model.kueue_support import KueueTested
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode
from webhook.model.reasons import LeftAlone, Obstacle, Reason, Skip
from webhook.state.snapshot import Snapshot

REVIEW_BUCKETS: Final = (
    0.0001,
    0.0002,
    0.00035,
    0.0005,
    0.001,
    0.0015,
    0.002,
    0.003,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
)
"""The API server's own histogram starts at 5 ms, too coarse here."""

DECIDED: Final = "decided"
"""Reason of a decision that took an option."""
A_CLUSTER: Final = "a worker cluster that is watched"
OPERATIONS: Final = ("CREATE", "UPDATE", "other", "unknown")
CODES: Final = ("200", "400", "404", "unreadable", "unpatchable", "late", "error")
MOVED: Final = "moved"
UNDONE: Final = "undone"
REFUSED: Final = "refused"
MOVES: Final = (MOVED, UNDONE, REFUSED)
UNANSWERED: Final = (
    *("handshake", "unfinished"),
    *("400", "403", "411", "413", "417", "431", "500", "503"),
)
SCOPES: Final = ("everywhere", "namespaces")
UNSEEN: Final = "unseen"
"""No Workload was observed within seconds, although the watch was live."""
BLIND: Final = "blind"
"""No Workload was observed within the time to live, while the watch was silent."""
TOO_MANY: Final = "tooMany"
"""Too many placements of its namespace were without a Workload, so it did not count."""
UNTESTED: Final = tuple(reason for reason in KueueTested if reason is not KueueTested.TESTED)


class Metrics:
    """All metrics of one server process."""

    def __init__(self) -> None:
        self.table = table = Table()
        self.registry = table.registry
        table.version()
        table.process()
        self.observer_pid: Callable[[], int | None] = lambda: None
        """Set by the composition root, which starts the observer."""
        table.child("observer", self._pid_of_observer)
        self.watches = Watches(table)
        self._reviews(table)
        self._decisions(table)
        self._ledger(table)
        self.log_dropped = table.counter(
            "decision_log_dropped",
            "Log lines dropped: standard output stalled, or they could not be written.",
        )
        self.log_alive = table.gauge(
            "decision_log_alive", "1 while the decision log's writer is at work."
        )
        self._certificates(table)
        self.age_limit = table.gauge(
            "state_age_limit_seconds", "State older than this decides nothing."
        )
        self._observer(table)
        self.untested = table.gauge(
            "kueue_untested",
            "1 while Kueue's version, gates or configuration are untested. Policies that enforce "
            "then only observe, unless the setting untested_kueue says otherwise.",
            reason=UNTESTED,
        )
        self.off = table.gauge(
            "switched_off", "1 while the off switch stops decisions there.", scope=SCOPES
        )

    def _observer(self, table: Table) -> None:
        self.observer_starts = table.counter("observer_starts", "Starts of the observer process.")
        self.clock_ahead = table.gauge(
            "clock_ahead_seconds",
            "By how much this machine's clock is ahead of the API server's; negative: behind.",
        )
        self.leaderless = table.gauge(
            "leaderless_seconds",
            "Seconds for which no controller was seen to lead; only if kueue-fallback is "
            "MultiKueue's dispatcher.",
        )
        self.observer_failures = CountedElsewhere(
            table.counter(
                "observer_failed_turns",
                "Turns in which a part of the observer failed; the next turn follows.",
                part=OBSERVER_PARTS,
            )
        )

    def _certificates(self, table: Table) -> None:
        self.certificate_expiration = table.gauge(
            "certificate_expiration_timestamp_seconds",
            "When the serving certificate and the authority expire, in seconds since 1970.",
            kind=("leaf", "ca"),
        )
        self.certificate_reloads = table.counter(
            "certificate_reloads",
            "Certificates loaded, or refused because they cannot be used.",
            result=("success", "failure"),
        )

    def _reviews(self, table: Table) -> None:
        self.reviews = table.counter(
            "reviews", "Reviews answered.", operation=OPERATIONS, code=CODES
        )
        self.review_seconds = table.histogram(
            "review_seconds",
            "Time in the handler, from body to answer.",
            REVIEW_BUCKETS,
            operation=OPERATIONS[:-1],
        )
        self.in_flight = table.gauge(
            "reviews_in_flight", "Reviews received whole and not yet answered."
        )
        self.unanswered = CountedElsewhere(
            table.counter(
                "unanswered",
                "Connections and messages that came to no review: TLS handshakes that failed, "
                "messages that stayed unfinished, and those refused with a status.",
                reason=UNANSWERED,
            )
        )
        self.failures = table.counter(
            "failures", "Reviews admitted unpatched because of an error in this program."
        )
        self.unpatchable = table.counter(
            "patch_verification_failures", "Patches that did not verify and were not sent."
        )

    def _decisions(self, table: Table) -> None:
        self.decisions = table.counter(
            "decisions",
            "Decisions on Jobs that a policy matched; option none leaves them as submitted.",
            policy=ANY_POLICY,
            mode=tuple(Mode),
            option=ANY_OPTION,
            reason=(DECIDED, *LeftAlone),
        )
        self.skipped = table.counter(
            "skipped", "Jobs that were not ours to decide.", reason=tuple(Skip)
        )
        self.rejections = table.counter(
            "rejections",
            "Options refused.",
            policy=ANY_POLICY,
            option=ANY_OPTION,
            reason=tuple(Reason),
        )
        self.restorations = table.counter(
            "restorations", "Updates in which decided values were put back."
        )
        self.moves = table.counter(
            "moves",
            "Moves of pending Jobs to another option, or back as submitted, by outcome.",
            outcome=MOVES,
        )
        self.unmoved = table.counter(
            "unmoved",
            "Pending Jobs that were not moved, or not undone, by reason.",
            reason=tuple(Obstacle),
        )

    def _ledger(self, table: Table) -> None:
        self.placements = table.counter("placements", "Placements entered into the ledger.")
        self.expired = table.counter(
            "placements_expired",
            "Placements whose Workload never came, or that were too many of their namespace.",
            reason=(UNSEEN, BLIND, TOO_MANY),
        )
        self.ledger = table.gauge("ledger_placements", "Placements whose Workload is not yet seen.")
        self.forecasts = table.gauge(
            "forecast_queues", "ClusterQueues for which starts are forecast."
        )
        self.forecast_age = table.gauge(
            "forecast_age_seconds",
            "Age of the oldest change that forecasts do not reflect yet; 0 if there is none.",
        )
        self.cluster_age = table.gauge(
            "cluster_state_age_seconds",
            "Seconds without a sign of life from a worker cluster that is watched.",
            cluster=A_CLUSTER,
        )

    def _pid_of_observer(self) -> int | None:
        return self.observer_pid()

    def show(self, snapshot: Snapshot, *, placements: int, forecast_age: float) -> None:
        """Set the gauges that are computed only at a scrape; *forecast_age* is in seconds."""
        off = snapshot.fallback.off
        self.forecasts.set(len(snapshot.forecasts))
        self.forecast_age.set(forecast_age)
        self.ledger.set(placements)
        self.off.labels("everywhere").set(off is not None and off.is_everywhere)
        self.off.labels("namespaces").set(off is not None and not off.is_everywhere)
        doubts = {doubt.reason for doubt in snapshot.setup.doubts}
        for reason in UNTESTED:
            self.untested.labels(reason).set(reason in doubts)
        self._forget_all_but(snapshot.fallback.policies)

    def show_clusters(self, ages: Mapping[str, float]) -> None:
        """Set the age in seconds of each worker cluster's state; remove clusters that are gone."""
        self.cluster_age.clear()
        for name, age in ages.items():
            self.cluster_age.labels(name).set(age)

    def show_messages(self, *, in_flight: int, unanswered: Mapping[str, int]) -> None:
        """Set what the worker counts."""
        self.in_flight.set(in_flight)
        self.unanswered.catch_up(unanswered)

    def _forget_all_but(self, policies: Iterable[FallbackPolicy]) -> None:
        """Remove the series of policies and options that no longer exist."""
        known = {
            option_labels(policy.name, name)
            for policy in policies
            for name in (NO_OPTION, *(option.name for option in policy.spec.options))
        }
        for counter in (self.decisions, self.rejections):
            for labels in series(counter):
                if (labels["policy"], labels["option"]) not in known:
                    counter.remove(*labels.values())
