"""Answers one review: from the state and the ledger, by asking flow, to a verdict and a placement.

One lock spans reading placements, deciding, verifying and entering, so that a burst is decided as
if its Jobs had come one after the other. No API call is made here, and HTTP is not known.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version

from webhook.admission import patch
from webhook.admission.review import Review, Verdict, probe_verdict
from webhook.decide import warning
from webhook.decide.applicant import Moment
from webhook.flow import create, update
from webhook.flow.ledger import ClusterView, ClusterViews, RepeatedReviews
from webhook.jobs import KINDS, JobKind
from webhook.model.decision import CreateOutcome, Decided, Outcome, Skipped
from webhook.model.edits import Operation
from webhook.model.queues import Arrival
from webhook.model.reasons import Skip
from webhook.model.words import rfc3339
from webhook.serving.server_metrics import BLIND, TOO_MANY, UNSEEN, Metrics
from webhook.state.pipe import Update
from webhook.state.snapshot import Snapshot

_VISIBLE_KEPT = 10_000
"""Keys of Workloads observed lately, kept to tell a copied Job from a reinvocation."""
_HEALTHY_SECONDS = 10.0
"""A younger state comes from a live watch: a quiet one is resumed every 6 to 9 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Considered:
    """One review with its outcome, for log and metrics."""

    review: Review
    outcome: Outcome


class Handler:
    """Answers reviews from the last snapshot and the ledger of decisions not yet visible in it."""

    def __init__(
        self,
        rules: create.Rules,
        metrics: Metrics,
        *,
        placement_ttl_seconds: float = 30.0,
        tell: Callable[[Considered, float], None] = lambda *_: None,
        clock: Callable[[], float] = time.monotonic,
        seen_by: str = "",
    ) -> None:
        self._rules = rules
        self.reasons_url = ""
        """URL at which reasons are explained to users; empty: none."""
        self._metrics = metrics
        self._tell = tell
        self.on_seen: Callable[[Sequence[str]], None] = lambda _: None
        """Takes the keys of placements whose Workloads were observed."""
        self._clock = clock
        self._seen_by = seen_by or f"{socket.gethostname()} {version('kueue-fallback')}"
        self._lock = threading.Lock()
        self._here = ClusterView(placement_ttl_seconds, healthy_seconds=_HEALTHY_SECONDS)
        self._clusters = ClusterViews(placement_ttl_seconds)
        self._repeated = RepeatedReviews()
        self._visible: OrderedDict[str, None] = OrderedDict()

    @property
    def snapshot(self) -> Snapshot:
        return self._here.snapshot

    def placements(self) -> int:
        # Scrapes call this from their own thread, in which the ledger must not be iterated.
        return len(self._here)

    def state_age_seconds(self) -> float:
        return max(0.0, self._clock() - self.snapshot.as_of)

    def forecast_age_seconds(self) -> float:
        """Return for how long the forecasts have lacked an event; 0: there are none."""
        if not self.snapshot.forecasts:
            return 0.0
        return max(0.0, self._clock() - self._here.forecasts_as_of)

    def cluster_ages(self) -> Mapping[str, float]:
        """Return for how many seconds at most each watched worker cluster has sent nothing."""
        with self._lock:
            return self._clusters.ages(self._clock())

    def update(self, update: Update) -> None:
        """Apply what the observer published; placements that it contains leave the ledger."""
        with self._lock:
            now = self._clock()
            seen, expired = self._here.update(update, now)
            self._forget(expired, now)
            self._clusters.update(update, self._here.occupancy, now)
            for workload in update.seen:
                self._visible[workload.key] = None
            while len(self._visible) > _VISIBLE_KEPT:
                self._visible.popitem(last=False)
        if seen:
            self.on_seen([arrival.key for arrival in seen])

    def admit(self, review: Review, peer: str = "") -> Verdict:
        """Answer one review, which came from the address *peer*.

        Raises:
            FieldError: the object in it cannot be read as a Job of its kind.
            PatchError: the patch did not verify.

        """
        kind = KINDS.get(review.kind)
        if kind is None or review.subresource or review.operation not in ("CREATE", "UPDATE"):
            return Verdict(uid=review.uid)
        if probed := probe_verdict(review, seen_by=self._seen_by):
            return probed
        started = time.perf_counter()
        review.name_namespace()
        with self._lock:
            outcome, operations = self._decided(review, kind, peer)
        considered = Considered(review=review, outcome=outcome)
        self._tell(considered, time.perf_counter() - started)
        return Verdict(
            uid=review.uid,
            patch=operations or None,
            warnings=warning.linked(outcome.warnings, outcome.why_not, self.reasons_url),
            audit=outcome.audit,
        )

    def _decided(self, review: Review, kind: JobKind, peer: str) -> tuple[Outcome, list[Operation]]:
        """Return the outcome of a review, its edits as a patch, and enter what it places."""
        source, is_new = review.object, review.operation == "CREATE"
        moment = self._moment(review)
        if is_new:
            self._expire(moment.now)
        occupancy = self._clusters.around(self._here.occupancy)
        outcome: Outcome
        if is_new:
            outcome = create.consider(source, kind, occupancy, moment, self._rules)
            # A Job that carries no mark shows nothing in a second review of it.
            is_unmarked = not (outcome.edits or review.dry_run or _was_decided(outcome))
            if is_unmarked and self._repeated.repeats(source, kind, moment.now):
                outcome = Skipped(skip=Skip.DECIDED_ALREADY, warnings=outcome.warnings)
        else:
            old = review.old_object or {}
            outcome = update.respond(old, source, kind, occupancy, moment, self._rules)
        # Verifying applies the patch to the review's own object.
        operations = patch.operations(outcome.edits, source, kind.allowed)
        if not isinstance(outcome, Skipped | Decided):
            operations += update.disowned(source, kind)
        elif not review.dry_run:
            self._enter(outcome, moment.now, peer)
        return outcome, operations

    def _expire(self, now: float) -> None:
        """Drop the placements whose Workloads never appeared."""
        self._forget(self._here.expire(now), now)
        self._clusters.expire(now)

    def _forget(self, gone: Sequence[Arrival], now: float) -> None:
        if gone:
            self._clusters.drop(gone)
            reason = UNSEEN if self._here.is_healthy(now) else BLIND
            self._metrics.expired.labels(reason).inc(len(gone))

    def _enter(self, outcome: CreateOutcome, now: float, peer: str) -> None:
        arrival = outcome.arrival
        # In a reinvocation, only another replica's decision is not in the ledger yet.
        if arrival is None or (_was_decided(outcome) and self._here.knows(arrival.key)):
            return
        # The bound by namespace: docs/decisions/0001-count-workloads.md.
        room = self._here.room(arrival, peer)
        if room < arrival.count:
            self._metrics.expired.labels(TOO_MANY).inc()
            arrival = replace(arrival, count=room)
        if not room:
            return
        self._clusters.enter(arrival, self._here.occupancy, now)
        self._here.enter(arrival, now, peer)
        self._metrics.placements.inc()

    def _moment(self, review: Review) -> Moment:
        unix = time.time()
        return Moment(
            now=self._clock(),
            unix=unix,
            time=rfc3339(unix),
            uid=review.uid,
            visible=self._visible,
            requester=review.requester,
            is_dry_run=review.dry_run,
            manager=review.manager,
        )


def _was_decided(outcome: CreateOutcome) -> bool:
    return isinstance(outcome, Skipped) and outcome.skip is Skip.DECIDED_ALREADY
