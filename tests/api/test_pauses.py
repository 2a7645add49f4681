"""Rests during long work, on a clock that only work and sleep move on."""

from hypothesis import given
from hypothesis import strategies as st

from webhook.api.watch import REST_SECONDS, WORK_SECONDS, paced


class Clock:
    def __init__(self):
        self.now = self.rested_until = 0.0
        self.rests = []
        self.stretches = []
        """How long each time was worked before a rest."""

    def sleep(self, seconds):
        self.rests.append(seconds)
        self.stretches.append(self.now - self.rested_until)
        self.now += seconds
        self.rested_until = self.now

    def pace(self, items):
        return paced(items, clock=lambda: self.now, sleep=self.sleep)


def test_short_work_is_done_without_a_rest():
    clock = Clock()

    for _ in clock.pace(range(100)):
        clock.now += WORK_SECONDS / 101

    assert clock.rests == []


def test_nothing_is_rested_from_before_there_was_work():
    clock = Clock()
    items = clock.pace("ab")
    clock.now = 10.0

    assert next(items) == "a"
    assert clock.rests == []


@given(st.lists(st.floats(0.0, 3 * WORK_SECONDS)))
def test_each_rest_is_deserved_and_none_comes_more_than_an_item_late(works):
    clock = Clock()
    for work in clock.pace(works):
        clock.now += work

    a_bit = WORK_SECONDS / 1000
    longest = WORK_SECONDS + max(works, default=0.0) + a_bit
    assert set(clock.rests) <= {REST_SECONDS}
    assert all(WORK_SECONDS - a_bit <= stretch <= longest for stretch in clock.stretches)
    assert clock.now - clock.rested_until <= longest


@given(st.lists(st.integers()))
def test_all_items_come_in_their_order(items):
    assert list(Clock().pace(items)) == items
