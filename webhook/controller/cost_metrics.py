"""Counts what Jobs have cost, and shows what Tariffs say now.

A Job is counted once, by the leader that writes it into the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isnan
from typing import Final

from webhook.hindsight import bills
from webhook.hindsight.journal import JournalEntry
from webhook.metric_table import (
    A_CLUSTER,
    A_FLAVOR,
    A_NAMESPACE,
    A_POLICY,
    A_PRICED_RESOURCE,
    A_TARIFF,
    A_TREE,
    ANY_POLICY,
    Table,
    Values,
    policy_label,
    series,
)
from webhook.model.costs.prices import CompiledTariff, Curve, Prices
from webhook.model.costs.scarcity import CongestionPrices
from webhook.model.job import QUEUE_LABEL
from webhook.model.policy.fallback_policy import Mode

MOST_PLACES: Final = 1_000
"""Policies and namespaces that are told apart; who may create namespaces may not fill memory."""
OTHERS: Final = "(others)"
"""Stands for the namespaces beyond these."""
_MOST_RATES: Final = 256


class CostMetrics:
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


def _now(rate: Curve | None, unix: float) -> float | None:
    value = rate.at(unix) if rate is not None else None
    return None if value is None or isnan(value) else value
