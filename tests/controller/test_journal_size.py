"""How large the journal grows in a cluster of 20,000 Jobs a day."""

import json
import multiprocessing
import tracemalloc
from concurrent.futures import ProcessPoolExecutor

from hack.waiting import WAIT_SECONDS
from tests.controller.journals import ENDED, NAMESPACE, WORLD, over
from tests.controller.many_jobs import Day
from tests.controller.objects import Objects
from webhook.hindsight import journal
from webhook.hindsight.journal import MOST_ENTRIES, read_slot
from webhook.hindsight.journal_keeper import GRACE_SECONDS, WRITE_SECONDS, Journal

MIB = 1 << 20
STRINGS = 3e6
"""Bytes by which Python's table of all strings may happen to grow meanwhile."""


class Keeping:
    """A journal that is told of a whole day before it writes for the first time."""

    def __init__(self, day):
        self.server, self.unix = Objects(), float(ENDED)
        self.journal = Journal(
            self.server, NAMESPACE, is_leader=lambda: True, unix=lambda: self.unix
        )
        for number in range(day.jobs):
            self.journal.take_jobs(day.known(number))
        for number in range(day.jobs):
            self.journal.take_over(over(day.past(number)))

    def write(self):
        """Look until all is written."""
        self.unix += GRACE_SECONDS
        looks = iter(range(100))
        while self.journal.step(WORLD, next(looks) * WRITE_SECONDS).written:
            pass
        return [read_slot(each) for each in self.server.held.values()]

    def largest(self):
        return max(len(json.dumps(each)) for each in self.server.held.values())


def test_the_fullest_hour_that_is_kept_stays_under_1_mib():
    keeping = Keeping(Day(MOST_ENTRIES + 50, seconds=3_000))

    (slot,) = keeping.write()

    assert (len(slot.entries), slot.left_out) == (MOST_ENTRIES, 50)
    assert keeping.largest() < 0.9 * MIB


def test_each_job_costs_less_than_5_kb_at_any_moment():
    """So that 20,000 cost less than 100 MB, and less than 30 MB once all are written.

    To trace all of them takes a quarter of a minute.
    """
    kept, peak = alone(cost_of_keeping, 2_000)

    assert peak < STRINGS + 2_000 * 5e3
    assert kept < STRINGS + 2_000 * 1.5e3


def cost_of_keeping(jobs):
    day = Day(jobs)
    tracemalloc.start()
    keeping = Keeping(day)
    keeping.write()
    return tracemalloc.get_traced_memory()


def test_what_is_read_again_of_a_day_costs_less_than_2_kb_each():
    """So that 20,000 cost a report less than 40 MB, and the newest 5,000 the controller 10 MB."""
    read, kept, peak = alone(cost_of_reading, 2_000)

    assert read == 2_000
    assert kept < 2_000 * 2e3
    assert peak < 2_000 * 3e3


def cost_of_reading(jobs):
    keeping = Keeping(Day(jobs))
    keeping.write()
    tracemalloc.start()
    found = journal.newest(keeping.server, NAMESPACE, float(ENDED), jobs)
    return len(found.entries), *tracemalloc.get_traced_memory()


def alone(measure, jobs):
    """Measure in a new process, where no other test has a part in it."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, jobs).result(timeout=WAIT_SECONDS)
