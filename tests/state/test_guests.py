"""Guests count in the option whose queue they are in, whatever their marks say."""

import pytest

from tests.builders import policy
from tests.state.objects import PENDING, cluster_queue, counted, local_queue, reserving, workload
from webhook.api import resources as kinds
from webhook.api.resources import ReadObject
from webhook.state.state import State

HOME = {"name": "home", "queue": "gpu-lq"}
AWAY = {"name": "away", "queue": "cpu-lq"}
MARK = ("p", "home")


def state_with(*workloads):
    """Two ClusterQueues, each with a LocalQueue, and these Workloads."""
    state = State()
    state.replace(kinds.CLUSTER_QUEUES, [cluster_queue("gpu-cq"), cluster_queue("cpu-cq")])
    queues = [local_queue("gpu-lq", "gpu-cq"), local_queue("cpu-lq", "cpu-cq")]
    state.replace(kinds.LOCAL_QUEUES, queues)
    state.replace(kinds.WORKLOADS, workloads)
    return state


def adopt(state, *options):
    value = policy(*options, name="p") if options else None
    state.apply_read(kinds.POLICIES, "MODIFIED", ReadObject(("", "p"), value))


def guests(state):
    found = counted(state.snapshot(1.0, 0.0))
    return {name: dict(held.guests) for name, held in found.items() if held.guests}


@pytest.mark.parametrize(
    "moved",
    [
        workload(queue="cpu-lq", conditions=(PENDING,), guest=MARK),
        reserving(queue="cpu-lq", to="cpu-cq", guest=MARK),
    ],
    ids=["pending", "reserving"],
)
@pytest.mark.parametrize("target", [AWAY, {"name": "away", "clusterQueue": "cpu-cq"}])
def test_a_job_whose_queue_alone_was_moved_is_a_guest_where_it_is(moved, target):
    state = state_with(moved)
    adopt(state, HOME, target)

    assert guests(state) == {"cpu-cq": {("p", "away", "team"): 1}}


def test_a_mark_that_fits_the_queue_stands_though_another_option_has_the_queue_too():
    state = state_with(workload(queue="gpu-lq", conditions=(PENDING,), guest=MARK))
    adopt(state, {**HOME, "name": "other"}, HOME, AWAY)

    assert guests(state) == {"gpu-cq": {(*MARK, "team"): 1}}


def test_a_mark_stands_where_the_policy_has_no_option_with_that_queue():
    state = state_with(workload(queue="gpu-lq", conditions=(PENDING,), guest=("p", "gone")))
    adopt(state, AWAY)

    assert guests(state) == {"gpu-cq": {("p", "gone", "team"): 1}}


def test_a_job_of_no_policy_is_nobodys_guest():
    state = state_with(workload(queue="cpu-lq", conditions=(PENDING,)))
    adopt(state, HOME, AWAY)

    assert guests(state) == {}


def test_guests_are_counted_anew_when_the_policys_options_change():
    moved = workload("a", queue="cpu-lq", conditions=(PENDING,), guest=MARK)
    stayed = reserving("b", queue="gpu-lq", to="gpu-cq", guest=MARK)
    state = state_with(moved, stayed)
    before = guests(state)

    adopt(state, HOME, AWAY)
    known = guests(state)
    adopt(state, HOME, {**AWAY, "name": "renamed"})
    renamed = guests(state)
    adopt(state)
    gone = guests(state)

    assert known == {"gpu-cq": {(*MARK, "team"): 1}, "cpu-cq": {("p", "away", "team"): 1}}
    assert renamed == {"gpu-cq": {(*MARK, "team"): 1}, "cpu-cq": {("p", "renamed", "team"): 1}}
    assert before == gone == {"gpu-cq": {(*MARK, "team"): 1}, "cpu-cq": {(*MARK, "team"): 1}}


def test_guests_are_counted_anew_when_their_local_queue_leads_elsewhere():
    state = state_with(workload(queue="cpu-lq", conditions=(PENDING,), guest=MARK))
    adopt(state, {"name": "home", "clusterQueue": "gpu-cq"}, {"name": "away", "queue": "cpu-lq"})
    before = guests(state)

    state.apply(kinds.LOCAL_QUEUES, "MODIFIED", local_queue("cpu-lq", "gpu-cq"))

    assert before == {"cpu-cq": {("p", "away", "team"): 1}}
    assert guests(state) == {"gpu-cq": {(*MARK, "team"): 1}}
