"""What services did, as it is kept with the records of runs."""

import pytest

from webhook.learn.estimates import RunTimeLearner
from webhook.learn.run_records import (
    MOST_BYTES,
    ClassRecord,
    config_map,
    crowded_out,
    merged,
    read_shard,
)
from webhook.learn.service_points import (
    MOST_POINTS,
    ServicePoint,
    merged_points,
    pack_points,
    unpack_points,
)


def point(number=0, *, service=1, rate=4.5, latency=0.25):
    return ServicePoint(1000 + 900 * number, service, 3, rate, latency)


def record(*points, place="a100/gpu"):
    return ClassRecord(served={place: pack_points(points)})


def test_points_merge_as_sets_in_any_order_and_the_newest_stay():
    many = [point(number) for number in range(MOST_POINTS + 5)]
    one, other = pack_points(many[:60]), pack_points(many[40:])

    together = merged_points(one, other)

    assert together == merged_points(other, one) == merged_points(together, one)
    assert unpack_points(together) == tuple(many[5:])


def test_records_keep_them_and_read_those_without():
    records = {"team/k": record(point(1), point(2)), "team/l": ClassRecord()}

    stored = config_map(3, records)

    assert read_shard(stored) == records
    assert "served" not in stored["data"]["classes"].split("\n")[1]
    both = merged(records["team/k"], record(point(3)))
    assert unpack_points(both.served["a100/gpu"]) == (point(1), point(2), point(3))


def test_damaged_bytes_are_refused():
    with pytest.raises(ValueError, match="expected a multiple of 16 bytes, got 3"):
        unpack_points(b"abc")


def test_a_class_of_services_is_as_old_as_its_newest_point():
    records = {"team/old": record(point(1)), "team/new": record(point(1), point(9))}

    assert records["team/new"].last == point(9).at
    assert list(crowded_out(dict.fromkeys(records, MOST_BYTES), records)) == [
        *("team/old", "team/new"),
    ]


def test_points_are_published_by_class_and_place_and_only_when_they_change():
    runs = RunTimeLearner()
    runs.merge("team/k", record(point(1)))
    runs.merge("team/l", record(point(2), place="h100/gpu"))
    before = runs.points()

    runs.merge("team/k", record(point(1)))
    assert runs.points() is before
    runs.merge("team/k", record(point(3)))

    assert runs.points() == {
        ("team/k", "a100/gpu"): pack_points([point(1), point(3)]),
        ("team/l", "h100/gpu"): pack_points([point(2)]),
    }


def test_points_of_a_forgotten_class_are_gone():
    runs = RunTimeLearner(most=1)
    runs.merge("team/k", record(point(1)))
    runs.points()
    runs.merge("team/l", record(point(2)))

    assert runs.points() == {("team/l", "a100/gpu"): pack_points([point(2)])}
