"""Who waits is forecast while somebody asks, from what the observer's thread counts."""

import threading

from tests.state.objects import PENDING, named, state_with, workload
from webhook.api import resources as kinds
from webhook.console.line_forecasts import LineForecasts
from webhook.state.feed import Counted

UNIX = 1_795_240_800.0


class Observer:
    """Publishes again and again, as the observer's own thread does."""

    def __init__(self, line, counted, state):
        self.asked = 0
        self._line, self._counted, self._state = line, counted, state
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _run(self):
        while not self._over.wait(0.01):
            self._line.offer(self._counted, self._contents)

    def _contents(self, name):
        self.asked += 1
        return self._state.contents_of(name)


def world():
    pending = [workload(f"w{n}", job=f"j{n}", conditions=(PENDING,)) for n in range(3)]
    state = state_with(*pending, cpu="8")
    state.replace(kinds.FLAVORS, [named("ResourceFlavor", "a100", spec={})])
    return state, Counted(snapshot=state.snapshot(100.0, UNIX), admitted={}, profiles={})


def test_it_is_forecast_when_asked_and_serves_for_a_while():
    state, counted = world()
    now = [101.0]
    line = LineForecasts(clock=lambda: now[0], unix=lambda: UNIX + 1)
    with Observer(line, counted, state) as observer:
        first, again = line.waiting(), line.waiting()
        asked = observer.asked
        now[0] += 2.5
        later = line.waiting()

        assert observer.asked == 2
    assert asked == 1
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
    with Observer(line, None, state):
        assert line.waiting() is None
