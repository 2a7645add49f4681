"""What Jobs have cost, counted once each, and what tariffs say now."""

import pytest

from tests.cost.ended_jobs import EXPECTED, PRICES, ran
from tests.cost.tariffs import tariff
from tests.hindsight.slots import decided, expecting
from webhook.controller.controller_metrics import MOST_PLACES, OTHERS, ControllerMetrics
from webhook.cost.cluster_prices import zone_of
from webhook.cost.rates import compile_tariff

NOW = 1796112000.0


def shown(metrics, name):
    return {
        tuple(sample.labels.values()): pytest.approx(sample.value)
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == f"kueue_fallback_{name}"
    }


def counted(*entries):
    metrics = ControllerMetrics()
    metrics.costs.count(entries, PRICES)
    return metrics


def test_money_energy_and_carbon_are_counted_by_policy_and_namespace():
    metrics = counted(ran(), ran(), ran("other"))

    assert shown(metrics, "cost_total") == {
        ("p", "team", "money"): 6.12,
        ("p", "team", "kwh"): 0.6,
        ("p", "team", "grams"): 240.0,
        ("p", "other", "money"): 3.06,
        ("p", "other", "kwh"): 0.3,
        ("p", "other", "grams"): 120.0,
    }


def test_what_is_not_known_is_not_counted_as_0():
    metrics = counted(ran(used=()), ran(cluster="far"))

    assert shown(metrics, "cost_total") == {}


def test_what_moved_jobs_saved_and_what_they_cost_more_are_counted_apart():
    metrics = counted(ran())

    assert shown(metrics, "cost_saved_total") == {("p", "team", "money"): 2.04}
    assert shown(metrics, "cost_added_total") == {
        ("p", "team", "kwh"): 0.2,
        ("p", "team", "grams"): 70.0,
    }


@pytest.mark.parametrize(
    "values",
    [
        {"queue": "h100-lq"},
        {"decision": expecting(EXPECTED, policy="p", mode="Advise")},
        {"decision": None},
        {"decision": decided(policy="p")},
    ],
    ids=["stayed", "advised", "undecided", "nothing expected"],
)
def test_who_was_not_moved_for_certain_saved_nothing(values):
    metrics = counted(ran(**values))

    assert shown(metrics, "cost_total")
    assert shown(metrics, "cost_saved_total") == shown(metrics, "cost_added_total") == {}


def test_namespaces_without_end_take_no_memory_without_end():
    metrics = counted(*(ran(f"team-{number}") for number in range(MOST_PLACES + 2)))

    found = shown(metrics, "cost_total")
    assert len(found) == 3 * (MOST_PLACES + 1)
    assert found["p", OTHERS, "money"] == 6.12


def test_what_tariffs_say_now_is_shown_for_each_cluster():
    metrics = ControllerMetrics()
    given = tariff(
        "seoul",
        clusters=["", "far"],
        rates=[{"flavors": ["gpu"], "resources": {"nvidia.com/gpu": "3"}}],
        carbon=[{"intensity": "415"}],
    )

    metrics.costs.show([compile_tariff(given, now=NOW, zone=zone_of("UTC"))], NOW)
    rates, carbon = shown(metrics, "tariff_rate"), shown(metrics, "carbon_intensity")
    metrics.costs.show([], NOW)

    assert rates == {
        ("seoul", "", "gpu", "nvidia.com/gpu"): 3.0,
        ("seoul", "far", "gpu", "nvidia.com/gpu"): 3.0,
    }
    assert carbon == {("seoul", ""): 415.0, ("seoul", "far"): 415.0}
    assert shown(metrics, "tariff_rate") == shown(metrics, "carbon_intensity") == {}
