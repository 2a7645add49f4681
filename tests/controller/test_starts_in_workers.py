"""When a Workload that waits in a worker cluster starts there is forecast with those before it."""

from math import inf

from tests.controller.stepping import at
from tests.controller.waiting_there import NOW, snapshot_of, state_of
from webhook.controller.starts_in_workers import STEP_SECONDS, StartsInWorkers


class Clusters:
    """The watches of one worker cluster."""

    def __init__(self, state):
        self.state = state

    def counted(self):
        return {"near": snapshot_of(self.state), "new": None}

    def contents_of(self, cluster, queue):
        assert cluster == "near"
        return self.state.contents_of(queue)


def found(starts, seconds, name, cluster="near"):
    return starts.of(cluster, ("team", name), at(seconds, NOW + seconds))


def test_each_starts_after_those_before_it():
    starts = StartsInWorkers(Clusters(state_of("a", "b")))

    # A run of 100 s, and a second until Kueue has seen its end.
    assert [found(starts, 0.0, name) for name in ("a", "b")] == [101.0, 202.0]
    assert found(starts, 5.0, "a") == 96.0
    assert found(starts, 0.0, "elsewhere") is None
    assert found(starts, 0.0, "a", cluster="new") is None


def test_what_never_fits_starts_never():
    starts = StartsInWorkers(Clusters(state_of("a", cpu="3")))

    assert found(starts, 0.0, "a") == inf


def test_a_forecast_is_made_again_after_some_time():
    clusters = Clusters(state_of("a"))
    starts = StartsInWorkers(clusters)
    assert found(starts, 0.0, "a") == 101.0
    clusters.state = state_of("b", "a")

    assert found(starts, STEP_SECONDS - 1, "b") is None
    # Much later than the forecast could have taken.
    assert found(starts, 600.0, "b") is not None
