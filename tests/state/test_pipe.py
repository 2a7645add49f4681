"""What the observer sends to the servers comes out as it went in."""

import pytest

from tests.builders import arrival, cluster_queue, foreseen, snapshot
from tests.state.frames import through
from webhook.kueue.tree_forecast import wait_for
from webhook.state.pipe import Delta, Update

CELL = ("t4", "nvidia.com/gpu")


# The second is tried now, and again a second after the quota has come free.
@pytest.mark.parametrize(("held", "start"), [("1", 0.0), ("999E", 11.0)])
def test_more_than_fits_into_a_log_is_as_good_as_without_limit(held, start):
    known = foreseen(
        snapshot(cluster_queue(quotas={"t4": {CELL[1]: "99E"}})),
        ("gpu-cq", {"t4": {CELL[1]: held}}, 10.0),
    )

    found = wait_for(known.forecasts["gpu-cq"], "gpu-cq", {CELL: 1}, known.setup, 0.0)

    assert found.seconds == start


def test_a_forecast_that_was_sent_answers_as_before():
    known = foreseen(
        snapshot(cluster_queue(quotas={"t4": {CELL[1]: "4"}})),
        ("gpu-cq", {"t4": {CELL[1]: "3"}}, 10.0),
        waiting=[(arrival("a", {CELL[1]: "2"}), 20.0), (arrival("b", {CELL[1]: "4"}), 5.0)],
    )
    update = Update(changed={"forecasts": Delta(put=known.forecasts)}, forecasts_as_of=3.0)

    sent = through(update).changed["forecasts"].put["gpu-cq"]

    def asked(forecast):
        return [
            wait_for(forecast, "gpu-cq", {CELL: gpus}, known.setup, now)
            for gpus in (1, 2, 4, 5)
            for now in (0.0, 15.0, 100.0)
        ]

    assert asked(sent) == asked(known.forecasts["gpu-cq"])
    assert len({start.seconds for start in asked(sent)}) > 3
