"""Who waits is forecast while somebody asks, from what the observer's thread counts."""

from tests.console.publishing import publishing
from tests.state.objects import PENDING, named, state_with, workload
from webhook.api import resources as kinds
from webhook.console.on_demand import LineForecasts

UNIX = 1_795_240_800.0


def world():
    pending = [workload(f"w{n}", job=f"j{n}", conditions=(PENDING,)) for n in range(3)]
    state = state_with(*pending, cpu="8")
    state.replace(kinds.FLAVORS, [named("ResourceFlavor", "a100", spec={})])
    return state, state.snapshot(100.0, UNIX)


def test_it_is_forecast_when_asked_and_serves_for_a_while():
    state, counted = world()
    now = [101.0]
    asked = []

    def contents(name):
        asked.append(name)
        return state.contents_of(name)

    line = LineForecasts(clock=lambda: now[0], unix=lambda: UNIX + 1)
    with publishing(lambda: line.offer(counted, contents)):
        first, again = line.waiting(), line.waiting()
        once = len(asked)
        now[0] += 2.5
        later = line.waiting()
    assert (once, len(asked)) == (1, 2)
    assert [each.workload.job for each in first] == ["j0", "j1", "j2"]
    assert first == again
    # A state of a second ago is forecast from then on.
    assert first[2].start.seconds - later[2].start.seconds == 2.5


def test_nothing_is_counted_while_nobody_asks():
    _, counted = world()
    line = LineForecasts(clock=lambda: 0.0, unix=lambda: UNIX)

    line.offer(counted, lambda name: 1 / 0)


def test_before_the_first_state_it_is_not_known():
    state, _ = world()
    line = LineForecasts(clock=lambda: 0.0, unix=lambda: UNIX)
    with publishing(lambda: line.offer(None, state.contents_of)):
        assert line.waiting() is None
