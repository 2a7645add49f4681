"""The console's server is started again, however often its address is lost."""

import pytest

from webhook.console.console import serve_again


class EndError(Exception):
    """No more is asked of the loop."""


def faults_of(*served):
    """Fail each time after so many seconds with this text; return what was said, and the waits."""
    said, waits, left, now = [], [], list(served), [0.0]

    def serve():
        if not left:
            raise EndError
        seconds, text = left.pop(0)
        now[0] += seconds
        raise OSError(text)

    with pytest.raises(EndError):
        serve_again(
            serve, lambda error: said.append(str(error)), clock=lambda: now[0], sleep=waits.append
        )
    return said, waits


def test_a_fault_that_stays_is_named_once_and_waited_for_ever_longer():
    said, waits = faults_of(*[(0, "in use")] * 6)

    assert said == ["in use"]
    for found, most in zip(waits, (0.5, 1, 2, 4, 8, 10), strict=True):
        assert 0.8 * most <= found <= most


def test_a_fault_that_comes_back_after_hours_is_named_and_begins_with_a_short_wait():
    said, waits = faults_of(*[(0, "in use")] * 6, (3600, "in use"), (0, "in use"))

    assert said == ["in use", "in use"]
    assert waits[6] <= 0.5
    assert 0.8 <= waits[7] <= 1
