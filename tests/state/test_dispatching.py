"""Workloads that AdmissionChecks hold back, as the state of a cluster shows them."""

import pytest

from tests.state.dispatched import NOON, moment, sent
from tests.state.objects import condition, reserving, state_with, workload
from webhook.api import resources as kinds
from webhook.model.forecasts import Dispatch


def told(state):
    return state.snapshot(1000.0, NOON).learned.dispatches


def test_one_that_waits_is_told_from_its_reservation_on():
    state = state_with(sent("w1", "11:59:00"), sent("w2", "11:55:00"))

    assert told(state) == {"gpu-cq": Dispatch(waiting_since=700.0)}


def test_one_that_was_dispatched_teaches_how_long_that_took():
    state = state_with(sent("w1", "11:55:00"))
    told(state)
    state.apply(kinds.WORKLOADS, "MODIFIED", sent("w1", "11:55:00", "11:56:00"))

    found = told(state)["gpu-cq"]

    assert (found.learned.seconds, found.learned.runs) == (pytest.approx(60), 1)
    assert (found.least, found.waiting_since) == (60, None)


def test_those_that_run_teach_it_again_after_a_restart():
    state = state_with(sent("w1", "11:55:00", "11:56:00"))

    assert told(state)["gpu-cq"].learned.seconds == pytest.approx(60)


def test_one_that_is_gone_waits_no_more():
    state = state_with(sent("w1", "11:55:00"))
    told(state)
    state.apply(kinds.WORKLOADS, "DELETED", sent("w1", "11:55:00"))

    assert told(state) == {}


def test_what_happens_elsewhere_changes_nothing():
    state = state_with(sent("w1", "11:55:00"))
    before = told(state)
    state.apply(kinds.WORKLOADS, "ADDED", reserving("w2", to="cpu-cq"))

    assert told(state) is before


def test_pods_that_became_ready_teach_how_long_that_takes():
    ready = moment(condition("PodsReady", reason="Started"), "11:56:40")
    source = sent("w1", "11:55:00", "11:56:00")
    source["status"]["conditions"].append(ready)

    found = state_with(source).snapshot(1000.0, NOON).learned.start_delays

    assert found["", "a100"].seconds == pytest.approx(40)


def test_those_that_got_quota_are_listed_once():
    state = state_with(sent("w1", "11:55:00", job="a"), workload("w2", job="b"), reserving("w3"))
    first = state.take_reserved()
    state.apply(kinds.WORKLOADS, "MODIFIED", sent("w1", "11:55:00", "11:56:00", job="a"))
    state.apply(kinds.WORKLOADS, "MODIFIED", sent("w2", "11:57:00", job="b"))

    # Of the third, nothing beside quota decides where it runs.
    assert [each.job_name for each in first] == ["a"]
    assert [each.job_name for each in state.take_reserved()] == ["b"]
    assert state.take_reserved() == ()
