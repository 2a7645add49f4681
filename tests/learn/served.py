"""What services with one replica were seen to do, by the formula that is fitted to it."""

from webhook.cost.service_level import ReplicaSpeed, level_at
from webhook.learn.service_points import ServicePoint, pack_points

AT = 1_800_000_000


def points_of(per_second, latency):
    speed = ReplicaSpeed(per_second=per_second, latency=latency)
    rates = [per_second * (0.2 + 0.03 * number) for number in range(24)]
    return pack_points(
        ServicePoint(AT, number, 1, rate, level_at(rate, 1, speed).latency)
        for number, rate in enumerate(rates)
    )
