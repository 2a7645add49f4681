"""How large the journal grows in a cluster of 20,000 Jobs a day."""

import json

from tests.controller.journals import ENDED, NAMESPACE, WORLD, over
from tests.controller.many_jobs import Day
from tests.controller.objects import Objects
from webhook.hindsight.journal import MOST_ENTRIES, read_slot
from webhook.hindsight.journal_keeper import GRACE_SECONDS, WRITE_SECONDS, Journal

MIB = 1 << 20


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
