"""What those use who are not held: as it is now, and by and by as it usually is."""

import math

import pytest

from webhook.learn.others_use import OthersUse, ReleasedJob
from webhook.model.queues import Held

GPU = ("t4", "nvidia.com/gpu")
CELL = ("gpu-cq", GPU)
HOUR = 3600.0
NOON = 12 * HOUR


def using(gpus):
    return {"gpu-cq": Held(usage={GPU: gpus})}


def test_what_others_use_is_learned_by_the_hour_without_what_was_released():
    others = OthersUse()
    others.note(using(6), NOON)
    first = list(others.typical[CELL])
    others.released.append(ReleasedJob(NOON + HOUR, "gpu-cq", {GPU: 2}))
    others.note(using(8), NOON + 60)
    kept = others.typical[CELL][12]
    others.note(using(8), NOON + 2 * HOUR)

    assert first == [6.0] * 24
    assert kept == 6.0
    assert others.typical[CELL][14] == pytest.approx(6.04)
    assert others.released == []


def test_an_idle_queue_is_noted_too():
    others = OthersUse()
    others.note(using(6), NOON)
    others.note({"gpu-cq": Held()}, NOON + HOUR)

    assert others.present == {CELL: 0.0}
    assert others.typical[CELL][13] == pytest.approx(5.88)


def test_of_what_nobody_was_seen_to_use_nothing_is_expected():
    assert OthersUse().expected(CELL, NOON, NOON) == 0.0


@pytest.mark.parametrize(
    ("hours", "want"),
    [
        (0.0, 16.0),
        # A third of the six more than usual is left then.
        (2.0, 10 + 6 / math.e),
        (24.0, 10.0),
    ],
)
def test_the_present_fades_into_what_is_usual(hours, want):
    others = OthersUse()
    others.typical[CELL] = [10.0] * 24
    others.present = {CELL: 16.0}

    assert others.expected(CELL, NOON + hours * HOUR, NOON) == pytest.approx(want, rel=1e-4)
