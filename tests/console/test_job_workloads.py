"""The Workloads of one Job, read by the observer's thread alone and only when asked for."""

import threading

import pytest

from hack.waiting import WAIT_SECONDS
from tests.console.publishing import publishing
from tests.state.objects import PENDING, workload
from webhook.console import on_demand
from webhook.console.on_demand import JobWorkloads
from webhook.state.workload import read_workload


def found(name, job, created="2026-11-21T06:00:00Z"):
    source = workload(name, job=job, conditions=(PENDING,), created=created)
    return read_workload(source)


LATER = "2026-11-21T07:00:00Z"
ALL = (found("b", "train", LATER), found("a", "train"), found("c", "other"))


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    monkeypatch.setattr(on_demand, "PATIENCE_SECONDS", WAIT_SECONDS)


def test_a_jobs_workloads_come_the_oldest_first():
    jobs = JobWorkloads()
    with publishing(lambda: jobs.offer(lambda: ALL)):
        names = [each.name for each in jobs.workloads_of("team", "train")]
        none = jobs.workloads_of("team", "nobody")

    assert names == ["a", "b"]
    assert none == ()


def test_nobody_looks_while_nobody_asks():
    jobs, passes = JobWorkloads(), []

    def count():
        passes.append(1)
        return ALL

    jobs.offer(count)
    assert passes == []

    with publishing(lambda: jobs.offer(count)):
        jobs.workloads_of("team", "train")
    looked = len(passes)
    jobs.offer(count)

    assert len(passes) == looked >= 1


def test_many_who_ask_at_once_each_get_their_own():
    jobs = JobWorkloads()
    answers = {}

    def ask(job):
        answers[job] = [each.name for each in jobs.workloads_of("team", job)]

    asking = [threading.Thread(target=ask, args=(job,)) for job in ("train", "other", "nobody")]
    with publishing(lambda: jobs.offer(lambda: ALL)):
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()

    assert answers == {"train": ["a", "b"], "other": ["c"], "nobody": []}


def test_where_the_observer_is_busy_it_is_not_known(monkeypatch):
    monkeypatch.setattr(on_demand, "PATIENCE_SECONDS", 0.01)

    assert JobWorkloads().workloads_of("team", "train") is None
