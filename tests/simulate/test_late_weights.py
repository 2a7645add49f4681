"""The price of lateness in a replay follows the share of late Jobs, as the controller lets it."""

import pytest

from tests.builders import GPU_OPTION, policy
from tests.simulate.files import document, job
from tests.simulate.priced import START, results, tariff
from webhook.cost.lateness_weights import AGAIN_SECONDS
from webhook.learn.estimates import RunTimeLearner
from webhook.simulate.replayed_forecasts import Forecasts
from webhook.state.snapshot import Snapshot

ADAPTING = policy(
    GPU_OPTION, name="slo", strategy={"type": "Cost", "cost": {"lateness": {"adapt": {}}}}
)


def test_weights_change_each_ten_minutes_by_what_had_ended_by_then():
    forecasts = Forecasts(Snapshot().with_policies((ADAPTING,)), RunTimeLearner())
    for _ in range(20):
        forecasts.note_ended("slo", 90.0, late=True)

    soon = forecasts.snapshot(AGAIN_SECONDS - 1).costs.scarcity.weights
    # Forgiving ends come after the second change, however late anybody asks for it.
    for _ in range(200):
        forecasts.note_ended("slo", 2 * AGAIN_SECONDS + 61.0, late=False)
    later = forecasts.snapshot(2 * AGAIN_SECONDS + 62.0).costs.scarcity.weights
    last = forecasts.snapshot(3 * AGAIN_SECONDS + 61.0).costs.scarcity.weights

    assert soon == {"slo": 1.0}
    assert later == {"slo": pytest.approx(1.21)}
    assert last == {"slo": pytest.approx(1.1)}


def queues(**lateness):
    """Return where Jobs run that come one by one; the cheaper queue ends them 50 seconds later."""
    rates = [
        {"flavors": ["slow"], "resources": {"cpu": "36"}},
        {"flavors": ["fast"], "resources": {"cpu": "216"}},
    ]
    cost = {
        "runTime": "100s",
        "timeValue": "0",
        "congestion": {"type": "None"},
        "lateness": {"perHour": "100", **lateness},
    }
    by_cost = {
        "apiVersion": "kueue-fallback.dev/v1alpha1",
        "kind": "FallbackPolicy",
        "metadata": {"name": "by-cost"},
        "spec": {
            "match": {"jobSelector": {}},
            "options": [{"queue": "slow"}, {"queue": "fast", "slowdown": 0.5}],
            "strategy": {"type": "Cost", "cost": cost},
        },
    }
    work = {
        "job": job(queue="slow"),
        "deadline": "10s",
        "runTimes": {"slow": "100s", "fast": "50s"},
    }
    source = {
        **document(),
        "start": START,
        "tariffs": {"objects": [tariff(rates=rates)]},
        "policies": {"objects": [by_cost]},
        "jobs": {"work": work},
        "arrivals": [{"every": {"interval": "5m", "count": 30, "jobs": ["work"]}}],
    }
    _, found = results(source, "Cost")
    return [ended.queue for ended in found["Cost"].jobs]


def test_what_ends_late_makes_later_jobs_pay_for_a_faster_queue():
    fixed, adapting = queues(), queues(adapt={})

    assert fixed == ["slow"] * 30
    first = adapting.index("fast")
    assert first > 10
    assert adapting[first:] == ["fast"] * (30 - first)
