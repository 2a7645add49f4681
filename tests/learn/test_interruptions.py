"""How often runs are interrupted, by what was seen of evictions."""

import pytest

from tests.learn.learners import learned_from
from tests.learn.runs import ended
from webhook.learn.workload_runs import evictions_of
from webhook.model.costs.prices import Place, Prices, SeenInterruptions

HOURS = 3600


def eviction(reason, cause="", count=1):
    return {"reason": reason, "underlyingCause": cause, "count": count}


@pytest.mark.parametrize(
    ("evictions", "count"),
    [
        ([eviction("NodeFailures", count=2)], 2),
        ([eviction("PodsReadyTimeout", "WaitForRecovery")], 1),
        ([eviction("PodsReadyTimeout", "WaitForStart", 9)], 0),
        ([eviction("Preempted", "InClusterQueue"), eviction("NodeFailures")], 1),
        ([], 0),
    ],
)
def test_evictions_count_where_nodes_or_pods_were_lost(evictions, count):
    assert evictions_of({"schedulingStats": {"evictions": evictions}}) == count


def test_hours_and_evictions_of_all_classes_are_summed_up_by_flavor():
    runs = [
        ended(
            "k", 1, seconds=3 * HOURS, flavors="spot", evicted=2, cluster_queue="q", level="rack"
        ),
        ended("other", 2, seconds=HOURS, flavors="plain,spot", coarse="~d"),
        ended("k", 3, seconds=HOURS, flavors="spot", evicted=5, succeeded=False),
        ended("k", 4, seconds=2 * HOURS, flavors="spot", cluster="far", evicted=1),
    ]

    found = learned_from([*runs, *runs]).interruptions

    # Runs are kept by cluster, level and queue, too, and counted once.
    assert found.seen() == {"spot": (3, 6.0), "plain": (0, 1.0)}
    assert found.seen() is found.seen()


def test_what_is_forgotten_counts_no_more():
    classes = [
        ended(f"k{number}", number, seconds=HOURS, coarse=f"~{number}") for number in range(1, 102)
    ]

    found = learned_from(classes, most=100)

    assert found.interruptions.seen()["t4"] == (0, float(len(found.records)))


@pytest.mark.parametrize(
    ("seen", "rate"),
    [
        ((0, 19.9), 0.1),
        ((0, 20.0), 1 / 30),
        ((9, 90.0), 0.1),
        ((4, 990.0), 0.005),
    ],
)
def test_after_twenty_hours_what_was_seen_counts_beside_the_tariff(seen, rate):
    assert SeenInterruptions(*seen).rate(0.1) == pytest.approx(rate)
    # Where none are expected, none are learned: evictions happen anywhere.
    assert SeenInterruptions(*seen).rate(0.0) == 0.0


def test_of_a_jobs_flavors_the_worst_counts():
    prices = Prices(interruptions={"spot": 0.1, "rare": 0.02})
    usage = {("spot", "nvidia.com/gpu"): 1, ("rare", "cpu"): 1000}

    def place(**seen):
        return Place(usage=usage, prices=prices, congestion={}, seen=seen).interruptions

    assert place() == 0.1
    assert place(spot=SeenInterruptions(0, 90.0)) == 0.02
    assert place(rare=SeenInterruptions(49, 50.0)) == pytest.approx(0.5)
