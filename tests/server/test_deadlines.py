"""Connections come up when their time is up, however often it was moved."""

import math
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from webhook.server.connections import Deadlines


def connection(number=0):
    return SimpleNamespace(number=number, deadline=math.inf, scheduled=math.inf, closed=False)


@given(moves=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50) | st.none()), max_size=40))
def test_overdue_are_exactly_those_whose_last_deadline_has_passed(moves):
    deadlines, connections, expected = Deadlines(), [connection(n) for n in range(4)], {}

    for number, at in moves:
        if at is None:
            deadlines.clear(connections[number])
        else:
            deadlines.set(connections[number], at)
        expected[number] = at
    overdue = [found.number for found in deadlines.overdue(25)]

    assert sorted(overdue) == sorted(n for n, at in expected.items() if at is not None and at <= 25)
    assert all(deadlines.next_at() <= at for at in expected.values() if at and at > 25)


def test_a_closed_connection_does_not_come_up():
    deadlines, conn = Deadlines(), connection()
    deadlines.set(conn, 1)

    conn.closed = True

    assert list(deadlines.overdue(2)) == []


def test_deadlines_that_move_away_leave_one_entry():
    deadlines, conn = Deadlines(), connection()

    for at in range(1000):
        deadlines.set(conn, at)

    assert len(deadlines) == 1
