"""What follows for a class from what its runs used of devices."""

import pytest

from webhook.learn.device_runs import (
    MOST_DEVICE_RUNS,
    UNKNOWN_BOUND,
    UNKNOWN_PART,
    UNKNOWN_WATTS,
    DeviceRun,
    merged_device_runs,
    pack,
    unpack,
    use_of,
)
from webhook.learn.run_records import ClassRecord, config_map, merged, read_shard

GIB, MIB = 1 << 30, 1 << 20
A100, H100 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3"


def run(number=0, *, peak=8192, part=100, watts=UNKNOWN_WATTS, bound=UNKNOWN_BOUND):
    return DeviceRun(1000 + number, number, peak, part, watts, bound)


def use(*runs, model=A100):
    return use_of({model: pack(runs)})


def test_the_highest_of_five_runs_with_headroom_is_enough():
    found = use(*(run(number, peak=8000 + 400 * number) for number in range(5)))

    assert (found.runs, found.peak) == (5, 9600 * MIB)
    assert found.need == int(9600 * MIB * 1.15) + 512 * MIB
    assert not found.preallocates


def test_four_runs_tell_no_need():
    assert use(*(run(number, peak=8000 + 400 * number) for number in range(4))).need is None


@pytest.mark.parametrize(
    ("parts", "takes_ahead"),
    [
        ((750, 751, 752, 750, 751), True),
        ((900, 920, 927, 910, 905), True),
        # Most of a device, but not the same.
        ((750, 800, 850, 900, 950), False),
        # The same, but not most.
        ((500, 501, 502, 503, 504), False),
        # The size of the device is not known: the same is enough.
        ((UNKNOWN_PART,) * 5, True),
    ],
)
def test_who_takes_the_same_and_most_of_a_device_has_no_need(parts, takes_ahead):
    found = use(*(run(number, part=part) for number, part in enumerate(parts)))

    assert (found.preallocates, found.need is None) == (takes_ahead, takes_ahead)


def test_who_takes_the_same_part_of_different_devices_has_no_need():
    by_model = {
        A100: pack(run(number, peak=61_440, part=750) for number in range(4)),
        "NVIDIA-L4": pack([run(9, peak=17_200, part=752)]),
    }

    assert use_of(by_model).preallocates


def test_who_takes_most_of_one_model_at_once_has_no_need_whatever_it_took_elsewhere():
    by_model = {
        A100: pack(run(number, peak=61_440, part=750) for number in range(3)),
        H100: pack(run(number, peak=9000 + 500 * number, part=110) for number in range(9)),
    }

    assert use_of(by_model).preallocates


def test_watts_are_means_by_model_and_what_bounds_needs_three_runs():
    measured = {
        A100: pack([run(1, watts=200, bound=80), run(2, watts=300, bound=60), run(3)]),
        H100: pack([run(4, watts=500, bound=70)]),
    }

    found = use_of(measured)

    assert found.watts == {A100: 250.0, H100: 500.0}
    assert found.bound == pytest.approx(0.7)
    assert use(run(1, bound=80), run(2, bound=60)).bound is None


def test_of_what_was_not_measured_nothing_is_known():
    assert use_of({}) is None
    assert use_of({A100: b""}) is None


def test_runs_merge_as_sets_in_any_order_and_the_newest_stay():
    many = [run(number) for number in range(MOST_DEVICE_RUNS + 5)]
    one, other = pack(many[:30]), pack(many[20:])

    together = merged_device_runs(one, other)

    assert together == merged_device_runs(other, one) == merged_device_runs(together, one)
    assert unpack(together) == tuple(many[5:])


def test_records_keep_them_with_the_runs_and_read_older_ones_without():
    records = {
        "team/k": ClassRecord(measured={A100: pack([run(1), run(2)])}),
        "team/l": ClassRecord(),
    }

    stored = config_map(3, records)

    assert read_shard(stored) == records
    assert "measured" not in stored["data"]["classes"].split("\n")[1]
    both = merged(records["team/k"], ClassRecord(measured={A100: pack([run(3)])}))
    assert unpack(both.measured[A100]) == (run(1), run(2), run(3))


def test_damaged_bytes_are_refused():
    with pytest.raises(ValueError, match="expected a multiple of 15 bytes, got 3"):
        unpack(b"abc")
