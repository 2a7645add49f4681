"""What a stranger's objects hold is forgotten with them: memory is flat, however many come."""

import gc
import tracemalloc

import pytest

from tests.fuzz.controlling import Controlled
from tests.fuzz.objects import OVER, PENDING, TENANT, stored_job, workload
from tests.fuzz.observing import Observed
from tests.fuzz.values import LIKELY
from tests.reviews import review
from webhook.api import resources as kinds

LONG = 30_000
"""Characters of each mark; seven of them are as many as annotations may have."""
FIRST, MORE = 4, 6
KEPT = 0.25
"""The part of what came later that may stay: keys, digests and counts, not texts."""


@pytest.fixture
def traced():
    tracemalloc.start()
    yield
    tracemalloc.stop()


def marks(number):
    """Marks that nobody else has; half of them are of a form that is read."""
    text = f"{number:08d}" * (LONG // 8)
    found = dict.fromkeys(LIKELY, text)
    return found | {"kueue-fallback.dev/class": f"{text} ~{text} {number}"}


def grown(act):
    """Tell how many bytes more are held after many rounds than after the first ones.

    The less of two times: threads of other tests may end, or caches fill, during one of them.
    """
    for number in range(FIRST):
        act(number)
    return min(_grown(act, range(start, start + MORE)) for start in (FIRST, FIRST + MORE))


def _grown(act, numbers):
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    for number in numbers:
        act(number)
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before


def held(number):
    return sum(map(len, marks(number).values())) * MORE


def bad(number, *conditions):
    found = workload(f"job-bad-{number}", TENANT, "tenant-gpu-cq", *conditions, marks=marks(number))
    found["metadata"] |= {"uid": f"uid-{number}", "annotations": marks(number)}
    return found


def test_the_observer_and_the_server_keep_no_texts_of_workloads_that_are_gone(traced):
    observed = Observed()

    def come_and_go(number):
        for source in (bad(number, *PENDING), bad(number, *OVER)):
            observed.change(kinds.WORKLOADS, "ADDED", source)
            observed.publish()
        observed.change(kinds.WORKLOADS, "DELETED", source)
        observed.publish()

    assert grown(come_and_go) < KEPT * held(0)


def test_the_server_keeps_no_texts_of_jobs_that_it_was_asked_about(traced):
    observed = Observed()

    def ask(number):
        job = stored_job(f"bad-{number}")
        job["metadata"]["annotations"] = marks(number)
        job["spec"]["template"]["metadata"] = {"annotations": marks(number)}
        observed.answer(review(job, namespace=TENANT))
        # The test's own server remembers everything.
        observed.server.considered.clear()
        observed.server.log.seek(0)
        observed.server.log.truncate()
        observed.pass_time(60.0)
        observed.publish()

    assert grown(ask) < KEPT * held(0)


def test_the_controller_keeps_no_texts_of_jobs_and_workloads_that_are_gone(traced, monkeypatch):
    controlled = Controlled(monkeypatch)

    def come_and_go(number):
        job = stored_job(f"bad-{number}")
        job["metadata"]["annotations"] = marks(number)
        controlled.change_job("ADDED", job)
        controlled.change_workload("ADDED", bad(number, *OVER))
        controlled.turn()
        controlled.change_job("DELETED", job)
        controlled.change_workload("DELETED", bad(number, *OVER))
        controlled.turn()

    try:
        assert grown(come_and_go) < KEPT * held(0)
    finally:
        controlled.controller.leadership.stop()
