"""The Workloads of one Job, read by the observer's thread alone and only when asked for."""

import threading

import pytest

from tests.state.objects import PENDING, workload
from webhook.console import job_workloads
from webhook.console.job_workloads import JobWorkloads
from webhook.state.workload import read_workload


def found(name, job, created="2026-11-21T06:00:00Z"):
    source = workload(name, job=job, conditions=(PENDING,), created=created)
    return read_workload(source)


LATER = "2026-11-21T07:00:00Z"
ALL = (found("b", "train", LATER), found("a", "train"), found("c", "other"))


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    # For a busy machine: nothing is expected to take that long.
    monkeypatch.setattr(job_workloads, "PATIENCE_SECONDS", 60.0)


class Observer:
    """Publishes again and again, as the observer's own thread does."""

    def __init__(self, jobs):
        self.passes = 0
        self._jobs, self._over = jobs, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _run(self):
        while not self._over.wait(0.005):
            self._jobs.offer(self._all)

    def _all(self):
        self.passes += 1
        return ALL


def test_a_jobs_workloads_come_the_oldest_first():
    jobs = JobWorkloads()
    with Observer(jobs):
        names = [each.name for each in jobs.of("team", "train")]
        none = jobs.of("team", "nobody")

    assert names == ["a", "b"]
    assert none == ()


def test_nobody_looks_while_nobody_asks():
    jobs = JobWorkloads()
    with Observer(jobs) as observer:
        jobs.of("team", "train")
    passes = []

    jobs.offer(lambda: passes.append(1))

    assert observer.passes >= 1
    assert passes == []


def test_many_who_ask_at_once_each_get_their_own():
    jobs = JobWorkloads()
    answers = {}

    def ask(job):
        answers[job] = [each.name for each in jobs.of("team", job)]

    asking = [threading.Thread(target=ask, args=(job,)) for job in ("train", "other", "nobody")]
    with Observer(jobs):
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()

    assert answers == {"train": ["a", "b"], "other": ["c"], "nobody": []}


def test_where_the_observer_is_busy_it_is_not_known(monkeypatch):
    monkeypatch.setattr(job_workloads, "PATIENCE_SECONDS", 0.01)

    assert JobWorkloads().of("team", "train") is None
