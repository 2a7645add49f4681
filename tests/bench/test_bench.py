"""What the bench makes of its figures."""

import pytest

from bench import creates, where
from bench.creates import NOTHING, POINTS, POLICY, WEBHOOK
from bench.report import Target

WAYS = {NOTHING: "gpu-lq", POLICY: "cpu-lq", WEBHOOK: "cpu-lq"}


def result(p50, per_second, queue, errors=0, parts=None):
    return {
        "where": parts or {},
        "calls": 10,
        "errors": {"timed out": errors} if errors else {},
        "notes": {f"queue {queue}": 10},
        "perSecond": per_second,
        "cpuMilliseconds": {"API server": 1.5, "webhook": 0.5},
        "latency": {"p50": p50, "p90": p50 * 2, "p99": p50 * 3},
    }


def one_round(latency, throughput, **more):
    return {
        name: {
            point.name: result(latency[name], throughput[name], queue, **more) for point in POINTS
        }
        for name, queue in WAYS.items()
    }


def figures(*rounds):
    return {"kept": list(rounds)}


EVEN = one_round(
    {NOTHING: 2.0, POLICY: 3.0, WEBHOOK: 3.5}, {NOTHING: 700, POLICY: 500, WEBHOOK: 520}
)
SLOW = one_round(
    {NOTHING: 4.0, POLICY: 6.0, WEBHOOK: 5.0}, {NOTHING: 300, POLICY: 200, WEBHOOK: 210}
)


def test_what_a_contender_adds_is_taken_within_a_round():
    added, throughput, wrong = creates.targets(figures(EVEN, SLOW, SLOW))

    assert (added.value, added.limit, added.is_met) == (1.0, 2.0, True)
    assert (throughput.value, throughput.limit, throughput.is_met) == (210, 200, True)
    assert (wrong.value, wrong.is_met) == (0, True)


def test_a_webhook_that_adds_more_than_the_policy_misses_its_target():
    added, throughput, _ = creates.targets(figures(EVEN))

    assert (added.value, added.limit, added.is_met) == (1.5, 1.0, False)
    assert throughput.is_met


@pytest.mark.parametrize(("ours", "times", "is_met"), [(6.0, 3.0, True), (7.0, 3.5, False)])
def test_our_calls_are_held_to_kueues_in_the_same_round(ours, times, is_met):
    parts = {where.OURS: ours, where.KUEUES: 2.0}
    called = one_round(dict.fromkeys(WAYS, 1.0), dict.fromkeys(WAYS, 1), parts=parts)

    _, _, calls, _ = creates.targets(figures(called))

    assert (calls.value, calls.is_met) == (times, is_met)


def test_failed_creates_and_those_in_another_queue_are_wrong():
    astray = {**EVEN, WEBHOOK: EVEN[NOTHING]}
    failed = one_round(dict.fromkeys(WAYS, 1.0), dict.fromkeys(WAYS, 1), errors=1)

    assert creates.targets(figures(astray))[-1].value == 10 * len(POINTS)
    assert creates.targets(figures(failed))[-1].value == len(WAYS) * len(POINTS)


def _one_space(text):
    return " ".join(text.split())


def test_a_target_says_whether_it_is_met():
    low = Target(name="p99, ms", value=1.5, limit=2)
    high = Target(name="a second", value=1.5, limit=2, at_least=True)

    assert _one_space(low.line()) == "p99, ms 1.50 <= 2: met"
    assert _one_space(high.line()) == "a second 1.50 >= 2: MISSED"
