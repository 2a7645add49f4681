"""Who waited over the last day: counted once a minute, bounded, and never made up."""

from tests.builders import arrival, cluster_queue, held, snapshot
from webhook.console.queue_history import STEP_SECONDS, STEPS, QueueHistory
from webhook.state.feed import Counted

BEGAN = 1000.0 * STEP_SECONDS


def world(pending, name="gpu-cq"):
    found = snapshot(
        cluster_queue(name),
        held={name: held({}, pending=pending)},
        competing={name: (arrival("a"), arrival("b"))},
    )
    return Counted(snapshot=found, admitted={}, profiles={})


def counted(*samples):
    """Take each sample of pending so many seconds after the first; None: nothing was known."""
    history = QueueHistory()
    for seconds, pending in samples:
        known = None if pending is None else world(pending)
        history.take({"": known}, BEGAN + seconds)
    return history.series


def test_the_most_that_waited_in_a_step_is_kept_and_all_who_wait_count():
    assert counted((0, 1), (60, 5), (120, 3)) == {("", "gpu-cq"): (7,)}


def test_it_counts_once_a_minute():
    assert counted((0, 1), (59, 50)) == {("", "gpu-cq"): (3,)}


def test_each_step_has_a_place_of_its_own_and_one_in_which_nobody_counted_is_none():
    found = counted((0, 1), (STEP_SECONDS, 4), (3 * STEP_SECONDS, 0))

    assert found == {("", "gpu-cq"): (3, 6, None, 2)}


def test_a_day_is_kept():
    found = counted(*((number * STEP_SECONDS, number) for number in range(STEPS + 5)))

    assert found["", "gpu-cq"] == tuple(range(7, STEPS + 7))


def test_a_queue_that_is_gone_is_forgotten_and_a_new_one_begins_now():
    history = QueueHistory()
    history.take({"": world(1)}, BEGAN)
    history.take({"": world(1, "new"), "worker-1": world(5), "worker-2": None}, BEGAN + 4000)

    assert history.series == {("", "new"): (3,), ("worker-1", "gpu-cq"): (7,)}


def test_a_clock_that_is_set_back_adds_no_steps_and_keeps_nothing_from_being_counted():
    assert counted((5 * STEP_SECONDS, 1), (0, 4)) == {("", "gpu-cq"): (6,)}
