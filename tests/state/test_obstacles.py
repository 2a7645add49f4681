"""Which Jobs have a Workload that stands in the way of a move, as the snapshot tells it."""

import pytest

from tests.state.frames import through
from tests.state.objects import PENDING, condition, reserving, state_with, workload
from webhook.api import resources as kinds
from webhook.model.reasons import Obstacle
from webhook.state.pipe import Update, apply_update, changes
from webhook.state.snapshot import Snapshot

JOB = ("team", "train")
OTHER = ("team", "other")
GATE = {"kueue.x-k8s.io/admission-gated-by": "x.dev/y"}
OUR_GATE = {"kueue.x-k8s.io/admission-gated-by": "x.dev/y,kueue-fallback.dev/hold"}
EVICTED = condition("Evicted")


def admitted(second=0, **rest):
    at = {"lastTransitionTime": f"2026-11-21T06:00:{second:02}Z"}
    return reserving(also=(condition("Admitted") | at, *rest.pop("also", ())), **rest)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (workload(conditions=(PENDING,)), None),
        (workload(conditions=(condition("Finished"),)), None),
        (workload(conditions=(PENDING,), job="", annotations=GATE), None),
        (reserving(), Obstacle.QUOTA_RESERVED),
        (admitted(), Obstacle.QUOTA_RESERVED),
        (admitted(also=(EVICTED,)), Obstacle.STOPPING),
        (workload(conditions=(PENDING, EVICTED)), Obstacle.EVICTED),
        (workload(conditions=(PENDING, condition("Requeued", "False"))), Obstacle.BACKOFF),
        (workload(conditions=(PENDING,), active=False), Obstacle.DEACTIVATED),
        (
            workload(conditions=(PENDING, EVICTED, condition("Requeued", "False")), active=False),
            Obstacle.DEACTIVATED,
        ),
        (reserving(active=False), Obstacle.STOPPING),
        (workload(conditions=(PENDING,), annotations=GATE), Obstacle.GATED),
        (workload(conditions=(PENDING,), annotations=OUR_GATE), Obstacle.HELD),
    ],
)
def test_what_a_workload_has_against_it(source, expected):
    found = state_with(source).snapshot(0.0, 0.0).workloads.obstacles

    assert found == ({JOB: expected} if expected else {})


def test_only_jobs_that_we_hold_are_counted_as_held():
    state = state_with(
        workload("a", job="a", conditions=(PENDING,), annotations=GATE),
        workload("b", job="b", conditions=(PENDING,), annotations=OUR_GATE),
    )
    first = state.snapshot(0.0, 0.0).workloads.jobs_on_hold
    again = state.snapshot(1.0, 0.0).workloads.jobs_on_hold

    state.apply(kinds.WORKLOADS, "DELETED", workload("b", job="b"))

    assert (first, again, state.snapshot(2.0, 0.0).workloads.jobs_on_hold) == (
        {"team": 1},
        {"team": 1},
        {},
    )


def test_thousands_that_only_wait_are_not_in_it():
    waiting = (workload(f"wl-{n}", job=f"job-{n}", conditions=(PENDING,)) for n in range(2_000))

    assert state_with(*waiting, reserving()).snapshot(0.0, 0.0).workloads.obstacles == {
        JOB: Obstacle.QUOTA_RESERVED
    }


def test_one_that_was_admitted_a_while_ago_has_been_started():
    state = state_with(admitted(0))
    kept = state.snapshot(0.0, 0.0).workloads.obstacles

    state.apply(kinds.WORKLOADS, "ADDED", admitted(10, name="other", job="other"))
    within = state.snapshot(0.0, 0.0).workloads.obstacles
    state.apply(kinds.WORKLOADS, "MODIFIED", admitted(11, name="other", job="other"))
    after = state.snapshot(0.0, 0.0).workloads.obstacles

    assert (set(kept), set(within), set(after)) == ({JOB}, {JOB, OTHER}, {OTHER})


def test_of_those_that_are_listed_only_the_last_admitted_may_not_have_been_started():
    state = state_with(admitted(0), admitted(30, name="other", job="other"))

    assert set(state.snapshot(0.0, 0.0).workloads.obstacles) == {OTHER}


def test_what_changes_nothing_here_keeps_the_very_object():
    state = state_with(reserving())
    before = state.snapshot(0.0, 0.0)

    state.apply(kinds.WORKLOADS, "ADDED", workload("other", job="other", conditions=(PENDING,)))
    after = state.snapshot(1.0, 0.0)

    assert after.workloads.obstacles is before.workloads.obstacles
    assert "obstacles" not in changes(before, after)


def test_what_runs_and_changes_keeps_it_too():
    state = state_with(admitted(0), admitted(30, name="other", job="other"))
    before = state.snapshot(0.0, 0.0).workloads.obstacles

    state.apply(
        kinds.WORKLOADS, "MODIFIED", admitted(0, also=(condition("PodsReady"),), priority=1)
    )

    assert state.snapshot(1.0, 0.0).workloads.obstacles is before


@pytest.mark.parametrize("event", ["MODIFIED", "DELETED"])
def test_one_that_is_over_is_taken_out_and_the_server_learns_of_it(event):
    state = state_with(reserving(), reserving("second", job="other"))
    before = state.snapshot(0.0, 0.0)
    shown = apply_update(Snapshot(), through(Update(changed=changes(None, before))))

    state.apply(kinds.WORKLOADS, event, workload(conditions=(PENDING,)))
    update = through(Update(changed=changes(before, state.snapshot(1.0, 0.0))))

    assert shown.workloads.obstacles == {
        JOB: Obstacle.QUOTA_RESERVED,
        OTHER: Obstacle.QUOTA_RESERVED,
    }
    assert apply_update(shown, update).workloads.obstacles == {OTHER: Obstacle.QUOTA_RESERVED}
    assert before.workloads.obstacles == shown.workloads.obstacles


def test_of_several_workloads_one_speaks_for_the_job_until_none_does():
    state = state_with(reserving(), workload("second", conditions=(PENDING,), annotations=GATE))

    both = state.snapshot(0.0, 0.0).workloads.obstacles
    state.apply(kinds.WORKLOADS, "DELETED", reserving())
    one = state.snapshot(0.0, 0.0).workloads.obstacles

    assert (both, one) == ({JOB: Obstacle.QUOTA_RESERVED}, {JOB: Obstacle.GATED})
