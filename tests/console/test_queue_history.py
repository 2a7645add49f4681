"""Who waited over the last day: counted once a minute, bounded, and never made up."""

from tests.builders import arrival, cluster_queue, held, snapshot
from webhook.console.queue_history import STEP_SECONDS, QueueHistory

BEGAN = 1000.0 * STEP_SECONDS


def world(pending, name="gpu-cq"):
    return snapshot(
        cluster_queue(name),
        held={name: held({}, pending=pending)},
        competing={name: (arrival("a"), arrival("b"))},
    )


def counted(*samples):
    """Take each sample of pending so many seconds after the first; None: nothing was known."""
    history = QueueHistory()
    for seconds, pending in samples:
        known = None if pending is None else world(pending)
        history.take({"": known}, BEGAN + seconds)
    return history.series


def test_the_most_that_waited_in_a_step_is_kept_and_all_who_wait_count():
    assert counted((0, 1), (60, 5), (120, 3)) == {("", "gpu-cq"): (7,)}
