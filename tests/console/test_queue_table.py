"""The dense table of ClusterQueues: devices first, the busiest at once, a day's history."""

from dataclasses import replace

from tests.console import views
from webhook.console.page import QUEUES_AT_ONCE, queue_table
from webhook.console.queue_history import STEP_SECONDS

NOW = 1000.0 * STEP_SECONDS


def rows(*queues):
    found = queue_table(queues, NOW)
    return [(group.cohort, [row.queue.name for row in group.rows]) for group in found.cohorts]


def row(queue):
    (group,) = queue_table((queue,), NOW).cohorts
    return group.rows[0]


def test_queues_stand_by_cohort_the_busiest_first_and_those_without_one_last():
    found = rows(
        views.queue("alone", pending=90),
        views.queue("a", cohort="idle"),
        views.queue("b", cohort="busy", pending=3),
        views.queue("c", cohort="busy", pending=40),
        views.queue("d", cohort="idle", trouble="stopped (Hold)"),
    )

    assert found == [("idle", ["d", "a"]), ("busy", ["c", "b"]), ("", ["alone"])]


def test_devices_of_all_flavors_stand_together_before_all_else():
    cells = (
        views.cell(resource="cpu", flavor="a100", nominal=64_000),
        views.cell(flavor="a100", nominal=8, reserved=6),
        views.cell(flavor="h100", nominal=4, reserved=6),
    )

    found = row(views.queue(cells=cells))

    assert found.cell == replace(cells[1], nominal=12, reserved=12, borrowed=2, available=2)
    assert found.flavors == "a100, h100"


def test_without_devices_cores_are_shown_and_without_quota_nothing():
    cells = (
        views.cell(resource="memory", nominal=views.GI),
        views.cell(resource="cpu", nominal=8000, reserved=500),
    )

    assert row(views.queue(cells=cells)).cell == cells[1]
    assert row(views.queue(cells=())).cell is None


def test_of_many_the_busiest_are_shown_at_once():
    queues = tuple(
        views.queue(f"q{n:03}", pending=n, cohort="all") for n in range(QUEUES_AT_ONCE + 6)
    )

    found = queue_table(queues, NOW)

    assert (len(found.queues), found.hidden) == (QUEUES_AT_ONCE, 6)
    assert found.queues[-1].name == "q006"
    assert [row.queue.pending for group in found.more for row in group.rows] == [5, 4, 3, 2, 1, 0]
