"""Which cuts would have saved waiting, by replays small enough to follow by hand."""

from hypothesis import given
from hypothesis import strategies as st

from webhook.cost.geometries import WHOLE, geometry
from webhook.hindsight import repartition
from webhook.hindsight.repartition import DeviceDemand, advise
from webhook.model.costs.device_table import DEVICES

GIB, HOUR, DAY = 1 << 30, 3600.0, 86_400.0
A100 = DEVICES["NVIDIA-A100-SXM4-80GB"]
ONE, THREE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
SEVENTHS, HALVES = geometry({ONE: 7}), geometry({THREE: 2})


def asked(need, *, times=1, every=HOUR, seconds=HOUR, begin=0.0, devices=1):
    return [DeviceDemand(begin + every * n, seconds, need, devices) for n in range(times)]


def test_a_gang_needs_whole_devices_at_once():
    gangs = asked(None, times=40, every=HOUR, devices=4)

    advice = advise(A100, {WHOLE: 3, HALVES: 5}, gangs)

    assert advice.after[WHOLE] >= 4
    assert advice.then.waited == 0


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
