"""The controller's metrics: their names, help texts and label values are defined only here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from typing import Final

from webhook.decide.cluster_choice import Nomination
from webhook.hindsight import bills
from webhook.hindsight.freed_slices import SliceSize
from webhook.hindsight.journal import JournalEntry
from webhook.metric_table import (
    A_CLUSTER,
    A_FLAVOR,
    A_NAMESPACE,
    A_POLICY,
    A_PRICED_RESOURCE,
    A_SLICE,
    A_TARIFF,
    A_TREE,
    AN_OPTION,
    ANY_POLICY,
    CountedElsewhere,
    Table,
    Values,
    Watches,
    policy_label,
    series,
)
from webhook.model.costs.devices import DeviceSample
from webhook.model.costs.prices import CompiledTariff, CongestionPrices, Curve, Prices
from webhook.model.faults import CONTROLLER_PARTS
from webhook.model.job import QUEUE_LABEL
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode
from webhook.model.reasons import OUTCOMES, Obstacle
from webhook.reconsider.hold_plan import Release
from webhook.state.snapshot import Snapshot


class ControllerMetrics:
    def __init__(self) -> None:
        self.table = table = Table()
        self.registry = table.registry
        table.version()
        table.process()
        self.watches = Watches(table, "controller_")
        self.leader = table.gauge(
            "controller_leader", "1 if this controller leads, and therefore writes; else 0."
        )
        self._about_policies(table)
        self.failures = CountedElsewhere(
            table.counter(
                "controller_failed_turns",
                "Turns in which a part of the controller failed; the next turn follows.",
                part=CONTROLLER_PARTS,
            )
        )
        self._run_times(table)
        self._moves(table)
        self.costs = CostMetrics(table)
        self._holds(table)
        self._nominations(table)
        self._devices(table)
        self.slices = SliceMetrics(table)

    def _about_policies(self, table: Table) -> None:
        self.writes = table.counter(
            "policy_status_writes",
            "Writes of policies' status, by result.",
            result=("written", "failed"),
        )
        self._policies = table.gauge(
            "policies", "Policies by their condition Ready.", ready=("True", "False")
        )
        self._ready = table.gauge(
            "policy_ready", "1 if the policy's condition Ready is True, else 0.", policy=A_POLICY
        )
        self.unreviewed = table.counter(
            "unreviewed_jobs",
            "Jobs that a policy in mode Enforce or Advise matched and that were created without "
            "being reviewed. Mode Observe is not counted, as it writes nothing on Jobs.",
            policy=ANY_POLICY,
        )
        self.unjudged = table.counter(
            "unjudged_jobs",
            "Jobs without a decision that were not checked because too many came at once.",
        )

    def _moves(self, table: Table) -> None:
        self._moved = table.counter(
            "controller_moves",
            "Moves of pending Jobs that were written, by outcome. moved: its Workload "
            "shows it. conflict: the Job changed meanwhile. refused: by the webhook or the API "
            "server. lost: no Workload showed it in time. repaired: quota that it held in the "
            "queue it had left was taken back. putBack: a service whose new pods were not ready in "
            "time. failed: the API server could not be reached.",
            policy=ANY_POLICY,
            outcome=OUTCOMES,
        )
        self._obstacles: dict[str, Counter[tuple[str, Obstacle]]] = {}
        self._gained = table.counter(
            "controller_move_gained_seconds",
            "Expected gain of moves: seconds that all pending Jobs together are done sooner.",
            policy=A_POLICY,
        )
        self._not_moved = table.gauge(
            "controller_not_moved_jobs",
            "Pending Jobs, and services, that policies with reconsider cannot move, by reason.",
            policy=A_POLICY,
            reason=tuple(map(str, Obstacle)),
        )
        self.in_flight = table.gauge(
            "controller_moves_in_flight", "Moves that no Workload shows yet."
        )

    def _holds(self, table: Table) -> None:
        self._held = table.gauge("held_jobs", "Jobs that are held until a better hour.")
        self._overdue = table.gauge(
            "held_overdue_jobs",
            "Jobs that are still held two minutes after their latest start, or of which nobody "
            "knows it.",
        )
        self._released = table.counter(
            "released_jobs",
            "Held Jobs that were released, by reason.",
            reason=tuple(map(str, Release)),
        )

    def _nominations(self, table: Table) -> None:
        self.forgotten = table.gauge(
            "unnominated_workloads",
            "Workloads that have had quota for half a minute and for which no worker cluster is "
            "nominated; only if kueue-fallback is MultiKueue's dispatcher.",
        )
        self._nominated = table.counter(
            "nominations",
            "Worker clusters nominated for Workloads, by why. first: the best by its policy. "
            "better: better by now than those before. late: those before have not taken it in "
            "time. lost: those before cannot be relied on. all: every cluster at once.",
            why=tuple(map(str, Nomination)),
        )

    def _devices(self, table: Table) -> None:
        self._queries = table.counter(
            "prometheus_queries",
            "Queries to Prometheus about how Jobs use devices and what services answer, by result.",
            result=("answered", "failed"),
        )
        self._samples = table.counter(
            "prometheus_samples",
            "Values in the answers of Prometheus. refused: not a plausible number.",
            result=("taken", "refused"),
        )
        self.measured = table.gauge(
            "measured_classes", "Classes of Jobs whose use of devices is known."
        )

    def count_answer(self, *, answered: bool) -> None:
        self._queries.labels("answered" if answered else "failed").inc()

    def count_samples(self, samples: Sequence[DeviceSample]) -> None:
        refused = sum(sample.value is None for sample in samples)
        self._samples.labels("taken").inc(len(samples) - refused)
        self._samples.labels("refused").inc(refused)

    def count_nomination(self, why: Nomination) -> None:
        self._nominated.labels(str(why)).inc()

    def show_held(self, held: int, overdue: int) -> None:
        """Set how many Jobs are held, and how many of them for too long."""
        self._held.set(held)
        self._overdue.set(overdue)

    def count_released(self, reason: Release) -> None:
        self._released.labels(str(reason)).inc()

    def count_move(self, policy: str, outcome: str, *, gained: float = 0.0) -> None:
        """Count one of ``OUTCOMES``; one that is done has *gained* seconds of all pending Jobs."""
        self._moved.labels(policy_label(policy), outcome).inc()
        # Moves by cost may let all be done later, and a counter cannot fall.
        if gained > 0:
            self._gained.labels(policy).inc(gained)

    def show_obstacles(
        self, obstacles: Mapping[tuple[str, Obstacle], int], *, of: str = "jobs"
    ) -> None:
        """Set of each policy how many of its pending Jobs, or its services, cannot be moved."""
        self._obstacles[of] = Counter(obstacles)
        self._not_moved.clear()
        for (policy, obstacle), count in sum(self._obstacles.values(), Counter()).items():
            self._not_moved.labels(policy, str(obstacle)).set(count)

    def count_writes(self, what: str, *, written: int, failed: int) -> None:
        """Count writes of ConfigMaps with run times, or of the journal."""
        counter = self.journal_writes if what == "journal" else self.record_writes
        counter.labels("written").inc(written)
        counter.labels("failed").inc(failed)

    def _run_times(self, table: Table) -> None:
        self.record_writes = table.counter(
            "run_time_record_writes",
            "Writes of ConfigMaps with records of runs, by result.",
            result=("written", "failed"),
        )
        self.journal_writes = table.counter(
            "journal_writes",
            "Writes of the journal's ConfigMaps, by result.",
            result=("written", "failed"),
        )
        self.classes = table.gauge("run_time_classes", "Classes of Jobs with remembered runs.")
        self._keeps_failing = table.gauge(
            "keeps_failing",
            "Classes of Jobs that are refused the option because what they run keeps failing "
            "there.",
            policy=A_POLICY,
            option=AN_OPTION,
        )

    def show_failing(
        self, counts: Mapping[tuple[str, str], int], policies: tuple[FallbackPolicy, ...]
    ) -> None:
        """Set how many classes are refused each option but the policy's first.

        Those that namespaces have of their own are left out, as in ``show``; Events tell there.
        """
        places = {
            (policy.name, option.name)
            for policy in policies
            if not policy.namespace
            for option in policy.spec.options[1:]
        }
        for place in places:
            self._keeps_failing.labels(*place).set(counts.get(place, 0))
        for labels in series(self._keeps_failing):
            if (labels["policy"], labels["option"]) not in places:
                self._keeps_failing.remove(*labels.values())

    def show(self, ready: Mapping[str, bool]) -> None:
        """Set the condition Ready of every policy; remove the series of deleted ones.

        Those that namespaces have of their own are left out: an alert on them would be for others.
        """
        known = {policy_label(name) for name in ready}
        ready = {name: state for name, state in ready.items() if policy_label(name) == name}
        for state in (True, False):
            count = sum(1 for is_ready in ready.values() if is_ready is state)
            self._policies.labels(str(state)).set(count)
        for name, state in ready.items():
            self._ready.labels(name).set(state)
        metrics = (self._ready, self.unreviewed, self._moved, self._gained, self._not_moved)
        for metric in metrics:
            for labels in series(metric):
                if labels["policy"] not in known:
                    metric.remove(*labels.values())
        self.costs.forget_but(known)

    def expect(self, snapshot: Snapshot) -> None:
        """Start the series of each policy that writes decisions at 0, so that increases show."""
        for policy in snapshot.fallback.policies:
            if policy.spec.mode is not Mode.OBSERVE:
                self.unreviewed.labels(policy_label(policy.name))
            if policy.spec.reconsider is not None:
                self._gained.labels(policy.name)
                for outcome in OUTCOMES:
                    self._moved.labels(policy.name, outcome)


MOST_PLACES: Final = 1_000
"""Policies and namespaces that are told apart; who may create namespaces may not fill memory."""
OTHERS: Final = "(others)"
"""Stands for the namespaces beyond these."""
_MOST_RATES: Final = 256


class CostMetrics:
    """What Jobs have cost, each counted once by the leader that journals it; what Tariffs say."""

    def __init__(self, table: Table) -> None:
        of_jobs: Mapping[str, Values] = {
            "policy": ANY_POLICY,
            "namespace": A_NAMESPACE,
            "kind": bills.KINDS,
        }
        self._spent = table.counter(
            "cost",
            "What Jobs have cost that have ended, as far as it is known: money by rates and for "
            "electricity, kWh, grams of CO2. No policy: none decided. Where Prometheus does not "
            "honor labels, namespace is exported_namespace.",
            **of_jobs,
        )
        self._saved = table.counter(
            "cost_saved",
            "By how much less moved Jobs have cost than their decision expected where they were "
            "submitted; see cost_added for the others. `report` compares by replays.",
            **of_jobs,
        )
        self._added = table.counter(
            "cost_added",
            "By how much more moved Jobs have cost than their decision expected where they were "
            "submitted.",
            **of_jobs,
        )
        self._places: set[tuple[str, str]] = set()
        self._until = table.gauge(
            "tariff_series_until_seconds",
            "When the first of a tariff's series ends, in seconds since 1970.",
            tariff=A_TARIFF,
        )
        self._clipped = table.gauge(
            "tariff_series_clipped_points",
            "Points of a tariff's series that are out of proportion, and clipped.",
            tariff=A_TARIFF,
        )
        self._rate = table.gauge(
            "tariff_rate",
            "Money for one unit of a resource and hour, now.",
            tariff=A_TARIFF,
            cluster=A_CLUSTER,
            flavor=A_FLAVOR,
            resource=A_PRICED_RESOURCE,
        )
        self._intensity = table.gauge(
            "carbon_intensity",
            "Grams of CO2 for a kWh by a tariff, now.",
            tariff=A_TARIFF,
            cluster=A_CLUSTER,
        )
        self._advised = table.gauge(
            "advised_saving",
            "Money that running Jobs would save by going on elsewhere from a checkpoint, as "
            "`kubectl fallback advise` lists them. Only the leading controller has it.",
            policy=A_POLICY,
        )
        self._congestion = table.gauge(
            "congestion_price",
            "Money for one unit and hour of what is scarce, beside its rate, as decisions by Cost "
            "charge it. What is not scarce has no series.",
            tree=A_TREE,
            flavor=A_FLAVOR,
            resource=A_PRICED_RESOURCE,
            cluster=A_CLUSTER,
        )

    def show_advised(self, savings: Mapping[str, float]) -> None:
        """Set what the running Jobs of each policy would save elsewhere; remove all others."""
        self._advised.clear()
        for policy, saving in sorted(savings.items()):
            self._advised.labels(policy).set(saving)

    def show_congestion(self, current: CongestionPrices) -> None:
        """Set what is scarce now; remove the series of what is not."""
        self._congestion.clear()
        for cell, price in sorted(current.prices.items())[:_MOST_RATES]:
            self._congestion.labels(*cell).set(price)

    def count(self, entries: Iterable[JournalEntry], prices: Mapping[str, Prices]) -> None:
        """Count Jobs that have ended."""
        for entry in entries:
            spent = bills.spent_by(entry, prices)
            place = self._place(entry)
            for kind, amount in bills.amounts_of(spent).items():
                self._spent.labels(*place, kind).inc(amount)
            if entry.mode != Mode.ENFORCE or entry.queue == entry.labels.get(QUEUE_LABEL):
                continue
            for kind, amount in bills.saved(entry.expected_cost, spent).items():
                counter = self._saved if amount >= 0 else self._added
                counter.labels(*place, kind).inc(abs(amount))

    def _place(self, entry: JournalEntry) -> tuple[str, str]:
        place = policy_label(entry.policy), entry.namespace
        if place not in self._places:
            if len(self._places) >= MOST_PLACES:
                return place[0], OTHERS
            self._places.add(place)
        return place

    def forget_but(self, policies: Iterable[str]) -> None:
        """Remove the series of policies that are not among *policies*."""
        kept = {*policies, ""}
        for metric in (self._spent, self._saved, self._added):
            for labels in series(metric):
                if labels["policy"] not in kept:
                    metric.remove(*labels.values())
        self._places = {place for place in self._places if place[0] in kept}

    def show(self, tariffs: Iterable[CompiledTariff], unix: float) -> None:
        """Set what tariffs say at *unix*, in seconds since 1970; remove the series of others."""
        for gauge in (self._until, self._clipped, self._rate, self._intensity):
            gauge.clear()
        for compiled in tariffs:
            name, prices = compiled.tariff.name, compiled.prices
            if compiled.series_until is not None:
                self._until.labels(name).set(compiled.series_until)
            self._clipped.labels(name).set(compiled.clipped)
            for cluster in compiled.tariff.spec.clusters:
                for (flavor, resource), rate in sorted(prices.rates.items())[:_MOST_RATES]:
                    if (value := _now(rate, unix)) is not None:
                        self._rate.labels(name, cluster, flavor, resource).set(value)
                if (value := _now(prices.carbon, unix)) is not None:
                    self._intensity.labels(name, cluster).set(value)


class SliceMetrics:
    """What is free of devices and of no use to what waits; only the leading controller has it."""

    def __init__(self, table: Table) -> None:
        self._unusable = table.gauge(
            "controller_unusable_device_parts",
            "Devices, as a sum of parts, that are free in slices smaller than this. Only with "
            "accelerators.fragmentationMinutes.",
            resource=A_SLICE,
        )
        self._blocked = table.gauge(
            "controller_blocked_slices",
            "Slices that wait although as much is free on some Node, on whatever devices, in other "
            "sizes.",
            resource=A_SLICE,
        )

    def show(self, sizes: Iterable[SliceSize]) -> None:
        """Set what was found; remove the series of all other sizes."""
        self.forget()
        for size in sizes:
            self._unusable.labels(size.resource).set(sum(size.unusable.values()))
            self._blocked.labels(size.resource).set(size.blocked)

    def forget(self) -> None:
        """Remove all series, as another controller has them."""
        self._unusable.clear()
        self._blocked.clear()


def _now(rate: Curve | None, unix: float) -> float | None:
    value = rate.at(unix) if rate is not None else None
    return None if value is None or isnan(value) else value
