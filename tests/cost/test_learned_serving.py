"""What one replica of a service does, learned from how fast the service was at which load."""

import random
from math import inf, nan

import pytest

from webhook.cost.learned_serving import (
    ENOUGH_POINTS,
    MOST_BEYOND,
    fitted,
    fitted_all,
    learned_serving,
    place_of,
)
from webhook.cost.service_level import ReplicaSpeed, level_at
from webhook.learn.service_points import MOST_POINTS, POINT_SECONDS, ServicePoint, pack_points
from webhook.model.costs.learned_service import LearnedServing
from webhook.model.queues import ClusterQueue, ResourceGroup
from webhook.model.snapshot_parts import LearnedRuns

BEGIN = 1_800_000_000


def points(rates, latency_at, *, replicas=1):
    return pack_points(
        ServicePoint(BEGIN + number * int(POINT_SECONDS), 7, replicas, rate, latency_at(rate))
        for number, rate in enumerate(rates)
    )


def queue(*groups):
    return ClusterQueue(
        name="cq",
        groups=tuple(
            ResourceGroup(resources=resources, flavors=flavors, quotas={})
            for resources, flavors in groups
        ),
    )


@pytest.mark.parametrize("replicas", [1, 4, 12])
@pytest.mark.parametrize(("per_second", "latency"), [(20.0, 0.08), (0.5, 3.0), (400.0, 0.004)])
def test_what_a_queue_was_seen_to_do_gives_its_speed_and_its_latency(replicas, per_second, latency):
    chance = random.Random(3)
    speed = ReplicaSpeed(per_second=per_second, latency=latency)

    def seen(rate):
        return level_at(rate, replicas, speed).latency * chance.gauss(1, 0.03)

    rates = [replicas * per_second * (0.2 + 0.7 * number / 47) for number in range(48)]
    found = fitted(points(rates, seen, replicas=replicas))

    assert found.points == 48
    assert found.per_second == pytest.approx(per_second, rel=0.1)
    assert found.latency == pytest.approx(latency, rel=0.1)


def test_a_service_that_never_waits_is_believed_twice_the_load_at_which_it_was_seen():
    found = fitted(points([2.0, 5.0] * 6, lambda _: 0.08))

    assert found.per_second == MOST_BEYOND * 5.0
    assert found.latency == pytest.approx(0.08, rel=0.06)
    assert found.points == ENOUGH_POINTS


@pytest.mark.parametrize(
    ("rates", "latency_at"),
    [
        ([2.0, 5.0] * 5 + [5.0], lambda _: 0.08),
        ([3.0, 5.0] * 24, lambda _: 0.08),
        ([2.0, 5.0, 9.0] * 16, lambda rate: 2.0 / rate**2),
        ([], None),
    ],
    ids=["too few", "at one load alone", "faster at a higher load", "none"],
)
def test_nothing_is_learned_from_points_that_do_not_tell(rates, latency_at):
    assert fitted(points(rates, latency_at)) is None


@pytest.mark.parametrize(
    "wrong", [(0, 5.0, 0.08), (1, 0.0, 0.08), (1, inf, 0.08), (1, 5.0, nan), (1, 5.0, 1e-40)]
)
def test_points_that_cannot_be_true_are_left_out(wrong):
    good = points([2.0, 5.0] * 6, lambda _: 0.08)

    assert fitted(pack_points([ServicePoint(BEGIN, 1, *wrong)]) + good) == fitted(good)


def test_a_day_with_few_replicas_is_fitted_as_a_whole():
    rates = [1.0 + 8.0 * (number % 24) / 23 for number in range(MOST_POINTS)]
    speed = ReplicaSpeed(per_second=10.0, latency=0.1)

    found = fitted(points(rates, lambda rate: level_at(rate, 1, speed).latency))

    assert found.points == MOST_POINTS
    assert 9.0 <= found.per_second <= 10.5


def test_a_place_is_the_only_device_of_a_queue_and_the_option():
    a100 = (("nvidia.com/gpu",), ("a100",))
    cpu = (("cpu", "memory"), ("plain",))

    assert place_of(queue(cpu, a100), "gpu") == "a100/gpu"
    assert place_of(queue(cpu), "slow") == "plain/slow"
    assert place_of(queue((("nvidia.com/gpu",), ("a100", "h100"))), "gpu") == ""
    assert place_of(queue(), "gpu") == ""


def test_it_is_found_by_class_device_and_option():
    there = queue((("nvidia.com/gpu",), ("a100",)))
    served = fitted_all(
        {
            ("team/k", "a100/gpu"): points([2.0, 5.0] * 6, lambda _: 0.08),
            ("team/l", "a100/gpu"): points([2.0], lambda _: 0.08),
        }
    )
    learned = LearnedRuns(served=served)

    assert list(served) == [("team/k", "a100/gpu")]
    assert isinstance(learned_serving(learned, "team/k", there, "gpu"), LearnedServing)
    assert learned_serving(learned, "team/k", there, "slice") is None
    assert learned_serving(learned, "team/l", there, "gpu") is None
