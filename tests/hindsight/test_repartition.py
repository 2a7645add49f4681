"""Which cuts would have saved waiting, by replays small enough to follow by hand."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.cost.geometries import WHOLE, geometry
from webhook.hindsight import repartition
from webhook.hindsight.repartition import DeviceDemand, advise, waits_of
from webhook.model.costs.device_table import DEVICES

GIB, HOUR, DAY = 1 << 30, 3600.0, 86_400.0
A100 = DEVICES["NVIDIA-A100-SXM4-80GB"]
ONE, THREE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
SEVENTHS, HALVES = geometry({ONE: 7}), geometry({THREE: 2})


def asked(need, *, times=1, every=HOUR, seconds=HOUR, begin=0.0, devices=1):
    return [DeviceDemand(begin + every * n, seconds, need, devices) for n in range(times)]


def test_small_jobs_that_wait_for_whole_devices_get_slices():
    small = asked(4 * GIB, times=400, every=600.0)

    advice = advise(A100, {WHOLE: 2}, small)

    assert advice.after == {SEVENTHS: 1, WHOLE: 1} or advice.after.get(SEVENTHS, 0) >= 1
    assert advice.now.waited > 100
    assert advice.then.waited == 0
    assert (advice.saved, advice.why_not) == (1.0, "")


def test_slices_that_nobody_uses_become_whole_while_jobs_wait_for_whole_ones():
    whole = asked(None, times=300, every=1200.0)

    advice = advise(A100, {WHOLE: 1, SEVENTHS: 2}, whole)

    assert advice.after == {WHOLE: 3}
    assert advice.then.waited == 0
    assert advice.now.fragmentation == 1.0


def test_where_nobody_waits_nothing_is_to_be_gained():
    advice = advise(A100, {WHOLE: 4}, asked(None, times=10))

    assert (advice.after, advice.why_not) == ({WHOLE: 4}, "nobody waited")


def test_without_jobs_nothing_is_to_be_gained():
    assert advise(A100, {WHOLE: 4}, []).why_not == "nobody waited"


def test_what_would_help_in_one_half_alone_is_not_advised():
    small = asked(4 * GIB, times=400, every=300.0)
    whole = asked(None, times=200, every=1700.0, begin=2 * DAY)

    advice = advise(A100, {WHOLE: 1, SEVENTHS: 1}, [*small, *whole])

    assert advice.after == {WHOLE: 1, SEVENTHS: 1}
    assert advice.why_not


def test_who_could_never_start_is_a_reason_to_change():
    advice = advise(A100, {SEVENTHS: 2}, asked(30 * GIB, times=50, every=4 * HOUR))

    assert advice.now.waited == inf
    assert advice.then.waited == 0


def test_a_gang_needs_whole_devices_at_once():
    gangs = asked(None, times=40, every=HOUR, devices=4)

    advice = advise(A100, {WHOLE: 3, HALVES: 5}, gangs)

    assert advice.after[WHOLE] >= 4
    assert advice.then.waited == 0


def test_waits_are_counted_in_device_hours_by_the_day_on_which_jobs_came():
    demands = asked(None, times=2, every=0.0) + asked(None, begin=DAY)

    waits = waits_of(A100, {WHOLE: 1}, demands)

    assert (waits.waited, waits.by_day) == (1.0, {0: 1.0, 1: 0.0})
    assert waits.free == pytest.approx(22.0)


needs = st.sampled_from([4 * GIB, 15 * GIB, 30 * GIB, None])
jobs = st.builds(
    DeviceDemand,
    st.floats(0, 7 * DAY),
    st.floats(60, 6 * HOUR),
    needs,
)


@given(st.lists(jobs, max_size=40), st.integers(1, 3), st.integers(0, 3))
def test_advice_never_makes_jobs_wait_longer_and_keeps_the_devices(demands, whole, sliced):
    before = {way: n for way, n in ((WHOLE, whole), (SEVENTHS, sliced)) if n}

    advice = advise(A100, before, demands)

    assert sum(advice.after.values()) == whole + sliced
    assert advice.then.waited <= advice.now.waited
    assert advice.why_not or advice.saved >= repartition.WORTH
